package crashtests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/crashtests/lightnode"
	"provctl/internal/crashpoint"
	"provctl/internal/fleet"
)

// doubt is what leaves effects unknown: a reply that is lost, one that comes late, which as a rule the next worker hears, one that comes
// twice, and two requests that never run, of which one is decided on while the worker runs and one while none does.
var doubt = &scene{
	name: "doubt", nodes: 4, lanes: 4, offline: []int{3},
	faults: func(n *lightnode.Nodes, names []string) {
		n.SetFault(names[0], "gen25519", fleet.Fault{Kind: fleet.Drop})
		n.SetFault(names[1], "gen25519", fleet.Fault{Kind: fleet.Delay, Delay: ttl + 500*time.Millisecond})
		n.SetFault(names[1], "configure", fleet.Fault{Kind: fleet.Duplicate})
		n.SetFault(names[2], "configure", fleet.Fault{Kind: fleet.Hold, Detached: true})
		n.SetFault(names[3], "configure", fleet.Fault{Kind: fleet.Hold, Detached: true})
	},
}

// doubtful are the points that a run passes only if something was unknown; the others are swept where nothing is.
var doubtful = []crashpoint.Point{
	crashpoint.ReplyLate, crashpoint.EventHeard, crashpoint.EvidenceKept, crashpoint.Proved, crashpoint.VerdictTaken, crashpoint.VerdictFiled,
}

// pass is one pass of one point.
type pointPass struct {
	scene *scene
	point crashpoint.Point
	n     int
}

func (p pointPass) name() string { return fmt.Sprintf("%s/%s#%d", p.scene.name, p.point, p.n) }

// passes hands out the passes of all points, n rising until a run survives.
type passes struct {
	mu     sync.Mutex
	points []crashpoint.Point
	last   map[crashpoint.Point]int
	over   map[crashpoint.Point]bool
	max    int // of passes of one point, of a doubtful one the first alone; 0: all
}

func (p *passes) next() (pointPass, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := 1; n <= 1000; n++ {
		for _, point := range p.points {
			if p.over[point] || p.last[point] >= n || p.max > 0 && n > 1 && (n > p.max || slices.Contains(doubtful, point)) {
				continue
			}
			p.last[point] = n
			s := alone
			if slices.Contains(doubtful, point) {
				s = doubt
			}
			return pointPass{s, point, n}, true
		}
	}
	return pointPass{}, false
}

func (p *passes) survived(point crashpoint.Point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over[point] = true
}

// TestSweep1Points kills the program at each pass of each crash point, and wants each point passed in a first run and in a
// recovery.
func TestSweep1Points(t *testing.T) {
	t.Parallel()
	if !mine(t) {
		return
	}
	all := &passes{points: crashpoint.All(), last: map[crashpoint.Point]int{}, over: map[crashpoint.Point]bool{}}
	if quick() {
		all.max = 2
	}
	labs(t, 8, 4, func() (func(*testing.T, *lab), string, bool) {
		for {
			p, ok := all.next()
			if !ok {
				return nil, "", false
			}
			if !wanted(t.Name() + "/" + p.name()) {
				if p.n > 200 {
					all.survived(p.point)
				}
				continue
			}
			return func(t *testing.T, l *lab) { killAtPoint(t, l, p, all) }, p.name(), true
		}
	})
	if os.Getenv(caseEnv) == "" {
		everyPoint(t)
	}
}

func killAtPoint(t *testing.T, l *lab, p pointPass, all *passes) {
	prog, err := pointed()
	if err != nil {
		t.Fatal(err)
	}
	tr := l.begin(t, p.scene, prog)
	first, again := filepath.Join(filepath.Dir(tr.log), "first"), filepath.Join(filepath.Dir(tr.log), "again")
	tr.env = []string{fmt.Sprintf("PROVCTL_CRASHPOINT=%s#%d", p.point, p.n), "PROVCTL_CRASHPOINTS_LOG=" + first}
	if !tr.play() {
		all.survived(p.point)
		if p.n == 1 {
			t.Errorf("CASE=%s a run never passes it", t.Name())
		}
		tr.judge()
		return
	}
	add("kills", 1)
	mark("distinct states after a kill", tr.recover(prog, "PROVCTL_CRASHPOINTS_LOG="+again))
	markPassed(t, first, "crash points hit in a first run")
	markPassed(t, again, "crash points hit in a recovery")
}

func markPassed(t *testing.T, path, set string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		mark(set, strings.TrimSpace(line))
	}
}

// everyPoint wants all points in both sets: one that no test passes is a promise that nobody keeps.
func everyPoint(t *testing.T) {
	t.Helper()
	for _, set := range []string{"crash points hit in a first run", "crash points hit in a recovery"} {
		hit := marked(set)
		for _, p := range crashpoint.All() {
			if !slices.Contains(hit, string(p)) {
				t.Errorf("%s is not among the %s", p, set)
			}
		}
	}
}
