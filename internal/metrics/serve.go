package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of the listener: a scrape is small and rare, and its port is open to whoever reaches it.
const (
	scrapesAtOnce = 4
	scrapeTimeout = 10 * time.Second
	headerTimeout = 5 * time.Second
	headerBytes   = 16 << 10
	closeTimeout  = time.Second
)

// Serve listens on the port, of all interfaces as the existing provisioner does, and serves GET /metrics until stop is called; stop
// returns when nothing is served any more. A port that cannot be had is an error now: nothing is tried again later.
func (m *Metrics) Serve(port int, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("monitor_port %d: %w: stop what uses the port, set another one, or 0 for no metrics", port, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: errorLog{log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTimeout,
	}))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: 2 * scrapeTimeout,
		IdleTimeout: time.Minute * 2, MaxHeaderBytes: headerBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more; the worker goes on", "monitor_port", port, "error", err)
		}
	}()
	log.Info("serving metrics", "address", l.Addr().String(), "path", "/metrics")
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-done
	}, nil
}

// errorLog takes what promhttp says of a scrape that could not show everything.
type errorLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l errorLog) Println(v ...any) {
	l.log.Warn("a metrics scrape was incomplete", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}
