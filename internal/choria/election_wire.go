package choria

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// The key of the existing provisioner's election, as the provisioning account reaches it. Its own client writes below the prefix
// choria.streams, which the broker maps to the same key (choria/framework.go:1042, broker/network/network_accounts.go:68-75).
const (
	electionBucket = "CHORIA_LEADER_ELECTION"
	electionKey    = "$KV." + electionBucket + ".provisioner"
	electionStream = "KV_" + electionBucket
	bucketInfo     = "choria.streams.STREAM.INFO." + electionStream

	expectRevision = "Nats-Expected-Last-Subject-Sequence"
	wrongRevision  = 10071 // JSStreamWrongLastSequenceErrF (nats-server v2.14.2 server/jetstream_errors_generated.go:896)
)

// releaseSubject carries what a leader says when it stops: the revision at which he leaves the key, still in place. Whoever
// updates the key at that revision first has won; a note that is stale, late or forged names a revision that is not there, or
// takes the leadership from one who finds out well within the winner's waiting. Nodes may not publish here
// (broker/network/choria_auth.go:598).
const releaseSubject = "provctl.election.provisioner.released"

// released is a note on releaseSubject.
type released struct {
	Revision uint64 `json:"revision"`
}

// electionRequest is the longest wait for one answer; a broken connection ends it earlier.
const electionRequest = 5 * time.Second

// revisionError says that the key is not at the revision that a write expected.
type revisionError struct{ at uint64 } // 0: there is no key

func (e *revisionError) Error() string { return fmt.Sprintf("the key is at revision %d", e.at) }

// vote makes one attempt to get or keep the key: at the revision that another worker gave up, at our own, or at none. Its
// error means that there was no answer that tells who leads. The lease stays as it is then: what was sent may have been stored,
// which the next attempt finds out; the deadline does not move.
func (e *Election) vote(ctx context.Context, taking uint64) error {
	if err := e.watch(); err != nil {
		return err
	}
	ttl, err := e.bucketTTL(ctx)
	if err != nil {
		return err
	}
	e.mu.Lock()
	held := e.held
	e.mu.Unlock()
	expected := held.revision
	if expected == 0 {
		expected = taking
	}
	sent := e.opt.Now()
	revision, err := e.put(ctx, expected)
	answered := e.opt.Now()

	e.mu.Lock()
	defer e.mu.Unlock()
	e.ttl = ttl
	var wrong *revisionError
	switch {
	case errors.As(err, &wrong):
		e.held, e.taken = lease{}, wrong.at != 0
		return nil
	case err != nil:
		return err
	case held.revision != 0:
		e.held = held.renewed(revision, sent, ttl)
	default:
		e.held = won(revision, sent, answered, ttl, e.opt.Wait)
	}
	e.taken = false
	return nil
}

// request asks the broker and reads the answer's error. It ends when the connection breaks: nothing is asked again by itself.
func (e *Election) request(ctx context.Context, subject string, m *nats.Msg, answer any) error {
	nc, down, err := e.opt.Engine.link()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, electionRequest)
	defer cancel()
	go func() {
		select {
		case <-down:
			cancel()
		case <-e.opt.Engine.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	m.Subject = subject
	reply, err := nc.RequestMsgWithContext(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("nobody serves %s; enable Choria Streams on the broker (plugin.choria.network.stream.store), with its managed streams", subject)
	case err != nil && !nc.IsConnected():
		return e.opt.Engine.cutOff()
	case err != nil:
		return fmt.Errorf("no answer from %s: %w; look at the state of Choria Streams on the broker", subject, err)
	case len(reply.Data) > maxMessage:
		return fmt.Errorf("the answer from %s: %w", subject, errHuge)
	}
	return readStreams(subject, reply.Data, answer)
}

// readStreams decodes an answer of the JetStream API, or the error that it is.
func readStreams(subject string, data []byte, answer any) error {
	var failed struct {
		Error *struct {
			Code int    `json:"err_code"`
			Text string `json:"description"`
		} `json:"error"`
	}
	if err := lenient(json.RawMessage(data), &failed); err != nil {
		return fmt.Errorf("the answer from %s cannot be read: %s", subject, clean(err.Error()))
	}
	if f := failed.Error; f != nil {
		var at uint64
		if _, err := fmt.Sscanf(f.Text, "wrong last sequence: %d", &at); err == nil && f.Code == wrongRevision {
			return &revisionError{at: at}
		}
		return fmt.Errorf("%s is refused: %s (%d); look at the state of bucket %s on the broker", subject, clean(f.Text), f.Code, electionBucket)
	}
	if err := lenient(json.RawMessage(data), answer); err != nil {
		return fmt.Errorf("the answer from %s cannot be read: %s", subject, clean(err.Error()))
	}
	return nil
}

// bucketTTL asks how long a key lives. It is asked each time: the broker's configuration may change while we lead.
func (e *Election) bucketTTL(ctx context.Context) (time.Duration, error) {
	var info struct {
		Config struct {
			MaxAge int64 `json:"max_age"` // nanoseconds
		} `json:"config"`
	}
	if err := e.request(ctx, bucketInfo, &nats.Msg{}, &info); err != nil {
		return 0, fmt.Errorf("the election bucket %s: %w", electionBucket, err)
	}
	ttl := time.Duration(info.Config.MaxAge)
	return ttl, checkTTL(ttl)
}

// put writes our name if the key is at a revision, 0 meaning that there is none, and gives the new one.
func (e *Election) put(ctx context.Context, at uint64) (uint64, error) {
	var ack struct {
		Stream   string `json:"stream"`
		Sequence uint64 `json:"seq"`
	}
	m := &nats.Msg{Header: nats.Header{}, Data: []byte(e.opt.Name)}
	m.Header.Set(expectRevision, strconv.FormatUint(at, 10))
	if err := e.request(ctx, electionKey, m, &ack); err != nil {
		return 0, fmt.Errorf("the election: %w", err)
	}
	if ack.Stream != electionStream || ack.Sequence == 0 {
		return 0, fmt.Errorf("the election: the answer from %s names stream %q and revision %d; expected %s and more than 0",
			electionKey, clean(ack.Stream), ack.Sequence, electionStream)
	}
	return ack.Sequence, nil
}
