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
	ctx = context.WithoutCancel(ctx)
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l, path, release, err := listen(dir)
	if err != nil {
		return nil, err
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
		ConnContext:       withPeer,
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the control socket failed: inspect and reconcile cannot reach this worker until it is restarted", "socket", path, "err", err)
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			removeOwn(l, path)
			down, cancel := context.WithTimeout(ctx, stopPatience)
			defer cancel()
			if hs.Shutdown(down) != nil {
				_ = hs.Close()
			}
			<-served
			release()
		})
	}, nil
}

// listen binds under a temporary name, sets the mode, and renames: nobody ever meets a socket that is open to others.
func listen(dir string) (*ownListener, string, func(), error) {
	path := SocketPath(dir)
	fail := func(err error) (*ownListener, string, func(), error) {
		return nil, "", nil, fmt.Errorf("control socket %s: %w; make the state directory writable for the worker's user", path, err)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return fail(fmt.Errorf("something that is no socket is in its place (%s): move it away", st.Mode().Type()))
	}
	temp := SocketName + ".new"
	if err := os.Remove(filepath.Join(dir, temp)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	addr, release, err := address(dir, temp)
	if err != nil {
		return fail(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		release()
		return fail(err)
	}
	l.SetUnlinkOnClose(false) // by then the name may be another's
	own, err := publish(l, filepath.Join(dir, temp), path)
	if err != nil {
		_ = l.Close()
		_ = os.Remove(filepath.Join(dir, temp))
		release()
		return fail(err)
	}
	return own, path, release, nil
}

func publish(l *net.UnixListener, temp, path string) (*ownListener, error) {
	if err := os.Chmod(temp, 0o600); err != nil {
		return nil, err
	}
	st, err := os.Lstat(temp)
	if err != nil {
		return nil, err
	}
	return &ownListener{UnixListener: l, file: st}, os.Rename(temp, path)
}

// ownListener remembers which file is its socket.
type ownListener struct {
	*net.UnixListener
	file fs.FileInfo
}

// removeOwn removes the socket unless the name is another's by now.
func removeOwn(l *ownListener, path string) {
	if st, err := os.Lstat(path); err == nil && os.SameFile(st, l.file) {
		_ = os.Remove(path)
	}
}

type peerKey struct{}

type peerInfo struct {
	uid int
	err error
}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	uid, _, err := peer(c)
	return context.WithValue(ctx, peerKey{}, peerInfo{uid, err})
}
