package powerloss_test

import (
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"provctl/crashtests/powerloss"
	"provctl/crashtests/trace"
)

// numbered makes a trace of events as a file system would have numbered them.
func numbered(events ...trace.Event) []trace.Event {
	t := trace.New()
	for _, e := range events {
		if e.Source == "" {
			e.Source = trace.DiskSource
		}
		t.Add(e)
	}
	return t.Events()
}

func write(path string, off int64, data string) trace.Event {
	return trace.Event{Kind: trace.Write, Path: path, Off: off, Data: []byte(data)}
}

func op(kind trace.Kind, path string) trace.Event { return trace.Event{Kind: kind, Path: path} }

func show(m powerloss.Image) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m)) {
		f := m[name]
		switch {
		case f.Mode.IsDir():
			fmt.Fprintf(&b, "%s/ ", name)
		case f.Link != "":
			fmt.Fprintf(&b, "%s>%s ", name, f.Link)
		case len(f.Data) > 32:
			fmt.Fprintf(&b, "%s:%d ", name, len(f.Data))
		default:
			fmt.Fprintf(&b, "%s=%s ", name, strings.ReplaceAll(string(f.Data), "\x00", "0"))
		}
	}
	return strings.TrimSpace(b.String())
}

// after lists the distinct images that a power failure after the whole trace may leave, by the name of a case of each.
func after(t *testing.T, initial powerloss.Image, wide bool, events ...trace.Event) map[string]string {
	t.Helper()
	all := map[string]string{}
	for c, err := range powerloss.Cases(initial, numbered(events...), wide) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Prefix == len(events) {
			all[c.Name] = show(c.Image)
		}
	}
	return all
}

func distinct(cases map[string]string) string {
	return strings.Join(slices.Compact(slices.Sorted(maps.Values(cases))), " | ")
}

func file(data string) powerloss.File { return powerloss.File{Mode: 0o600, Data: []byte(data)} }

func TestWhatMayBeFound(t *testing.T) {
	t.Parallel()
	rename := trace.Event{Kind: trace.Rename, Path: "t", To: "a"}
	initial := powerloss.Image{"a": file("old")}
	for what, c := range map[string]struct {
		events []trace.Event
		want   string
	}{
		"nothing happened": {nil, "a=old"},
		"a write":          {[]trace.Event{write("a", 0, "new")}, "a=new | a=old"},
		"a write, synced":  {[]trace.Event{write("a", 0, "new"), op(trace.Sync, "a")}, "a=new"},
		"two writes": {
			[]trace.Event{write("a", 0, "X"), write("a", 2, "Y")}, "a=XlY | a=Xld | a=olY | a=old",
		},
		"the second is synced with the first": {[]trace.Event{write("a", 0, "X"), write("a", 4, "Y"), op(trace.Sync, "a")}, "a=Xld0Y"},
		"another file's sync does not count": {
			[]trace.Event{op(trace.Create, "b"), write("a", 0, "new"), op(trace.Sync, "b"), op(trace.DirSync, ".")}, "a=new b= | a=old b=",
		},
		"cut and grown": {
			[]trace.Event{{Kind: trace.Truncate, Path: "a", Off: 1}, {Kind: trace.Truncate, Path: "a", Off: 4}}, "a=o | a=o000 | a=old | a=old0",
		},
		"a new file's name is not its content's": {[]trace.Event{op(trace.Create, "b"), write("b", 0, "x"), op(trace.Sync, "b")}, "a=old | a=old b=x"},
		"a name without its content":             {[]trace.Event{op(trace.Create, "b"), write("b", 0, "x"), op(trace.DirSync, ".")}, "a=old b= | a=old b=x"},
		"a write that replaces without a sync":   {[]trace.Event{op(trace.Create, "t"), write("t", 0, "new"), rename}, "a= | a=new | a=old | a=old t= | a=old t=new"},
		"a write that replaces, synced":          {[]trace.Event{op(trace.Create, "t"), write("t", 0, "new"), op(trace.Sync, "t"), rename}, "a=new | a=old | a=old t=new"},
		"a write that replaces, its directory as well": {
			[]trace.Event{op(trace.Create, "t"), write("t", 0, "new"), op(trace.Sync, "t"), rename, op(trace.DirSync, ".")}, "a=new",
		},
		"removed":         {[]trace.Event{op(trace.Unlink, "a")}, " | a=old"},
		"removed, synced": {[]trace.Event{op(trace.Unlink, "a"), op(trace.DirSync, ".")}, ""},
		"a second name":   {[]trace.Event{{Kind: trace.Link, Path: "a", To: "b"}, write("b", 0, "X"), op(trace.DirSync, ".")}, "a=Xld b=Xld | a=old b=old"},
		"in a directory that is not there": {
			[]trace.Event{op(trace.Mkdir, "d"), op(trace.Create, "d/x"), op(trace.DirSync, "d")}, "a=old | a=old d/ d/x=",
		},
		"sockets and what nodes do": {[]trace.Event{op(trace.Mknod, "s"), {Source: "node", Kind: trace.Begin}, {Kind: trace.Write}}, "a=old"},
		"a symbolic link":           {[]trace.Event{{Kind: trace.Symlink, Path: "l", To: "a"}, op(trace.DirSync, ".")}, "a=old l>a"},
	} {
		if got := distinct(after(t, initial, false, c.events...)); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if string(initial["a"].Data) != "old" {
		t.Error("the initial image was changed")
	}
}

func TestTornWrites(t *testing.T) {
	t.Parallel()
	initial := powerloss.Image{"a": file(strings.Repeat("o", 9000))}
	page := write("a", 0, strings.Repeat("n", 9000))
	count := func(wide bool) (sizes []int) {
		for _, c := range []string{"o", "n"} {
			for name, err := range powerloss.Cases(initial, numbered(page), wide) {
				if err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(string(name.Image["a"].Data), c); len(name.Image["a"].Data) != 9000 {
					t.Errorf("%s has %d bytes", name.Name, len(name.Image["a"].Data))
				} else {
					sizes = append(sizes, n)
				}
			}
		}
		slices.Sort(sizes)
		return slices.Compact(sizes)
	}
	if got := fmt.Sprint(count(false)); got != "[0 512 4096 4904 8488 9000]" {
		t.Errorf("torn images hold %s bytes of either", got)
	}
	if got := fmt.Sprint(count(true)); got != "[0 512 808 4096 4904 8192 8488 9000]" {
		t.Errorf("wide: torn images hold %s bytes of either", got)
	}
	// A torn write stays in its place among the others.
	torn := after(t, initial, false, page, trace.Event{Kind: trace.Truncate, Path: "a", Off: 0})
	if got := torn["head of 1 torn at 512, all"]; got != "a=" {
		t.Errorf("torn, then cut: %q", got)
	}
}

func TestEachPrefixHasItsCases(t *testing.T) {
	t.Parallel()
	var names [][]string
	for c, err := range powerloss.Cases(powerloss.Image{"a": file("")}, numbered(write("a", 0, "1"), write("a", 1, "2"), write("a", 2, "3")), false) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Prefix == len(names) {
			names = append(names, nil)
		}
		names[c.Prefix] = append(names[c.Prefix], c.Name)
	}
	gone := after(t, powerloss.Image{}, false, op(trace.Create, "t"), write("t", 0, "x"), op(trace.Unlink, "t"), op(trace.DirSync, "."))
	if len(gone) != 1 {
		t.Errorf("a file that is gone for good still makes cases: %v", gone)
	}
	want := "[[synced] [synced all] [synced all only 1 without 1 up to 1 only 2 without 2] " +
		"[synced all only 1 without 1 up to 1 only 2 without 2 up to 2 only 3 without 3]]"
	if fmt.Sprint(names) != want {
		t.Errorf("cases %v\nwant %s", names, want)
	}
}

func TestATraceThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, e := range []trace.Event{
		write("nowhere", 0, "x"), op(trace.Create, "a"), op(trace.Unlink, "b"), op("flood", "a"),
		{Kind: trace.Rename, Path: "a", To: "d/a"},
		{Kind: trace.Rename, Path: "d", To: "e"},
	} {
		var last error
		for _, err := range powerloss.Cases(powerloss.Image{"a": file(""), "d": {Mode: fs.ModeDir | 0o700}}, numbered(e), false) {
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), "event 1") {
			t.Errorf("%s %s: %v", e.Kind, e.Path, last)
		}
	}
}

// TestSyncedIsKept runs random traces: what was synced is in every later image until it changes again, and once all is synced there
// is one image only.
func TestSyncedIsKept(t *testing.T) {
	t.Parallel()
	seed := maphash.MakeSeed()
	for n := range uint64(200) {
		rng := rand.New(rand.NewPCG(n, 1))
		events := []trace.Event{op(trace.Create, "a"), op(trace.Create, "b")}
		for range rng.IntN(12) {
			name := []string{"a", "b"}[rng.IntN(2)]
			switch rng.IntN(4) {
			case 0:
				events = append(events, op(trace.Sync, name))
			case 1:
				events = append(events, trace.Event{Kind: trace.Truncate, Path: name, Off: rng.Int64N(9)})
			default:
				events = append(events, write(name, rng.Int64N(9), fmt.Sprint(rng.IntN(1000))))
			}
		}
		kept := write("a", 20, "KEPT")
		events = append(events, kept, op(trace.Sync, "a"), op(trace.DirSync, "."))
		from := len(events)
		events = append(events, write("a", 0, "later"), write("b", 3, "x"), op(trace.Sync, "b"), op(trace.Sync, "a"))
		last := map[uint64]bool{}
		for c, err := range powerloss.Cases(powerloss.Image{}, numbered(events...), true) {
			if err != nil {
				t.Fatal(err)
			}
			if a := string(c.Image["a"].Data); c.Prefix >= from && (len(a) < 24 || a[20:24] != "KEPT") {
				t.Errorf("seed %d: after %d, %s: lost what was synced: %q", n, c.Prefix, c.Name, a)
			}
			if c.Prefix == len(events) {
				last[c.Image.Sum(seed)] = true
			}
		}
		if len(last) != 1 {
			t.Errorf("seed %d: all is synced, and there are %d images", n, len(last))
		}
	}
}

func TestImagesComeBackFromTheDisk(t *testing.T) {
	t.Parallel()
	want := powerloss.Image{
		"a": file("content"), "d": {Mode: fs.ModeDir | 0o700}, "d/b": {Mode: 0o640, Data: []byte{}}, "l": {Mode: fs.ModeSymlink | 0o777, Link: "a"},
	}
	dir := t.TempDir()
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := powerloss.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	seed := maphash.MakeSeed()
	if show(got) != show(want) || got["d/b"].Mode != 0o640 || got.Sum(seed) != want.Sum(seed) {
		t.Errorf("%s, want %s", show(got), show(want))
	}
	got["a"] = file("other")
	if got.Sum(seed) == want.Sum(seed) {
		t.Error("another content has the same sum")
	}
	if _, err := powerloss.Load(filepath.Join(dir, "gone")); err == nil {
		t.Error("an image of nothing")
	}
	if err := want.Write(dir); err == nil {
		t.Error("written over another image")
	}
}
