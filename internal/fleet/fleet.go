package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"provctl/internal/loopback"
)

// Fleet is a running broker with its nodes. All methods may be called from several goroutines.
type Fleet struct {
	opts       Options
	keys       *keys
	broker     *broker
	rules      rules
	names      []string
	nodes      map[string]*node // fixed after Start; mu guards what is in the nodes
	socket     string
	tempDir    string // of the socket, when it is not in Dir
	control    net.Listener
	spawner    *spawner
	repository *repository // nil where nodes have no executables of their own
	// spawning makes the check for a running process and its start one step.
	spawning sync.Mutex
	wg       sync.WaitGroup
	closing  sync.Once
	logMu    sync.Mutex

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	closed   bool
	brokerUp bool
	calls    uint64
	held     []*held
}

// Start starts the broker and the nodes and returns when every node is connected in provisioning mode. ctx bounds the
// start alone; Close ends the fleet. After an error nothing is left running; the files stay for a look.
func Start(ctx context.Context, opts Options) (*Fleet, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	names, err := opts.names()
	if err != nil {
		return nil, err
	}
	if err = setUser(); err != nil {
		return nil, err
	}
	f := &Fleet{opts: opts, names: names, nodes: make(map[string]*node, len(names)), changed: make(chan struct{}), spawner: newSpawner()}
	if err = f.prepare(ctx); err == nil {
		err = f.startNodes(ctx)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// setUser gives go-choria the name it insists on (providers/security/choria/option.go:100).
func setUser() error {
	if _, ok := os.LookupEnv("USER"); ok {
		return nil
	}
	if err := os.Setenv("USER", "root"); err != nil {
		return fmt.Errorf("setting USER: %w", err)
	}
	return nil
}

// prepare writes all files, starts the broker and opens the control socket.
func (f *Fleet) prepare(ctx context.Context) error {
	if err := os.MkdirAll(f.opts.Dir, 0o700); err != nil {
		return fmt.Errorf("creating the fleet's directory: %w", err)
	}
	if err := os.Mkdir(filepath.Join(f.opts.Dir, "nodes"), 0o700); err != nil {
		return fmt.Errorf("creating the fleet's directory (one that holds a fleet cannot hold another): %w", err)
	}
	var err error
	if f.keys, err = newKeys(filepath.Join(f.opts.Dir, "keys"), f.opts.X509); err != nil {
		return err
	}
	if f.opts.Version != "" {
		if err = f.openRepository(); err != nil {
			return err
		}
	}
	port, err := loopback.Reserve()
	if err != nil {
		return err
	}
	f.broker = &broker{keys: f.keys, log: f.opts.BrokerLog, port: port, streams: f.opts.streams()}
	if err = f.StartBroker(ctx); err != nil {
		return err
	}
	for _, name := range f.names {
		if err = f.addNode(name); err != nil {
			return fmt.Errorf("preparing %s: %w", name, err)
		}
	}
	return f.openControl()
}

// maxSocket is what fits the kernel's socket address with room to spare.
const maxSocket = 100

func (f *Fleet) openControl() error {
	f.socket = filepath.Join(f.opts.Dir, "control.sock")
	if len(f.socket) > maxSocket {
		dir, err := os.MkdirTemp("", "fleet")
		if err != nil {
			return fmt.Errorf("creating a directory for the control socket: %w", err)
		}
		f.tempDir, f.socket = dir, filepath.Join(dir, "s")
	}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		return fmt.Errorf("opening the control socket: %w", err)
	}
	f.control = l
	f.wg.Go(func() { f.listen(l) })
	return nil
}

// addNode writes the directory of a node: its provisioning token, its facts and what NodeMain reads.
func (f *Fleet) addNode(name string) error {
	n := &node{name: name, dir: filepath.Join(f.opts.Dir, "nodes", name)}
	n.state = NodeState{Name: name, Begins: map[string]int{}, Ends: map[string]int{}, Requests: map[string]int{}}
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return err
	}
	update := f.opts.Upgradable && !slices.Contains(f.opts.Fixed, name)
	if err := f.writeIdentity(n.dir, name, len(f.nodes), update); err != nil {
		return err
	}
	if f.opts.Version != "" {
		if err := writeExecutable(filepath.Join(n.dir, executableFile), release(f.opts.Version, f.opts.NodeCommand)); err != nil {
			return err
		}
	}
	spec := nodeSpec{Name: name, RealSplay: f.opts.RealSplay, Splay: f.opts.Splay, LogLevel: f.opts.NodeLogLevel}
	if err := spec.write(n.dir); err != nil {
		return err
	}
	f.nodes[name] = n
	return nil
}

// writeIdentity writes the facts of node i and the provisioning token that points at them.
func (f *Fleet) writeIdentity(dir, name string, i int, allowUpdate bool) error {
	facts, err := json.Marshal(factsOf(name, i))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, factsFile)
	if err = os.WriteFile(path, facts, 0o600); err != nil {
		return err
	}
	return f.keys.writeProvisioningToken(filepath.Join(dir, provisionFile), path, f.BrokerURL(), allowUpdate)
}

// factsOf makes an inventory that looks like a host's.
func factsOf(name string, i int) map[string]any {
	return map[string]any{
		"fqdn":       name,
		"os":         map[string]any{"family": "RedHat", "name": "AlmaLinux", "release": map[string]any{"major": "9", "full": "9.6"}},
		"processors": map[string]any{"count": 2 + i%3*2},
		"memory":     map[string]any{"total_bytes": int64(4+i%4*4) << 30},
		"datacenter": []string{"lon", "fra", "nyc"}[i%3],
		"role":       []string{"web", "db", "queue"}[i/3%3],
	}
}

// startNodes boots all nodes, a few at a time, since each boot costs a processor.
func (f *Fleet) startNodes(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, f.opts.Parallel)
	errs := make(chan error, len(f.names))
	for _, name := range f.names {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			err := ctx.Err()
			if err == nil {
				err = f.StartNode(ctx, name)
			}
			if err != nil {
				cancel()
			}
			errs <- err
		}()
	}
	var failed []error
	for range f.names {
		if err := <-errs; err != nil && !errors.Is(err, context.Canceled) {
			failed = append(failed, err)
		}
	}
	if len(failed) == 0 && ctx.Err() != nil {
		return fmt.Errorf("starting the nodes: %w", ctx.Err())
	}
	if len(failed) > 0 {
		return fmt.Errorf("starting the nodes: %w", failed[0])
	}
	return nil
}

// Nodes lists the identities of the nodes in the order of Options.Names.
func (f *Fleet) Nodes() []string { return slices.Clone(f.names) }

// Dir is the fleet's directory.
func (f *Fleet) Dir() string { return f.opts.Dir }

// NodeDir is the directory where that node keeps its configuration, keys, token, log and effect log.
func (f *Fleet) NodeDir(name string) (string, error) {
	n, err := f.node(name)
	if err != nil {
		return "", err
	}
	return n.dir, nil
}

// BrokerURL is where the broker listens, as Choria's configuration wants it.
func (f *Fleet) BrokerURL() string { return "nats://" + f.broker.address() }

// Close ends every process that the fleet started and its broker, and returns when they are gone. The files stay. It
// may be called twice, but not by a Hook, whose end it awaits.
func (f *Fleet) Close() {
	f.closing.Do(f.close)
}

func (f *Fleet) close() {
	f.update(func() { f.closed = true })
	// With the lock held nobody starts another process; those that run are all known here.
	f.spawning.Lock()
	var running []*process
	f.mu.Lock()
	for _, n := range f.nodes {
		if n.proc != nil {
			running = append(running, n.proc)
		}
	}
	f.mu.Unlock()
	for _, p := range running {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			f.logf("killing process %d: %v", p.cmd.Process.Pid, err)
		}
	}
	f.spawning.Unlock()
	for _, p := range running {
		<-p.done
	}
	if f.broker != nil {
		f.StopBroker()
		if err := f.broker.port.Close(); err != nil {
			f.logf("giving up the broker's port: %v", err)
		}
	}
	if f.control != nil {
		_ = f.control.Close()
	}
	f.repository.close()
	f.dropConnections()
	f.wg.Wait()
	f.spawner.close()
	if f.tempDir != "" {
		_ = os.RemoveAll(f.tempDir)
	}
}

// dropConnections ends control channels that outlive their process: one still in the listener's queue.
func (f *Fleet) dropConnections() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		if n.conn != nil {
			_ = n.conn.conn.Close()
		}
	}
}
