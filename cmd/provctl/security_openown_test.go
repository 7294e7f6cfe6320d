package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecurityLinksOfOthersAreNotFollowed plants a link where a log or a pid file is to be written.
func TestSecurityLinksOfOthersAreNotFollowed(t *testing.T) {
	for _, c := range []struct {
		name     string
		mode     os.FileMode
		owner    int
		followed bool
	}{
		{"our directory", 0o755, os.Geteuid(), true},
		{"open to all", 0o777, os.Geteuid(), false},
		{"like /tmp", 0o777 | os.ModeSticky, os.Geteuid(), false},
		{"open to a group", 0o775, os.Geteuid(), false},
		{"somebody else's", 0o755, 54323, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, precious := t.TempDir(), filepath.Join(t.TempDir(), "journal.db")
			link := filepath.Join(dir, "provctl.pid")
			for _, err := range []error{
				os.WriteFile(precious, []byte("precious"), 0o600), os.Symlink(precious, link), os.Chmod(dir, c.mode), os.Chown(dir, c.owner, -1),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			f, err := openOwn(link, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
			if err == nil {
				_ = f.Close()
			}
			if (err == nil) != c.followed || err != nil && !strings.Contains(err.Error(), "remove the link") {
				t.Errorf("opening it gives %v", err)
			}
			if b, err := os.ReadFile(precious); err != nil || (string(b) == "") != c.followed {
				t.Errorf("what the link names is now %q, %v", b, err)
			}
		})
	}
	plain := filepath.Join(t.TempDir(), "new")
	f, err := openOwn(plain, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}
