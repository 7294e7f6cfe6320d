package main

import (
	"context"
	"errors"
	"log/slog"

	"provctl/internal/config"
	"provctl/internal/control"
)

// serveControl serves the state directory's socket and, if the configuration names a group, that group's.
func serveControl(ctx context.Context, cfg *config.Config, w control.Worker, log *slog.Logger) (stop func(), err error) {
	own, err := control.Serve(ctx, cfg.StateDir, w, log)
	if err != nil || cfg.ControlGroup == "" {
		return own, err
	}
	group, err := control.ServeGroup(ctx, control.Group{Socket: cfg.ControlSocket, Name: cfg.ControlGroup, ID: cfg.ControlGID}, w, log)
	if err != nil {
		own()
		var refused *control.GroupError
		if errors.As(err, &refused) {
			return nil, cfg.Refuse(refused.Setting, err)
		}
		return nil, err
	}
	log.Info("the group may command this worker", "control_group", cfg.ControlGroup, "control_socket", cfg.ControlSocket)
	return func() {
		group()
		own()
	}, nil
}
