package choria

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"provctl/receipt"
)

const looked = "a.example.net"

// closures is a server with so many closures, one a second, newest first, of which one may be the node's; live are its open connections
// that the filter lets through.
func closures(now time.Time, n, ours int, live ...connzItem) connzServer {
	list := make([]connzItem, n)
	for i := range list {
		at := now.Add(-time.Duration(i) * time.Second)
		list[i] = connzItem{Name: fmt.Sprintf("noise%d", i), Stop: &at, Reason: "Client Closed"}
		if i == ours {
			list[i].Name = looked
		}
	}
	return func(q connzRequest) ([]connzItem, bool) {
		if q.State == 0 {
			return live, true
		}
		return list[min(q.Offset, n):min(q.Offset+q.Limit, n)], true
	}
}

func named(name string, subs ...string) connzItem { return connzItem{Name: name, Subs: subs} }

// cluster is an engine connected to these servers.
func cluster(t *testing.T, servers ...connzServer) (*fakeBroker, *Engine) {
	t.Helper()
	b := newFakeBroker(t)
	b.servers = servers
	e := unconnected(t, b, func(*Options) {})
	if err := e.Connect(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return b, e
}

func TestConnectionsOfACluster(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	const many = 20 * connzPage
	others := []connzItem{named("wide", "provisioning.node.>"), named("same", "x", "provisioning.node."+looked)}
	at := func(i int) time.Time { return now.Add(-time.Duration(i) * time.Second) }
	for _, tc := range []struct {
		name    string
		servers []connzServer
		since   time.Time
		live    int
		closed  time.Time
		pages   int // of closed connections
	}{
		{"a node that never left", []connzServer{closures(now, many, -1, named(looked)), closures(now, many, -1)}, at(60), 1, time.Time{}, 1},
		{"all pages when all matter", []connzServer{closures(now, many, -1, named(looked)), closures(now, many, -1)}, time.Time{}, 1, time.Time{}, 21},
		{"its closure on the third page of one", []connzServer{closures(now, many, -1), closures(now, many, 1100)}, at(1100), 0, at(1100), 3},
		{"a server's clock that is behind", []connzServer{closures(now, many, -1), closures(now, many, connzPage+9)}, at(connzPage - 49), 0, at(connzPage + 9), 2},
		{"a closure before what matters", []connzServer{closures(now, many, -1), closures(now, many, 1100)}, at(60), 0, time.Time{}, 1},
		{"found on one, further on the other", []connzServer{closures(now, many, 3), closures(now, 2*connzPage+7, -1)}, time.Time{}, 0, at(3), 3},
		{"closed on both", []connzServer{closures(now, many, 700), closures(now, many, 600)}, time.Time{}, 0, at(600), 2},
		{"two live processes on two servers", []connzServer{closures(now, 9, -1, named(looked)), closures(now, 9, -1, named(looked))}, at(60), 2, time.Time{}, 1},
		{"who else listens", []connzServer{closures(now, 9, -1, others...), closures(now, 9, -1)}, at(60), 2, time.Time{}, 1},
		{"who else listens, elsewhere", []connzServer{closures(now, 9, -1, named(looked)), closures(now, 9, -1, others[0])}, at(60), 2, time.Time{}, 1},
		{"who listens to a node that left", []connzServer{closures(now, 9, 3, others[0]), closures(now, 9, -1)}, at(60), 0, at(3), 1},
	} {
		b, e := cluster(t, tc.servers...)
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			seen, err := e.Connections(deadline(t), looked, tc.since)
			t.Logf("took %s", time.Since(began))
			if err != nil || seen.Live != tc.live || !seen.LastClosed.Equal(tc.closed) {
				t.Errorf("saw %+v, %v; want %d live, closed %s", seen, err, tc.live, tc.closed)
			}
			b.set(func() {
				if len(b.asked) != tc.pages+1 {
					t.Errorf("%d pages of closed connections were asked for, want %d", len(b.asked)-1, tc.pages)
				}
				if q := b.asked[len(b.asked)-1]; q.State != 0 || q.Filter != "provisioning.node."+looked {
					t.Errorf("the live ones were asked for with %+v", q)
				}
			})
		})
	}
}

// TestConnectionsNeverCountTooFew: a list that is not whole is no evidence.
func TestConnectionsNeverCountTooFew(t *testing.T) {
	now := time.Now()
	whole := closures(now, 3*connzPage, -1, named(looked))
	silentOn := func(silent func(connzRequest) bool) connzServer {
		return func(q connzRequest) ([]connzItem, bool) {
			list, _ := whole(q)
			return list, !silent(q)
		}
	}
	crowd := make([]connzItem, connzPage)
	for i := range crowd {
		crowd[i] = named("wide", "provisioning.>")
	}
	for _, tc := range []struct {
		name   string
		second connzServer
		says   string
	}{
		{"silent at the live list", silentOn(func(q connzRequest) bool { return q.State == 0 }), "S1 answers no more"},
		{"silent at the second page", silentOn(func(q connzRequest) bool { return q.Offset > 0 }), "S1 answers no more"},
		{"more listeners than a page", closures(now, 9, -1, crowd...), "S1 at least 512"},
	} {
		_, e := cluster(t, whole, tc.second)
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen, err := e.Connections(deadline(t), looked, time.Time{})
			if !errors.Is(err, ErrNoConnectionList) || !strings.Contains(err.Error(), tc.says) || seen != (receipt.ConnectionsSeen{}) {
				t.Errorf("saw %+v, %v; want an error with %q", seen, err, tc.says)
			}
		})
	}
}

func TestConnectionsEndWithTheConnection(t *testing.T) {
	asked := make(chan struct{}, 1)
	_, e := cluster(t, func(connzRequest) ([]connzItem, bool) { asked <- struct{}{}; return nil, false })
	done := make(chan error, 1)
	go func() { _, err := e.Connections(deadline(t), looked, time.Time{}); done <- err }()
	receive(t, asked)
	if err := e.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, done); !errors.Is(err, ErrNotConnected) {
		t.Errorf("the connection broke: %v", err)
	}
}
