package choria

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/choria-io/go-choria/lifecycle"
)

// provisionerComponent names the provisioner in lifecycle events.
const provisionerComponent = "provisioner"

// Announce publishes the lifecycle event that a provisioner of this version has started, under the identity of the Choria
// configuration. It is called once at start and not after a reconnect, since nothing started then. The event is published at most
// once; an error means that it may not have reached the broker, and nothing depends on it.
func (e *Engine) Announce(ctx context.Context, version string) error {
	if err := e.announce(ctx, version); err != nil {
		return fmt.Errorf("announce the start of this provisioner: %w", err)
	}
	return nil
}

func (e *Engine) announce(ctx context.Context, version string) error {
	event, err := lifecycle.New(lifecycle.Startup, lifecycle.Identity(e.fw.Config.Identity), lifecycle.Version(version), lifecycle.Component(provisionerComponent))
	if err != nil {
		return err
	}
	subject, err := event.Target()
	if err != nil {
		return err
	}
	data, err := json.Marshal(event)
	if err != nil {
		return err
	}
	nc, err := e.conn()
	if err != nil {
		return err
	}
	if err := nc.Publish(subject, data); err != nil {
		return fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	if err := e.flush(ctx, nc); err != nil {
		return err
	}
	// A refusal comes before the acknowledgement. The provisioner's password allows the whole account.
	if err := nc.LastError(); refused(err) && strings.Contains(err.Error(), `"`+subject+`"`) {
		return fmt.Errorf("the broker refuses it: %w; let this caller publish to %s", err, subject)
	}
	return nil
}
