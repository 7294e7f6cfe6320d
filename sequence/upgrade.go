package sequence

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"provctl/internal/agent"
	"provctl/journal"
	"provctl/receipt"
)

const (
	// restartSoon is how long after an upgrade its node is looked at again; it restarts 2 s after its reply
	// (go-choria v0.30.2 providers/agent/mcorpc/golang/provision/release_update_action.go:74).
	restartSoon = time.Second
	// restartLimit is how long an upgraded node may take to restart before that counts as a failure.
	restartLimit = time.Minute
)

// upgrade has the node replace its server by the version that the helper wants. It returns nil if the pass goes on to configure the
// node as it is: nothing was wanted, it runs that version, or it cannot be upgraded and need not.
func (p *pass) upgrade(version string) error {
	if !p.Flow.Upgrades || version == "" {
		return nil
	}
	has, err := p.upgradable(version)
	switch {
	case err != nil:
		return p.notUpgraded(receipt.FailedJob, err)
	case receipt.SameVersion(has, version):
		p.log.Info("the node runs the wanted version", "version", has, "wanted", version)
		return nil
	}
	// Exhausted is for the journal to say: an upgrade that changes nothing would be tried for ever.
	switch err := p.Journal.MayUpgrade(p.job.Node, version); {
	case errors.Is(err, receipt.ErrRepeat):
		return p.notUpgraded(receipt.Exhausted, err)
	case err != nil:
		return err
	}
	// In this incarnation once is enough, if it is as well to go on without.
	if p.Flow.UpgradeOptional && p.history.Tried(receipt.ReleaseUpdate) {
		return p.notUpgraded(receipt.FailedJob, errors.New("an upgrade failed in this incarnation"))
	}
	p.log.Info("upgrading the node", "version", has, "wanted", version)
	return p.effect(receipt.ReleaseUpdate, agent.ReleaseUpdate{Token: p.Token, Repository: p.Flow.Repository, Version: version})
}

// upgradable reads from the node's inventory which version it runs; an error says why it cannot be upgraded
// (go-choria v0.30.2 providers/agent/mcorpc/golang/rpcutil/rpcutil.go:77).
func (p *pass) upgradable(wanted string) (version string, err error) {
	var inventory struct {
		Version    string `json:"version"`
		Upgradable bool   `json:"upgradable"`
	}
	if err := json.Unmarshal(p.inventory, &inventory); err != nil {
		return "", fmt.Errorf("its inventory cannot be read: %w", err)
	}
	if err := receipt.CheckVersion(wanted); err != nil {
		return "", fmt.Errorf("the helper's upgrade: %w", err)
	}
	switch {
	case inventory.Version == "":
		return "", errors.New("its inventory names no version")
	case receipt.SameVersion(inventory.Version, wanted):
		return inventory.Version, nil
	case !inventory.Upgradable:
		return "", errors.New("it does not allow upgrades (plugin.choria.server.provision.allow_update, or the claim of its provisioning token)")
	}
	return inventory.Version, nil
}

// notUpgraded goes on without the upgrade if that is allowed, and else ends the pass.
func (p *pass) notUpgraded(result receipt.Result, why error) error {
	if p.Flow.UpgradeOptional {
		p.log.Warn("the node is not upgraded; configuring it as it is", "why", why)
		return nil
	}
	p.log.Warn("the node cannot be upgraded", "why", why)
	return p.end(result, fmt.Sprintf("could not upgrade it: %v", why))
}

// afterUpgrade is what becomes of the job after an upgrade's reply. A node that was upgraded is new work as soon as it is back; no
// pass configures it in between.
func (p *pass) afterUpgrade(e receipt.Event, why string) journal.Next {
	switch {
	case e == receipt.ReplyApplied:
		return journal.Next{Event: receipt.End, Result: receipt.Upgraded, Why: why}
	case strings.Contains(why, receipt.UpgradeBroken):
		return p.ending(receipt.Exhausted, why+": reinstall the server by hand, then admit the node")
	case p.Flow.UpgradeOptional:
		p.log.Warn("the upgrade failed; configuring the node as it is", "why", why)
		return journal.Next{}
	default:
		return p.ending(receipt.FailedJob, why)
	}
}

// awaitUpgrade keeps a pass away from an incarnation that is about to end because its server was replaced.
func (p *pass) awaitUpgrade() error {
	r := p.history.Done(receipt.ReleaseUpdate)
	if r == nil {
		return nil
	}
	if waited := p.Now().Sub(r.EndedAt); 0 <= waited && waited < restartLimit {
		return stop{journal.Next{
			Event: receipt.Requeue, Why: "it was upgraded to " + r.Target + " and is about to restart", NotBefore: p.Now().Add(restartSoon),
		}}
	}
	return p.end(receipt.FailedJob, fmt.Sprintf("it was upgraded to %s and has not restarted since (receipt %s): look at its log, and restart it", r.Target, r.ID))
}

// unmet ends a pass whose first question was not answered. A node that was just upgraded may have taken the question into its
// restart, or be between its two servers: that is no failure and no reason to hold it, until it has had its time.
func (p *pass) unmet(err error) error {
	n, nodeErr := p.Journal.Node(p.job.Node)
	if nodeErr != nil {
		return nodeErr
	}
	if waited := p.Now().Sub(n.LastEnded); n.LastResult == receipt.Upgraded && 0 <= waited && waited < restartLimit {
		return stop{journal.Next{
			Event: receipt.Requeue, Why: "it was upgraded and does not answer yet: " + err.Error(), NotBefore: p.Now().Add(restartSoon),
		}}
	}
	return p.fail("ask for its daemon_stats", err)
}
