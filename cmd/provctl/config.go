package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kballard/go-shellquote"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"provctl/inspect"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/credentials"
	"provctl/internal/localfs"
	"provctl/internal/wiring"
	"provctl/packaging"
)

// expirySoon is how long before its end the token that lets us issue is warned of.
const expirySoon = 30 * 24 * time.Hour

// configCommand takes "check" as an argument: its flags may then stand anywhere, as those of every other command.
func configCommand() *cli.Command {
	return &cli.Command{
		Name:      "config",
		Usage:     "says everything that is wrong with a configuration, and what is risky",
		UsageText: "provctl config check FILE [--choria-config FILE] [--json]\nprovctl config sample [choria]",
		Description: "check reads FILE and what it names (keys, tokens, helper, state directory) and the Choria configuration, as 'provctl run' would at its\n" +
			"start, and as the user who runs this. Changes nothing, takes no lock and does not connect to the broker. A worker may be running.\n" +
			"Exit codes: 0 usable, with or without warnings; 78 something is wrong. docs/config-check-schema.json documents --json.\n" +
			"sample prints a file to fill in, or with choria the Choria configuration that goes with it.",
		Flags: []cli.Flag{choriaConfigFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			switch first := c.Args().First(); {
			case first == "sample":
				return printSample(c)
			case first != "check" && first != "":
				return usagef("unknown argument %q; the usage is: provctl config check FILE, or provctl config sample", first)
			}
			if err := arguments(c, 2, 2, "'check FILE'"); err != nil {
				return err
			}
			return showCheck(c, checkConfig(c.Args().Get(1), c.String("choria-config"), time.Now()))
		},
	}
}

// printSample prints the files that a package brings, for who has none.
func printSample(c *cli.Context) error {
	sample := packaging.SampleConfig
	switch rest := c.Args().Slice()[1:]; {
	case len(rest) == 1 && rest[0] == "choria":
		sample = packaging.SampleChoria
	case len(rest) > 0:
		return usagef("unknown argument %q; the usage is: provctl config sample, or provctl config sample choria", rest[0])
	}
	_, err := io.WriteString(c.App.Writer, sample)
	return err
}

func choriaConfigFlag() cli.Flag {
	return &cli.StringFlag{Name: "choria-config", Usage: "Choria client configuration `FILE`", Value: defaultChoriaConfig()}
}

// checkConfig looks at everything that a worker reads at its start.
func checkConfig(file, choriaConfig string, now time.Time) *config.Report {
	r := config.Examine(file)
	if r.Config == nil {
		return r
	}
	checkIdentities(r, now)
	checkStateDir(r)
	checkChoria(r, choriaConfig)
	return r
}

// checkIdentities reads the key and token files as the worker does. What has a problem already is left out, so that the rest is read.
func checkIdentities(r *config.Report, now time.Time) {
	cfg := *r.Config
	if r.Failed("jwt_verify_cert") {
		cfg.Features.JWT = false
	}
	if r.Failed("jwt_signing_token") {
		cfg.JWTSigningToken = ""
	}
	if r.Failed("jwt_signing_key") {
		cfg.Features.Ed25519 = false
	}
	_, err := wiring.NewIdentities(&cfg, now)
	var bad *config.Invalid
	switch {
	case errors.As(err, &bad):
		r.Refuse(bad.Problems...)
	case err != nil:
		r.Refuse(config.Problem{File: r.File, Text: err.Error()})
	case cfg.Features.Ed25519 && cfg.JWTSigningToken != "":
		signer, err := credentials.LoadSigner(cfg.JWTSigningKey, cfg.JWTSigningToken, rand.Reader)
		if err == nil && signer.ExpiresAt().Sub(now) < expirySoon {
			r.Warn("jwt_signing_token", fmt.Sprintf("%s expires at %s, and no node gets a token after that: issue a new one for the same key, and restart",
				strconv.Quote(cfg.JWTSigningToken), signer.ExpiresAt().UTC().Format(time.RFC3339)))
		}
	}
}

// checkStateDir gives hints: the directory may well be made after this check, and by another user.
func checkStateDir(r *config.Report) {
	dir := r.Config.StateDir
	if dir == "" || r.Failed("state_dir") {
		return
	}
	if err := localfs.Check(dir); errors.Is(err, localfs.ErrNetwork) {
		r.Refuse(r.Config.Refuse("state_dir", err).Problems...)
		return
	}
	hint := func(format string, args ...any) {
		r.Warn("state_dir", strconv.Quote(dir)+" "+fmt.Sprintf(format, args...))
	}
	const initOnce = "run once, before the first start: provctl init --state-dir %s; if there was one, restore it instead"
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint("does not exist yet: "+initOnce, shellquote.Join(dir))
		return
	case err != nil:
		hint("cannot be looked at by this user (%v): run the check as the worker's user", errors.Unwrap(err))
		return
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
		hint("belongs to user id %d and this check runs as %d: run it as that user, since it tells what the user who runs it may read and write", s.Uid, os.Geteuid())
	} else if unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK) != nil {
		hint("cannot be written by this user: chmod u+rwx %s", shellquote.Join(dir))
	}
	if _, err := os.Stat(filepath.Join(dir, "journal.db")); errors.Is(err, fs.ErrNotExist) {
		hint("holds no journal: "+initOnce, shellquote.Join(dir))
	}
}

// checkChoria loads the Choria configuration with what the worker forces on it. It does not connect.
func checkChoria(r *config.Report, file string) {
	cfg := r.Config
	engine, err := newEngine(choria.Options{
		ConfigFile: file, Password: cfg.BrokerProvisioningPassword.Reveal(), Insecure: cfg.ChoriaInsecure, TTL: cfg.EffectTTL, Skew: cfg.ClockSkew,
	})
	var bad *config.Invalid
	switch {
	case errors.As(err, &bad):
		r.Refuse(bad.Problems...)
	case err != nil:
		r.Refuse(config.Problem{File: file, Text: err.Error()})
	default:
		engine.Close()
	}
}

// configCheck is what --json prints: docs/config-check-schema.json.
type configCheck struct {
	Schema       string    `json:"schema"`
	File         string    `json:"file"`
	ChoriaConfig string    `json:"choria_config"`
	Usable       bool      `json:"usable"`
	Problems     []finding `json:"problems"`
	Warnings     []finding `json:"warnings"`
	Summary      string    `json:"summary"`
}

// finding is a problem or a warning. Without a line it is about the file as a whole.
type finding struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitzero"`
	Column int    `json:"column,omitzero"`
	Key    string `json:"key,omitzero"`
	Value  string `json:"value,omitzero"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitzero"`
}

// showCheck prints the report. errBlocked keeps the problems, which are in it, from being said again as an error.
func showCheck(c *cli.Context, r *config.Report) error {
	var err error
	if c.Bool("json") {
		err = inspect.WriteJSON(c.App.Writer, checkOf(r, c.String("choria-config")))
	} else {
		err = writeCheck(c.App.Writer, r)
	}
	if err != nil && !quiet(err) {
		return err
	}
	if len(r.Problems) > 0 {
		return errors.Join(&config.Invalid{Problems: r.Problems}, errBlocked)
	}
	return nil
}

func writeCheck(w io.Writer, r *config.Report) error {
	for _, line := range append(r.Lines(), r.Summary()) {
		if _, err := fmt.Fprintln(w, inspect.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

func checkOf(r *config.Report, choriaConfig string) configCheck {
	v := configCheck{
		Schema: "provctl.config-check/1", File: r.File, ChoriaConfig: choriaConfig, Usable: len(r.Problems) == 0,
		Problems: []finding{}, Warnings: []finding{}, Summary: r.Summary(),
	}
	for _, p := range r.Problems {
		v.Problems = append(v.Problems, finding{File: p.File, Line: p.At.Line, Column: p.At.Column, Key: p.Key, Value: p.Value, Text: p.Text, Remedy: p.Remedy})
	}
	for _, w := range r.Warnings {
		v.Warnings = append(v.Warnings, finding{File: w.File, Line: w.At.Line, Column: w.At.Column, Key: w.Key, Text: w.Text})
	}
	return v
}
