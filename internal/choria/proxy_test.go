package choria

import (
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/receipt"
)

// proxy stands between the engine and its broker and can keep back what the engine sends.
type proxy struct {
	listener net.Listener
	mu       sync.Mutex
	hold     chan struct{} // not nil while held
	conns    []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
			wg.Go(func() { p.forward(server, client) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.release(); p.cut(); wg.Wait() })
	return p
}

func (p *proxy) forward(server io.WriteCloser, client io.Reader) {
	defer func() { _ = server.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		p.mu.Lock()
		hold := p.hold
		p.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if _, werr := server.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) keepBack() { p.mu.Lock(); defer p.mu.Unlock(); p.hold = make(chan struct{}) }

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
}

// cut breaks every connection at once.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// through is an engine whose only way to the shared broker is the proxy.
func through(t *testing.T, change func(*Options)) (*Engine, *proxy) {
	t.Helper()
	p := newProxy(t, strings.TrimPrefix(broker(t).BrokerURL(), "nats://"))
	e := engine(t, broker(t), change, func(o *Options) {
		conf, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			t.Fatal(err)
		}
		conf = regexp.MustCompile(`(?m)^plugin.choria.middleware_hosts=.*$`).ReplaceAll(conf, []byte("plugin.choria.middleware_hosts=nats://"+p.listener.Addr().String()))
		if err := os.WriteFile(o.ConfigFile, conf, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	return e, p
}

func TestUnacknowledgedPublish(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*proxy)
		want receipt.Event
		why  string
		runs int
	}{
		{"request stuck, then delivered", func(p *proxy) { p.release() }, receipt.ReplyApplied, "Restarting", 1},
		{"request stuck, then lost with its connection", func(p *proxy) { p.cut(); p.release() }, receipt.Lost, "did not acknowledge", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, p := through(t, func(o *Options) {
				o.TTL, o.Skew, o.FlushTimeout = 3*time.Second, time.Millisecond, 100*time.Millisecond
			})
			n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", restarting) })
			pr := prepare(t, e, n.node())
			p.keepBack()
			c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
			if err != nil {
				t.Fatalf("without acknowledgement the request may have left, yet: %v", err)
			}
			if c.acked {
				t.Fatal("nobody can have acknowledged it")
			}
			tc.then(p)
			if o := wait(t, c); o.Event != tc.want || !strings.Contains(o.Why, tc.why) {
				t.Errorf("outcome %s (%s), want %s with %q", o.Event, o.Why, tc.want, tc.why)
			}
			if ran := n.executed(); len(ran) != tc.runs {
				t.Errorf("the node accepted %d requests, want %d", len(ran), tc.runs)
			}
		})
	}
}
