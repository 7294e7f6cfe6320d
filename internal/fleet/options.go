package fleet

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// Defaults of Options.
const (
	DefaultSplay    = 100 * time.Millisecond
	DefaultParallel = 4
)

// ErrOptions is returned by Start when the options cannot describe a fleet.
var ErrOptions = errors.New("invalid fleet options")

// Options describe a fleet.
type Options struct {
	// Dir holds everything the fleet writes. It is created; one that already holds a fleet is refused, since the effect
	// logs of two fleets must not mix.
	Dir string
	// Nodes is how many nodes to start; 0 starts a broker alone.
	Nodes int
	// Names gives the identity of node i, counted from 1. The default is node-001.example.net and so on.
	Names func(i int) string
	// NodeCommand is the argv of a process that calls NodeMain with the arguments that follow its own. A broker alone needs
	// it only for the helper of X509 and for Publish.
	NodeCommand []string
	// NodeEnv is added to the environment of the nodes.
	NodeEnv []string
	// RealSplay keeps go-choria's own restart and shutdown: 2 s and more before a restart, 0 to 9 s before a shutdown.
	RealSplay bool
	// Splay stands in for those times; 0 means DefaultSplay. A node never restarts within the second it started in,
	// because incarnations are told apart by whole seconds.
	Splay time.Duration
	// Parallel is how many nodes boot at a time; 0 means DefaultParallel.
	Parallel int
	// Streams gives the broker Choria Streams, whose files are in Dir: the election bucket and the stream of lifecycle events.
	Streams bool
	// ElectionTTL is how long a leader's key lives; 0 means Choria's minute. Choria's own election takes 4 s and more.
	ElectionTTL time.Duration
	// Log gets a line for what the fleet itself does; nil discards.
	Log io.Writer
	// BrokerLog gets the broker's log; nil discards.
	BrokerLog io.Writer
	// NodeLogLevel is the level of each node's own node.log: debug, info, warn (the default), error or fatal.
	NodeLogLevel string
	// Upgradable gives every node an executable of its own, a token that allows release_update, and the fleet a repository
	// to upgrade from (Publish). Nodes named in Fixed have the executable and a token that does not allow it.
	Upgradable bool
	Fixed      []string
	// Version is what the nodes report before any upgrade; empty means go-choria's own, or DefaultVersion if Upgradable.
	Version string
	// X509 makes a fleet of certificates in place of issuer and server tokens: the broker, the provisioner and provisioned
	// nodes know each other by certificates of the fleet's CA, and requests are of protocol 1. Nodes in provisioning mode
	// still come in by their provisioning token. It excludes Streams.
	X509 bool
	// Hook is called for every request of the provision agent, when it begins and when it ends, while the node waits.
	// A fault that it returns comes before those of SetFault; the zero Fault leaves the decision to them. It may be
	// called for several nodes at once, and it may call the fleet's methods.
	Hook func(Call) Fault
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,118}[A-Za-z0-9])?$`)

// complete checks o and fills in the defaults.
func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		return o, fmt.Errorf("%w: Dir is empty; name a directory for the fleet's files", ErrOptions)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("%w: Dir %q: %w", ErrOptions, o.Dir, err)
	}
	o.Dir = dir
	if o.Nodes < 0 || o.Splay < 0 || o.Parallel < 0 {
		return o, fmt.Errorf("%w: Nodes %d, Splay %s and Parallel %d must not be negative", ErrOptions, o.Nodes, o.Splay, o.Parallel)
	}
	if o.ElectionTTL < 0 || o.ElectionTTL > 0 && !o.Streams {
		return o, fmt.Errorf("%w: ElectionTTL %s must not be negative, and needs Streams", ErrOptions, o.ElectionTTL)
	}
	if o.Names == nil {
		o.Names = func(i int) string { return fmt.Sprintf("node-%03d.example.net", i) }
	}
	if o.Splay == 0 {
		o.Splay = DefaultSplay
	}
	if o.Parallel == 0 {
		o.Parallel = DefaultParallel
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.BrokerLog == nil {
		o.BrokerLog = io.Discard
	}
	if o.NodeLogLevel == "" {
		o.NodeLogLevel = "warn"
	}
	if o, err = o.versions(); err != nil {
		return o, err
	}
	o.NodeCommand, err = o.command()
	return o, err
}

// versions checks what concerns upgrades and certificates.
func (o Options) versions() (Options, error) {
	if o.Upgradable && o.Version == "" {
		o.Version = DefaultVersion
	}
	if o.Version != "" && !versionText.MatchString(o.Version) {
		return o, fmt.Errorf("%w: Version %q; use letters, digits and . + ~ _ -, 64 at most", ErrOptions, o.Version)
	}
	if o.X509 && o.Streams {
		return o, fmt.Errorf("%w: X509 and Streams together are not built; choose one", ErrOptions)
	}
	if len(o.Fixed) > 0 && !o.Upgradable {
		return o, fmt.Errorf("%w: Fixed names %q, and needs Upgradable", ErrOptions, o.Fixed)
	}
	return o, nil
}

// command resolves the node's executable: a node executes argv[0] again when it restarts, from a directory of its own.
func (o Options) command() ([]string, error) {
	if len(o.NodeCommand) == 0 && o.Nodes == 0 {
		return nil, nil
	}
	if len(o.NodeCommand) == 0 {
		return nil, fmt.Errorf("%w: NodeCommand is empty; give the argv of a process that calls fleet.NodeMain", ErrOptions)
	}
	path, err := exec.LookPath(o.NodeCommand[0])
	if err != nil {
		return nil, fmt.Errorf("%w: NodeCommand %q: %w", ErrOptions, o.NodeCommand[0], err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("%w: NodeCommand %q: %w", ErrOptions, o.NodeCommand[0], err)
	}
	return append([]string{path}, o.NodeCommand[1:]...), nil
}

// names lists the identities, refusing those that could not be a directory or that appear twice.
func (o Options) names() ([]string, error) {
	seen := make(map[string]bool, o.Nodes)
	names := make([]string, 0, o.Nodes)
	for i := 1; i <= o.Nodes; i++ {
		name := o.Names(i)
		if !nodeName.MatchString(name) {
			return nil, fmt.Errorf("%w: node %d is named %q; use letters, digits, dots and dashes, 120 at most", ErrOptions, i, name)
		}
		if seen[name] {
			return nil, fmt.Errorf("%w: two nodes are named %q", ErrOptions, name)
		}
		seen[name] = true
		names = append(names, name)
	}
	for _, name := range o.Fixed {
		if !seen[name] {
			return nil, fmt.Errorf("%w: Fixed names %q, which is no node of this fleet", ErrOptions, name)
		}
	}
	return names, nil
}
