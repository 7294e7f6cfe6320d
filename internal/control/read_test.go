package control_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

func (f *fake) Story(n receipt.NodeID) (journal.Story, error) {
	return journal.Story{Node: &receipt.Node{ID: n}, Acts: []journal.Act{{Seq: 3, Did: journal.DidAdmit, By: "alice"}}}, f.err
}

func (f *fake) Find(prefix string) ([]receipt.Receipt, error) {
	return []receipt.Receipt{{ID: receipt.ReceiptID(prefix), Action: receipt.Configure, Status: receipt.Applied}}, f.err
}

func (f *fake) Audit(from receipt.Seq) ([]journal.Act, error) {
	return []journal.Act{{Seq: from, Did: journal.DidPause, By: "bob"}}, f.err
}

func (f *fake) Standings(after receipt.NodeID, most int) ([]journal.Standing, error) {
	return []journal.Standing{{Node: receipt.Node{ID: after + "x", Version: receipt.Seq(most)}}}, f.err
}

func TestReading(t *testing.T) {
	dir, w := t.TempDir(), &fake{}
	serve(t, dir, w)
	c, err := control.Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const odd = receipt.NodeID("a&b=c?d#e%zz") // any printable ASCII may be in a name
	if s, err := c.Story(ctx, odd); err != nil || s.Node == nil || s.Node.ID != odd || len(s.Acts) != 1 || s.Acts[0].By != "alice" {
		t.Errorf("story is %+v, %v", s, err)
	}
	if rs, err := c.Find(ctx, "01AB&C"); err != nil || len(rs) != 1 || rs[0].ID != "01AB&C" {
		t.Errorf("found are %+v, %v", rs, err)
	}
	if acts, err := c.Audit(ctx, 1<<60); err != nil || len(acts) != 1 || acts[0].Seq != 1<<60 {
		t.Errorf("acts are %+v, %v", acts, err)
	}
	if some, err := c.Standings(ctx, odd, 17); err != nil || len(some) != 1 || some[0].Node.ID != odd+"x" || some[0].Node.Version != 17 {
		t.Errorf("nodes are %+v, %v", some, err)
	}
	w.err = fmt.Errorf("on the way: %w", journal.ErrNotFound)
	if _, err := c.Story(ctx, "n"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("a node that is not there: %v", err)
	}
}

// TestAnswerThatEndsTooEarly: an answer is read while it is being made; what breaks off must not pass for the whole.
func TestAnswerThatEndsTooEarly(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         error
	}{
		{"broken off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"pid\":\r\n", control.ErrUnavailable},
		{"too short for its length", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"pid\":1}", control.ErrUnavailable},
		{"not JSON", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", control.ErrProtocol},
		{"more than JSON", "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"pid\":1} x", control.ErrProtocol},
		{"an error without a code", "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}", control.ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.Listen("unix", control.SocketPath(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					b := make([]byte, 4096)
					if n, err := conn.Read(b); err == nil && n > 0 { // the first connection only looks whether somebody is there
						_, _ = conn.Write([]byte(c.answer))
					}
					_ = conn.Close()
				}
			}()
			client, err := control.Dial(dir)
			if err != nil {
				t.Fatal(err)
			}
			if live, err := client.Live(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("answered %+v, %v; want %v", live, err, c.want)
			}
		})
	}
}
