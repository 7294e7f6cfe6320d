package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/journal"
)

func auditCommand() *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "lists what people did: verdicts, admissions, releases, pauses",
		Description: "Works with and without a running worker and changes nothing. With --json each act is one line.\n" +
			"Of a damaged journal it shows what can be read, and says so.\n" +
			"Exit codes: 0 fine, 6 the journal is damaged or missing, 2 usage, 1 other errors.",
		Flags: []cli.Flag{
			stateDirFlag(), jsonFlag(), nodeFlag(),
			sinceFlag("only what was done at or after `TIME`: how long ago (2h, 3d) or 2026-03-04T05:06:07Z"),
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			dir, err := stateDir(c)
			if err != nil {
				return err
			}
			f, err := filter(c, time.Now())
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			acts, damaged := inspect.Reader{Dir: dir}.Audit(ctx)
			if damaged != nil {
				if acts, err = salvage(c, damaged, func() ([]journal.Act, []journal.Lost, error) { return journal.SalvageAudit(dir) }); err != nil {
					return err
				}
			}
			acts = f.Acts(acts)
			if c.Bool("json") {
				return ends(damaged, inspect.WriteAuditJSON(c.App.Writer, acts))
			}
			return ends(damaged, inspect.WriteAudit(c.App.Writer, acts, style(c.App.Writer)))
		},
	}
}
