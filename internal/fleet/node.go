package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/choria-io/go-choria/build"
	"github.com/choria-io/go-choria/server"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"
)

// ErrFleetGone is returned by NodeMain when its fleet ended: a node does not outlive it.
var ErrFleetGone = errors.New("the node's fleet is gone")

const (
	specFile      = "node.json"
	serverConfig  = "server.conf"
	identityFile  = "identity.conf"
	provisionFile = "provisioning.jwt"
	factsFile     = "facts.json"
)

// nodeSpec is what the fleet tells a node through a file in its directory.
type nodeSpec struct {
	Name      string        `json:"name"`
	RealSplay bool          `json:"real_splay"`
	Splay     time.Duration `json:"splay"`
	LogLevel  string        `json:"log_level"`
}

func (s nodeSpec) write(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(dir, identityFile), []byte("identity="+s.Name+"\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, specFile), text, 0o600)
}

func readSpec(dir string) (nodeSpec, error) {
	var s nodeSpec
	text, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return s, fmt.Errorf("reading the node's description: %w", err)
	}
	if err = json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading the node's description %s: %w", filepath.Join(dir, specFile), err)
	}
	return s, nil
}

// nodeProcess is one node in its own process.
type nodeProcess struct {
	spec     nodeSpec
	dir      string
	effects  *effectLog
	control  *controlClient
	boot     int
	mode     Mode
	start    time.Time
	instance *server.Instance
	log      *logrus.Entry
	turn     turn
	departs  *departure
}

// NodeMain is the body of a node's process; args are those that follow Options.NodeCommand. It serves until the fleet
// ends and then returns ErrFleetGone, or returns earlier when the server cannot start. A restart executes os.Args
// again; a shutdown exits with status 0. As the helper of a fleet
// with X509 it answers and exits.
func NodeMain(args []string) error {
	flags := flag.NewFlagSet("fleet-node", flag.ContinueOnError)
	dir := flags.String("dir", "", "the node's directory")
	socket := flags.String("socket", "", "the fleet's control socket")
	executable := flags.String("executable", "", "the file that the node runs from, when it has its own")
	version := flags.String("version", "", "the version of that file")
	helper := flags.String("helper", "", "answer as a helper, as this file says")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("fleet node: %w", err)
	}
	if *helper != "" {
		if err := answerHelper(*helper, os.Stdin, os.Stdout); err != nil {
			return err
		}
		os.Exit(0)
	}
	if *dir == "" || *socket == "" {
		return errors.New("fleet node: --dir and --socket are required; nodes are started by a fleet, not by hand")
	}
	if *executable != "" {
		// What the updater swaps and a restart executes (go-updater config.go:33, provision/restart_action.go:101).
		os.Args = []string{*executable, "--dir", *dir, "--socket", *socket}
		build.Version = *version
	}
	n, err := newNodeProcess(*dir, *socket)
	if err != nil {
		return fmt.Errorf("fleet node in %s: %w", *dir, err)
	}
	if err = n.run(); err != nil {
		return fmt.Errorf("fleet node %s: %w", n.spec.Name, err)
	}
	return nil
}

func newNodeProcess(dir, socket string) (*nodeProcess, error) {
	spec, err := readSpec(dir)
	if err != nil {
		return nil, err
	}
	if err = setUser(); err != nil {
		return nil, err
	}
	entries, err := readEffects(dir)
	if err != nil {
		return nil, err
	}
	n := &nodeProcess{spec: spec, dir: dir, boot: 1, turn: newTurn(), departs: newDeparture()}
	for _, e := range entries {
		if e.Phase == PhaseBoot {
			n.boot++
		}
	}
	if n.effects, err = openEffectLog(dir); err != nil {
		return nil, err
	}
	if n.control, err = dialControl(socket); err != nil {
		return nil, err
	}
	return n, nil
}

// run boots the server and stays until the fleet ends.
func (n *nodeProcess) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := n.prepare(ctx); err != nil {
		return err
	}
	if err := n.effects.append(n.entry(PhaseBoot)); err != nil {
		return err
	}
	if err := n.control.send(message{Type: msgHello, Node: n.spec.Name, PID: os.Getpid(), Boot: n.boot, Mode: n.mode, Version: build.Version}); err != nil {
		return err
	}
	// Connecting blocks for as long as the broker is away.
	failed := make(chan error, 1)
	go func() { failed <- n.serve(ctx) }()
	for {
		select {
		case <-n.control.done:
			return ErrFleetGone
		case err := <-failed:
			if err != nil {
				return err
			}
		}
	}
}

// serve runs the instance. Run returns when it is connected, subscribed and takes requests.
func (n *nodeProcess) serve(ctx context.Context) error {
	n.registerAgents()
	var wg sync.WaitGroup
	wg.Add(1)
	if err := n.instance.Run(ctx, &wg); err != nil {
		return fmt.Errorf("running the server: %w", err)
	}
	if err := n.effects.append(n.entry(PhaseJoined)); err != nil {
		return err
	}
	conn := n.instance.Connector().Nats()
	go n.watchLink(conn, conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED))
	return n.control.send(message{Type: msgReady, Mode: n.mode, Start: n.start.UnixNano()})
}

// watchLink tells the fleet when the broker's connection comes and goes; up only once the broker has all subscriptions.
func (n *nodeProcess) watchLink(conn *nats.Conn, changes <-chan nats.Status) {
	for status := range changes {
		up := status == nats.CONNECTED && conn.FlushTimeout(10*time.Second) == nil
		if err := n.control.send(message{Type: msgLink, Up: up}); err != nil {
			return
		}
	}
}

// entry starts an effect log entry.
func (n *nodeProcess) entry(p Phase) Entry {
	return Entry{
		Node: n.spec.Name, PID: os.Getpid(), Start: n.start.UnixNano(), Boot: n.boot,
		Phase: p, Mode: n.mode, Status: NoStatus,
	}
}

// note puts a line into the fleet's log and the node's own.
func (n *nodeProcess) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	n.log.Warn(text)
	_ = n.control.send(message{Type: msgNote, Text: text})
}
