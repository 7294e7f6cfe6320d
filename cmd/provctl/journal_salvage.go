package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/journal"
	"provctl/receipt"
)

// salvage reads of a damaged journal what can be read, and warns on stderr that it may be old or not all. If nothing can, or the error is
// another one, the error is what a command ends with; else the command ends with it once it has shown what there is.
func salvage[T any](c *cli.Context, damaged error, read func() (T, []journal.Lost, error)) (T, error) {
	var none T
	if !errors.Is(damaged, receipt.ErrDamaged) || errors.Is(damaged, journal.ErrMissing) {
		return none, damaged
	}
	out, lost, err := read()
	if err != nil {
		return none, damaged
	}
	say(c.App.ErrWriter, errors.New("the journal is not what it should be: this is what can be read of it, and may be old or not all"))
	for _, l := range lost {
		say(c.App.ErrWriter, fmt.Errorf("not readable: %s: %s", l.Place, l.Why))
	}
	return out, nil
}

// ends is what a command ends with that has shown a damaged journal: whoever has stopped reading hears of the damage all the same.
func ends(damaged, shown error) error {
	if damaged != nil && quiet(shown) {
		return damaged
	}
	return errors.Join(damaged, shown)
}
