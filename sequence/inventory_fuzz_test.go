package sequence

import (
	"testing"
	"unicode/utf8"

	"provctl/receipt"
)

// FuzzInventory reads whatever a node calls its inventory: an upgrade is asked for only where the node names a version, allows upgrades, and
// runs another one than is wanted; what is wanted can be the version of a receipt.
func FuzzInventory(f *testing.F) {
	f.Add([]byte(`{"version":"1.2.2","upgradable":true}`), "1.2.3")
	f.Add([]byte(`{"version":"1.2.3","upgradable":false}`), "1.2.3")
	f.Fuzz(func(t *testing.T, inventory []byte, wanted string) {
		p := &pass{inventory: inventory}
		has, err := p.upgradable(wanted)
		if again, err2 := p.upgradable(wanted); again != has || (err == nil) != (err2 == nil) {
			t.Fatalf("once %q, %v, once %q, %v", has, err, again, err2)
		}
		if err != nil {
			if has != "" || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q, %q", has, err)
			}
			return
		}
		if has == "" || receipt.CheckVersion(wanted) != nil || len(has) > len(inventory)*3 {
			t.Fatalf("%q can be upgraded to %q", has, wanted)
		}
	})
}
