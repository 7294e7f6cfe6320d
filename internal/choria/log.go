package choria

import (
	"context"
	"io"
	"log/slog"

	"github.com/sirupsen/logrus"
)

// bridge makes a logrus logger whose lines go to slog. Choria's info is chatter of its own internals, so it becomes debug.
func bridge(to *slog.Logger) *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetFormatter(noFormat{})
	l.SetLevel(bridgeLevel(to))
	l.ExitFunc = func(int) {} // a library does not end the process
	l.AddHook(&slogHook{to: to})
	return l
}

func bridgeLevel(to *slog.Logger) logrus.Level {
	if to.Enabled(context.Background(), slog.LevelDebug) {
		return logrus.InfoLevel
	}
	return logrus.WarnLevel
}

// noFormat spares the work of formatting what goes nowhere.
type noFormat struct{}

func (noFormat) Format(*logrus.Entry) ([]byte, error) { return nil, nil }

type slogHook struct{ to *slog.Logger }

func (h *slogHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h *slogHook) Fire(e *logrus.Entry) error {
	attrs := make([]slog.Attr, 0, len(e.Data)+1)
	attrs = append(attrs, slog.String("source", "choria"))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	h.to.LogAttrs(context.Background(), slogLevel(e.Level), clean(e.Message), attrs...)
	return nil
}

func slogLevel(l logrus.Level) slog.Level {
	switch l {
	case logrus.PanicLevel, logrus.FatalLevel, logrus.ErrorLevel:
		return slog.LevelError
	case logrus.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
