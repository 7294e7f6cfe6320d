package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/choria-io/go-choria/config"
	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/protocol"
	"github.com/choria-io/go-choria/server/agents"
)

// What follows serves nodes that are no processes of the fleet: they use its broker, its tokens and its kind of log.

// Guest is what such a node needs to enter the provisioning account.
type Guest struct {
	// Config, Facts and Identity are the paths of its server.conf, which does not exist yet, of its facts, and of a
	// configuration file that holds its name alone.
	Config, Facts, Identity string
	// Token is its provisioning token, as the jwt action hands it out, and TokenFile the file that holds it.
	Token, TokenFile string
	// Secret is what the provision agent asks for with each request.
	Secret string
	// X509 tells that requests are of protocol 1.
	X509 bool
	// Executable is the file that an upgrade swaps, empty where the fleet has no versions; Version is what it reports.
	Executable, Version string
}

// AddGuest writes into dir, which is made, what a node of that name needs; i varies its facts.
func (f *Fleet) AddGuest(dir, name string, i int, allowUpdate bool) (Guest, error) {
	g := Guest{
		Config: filepath.Join(dir, serverConfig), Facts: filepath.Join(dir, factsFile), TokenFile: filepath.Join(dir, provisionFile),
		Identity: filepath.Join(dir, identityFile), Secret: f.keys.nodeToken, X509: f.opts.X509, Version: f.opts.Version,
	}
	if !nodeName.MatchString(name) {
		return g, fmt.Errorf("%w: a node is named %q; use letters, digits, dots and dashes, 120 at most", ErrOptions, name)
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = f.writeIdentity(dir, name, i, allowUpdate)
	}
	if err == nil {
		err = os.WriteFile(g.Identity, []byte("identity="+name+"\n"), 0o600)
	}
	if err == nil && g.Version != "" {
		g.Executable = filepath.Join(dir, executableFile)
		err = writeExecutable(g.Executable, release(g.Version, f.opts.NodeCommand))
	}
	var token []byte
	if err == nil {
		token, err = os.ReadFile(g.TokenFile)
	}
	if err != nil {
		return g, fmt.Errorf("preparing %s in %s: %w", name, dir, err)
	}
	g.Token = string(token)
	return g, nil
}

// EffectLog is a node's effect log for writing.
type EffectLog struct{ log *effectLog }

// OpenEffectLog opens the log in dir; one that exists is continued.
func OpenEffectLog(dir string) (*EffectLog, error) {
	log, err := openEffectLog(dir)
	if err != nil {
		return nil, err
	}
	return &EffectLog{log}, nil
}

// Append writes one entry, with the present time. It is with the kernel when Append returns, which a kill does not undo.
func (l *EffectLog) Append(e Entry) error { return l.log.append(e) }

// Close ends the writing.
func (l *EffectLog) Close() error {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	if err := l.log.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("closing the effect log: %w", err)
	}
	return nil
}

// ReadEffectLog reads the log in dir, oldest entry first; a missing one is empty.
func ReadEffectLog(dir string) ([]Entry, error) { return readEffects(dir) }

// RemoveEffectLog removes the log in dir.
func RemoveEffectLog(dir string) error {
	if err := os.Remove(filepath.Join(dir, effectsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the effect log: %w", err)
	}
	return nil
}

// BootMode is how a server comes up that finds that server.conf: a missing one, one that enables provisioning, or one
// whose token and seed do not make an identity lead back into provisioning, where token and seed are removed.
func BootMode(path string) (Mode, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return Provisioning, nil
	}
	cfg, err := config.NewSystemConfig(path, true)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if reprovision(cfg) == "" {
		return Provisioned, nil
	}
	forget(cfg)
	return Provisioning, nil
}

// AgentAction reads the action of an RPC request, empty for what is none.
func AgentAction(payload []byte) string { return actionOf(payload) }

// Leaves tells whether the server leaves after that action's success and holds its action mutex until then.
func Leaves(action string) bool { return slices.Contains(leaving, action) }

// StatusOf reads code and message from an agent's reply; NoStatus where there is none.
func StatusOf(reply *agents.AgentReply) (code int, text string) { return statusOf(reply) }

// AnswerBody is the RPC reply of an Answer fault.
func AnswerBody(action string, f Fault) []byte { return answerBody(action, f) }

// AlteredReply is what is published in place of sender's reply with that body; empty for a fault that publishes nothing.
func AlteredReply(fw inter.Framework, req protocol.Request, sender string, a Alteration, body []byte) ([]byte, error) {
	if a.Wire != nil {
		return a.Wire, nil
	}
	if a.Body != nil {
		body = a.Body
	}
	return alteredReply(fw, req, sender, a, body)
}

// Faults are faults that wait for their requests, oldest first. The zero value has none.
type Faults struct{ rules rules }

// Add lets f befall the next f.Times requests of that action on that node; Any stands for all.
func (s *Faults) Add(node, action string, f Fault) { s.rules.add(node, action, f) }

// Clear forgets every fault that has not come to pass.
func (s *Faults) Clear() { s.rules.clear() }

// Next takes the fault that befalls a request, none for the zero value.
func (s *Faults) Next(node, action string) Fault { return s.rules.match(node, action) }
