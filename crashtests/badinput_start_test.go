package crashtests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/internal/fleet"
)

// stand is a site whose worker has worked and stopped, with a node that waits to be provisioned: if a worker that must not come
// up does, that node's log shows it.
type stand struct {
	*site
	blank, good string // copies of the state directory: as init made it, and after the worker's life
	idle        string // the node that nobody may touch
}

func newStand(t *testing.T) *stand {
	s := &stand{site: newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: short(nil)}})}
	s.idle = s.fleet.Nodes()[1]
	if err := s.fleet.KillNode(s.idle); err != nil {
		t.Fatal(err)
	}
	s.blank, s.good = filepath.Join(t.TempDir(), "blank"), filepath.Join(t.TempDir(), "good")
	copyDir(t, s.files.StateDir, s.blank)
	s.start()
	s.awaitFleet("a node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.await("the job has ended", func() bool { return s.inspect().Counts.Results["provisioned"] == 1 })
	return s
}

// settle stops the worker and has the idle node come up.
func (s *stand) settle() {
	if code := s.stop(); code != 0 {
		s.t.Fatalf("the worker stopped with exit code %d", code)
	}
	copyDir(s.t, s.files.StateDir, s.good)
	if err := s.fleet.StartNode(s.ctx, s.idle); err != nil {
		s.t.Fatal(err)
	}
}

// with writes the files of another worker of the same fleet.
func (s *stand) with(t *testing.T, stateDir string, values map[string]any) fleet.WorkerFiles {
	t.Helper()
	files, err := s.fleet.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{StateDir: stateDir, Values: short(values)})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestBadInputAtStart starts the worker on everything that it must refuse. Each time: the exit code that a service manager goes
// by, a message with place and remedy, the state directory as it was, and no request at any node.
func TestBadInputAtStart(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	t.Run("lock held", func(t *testing.T) { s.lockHeld(t) })
	s.settle()
	t.Run("cases", func(t *testing.T) {
		s.badJournals(t)
		s.badStateDirs(t)
		s.badConfigs(t)
		s.badChoriaConfigs(t)
		s.badCredentials(t)
	})
	if n := s.requests(s.idle); n != 0 {
		t.Errorf("%d requests reached a node", n)
	}
	s.noneTwice()
	s.discreet()
}

func (s *stand) lockHeld(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	write(t, pid, "as it was")
	out, code := refused(t, "--config", s.files.Config, "--choria-config", s.files.ChoriaConfig, "--pid", pid)
	says(t, out, code, 5, `worker\.lock`, fmt.Sprintf(`\b%d\b`, s.worker.cmd.Process.Pid), "stop it first")
	if got := read(t, pid); got != "as it was" {
		t.Errorf("the refused worker wrote its pid file: %q", got)
	}
}

// badJournals damages copies of the state directory.
func (s *stand) badJournals(t *testing.T) {
	db := func(dir string) string { return filepath.Join(dir, "journal.db") }
	marker := func(dir string) string { return filepath.Join(dir, "journal.marker") }
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		words  []string
	}{
		"missing":          {func(t *testing.T, dir string) { remove(t, db(dir)) }, []string{"journal missing", "journal.db", "provctl init"}},
		"missing entirely": {func(t *testing.T, dir string) { remove(t, db(dir)); remove(t, marker(dir)) }, []string{"journal missing", "provctl init"}},
		"empty file":       {func(t *testing.T, dir string) { write(t, db(dir), "") }, []string{"journal missing", "empty", "restore"}},
		"random bytes":     {func(t *testing.T, dir string) { write(t, db(dir), strings.Repeat("no journal\x00\xff", 5000)) }, []string{"damaged", "journal.db"}},
		"short file":       {func(t *testing.T, dir string) { write(t, db(dir), "short") }, []string{"damaged", "journal.db"}},
		"other bbolt file": {func(t *testing.T, dir string) { remove(t, db(dir)); otherBolt(t, db(dir)) }, []string{"damaged", "journal.db"}},
		"flipped bytes":    {func(t *testing.T, dir string) { flip(t, db(dir), 2) }, []string{"damaged", "journal.db", "restore"}},
		"flipped metas":    {func(t *testing.T, dir string) { flip(t, db(dir), 0) }, []string{"damaged", "journal.db"}},
		"truncated":        {func(t *testing.T, dir string) { cut(t, db(dir), 2) }, []string{"damaged", "journal.db"}},
		"cut off":          {func(t *testing.T, dir string) { cut(t, db(dir), 4) }, []string{"damaged", "journal.db"}},
		"older copy":       {func(t *testing.T, dir string) { write(t, db(dir), read(t, db(s.blank))) }, []string{"damaged", "marker"}},
		"other journal": {func(t *testing.T, dir string) {
			other := filepath.Join(t.TempDir(), "other")
			if out, code := s.provctl("init", "--state-dir", other); code != 0 {
				t.Fatal(out)
			}
			write(t, db(dir), read(t, db(other)))
		}, []string{"damaged", "marker"}},
		"newer format":   {func(t *testing.T, dir string) { newerFormat(t, db(dir)) }, []string{"format 3", "newer provctl"}},
		"marker missing": {func(t *testing.T, dir string) { remove(t, marker(dir)) }, []string{"damaged", "journal.marker", "restore"}},
		"marker garbage": {func(t *testing.T, dir string) { write(t, marker(dir), strings.Repeat("x", 1024)) }, []string{"damaged", "journal.marker", "restore"}},
		"dangling link": {func(t *testing.T, dir string) {
			remove(t, db(dir))
			link(t, filepath.Join(dir, "gone"), db(dir))
		}, []string{"journal missing", "dangling"}},
		"directory": {func(t *testing.T, dir string) {
			remove(t, db(dir))
			if err := os.Mkdir(db(dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{"damaged", "no regular file"}},
	} {
		t.Run("journal "+name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			copyDir(t, s.good, dir)
			c.change(t, dir)
			before := contents(t, dir)
			files := s.with(t, dir, nil)
			out, code := refused(t, "--config", files.Config, "--choria-config", files.ChoriaConfig)
			says(t, out, code, 6, c.words...)
			s.silent(t, "the message", out)
			shown, code := s.provctl("inspect", "--state-dir", dir)
			says(t, shown, code, 6)
			after := contents(t, dir)
			before["worker.lock"], after["worker.lock"] = "", ""
			if !maps.Equal(before, after) {
				t.Error("a worker that refused its journal changed the state directory")
			}
		})
	}
}

// badStateDirs takes away the directory itself, or the right to it.
func (s *stand) badStateDirs(t *testing.T) {
	gone := func(t *testing.T, dir string) {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		code   int
		words  []string
	}{
		"missing": {gone, 6, []string{"journal missing", "state", "does not exist", "provctl init"}},
		"a file": {func(t *testing.T, dir string) {
			gone(t, dir)
			write(t, dir, "")
		}, 78, []string{`provctl\.yaml:\d+:\d+: state_dir: is not a directory`, "name a directory"}},
		"unwritable": {func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "worker.lock"))
			if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			}
		}, 1, []string{`worker\.lock`, "permission denied", "writable"}},
		"lock is a link": {func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "worker.lock"))
			link(t, filepath.Join(t.TempDir(), "elsewhere"), filepath.Join(dir, "worker.lock"))
		}, 1, []string{`worker\.lock`}},
		"lock is a directory": {func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "worker.lock"))
			if err := os.Mkdir(filepath.Join(dir, "worker.lock"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, 1, []string{`worker\.lock`}},
	} {
		t.Run("state directory "+name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			copyDir(t, s.good, dir)
			files := s.with(t, dir, nil)
			c.change(t, dir)
			out, code := refused(t, "--config", files.Config, "--choria-config", files.ChoriaConfig)
			says(t, out, code, c.code, c.words...)
			s.silent(t, "the message", out)
		})
	}
}

// wrongValues are settings of the worker, each with what its message must say after file, line and column.
var wrongValues = map[string]struct {
	values map[string]any
	words  []string
}{
	"unknown key":         {map[string]any{"effect_tll": "60s"}, []string{"effect_tll: unknown key", "did you mean effect_ttl"}},
	"wrong type":          {map[string]any{"workers": "many"}, []string{`workers: must be a whole number, found "many"; write`}},
	"list for text":       {map[string]any{"helper": []string{"a", "b"}}, []string{"helper: must be text", "put the value in quotes"}},
	"text for a section":  {map[string]any{"features": "all"}, []string{"features: must hold further keys"}},
	"number for duration": {map[string]any{"interval": 60}, []string{`interval: must be a duration with its unit, found "60"; write`}},
	"below its range":     {map[string]any{"effect_ttl": "1s"}, []string{`effect_ttl: is out of range, found "1s"; write 2s to 10m`}},
	"above its range":     {map[string]any{"monitor_port": 70000}, []string{"monitor_port: is out of range, found 70000; write"}},
	"negative":            {map[string]any{"max_unknown": -1}, []string{"max_unknown: is out of range, found -1; write"}},
	"other word":          {map[string]any{"on_unknown": "ignore"}, []string{`on_unknown: is not one of its values, found "ignore"; write node or fleet`}},
	"helper missing":      {map[string]any{"helper": "/nowhere/helper"}, []string{`helper: the program does not exist, found "/nowhere/helper"; name`}},
	"helper no program":   {map[string]any{"helper": "'unclosed"}, []string{"helper: is not a command line"}},
	"key file missing":    {map[string]any{"jwt_signing_key": "/nowhere/seed"}, []string{"jwt_signing_key: is not a readable file", `"/nowhere/seed"`}},
	"verify cert missing": {map[string]any{"jwt_verify_cert": "/nowhere/cert"}, []string{"jwt_verify_cert: is neither 64 hex digits nor a readable file"}},
	"logfile nowhere":     {map[string]any{"logfile": "/nowhere/at/all.log"}, []string{"logfile: its directory does not exist", "make the directory"}},
	"several":             {map[string]any{"workers": "many", "evidence": "some", "nonsense": 1}, []string{"workers: must", "evidence: is not", "nonsense: unknown key"}},
}

// wrongFiles are whole configuration files.
var wrongFiles = map[string]struct {
	text  string
	words []string
}{
	"not YAML":                  {"workers: [1\ninterval: }\n", []string{`provctl\.yaml:\d+:\d+: this is not YAML`, "check the syntax"}},
	"tabs":                      {"features:\n\ted25519: true\n", []string{`provctl\.yaml:\d+:\d+: `}},
	"binary":                    {"\x7fELF\x00\x01\x02\xff", []string{`provctl\.yaml:1:\d+: `, "remove it|save the file as UTF-8"}},
	"empty":                     {"", []string{`provctl\.yaml: the file is empty; set at least`}},
	"a list":                    {"- a\n- b\n", []string{`provctl\.yaml:1:\d+: the file does not hold key: value lines`}},
	"two documents":             {"workers: 1\n---\nworkers: 2\n", []string{`provctl\.yaml:\d+:\d+: the file holds more than one`}},
	"duplicate keys":            {"workers: 1\nworkers: 2\n", []string{`provctl\.yaml:2:1: workers: the key is set twice, first in line 1; keep one`}},
	"deep":                      {"a: " + strings.Repeat("[", 100000), []string{`provctl\.yaml:1:\d+: nested too deeply`}},
	"a secret in a broken line": {"token: \"5ecr3t\n  broker: [", []string{`provctl\.yaml:\d+:\d+: `}},
}

func (s *stand) badConfigs(t *testing.T) {
	run := func(name string, make func(t *testing.T) string, words []string) {
		t.Run("configuration "+name, func(t *testing.T) {
			t.Parallel()
			out, code := refused(t, "--config", make(t), "--choria-config", s.files.ChoriaConfig)
			says(t, out, code, 78, words...)
			s.silent(t, "the message", out)
			if strings.Contains(out, "5ecr3t") {
				t.Errorf("the message repeats a secret: %s", out)
			}
		})
	}
	for name, c := range wrongValues {
		var words []string
		for _, w := range c.words {
			words = append(words, `provctl\.yaml:\d+:\d+: `+w, w)
		}
		// Where several things are asked of one line, the first begins it.
		if name != "several" {
			words = append(words[:1], c.words...)
		}
		run(name, func(t *testing.T) string { return s.with(t, s.good, c.values).Config }, words)
	}
	for name, c := range wrongFiles {
		run(name, func(t *testing.T) string {
			file := filepath.Join(t.TempDir(), "provctl.yaml")
			write(t, file, c.text)
			return file
		}, c.words)
	}
	run("missing", func(t *testing.T) string { return filepath.Join(t.TempDir(), "provctl.yaml") }, []string{`provctl\.yaml: the file does not exist; name an existing file`})
	run("is a directory", func(t *testing.T) string { return t.TempDir() }, []string{"this is a directory; name the YAML file"})
}

// badChoriaConfigs breaks the client configuration: a configuration error like those of the worker's own file.
func (s *stand) badChoriaConfigs(t *testing.T) {
	good := read(t, s.files.ChoriaConfig)
	line := func(key, value string) string {
		var out []string
		for l := range strings.Lines(good) {
			if !strings.HasPrefix(l, key+"=") {
				out = append(out, l)
			}
		}
		return strings.Join(out, "") + key + "=" + value + "\n"
	}
	for name, c := range map[string]struct {
		text  string
		words []string
	}{
		"empty":               {"", nil},
		"binary":              {"\x00\xff\xfe\x01" + strings.Repeat("\x80", 1000), nil},
		"no token":            {line("plugin.security.choria.token_file", "/nowhere/token"), []string{"/nowhere/token|token"}},
		"garbage for a token": {line("plugin.security.choria.token_file", garbage(t)), []string{"token"}},
		"no seed":             {line("plugin.security.choria.seed_file", "/nowhere/seed"), []string{"/nowhere/seed"}},
		"garbage for a seed":  {line("plugin.security.choria.seed_file", garbage(t)), []string{"seed_file"}},
		"unknown provider":    {line("plugin.security.provider", "none"), []string{"none|provider"}},
		"federation":          {line("plugin.choria.federation.collectives", "east"), []string{"federation", "remove it"}},
		"a broken broker":     {line("plugin.choria.middleware_hosts", "nats://:port"), []string{"middleware_hosts"}},
	} {
		t.Run("choria configuration "+name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			copyDir(t, s.good, dir)
			file := filepath.Join(t.TempDir(), "choria.conf")
			write(t, file, c.text)
			before := contents(t, dir)
			out, code := refused(t, "--config", s.with(t, dir, nil).Config, "--choria-config", file)
			says(t, out, code, 78, append(c.words, `choria\.conf: this Choria configuration cannot be used: `, "--choria-config")...)
			s.silent(t, "the message", out)
			after := contents(t, dir)
			before["worker.lock"], after["worker.lock"] = "", ""
			if !maps.Equal(before, after) {
				t.Error("a worker that refused its configuration changed the state directory")
			}
		})
	}
	t.Run("choria configuration missing", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "state")
		copyDir(t, s.good, dir)
		out, code := refused(t, "--config", s.with(t, dir, nil).Config, "--choria-config", "/nowhere/choria.conf")
		says(t, out, code, 78, "/nowhere/choria.conf: this Choria configuration cannot be used: ", "--choria-config")
	})
}

func garbage(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "garbage")
	write(t, path, "garbage\x00\xff")
	return path
}

// badCredentials are files that are there and hold the wrong thing.
func (s *stand) badCredentials(t *testing.T) {
	broken := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for name, c := range map[string]struct {
		key, text string
		words     []string
	}{
		"signing key garbage":    {"jwt_signing_key", "garbage", []string{"choria jwt keys"}},
		"signing key empty":      {"jwt_signing_key", "", []string{"it is empty", "choria jwt keys"}},
		"signing key of another": {"jwt_signing_key", strings.Repeat("ab", 32), []string{"another key"}},
		"signing token expired":  {"jwt_signing_token", s.expired(t), []string{"the issuer's token has expired: at 2001-", "issue a new one"}},
		"signing token garbage":  {"jwt_signing_token", "garbage", []string{"choria jwt client"}},
		"verify cert garbage":    {"jwt_verify_cert", "garbage", nil},
		"verify cert broken PEM": {"jwt_verify_cert", broken, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "file")
			write(t, file, c.text)
			out, code := refused(t, "--config", s.with(t, s.good, map[string]any{c.key: file}).Config, "--choria-config", s.files.ChoriaConfig)
			if name == "signing key of another" {
				c.key = "jwt_signing_token" // it is the token that does not fit the key
			}
			says(t, out, code, 78, append(c.words, `provctl\.yaml:\d+:\d+: `+c.key+`: /`, "cannot be used|has expired", "; (set|issue) ")...)
			s.silent(t, "the message", out)
		})
	}
}
