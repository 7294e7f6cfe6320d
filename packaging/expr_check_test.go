package packaging_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTheCheckHasTeeth: what must not get through in a panel or a rule, and the same said right.
func TestTheCheckHasTeeth(t *testing.T) {
	served := scraped(t)
	for _, c := range []struct{ wrong, says, right string }{
		{`provctl_receipt_unknown > 0`, `no series "provctl_receipt_unknown"`, `provctl_receipts_unknown > 0`},
		{`rate(choria_provisioner_provisoned[5m])`, "no series", `rate(choria_provisioner_provisioned[5m])`},
		{`rate(provctl_commit_seconds[5m])`, "no series", `rate(provctl_commit_seconds_sum[5m])`},
		{`rate(choria_provisioner_helper_time_bucket[5m])`, "no series", `rate(choria_provisioner_helper_time_count[5m])`},
		{`rate(choria_provisioner_helper_errors_total[5m])`, "no series", `rate(choria_provisioner_helper_errors[5m])`},
		{`{__name__="provctl_epoch"}`, "no series", `provctl_epoch`},
		{`provctl_epoch{host="a"}`, `no label "host"`, `provctl_epoch{instance="a"}`},
		{`up{site="a"}`, `no label "site"`, `up{job="a"}`},
		{`rate(provctl_settled_total{how="prof"}[5m])`, "matches none of", `rate(provctl_settled_total{how="evidence"}[5m])`},
		{`rate(provctl_settled_total{status=~"appl"}[5m])`, "matches none of", `rate(provctl_settled_total{status=~"appl.*"}[5m])`},
		{`sum by (rpc) (rate(choria_provisioner_helper_time_sum[5m]))`, `no label "rpc"`, `sum by (rpc) (rate(choria_provisioner_rpc_time_sum[5m]))`},
		{`sum without (action) (provctl_epoch)`, `no label "action"`, `sum without (instance) (provctl_epoch)`},
		{`histogram_quantile(0.9, sum by (site) (rate(provctl_commit_seconds_bucket[5m])))`, `no label "le"`, `histogram_quantile(0.9, sum by (site, le) (rate(provctl_commit_seconds_bucket[5m])))`},
		{`provctl_fence_refusals_total > 0`, "needs rate or increase", `increase(provctl_fence_refusals_total[5m]) > 0`},
		{`rate(choria_provisioner_waiting_nodes[5m])`, "needs rate or increase", `deriv(choria_provisioner_waiting_nodes[5m])`},
		{`provctl_epoch and up`, "never matches", `provctl_epoch and on (instance) up`},
		{`sum by (site) (provctl_epoch) > provctl_receipts_open`, "never matches", `sum by (site) (provctl_epoch) > sum by (site) (provctl_receipts_open)`},
		{`provctl_epoch unless on (site) up`, `right of unless on: no label "site"`, `provctl_epoch unless on (job) up`},
		{`up unless on (site) provctl_epoch`, `left of unless on: no label "site"`, `up unless on (job) provctl_epoch`},
		{`absent(provctl_leader)`, "no series", `absent(provctl_epoch)`},
		{`max_over_time(increase(provctl_typo[5m])[1h:])`, "no series", `max_over_time(increase(provctl_requeues_total[5m])[1h:])`},
		{`-(provctl_typo)`, "no series", `-(provctl_epoch)`},
		{`sort(provctl_epoch)`, "teach it", `abs(provctl_epoch)`},
		{`provctl_epoch * on (job) group_left up`, "teach it", `provctl_epoch * on (job) up`},
		{`sum by (site) provctl_epoch)`, "parse error", `sum by (site) (provctl_epoch)`},
		{`rate(provctl_requeues_total)`, "expected type range vector", `rate(provctl_requeues_total[5m])`},
	} {
		if _, err := served.check(c.wrong); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error with %q", c.wrong, err, c.says)
		}
		if _, err := served.check(c.right); err != nil {
			t.Error(err)
		}
	}
}

// TestLabelsOfAResult are what legends and annotations may name.
func TestLabelsOfAResult(t *testing.T) {
	served := scraped(t)
	for expr, want := range map[string]string{
		`provctl_epoch`:                               "instance job site",
		`absent(up{job="a", instance=~"b"})`:          "job",
		`sum(provctl_epoch)`:                          "",
		`sum without (job) (provctl_epoch) > 1`:       "instance site",
		`provctl_epoch * on (site) provctl_epoch`:     "site",
		`provctl_epoch and on (site) provctl_epoch`:   "instance job site",
		`rate(provctl_settled_total[5m])`:             "how instance job site status",
		`rate(choria_provisioner_rpc_errors[5m]) / 2`: "instance job rpc site",
	} {
		has, err := served.check(expr)
		if got := strings.Join(slices.Sorted(maps.Keys(has)), " "); err != nil || got != want {
			t.Errorf("%s: labels %q, %v; want %q", expr, got, err, want)
		}
	}
}

// TestEveryMisspeltNameIsFound takes each expression that is shipped and misspells one of its series at a time.
func TestEveryMisspeltNameIsFound(t *testing.T) {
	served := scraped(t)
	var all []string
	for _, r := range readRules(t) {
		all = append(all, r.Expr)
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, filled(target.Expr))
		}
	}
	for _, expr := range all {
		read := series(expr)
		if len(read) == 0 {
			t.Errorf("%s reads no series", expr)
		}
		for _, name := range read {
			misspelt := strings.Replace(expr, name, name[:len(name)-1]+"x", 1)
			if _, err := served.check(misspelt); err == nil {
				t.Errorf("nothing is wrong with %s", misspelt)
			}
		}
	}
}
