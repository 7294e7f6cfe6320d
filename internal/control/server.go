package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Server-side waits. A client that does not read, or trickles, must not hold anything of the worker's.
const (
	readPatience  = 10 * time.Second
	writePatience = 2 * time.Minute
	stopPatience  = 2 * time.Second
)

// Serve listens on the state directory's socket until stop is called; the end of ctx does not end it, for a worker that stops
// must still be inspectable. stop may be called more than once, lets answers in progress end for a moment and returns when the
// socket is gone. Call it before the worker lock is released. The caller holds the worker lock: that is why a
// socket found there is a dead worker's and is replaced. The socket appears whole and with its final mode, by renaming.
func Serve(ctx context.Context, dir string, w Worker, log *slog.Logger) (func(), error) {
	l, err := listen(door{dir: dir, name: SocketName, mode: 0o600})
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w; make the state directory writable for the worker's user", SocketPath(dir), err)
	}
	return serve(ctx, l, w, log), nil
}

// serve answers at one door. Each has its own bounds: whoever crowds one keeps nobody from the other.
func serve(ctx context.Context, l *listener, w Worker, log *slog.Logger) func() {
	ctx = context.WithoutCancel(ctx)
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &server{w: w, log: log, slots: make(chan struct{}, maxAtOnce), snapshots: make(chan struct{}, 1)}
	hs := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: readPatience,
		ReadTimeout:       readPatience,
		WriteTimeout:      writePatience,
		IdleTimeout:       readPatience,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       l.door.withPeer,
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the control socket failed: inspect and reconcile cannot reach this worker until it is restarted", "socket", l.door.path(), "err", err)
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			l.remove()
			down, cancel := context.WithTimeout(ctx, stopPatience)
			defer cancel()
			if hs.Shutdown(down) != nil {
				_ = hs.Close()
			}
			<-served
			l.release()
		})
	}
}

// door is a socket and who may come through it.
type door struct {
	dir, name string
	mode      fs.FileMode
	group     *Group // nil: the worker's user and root alone
}

func (d door) path() string { return filepath.Join(d.dir, d.name) }

// listener remembers which file is its socket.
type listener struct {
	*net.UnixListener
	door    door
	file    fs.FileInfo
	release func()
}

// errNoSocket keeps a file of somebody's from being replaced.
var errNoSocket = errors.New("something that is no socket is in its place")

// listen binds under a temporary name, sets group and mode, and renames: nobody ever meets a socket that is open to others.
func listen(d door) (_ *listener, err error) {
	if st, err := os.Lstat(d.path()); err == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%w (%s): move it away", errNoSocket, st.Mode().Type())
	}
	temp := filepath.Join(d.dir, d.name+".new")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	addr, release, err := address(d.dir, filepath.Base(temp))
	if err != nil {
		return nil, err
	}
	l := &listener{door: d, release: release}
	if l.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"}); err != nil {
		release()
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then the name may be another's
	if err := l.publish(temp); err != nil {
		_ = l.Close()
		_ = os.Remove(temp)
		release()
		return nil, err
	}
	return l, nil
}

func (l *listener) publish(temp string) (err error) {
	if err := os.Chmod(temp, 0o600); err != nil {
		return err
	}
	if g := l.door.group; g != nil {
		if err := g.give(temp); err != nil {
			return err
		}
	}
	if err := os.Chmod(temp, l.door.mode); err != nil {
		return err
	}
	if l.file, err = os.Lstat(temp); err != nil {
		return err
	}
	return os.Rename(temp, l.door.path())
}

// remove removes the socket unless the name is another's by now.
func (l *listener) remove() {
	if st, err := os.Lstat(l.door.path()); err == nil && os.SameFile(st, l.file) {
		_ = os.Remove(l.door.path())
	}
}

type peerKey struct{}

type peerInfo struct {
	uid  int
	gids []int
	err  error
	door door // through which it came
}

func (d door) withPeer(ctx context.Context, c net.Conn) context.Context {
	who, err := peer(c)
	return context.WithValue(ctx, peerKey{}, peerInfo{uid: who.uid, gids: who.gids, err: err, door: d})
}
