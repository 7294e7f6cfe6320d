// Package packaging_test checks what is shipped beside the program: that the dashboard and the alert rules read metrics that a
// worker really serves, and that the tests which the documents name exist.
package packaging_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
)

// dashboard is the part of Grafana's model that can be wrong here.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct {
			RefID, Expr, LegendFormat string
			Datasource                struct{ Type, UID string }
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile("grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil || len(d.Panels) == 0 {
		t.Fatalf("%d panels, %v", len(d.Panels), err)
	}
	return d
}

// rules is a rule file of Prometheus; no other member is allowed.
type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	b, err := os.ReadFile("prometheus-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file rules
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// chosen is what stands for the dashboard's variable site: it selects every series.
const chosen = ".*"

// filled is a panel's expression with values for Grafana's variables.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$site", chosen).Replace(expr)
}

var legend = regexp.MustCompile(`\{\{\s*(.*?)\s*\}\}`)

func TestDashboardReadsWhatIsServed(t *testing.T) {
	served := scraped(t)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			expr := filled(target.Expr)
			has, err := served.check(expr)
			if err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
				continue
			}
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q: %s has a variable that the dashboard does not", p.Title, target.Expr)
			}
			for _, l := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if err := has.lacks(l[1]); err != nil {
					t.Errorf("panel %q: legend %s: %v", p.Title, target.LegendFormat, err)
				}
			}
			if n, of := strings.Count(target.Expr, `{site=~"$site"`), len(series(expr)); n != of {
				t.Errorf("panel %q: %d of %d series are those of the chosen site: %s", p.Title, n, of, target.Expr)
			}
		}
	}
}

// TestDashboardShowsEveryMetric: those that docs/metrics.md lists, which is checked against the registry where that is made.
func TestDashboardShowsEveryMetric(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	served, shown := scraped(t), names{}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			for _, s := range series(filled(target.Expr)) {
				shown[served[s].family] = true
			}
		}
	}
	listed := regexp.MustCompile(`(?m)^\| ((?:choria_provisioner|provctl)_\w+) \|`).FindAllStringSubmatch(string(text), -1)
	if len(listed) == 0 {
		t.Fatal("docs/metrics.md lists no metric")
	}
	for _, l := range listed {
		if !shown[l[1]] {
			t.Errorf("no panel shows %s", l[1])
		}
	}
}

// TestDashboardCanBeImported: what Grafana takes silently and shows wrongly.
func TestDashboardCanBeImported(t *testing.T) {
	d := readDashboard(t)
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
		if inside, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			name, label, _ := strings.Cut(strings.TrimSuffix(inside, ")"), ", ")
			if err := scraped(t)[name].labels.lacks(label); err != nil {
				t.Errorf("variable %s: %s: %v", v.Name, v.Definition, err)
			}
		}
	}
	if variables["datasource"] != "datasource" || variables["site"] != "query" {
		t.Errorf("variables %v", variables)
	}
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other := ids[p.ID]; other != "" {
			t.Errorf("panels %q and %q have the same id", other, p.Title)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies on %q or outside", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if !strings.HasSuffix(p.Description, ".") || len(p.Description) < 40 || len(p.Targets) == 0 {
			t.Errorf("panel %q does not say what to do: %q, %d queries", p.Title, p.Description, len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" || target.RefID == "" {
				t.Errorf("panel %q asks %+v", p.Title, target.Datasource)
			}
		}
	}
}

// inTemplates are what Prometheus defines for annotations, as far as ours use it.
var inTemplates = template.FuncMap{
	"humanize":           func(float64) string { return "1" },
	"humanizeDuration":   func(float64) string { return "1s" },
	"humanizePercentage": func(float64) string { return "1%" },
}

func TestAlertsReadWhatIsServed(t *testing.T) {
	served := scraped(t)
	for _, r := range readRules(t) {
		has, err := served.check(r.Expr)
		if err != nil {
			t.Errorf("%s: %v", r.Alert, err)
			continue
		}
		labels := map[string]string{}
		for l := range has {
			labels[l] = "x"
		}
		for name, text := range r.Annotations {
			tmpl, err := template.New(name).Option("missingkey=error").Funcs(inTemplates).Parse("{{$labels := .Labels}}{{$value := .Value}}" + text)
			if err == nil {
				err = tmpl.Execute(&strings.Builder{}, map[string]any{"Labels": labels, "Value": 1.0})
			}
			if err != nil {
				t.Errorf("%s: %s: %v", r.Alert, name, err)
			}
		}
	}
}

// TestAlertsSayWhatToType: whoever is woken reads this first.
func TestAlertsSayWhatToType(t *testing.T) {
	commands := commandNames(t)
	seen := names{}
	for _, r := range readRules(t) {
		if seen[r.Alert] || !strings.HasPrefix(r.Alert, "Provctl") {
			t.Errorf("the name %q is taken or not ours", r.Alert)
		}
		seen[r.Alert] = true
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if _, err := model.ParseDuration(r.For); r.For != "" && err != nil {
			t.Errorf("%s: for: %v", r.Alert, err)
		}
		if r.Annotations["summary"] == "" || strings.Contains(r.Annotations["summary"], "\n") {
			t.Errorf("%s: summary %q", r.Alert, r.Annotations["summary"])
		}
		typed := regexp.MustCompile(`'provctl ([a-z]+)[^']*'`).FindAllStringSubmatch(r.Annotations["description"], -1)
		if len(typed) == 0 {
			t.Errorf("%s: the description names no command", r.Alert)
		}
		for _, c := range typed {
			if !commands[c[1]] {
				t.Errorf("%s: %s: there is no such command", r.Alert, c[0])
			}
		}
	}
}

// commandNames are the program's commands, read from their source: main cannot be imported.
func commandNames(t *testing.T) names {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "cmd", "provctl", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	out := names{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bName:\s+"([a-z]+)",`).FindAllStringSubmatch(string(b), -1) {
			out[m[1]] = true
		}
	}
	return out
}
