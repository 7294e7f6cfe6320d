package receipt

import (
	"fmt"
	"slices"
)

// check collects what is wrong with a record; the first complaint wins.
type check struct{ err error }

func (c *check) must(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
}

// Check reports a job that no transition could have made.
func (j Job) Check() error {
	var c check
	_, err := ParseNodeID(string(j.Node))
	c.must(err == nil, "job %s has node %.80q", j.ID, j.Node)
	c.must(j.ID != "", "a job has no id")
	c.must(j.Seq > 0 && j.Version >= j.Seq, "job %s has sequence %d and version %d", j.ID, j.Seq, j.Version)
	c.must(slices.Contains(JobStatuses(), j.Status), "job %s has status %d", j.ID, j.Status)
	c.must((j.Status == Ended) == (j.Result != 0), "job %s is %s with result %d", j.ID, j.Status, j.Result)
	c.must(j.Result == 0 || slices.Contains(Results(), j.Result), "job %s has result %d", j.ID, j.Result)
	c.must(j.Claims >= 0 && j.Requeues >= 0 && j.Begun >= 0, "job %s has a negative count", j.ID)
	return c.err
}

// Check reports a receipt that no transition could have made.
func (r Receipt) Check() error {
	var c check
	_, err := ParseNodeID(string(r.Node))
	c.must(err == nil, "receipt %s has node %.80q", r.ID, r.Node)
	c.must(r.ID != "" && r.Job != "" && r.Request != "" && r.Token != "", "receipt %s lacks an id, its job, request or token", r.ID)
	c.must(r.Seq > 0 && r.Version >= r.Seq, "receipt %s has sequence %d and version %d", r.ID, r.Seq, r.Version)
	c.must(r.Epoch > 0, "receipt %s has no epoch", r.ID)
	c.must(slices.Contains(Actions(), r.Action), "receipt %s has action %d", r.ID, r.Action)
	c.must(slices.Contains(Statuses(), r.Status), "receipt %s has status %d", r.ID, r.Status)
	c.must(r.Incarnation.Known(), "receipt %s has no incarnation", r.ID)
	c.must(!r.RequestTime.IsZero() && r.Horizon.After(r.RequestTime), "receipt %s has request time %s and horizon %s", r.ID, r.RequestTime, r.Horizon)
	c.must((r.Target != "") == (r.Action == ReleaseUpdate), "receipt %s of %s has target %.80q", r.ID, r.Action, r.Target)
	c.must(len(r.Digest) == 64, "receipt %s has a digest of %d characters", r.ID, len(r.Digest))
	for _, e := range r.Evidence {
		if err := e.Check(); err != nil {
			c.must(false, "receipt %s: %s", r.ID, err)
		}
	}
	for _, d := range r.Decisions {
		c.must(slices.Contains(Verdicts(), d.Verdict) && d.Seq > 0, "receipt %s has a decision %d at %d", r.ID, d.Verdict, d.Seq)
	}
	return c.err
}

// Check reports a node record that no transition could have made.
func (n Node) Check() error {
	var c check
	_, err := ParseNodeID(string(n.ID))
	c.must(err == nil, "a node record has node %.80q", n.ID)
	c.must(n.Version > 0, "node %s has no version", n.ID)
	c.must(n.Open == "" || n.Job != "", "node %s has open receipt %s and no job", n.ID, n.Open)
	c.must(n.Out == 0 || n.Out.StaysOut(), "node %s is out as %s", n.ID, n.Out)
	return c.err
}
