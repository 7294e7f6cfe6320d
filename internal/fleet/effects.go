package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Phase says at which point of a request or a boot an Entry was written.
type Phase string

// The phases of an Entry.
const (
	// PhaseReceived: the request reached the agent; nothing has run. Alone it means: never ran.
	PhaseReceived Phase = "received"
	// PhaseBegin: the real agent is about to get the request; from here on it may have had its effect.
	PhaseBegin Phase = "begin"
	// PhaseEnd: the real agent is done; Status and Message are those of its reply, whether or not that left the node.
	PhaseEnd Phase = "end"
	// PhaseAnswered: a fault answered with Status and Message in place of the agent; nothing ran.
	PhaseAnswered Phase = "answered"
	// PhaseExpired: a detached request was released after its TTL; nothing ran.
	PhaseExpired Phase = "expired"
	// PhaseBoot: the process started; Mode tells how.
	PhaseBoot Phase = "boot"
	// PhaseJoined: the instance is connected and subscribed in its Mode.
	PhaseJoined Phase = "joined"
)

// NoStatus is the Status of an Entry that has none.
const NoStatus = -1

// Entry is one line of a node's effect log.
type Entry struct {
	Node string `json:"node"`
	// PID and Start name the incarnation: Start is the server instance's start in Unix nanoseconds, whose seconds are
	// the starttime of rpcutil#daemon_stats. A boot entry is written before the instance exists and carries 0.
	PID   int   `json:"pid"`
	Start int64 `json:"start"`
	// Boot counts the process starts of this node from 1.
	Boot  int   `json:"boot"`
	Phase Phase `json:"phase"`
	Mode  Mode  `json:"mode"`
	// Action, RequestID, Caller and Sender are those of the request.
	Action    string `json:"action,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Caller    string `json:"caller,omitempty"`
	Sender    string `json:"sender,omitempty"`
	// Effect tells actions that change the node from those that do not.
	Effect bool `json:"effect"`
	// Fault is what befell the request, empty for nothing.
	Fault   string `json:"fault,omitempty"`
	Status  int    `json:"status"`
	Message string `json:"message,omitempty"`
	// Time is when the line was written.
	Time time.Time `json:"time"`
}

// effects are the actions of the provision agent that change a node. jwt leaves nothing behind but a key in memory.
var effects = []string{"configure", "gen25519", "gencsr", "release_update", "reprovision", "restart", "shutdown"}

// IsEffect tells whether that action of the provision agent changes a node.
func IsEffect(action string) bool { return slices.Contains(effects, action) }

// leaving are the actions after whose success the real node holds its action mutex until it is gone
// (providers/agent/mcorpc/golang/provision/restart_action.go:85, shutdown_action.go:41).
var leaving = []string{"release_update", "reprovision", "restart", "shutdown"}

const effectsFile = "effects.jsonl"

// effectLog appends entries to a node's own file, one write each, so that a kill leaves whole lines.
type effectLog struct {
	mu   sync.Mutex
	file *os.File
}

func openEffectLog(dir string) (*effectLog, error) {
	file, err := os.OpenFile(filepath.Join(dir, effectsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the effect log: %w", err)
	}
	return &effectLog{file: file}, nil
}

func (l *effectLog) append(e Entry) error {
	e.Time = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding an effect log entry: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err = l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the effect log %s: %w", l.file.Name(), err)
	}
	return nil
}

// readEffects reads a node's log; a missing file is an empty one. A line that is not an entry is an error with its
// number: an effect log that cannot be read proves nothing.
func readEffects(dir string) ([]Entry, error) {
	path := filepath.Join(dir, effectsFile)
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the effect log: %w", err)
	}
	defer file.Close()
	var entries []Entry
	for r, line := bufio.NewReader(file), 1; ; line++ {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return entries, nil
		}
		if err != nil {
			return entries, fmt.Errorf("reading the effect log %s, line %d: %w", path, line, err)
		}
		var e Entry
		if err = json.Unmarshal(text, &e); err != nil {
			return entries, fmt.Errorf("reading the effect log %s, line %d: %w", path, line, err)
		}
		entries = append(entries, e)
	}
}

// Log reads the effect log of that node from its own file, oldest entry first.
func (f *Fleet) Log(node string) ([]Entry, error) {
	n, err := f.node(node)
	if err != nil {
		return nil, err
	}
	return readEffects(n.dir)
}

// Entries reads the effect logs of all nodes, in order of time.
func (f *Fleet) Entries() ([]Entry, error) {
	var all []Entry
	for _, name := range f.names {
		entries, err := f.Log(name)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return all, nil
}
