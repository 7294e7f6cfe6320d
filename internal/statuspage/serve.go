package statuspage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Bounds of the listener: readers are few and on this host. A report of thousands of receipts takes its time through a tunnel.
const (
	headerTimeout = 5 * time.Second
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	headerBytes   = 16 << 10
	closeTimeout  = time.Second
)

// Serve listens on the port of 127.0.0.1 alone and serves h until ctx ends or stop is called; stop returns when nothing is served any
// more, and may be called again. A port that cannot be had is an error now: nothing is tried again later. log nil: nothing is logged.
func Serve(ctx context.Context, port int, h http.Handler, log *slog.Logger) (stop func(), err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("status_port %d: %w: stop what uses the port, set another one, or 0 for no status page", port, err)
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the status page is not served any more; the worker goes on", "status_port", port, "error", err)
		}
	}()
	log.Info("serving the status page", "url", "http://"+l.Addr().String()+Prefix)
	shut := func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-done
	}
	forget := context.AfterFunc(ctx, shut)
	return func() {
		forget()
		shut()
	}, nil
}
