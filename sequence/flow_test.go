package sequence_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"provctl/internal/agent"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

const configuration = `"configuration":{"plugin.choria.server.provision":"false"}`

// TestFlows makes a pass in each flow and looks at the order of its steps and at what helper and node are told.
func TestFlows(t *testing.T) {
	const tail = "stats, prepare configure, publish configure, stats, prepare restart, publish restart"
	for _, c := range []struct {
		name   string
		flow   sequence.Flow
		helper string
		calls  string
		check  func(t *testing.T, b *bench, sent agent.Configure)
	}{
		{
			"plain",
			sequence.Flow{},
			`{` + configuration + `}`, "stats, jwt, inventory, helper, " + tail,
			func(t *testing.T, b *bench, sent agent.Configure) {
				if b.asked.JWT != nil || b.asked.CSR != nil || b.asked.Ed25519 != nil || sent.ServerJWT != "" {
					t.Errorf("asked %+v, sent %+v", b.asked, sent)
				}
			},
		},
		{
			"jwt",
			sequence.Flow{JWT: true},
			`{` + configuration + `}`, "stats, jwt, inventory, helper, " + tail,
			func(t *testing.T, b *bench, sent agent.Configure) {
				if string(b.asked.JWT) != "{}" || b.asked.CSR != nil || b.asked.Ed25519 != nil || sent.ServerJWT != "" {
					t.Errorf("asked %+v, sent %+v", b.asked, sent)
				}
			},
		},
		{
			"pki",
			sequence.Flow{JWT: true, PKI: true},
			`{` + configuration + `,"certificate":"cert","ca":"ca","ssldir":"/etc/choria/ssl"}`,
			"stats, jwt, inventory, prepare gencsr, publish gencsr, check csr pem, helper, check cert against csr pem, " + tail,
			func(t *testing.T, b *bench, sent agent.Configure) {
				in, _ := b.sent[receipt.GenCSR].(agent.GenCSR)
				if in.CN != string(node) || b.asked.CSR == nil || b.asked.CSR.CSR != "csr pem" || b.asked.CSR.SSLDir != "/etc/choria/ssl" || b.asked.Ed25519 != nil {
					t.Errorf("node asked %+v, helper told %+v", in, b.asked)
				}
				if sent.Certificate != "cert" || sent.CA != "ca" || sent.SSLDir != "/etc/choria/ssl" || sent.Key != "" || sent.ServerJWT != "" {
					t.Errorf("sent %+v", sent)
				}
			},
		},
		{
			"key from the helper",
			sequence.Flow{JWT: true},
			`{` + configuration + `,"certificate":"cert","ca":"ca","ssldir":"/etc/choria/ssl","key":"secret"}`,
			"stats, jwt, inventory, helper, check cert against , " + tail,
			func(t *testing.T, _ *bench, sent agent.Configure) {
				if sent.Key != "sealed secret for node key" || sent.ECDHPublic != "ours" {
					t.Errorf("sent %+v", sent)
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.flow, b.helper, b.ecdh = c.flow, c.helper, "node key"
			job, err := b.pass()
			if err != nil || job.Result != receipt.Provisioned {
				t.Fatalf("job %+v, %v", job, err)
			}
			if got := strings.Join(b.calls, ", "); got != c.calls {
				t.Errorf("asked\n%s, want\n%s", got, c.calls)
			}
			sent, ok := b.sent[receipt.Configure].(agent.Configure)
			if !ok {
				t.Fatalf("configure was sent %T", b.sent[receipt.Configure])
			}
			c.check(t, b, sent)
		})
	}
}

// TestFlowRefusals: what must not be sent ends the pass before the helper or before the configure, with a hold.
func TestFlowRefusals(t *testing.T) {
	errDenied := errors.New("name is denied")
	declined := fmt.Errorf("%w: code 1", sequence.ErrNoToken)
	for _, c := range []struct {
		name    string
		change  func(*bench)
		effects string
		asked   bool
		result  receipt.Result
		why     string
	}{
		{
			"denied name", func(b *bench) { b.flow, b.csr = sequence.Flow{JWT: true, PKI: true}, errDenied },
			"gencsr", false, receipt.FailedJob, "name is denied",
		},
		{
			"a key and no exchange", func(b *bench) {
				b.flow = sequence.Flow{JWT: true}
				b.helper = `{` + configuration + `,"certificate":"c","ca":"a","ssldir":"/s","key":"secret"}`
			}, "", true, receipt.FailedJob, "no key to encrypt it to",
		},
		{"no token where one is verified", func(b *bench) { b.jwt = declined }, "", false, receipt.FailedJob, "provisioning token"},
		{"no token where none is verified", func(b *bench) { b.jwt, b.flow = declined, sequence.Flow{} }, "configure restart", true, receipt.Provisioned, ""},
		{"silence where no token is verified", func(b *bench) { b.jwt, b.flow = errors.New("no reply"), sequence.Flow{} }, "", false, receipt.FailedJob, "no reply"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.change(b)
			job, err := b.pass()
			if err != nil || job.Result != c.result || !strings.Contains(job.Why, c.why) {
				t.Fatalf("job %s %s: %q, %v", job.Status, job.Result, job.Why, err)
			}
			if b.effects() != c.effects || slices.Contains(b.calls, "helper") != c.asked {
				t.Errorf("calls %q", b.calls)
			}
			if strings.Contains(job.Why, "secret") {
				t.Errorf("a secret is shown: %q", job.Why)
			}
		})
	}
}

// TestCSRIsMadeOnce: a second pass in the same incarnation uses the request of the first, also after a configure that failed.
func TestCSRIsMadeOnce(t *testing.T) {
	b := newBench(t)
	b.flow = sequence.Flow{JWT: true, PKI: true}
	b.publish = failing(receipt.Configure, "TLS Setup Failed: no space")
	if job, err := b.pass(); err != nil || job.Result != receipt.FailedJob || b.effects() != "gencsr configure" {
		t.Fatalf("job %+v, %v, effects %s", job, err, b.effects())
	}
	b.publish = nil
	job, err := b.pass()
	if err != nil || job.Result != receipt.Provisioned || b.effects() != "configure restart" {
		t.Fatalf("job %+v, %v, effects %s", job, err, b.effects())
	}
	if b.asked.CSR == nil || b.asked.CSR.CSR != "csr pem" {
		t.Errorf("the helper was told %+v", b.asked)
	}
}

// failing has the node answer an action with code 1.
func failing(a receipt.Action, text string) func(*journal.Pending) (sequence.Outcome, error) {
	return func(p *journal.Pending) (sequence.Outcome, error) {
		if p.Receipt().Action == a {
			return sequence.Outcome{Reply: &receipt.Reply{Code: 1, Text: text}}, nil
		}
		return sequence.Outcome{}, nil
	}
}
