package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
)

// filterFlags choose receipts, for whatever shows many or decides on many.
func filterFlags() []cli.Flag {
	return []cli.Flag{
		nodeFlag(),
		&cli.StringSliceFlag{Name: "effect", Usage: "only receipts of `ACTION`: gen25519, gencsr, release_update, configure, restart or shutdown; several with commas"},
		sinceFlag("only receipts whose request was made at or after `TIME`: how long ago (2h, 3d) or 2026-03-04T05:06:07Z"),
		&cli.StringSliceFlag{Name: "state", Usage: "only what is in `STATE`: unknown or pending (receipts), held or out (nodes), queued, claimed or blocked (jobs); several with commas"},
	}
}

func nodeFlag() cli.Flag {
	return &cli.StringFlag{Name: "node", Usage: "only what concerns `NODE`: a name, or a pattern like 'web*.example.net'"}
}

func sinceFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "since", Usage: usage} }

// filter reads the filterFlags; whatever is wrong with them is a usage error.
func filter(c *cli.Context, now time.Time) (inspect.Filter, error) {
	f, err := inspect.ParseFilter(filterText(c), now)
	if err != nil {
		return f, usagef("%w", err)
	}
	return f, nil
}

func filterText(c *cli.Context) inspect.FilterText {
	return inspect.FilterText{Node: c.String("node"), Effects: c.StringSlice("effect"), Since: c.String("since"), States: c.StringSlice("state")}
}
