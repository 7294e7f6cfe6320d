package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
)

// version is set by the linker.
var version = "development"

// Version says what this program is made of.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // empty if it was not built from a repository
	Go      string `json:"go"`
	Choria  string `json:"choria"` // the go-choria that is built in; empty if none is
}

func thisVersion() Version {
	v := Version{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	for _, d := range info.Deps {
		if d.Path == "github.com/choria-io/go-choria" {
			v.Choria = d.Version
		}
	}
	return v
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "shows the version",
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			v := thisVersion()
			if c.Bool("json") {
				return inspect.WriteJSON(c.App.Writer, v)
			}
			_, err := fmt.Fprintf(c.App.Writer, "provctl %s (%s)\n", v.Version, v.Go)
			return err
		},
	}
}
