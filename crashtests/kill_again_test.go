package crashtests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// blow is one way to kill a run: at an event, or at a pass of a crash point.
type blow struct {
	event int
	pass  pointPass
}

func (b blow) String() string {
	if b.event > 0 {
		return fmt.Sprintf("event-%d", b.event)
	}
	return fmt.Sprintf("%s#%d", b.pass.point, b.pass.n)
}

// strike runs a fresh trial until the blow falls; false if it never does.
func (b blow) strike(t *testing.T, l *lab) (*trial, bool) {
	t.Helper()
	if b.event > 0 {
		tr := l.begin(t, alone, program)
		tr.killAt(b.event)
		return tr, tr.play()
	}
	prog, err := pointed()
	if err != nil {
		t.Fatal(err)
	}
	tr := l.begin(t, b.pass.scene, prog, fmt.Sprintf("PROVCTL_CRASHPOINT=%s#%d", b.pass.point, b.pass.n))
	return tr, tr.play()
}

// known are blows after which the journal stands at different places: what every recovery has to settle. The full sweep finds all
// of them by itself.
var known = []blow{
	{pass: pointPass{alone, "claimed", 1}},      // a claim without a receipt
	{pass: pointPass{alone, "begun", 1}},        // a receipt of a key, nothing sent
	{pass: pointPass{alone, "published", 2}},    // a receipt of a configure, sent
	{pass: pointPass{alone, "step-settled", 2}}, // configured, not restarted
}

// states finds the distinct states that a kill at any event can leave, each with a blow that leaves it.
func states(t *testing.T) []blow {
	t.Helper()
	events := &rising{}
	var mu sync.Mutex // of first
	first := map[string]blow{}
	rest := slices.Clone(known)
	labs(t, 8, 1, func() (func(*testing.T, *lab), string, bool) {
		var b blow
		if len(rest) > 0 {
			b, rest = rest[0], rest[1:]
		} else if n, ok := events.next(); ok {
			b.event = n
		} else {
			return nil, "", false
		}
		return func(t *testing.T, l *lab) {
			tr, fell := b.strike(t, l)
			if !fell {
				events.survived(b.event)
				return
			}
			tr.phase()
			state := canonical(tr.look())
			mu.Lock()
			defer mu.Unlock()
			if was, ok := first[state]; !ok || was.event > b.event { // one at a crash point is the same in every program
				first[state] = b
			}
		}, "find-" + b.String(), true
	})
	return slices.SortedFunc(maps.Values(first), func(a, b blow) int { return strings.Compare(a.String(), b.String()) })
}

// pair is a kill and a kill of the recovery from it.
type pair struct {
	first  blow
	second int
}

// pairs hands out the kills of all recoveries, rising for each first blow until the recovery survives.
type pairs struct {
	mu    sync.Mutex
	blows []blow
	each  map[blow]*rising
	turn  int
}

func (p *pairs) next() (pair, *rising, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.blows {
		b := p.blows[p.turn%len(p.blows)]
		p.turn++
		if n, ok := p.each[b].next(); ok {
			return pair{b, n}, p.each[b], true
		}
	}
	return pair{}, nil, false
}

// TestSweep2Again kills a run, kills the recovery at each of its events, and lets a third worker finish.
func TestSweep2Again(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	all, stride := known, 40
	if !quick() {
		stride = 1
	}
	if full() {
		all = states(t)
	}
	p := &pairs{blows: all, each: map[blow]*rising{}}
	for _, b := range all {
		p.each[b] = &rising{stride: stride}
	}
	labs(t, 8, 1, func() (func(*testing.T, *lab), string, bool) {
		for {
			pair, events, ok := p.next()
			if !ok {
				return nil, "", false
			}
			name := fmt.Sprintf("%s/event-%d", pair.first, pair.second)
			if !wanted(t.Name() + "/" + name) {
				if pair.second > 1000 {
					events.survived(pair.second)
				}
				continue
			}
			return func(t *testing.T, l *lab) { killAgain(t, l, pair, events) }, name, true
		}
	})
	count(t, "states whose recovery was killed", len(all))
}

// firstTries is how many runs a first blow gets: one may commit at once what another commits apart, and have fewer events.
const firstTries = 20

func killAgain(t *testing.T, l *lab, p pair, events *rising) {
	tr, fell := p.first.strike(t, l)
	for n := 1; !fell && n < firstTries; n++ {
		tr.judge() // a run like any other
		tr, fell = p.first.strike(t, l)
	}
	if !fell {
		t.Fatalf("CASE=%s the first blow did not fall in %d runs", t.Name(), firstTries)
	}
	tr.prog, tr.env = program, nil
	tr.phase()
	tr.look()
	tr.killAt(p.second)
	if !tr.play() {
		events.survived(p.second)
		tr.judge()
		return
	}
	add("kills", 2)
	add("recovery pairs", 1)
	tr.recover(program)
}
