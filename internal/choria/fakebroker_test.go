package choria

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/choria-io/go-choria/protocol"
)

// fakeBroker speaks the server's side of the NATS protocol by hand, without TLS, so that it can refuse, be slow, and be a cluster.
type fakeBroker struct {
	t    testing.TB
	addr string

	mu      sync.Mutex
	refuse  func(subject string) bool
	stuck   bool // leaves every PING but a connection's first unanswered
	dials   int
	ignored int // PINGs left unanswered
	servers []connzServer
	asked   []connzRequest
}

// connzServer answers one question for connections, with a list; false means that it keeps silent.
type connzServer func(connzRequest) ([]connzItem, bool)

func newFakeBroker(t testing.TB) *fakeBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{t: t, addr: l.Addr().String()}
	var wg sync.WaitGroup
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.dials++
			conns = append(conns, c)
			b.mu.Unlock()
			wg.Go(func() { b.serve(c); _ = c.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		b.mu.Unlock()
		wg.Wait()
	})
	return b
}

func (b *fakeBroker) set(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }

func (b *fakeBroker) serve(c net.Conn) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(c, format, args...) }
	// two addresses: the client takes it for a cluster
	say(`INFO {"server_id":"fake","version":"2.14.2","proto":1,"headers":true,"max_payload":1048576,"connect_urls":[%q,"127.0.0.1:1"]}`+"\r\n", b.addr)
	subs, pings := map[string]string{}, 0
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch words[0] {
		case "PING":
			pings++
			b.mu.Lock()
			stuck := b.stuck && pings > 1
			if stuck {
				b.ignored++
			}
			b.mu.Unlock()
			if !stuck {
				say("PONG\r\n")
			}
		case "SUB":
			b.mu.Lock()
			refused := b.refuse != nil && b.refuse(words[1])
			b.mu.Unlock()
			if refused {
				say("-ERR 'Permissions Violation for Subscription to %q'\r\n", words[1])
			}
			subs[words[1]] = words[len(words)-1]
		case "PUB":
			size, err := strconv.Atoi(words[len(words)-1])
			if err != nil {
				b.t.Errorf("fake broker: %q", line)
				return
			}
			payload := make([]byte, size+2)
			if _, err := io.ReadFull(in, payload); err != nil {
				return
			}
			if words[1] == connzSubject {
				for _, answer := range b.connz(payload[:size]) {
					say("MSG %s %s %d\r\n%s\r\n", words[2], subs[words[2]], len(answer), answer)
				}
			}
		}
	}
}

func (b *fakeBroker) connz(payload []byte) (answers [][]byte) {
	var q connzRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		b.t.Errorf("fake broker: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, q)
	for i, s := range b.servers {
		if list, ok := s(q); ok {
			answers = append(answers, must(json.Marshal(map[string]any{
				"server": map[string]any{"id": fmt.Sprintf("S%d", i)}, "data": map[string]any{"connections": list},
			})))
		}
	}
	return answers
}

// lines is a log that hands every line of warn and above on, on the goroutine that writes it.
type lines struct {
	t  testing.TB
	on func(string)
}

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	if l.on != nil {
		l.on(string(p))
	}
	return len(p), nil
}

// unconnected is an engine whose broker is the fake one.
func unconnected(t testing.TB, b *fakeBroker, change func(*Options)) *Engine {
	t.Helper()
	o := options(t, broker(t))
	conf, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	conf = regexp.MustCompile(`(?m)^plugin.choria.middleware_hosts=.*$`).ReplaceAll(conf, []byte("plugin.choria.middleware_hosts=nats://"+b.addr))
	o.ConfigFile = filepath.Join(t.TempDir(), "choria.conf")
	if err := os.WriteFile(o.ConfigFile, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Insecure, o.TTL = true, 30*time.Second
	change(&o)
	secure := protocol.Secure
	t.Cleanup(func() { protocol.Secure = secure })
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// logged has every line of the engine's log from debug on looked at.
func logged(t testing.TB, on func(string)) func(*Options) {
	return func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(lines{t, on}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}
