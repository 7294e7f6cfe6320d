package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// x509Helper is the helper of a fleet of certificates, as it is written for the node's program, which can sign.
type x509Helper struct {
	CA       CA                `json:"ca"`
	OwnKey   bool              `json:"own_key"`
	Defer    []string          `json:"defer"`
	Shutdown []string          `json:"shutdown"`
	Upgrade  string            `json:"upgrade"`
	Settings map[string]string `json:"settings"`
	More     map[string]string `json:"more"`
}

// x509Answer is what the helper prints.
type x509Answer struct {
	Defer         bool              `json:"defer"`
	Shutdown      bool              `json:"shutdown,omitempty"`
	Msg           string            `json:"msg"`
	Upgrade       string            `json:"upgrade,omitempty"`
	Key           string            `json:"key,omitempty"`
	Certificate   string            `json:"certificate,omitempty"`
	CA            string            `json:"ca,omitempty"`
	Configuration map[string]string `json:"configuration,omitempty"`
}

// helperScripts are the texts of the written helper and of the file it works from, empty for a shell helper.
func (f *Fleet) helperScripts(opts WorkerOptions, specPath string) (script, spec []byte, err error) {
	if !f.opts.X509 {
		return []byte(f.helperScript(opts)), nil, nil
	}
	if len(f.opts.NodeCommand) == 0 {
		return []byte("#!/bin/sh\necho 'a fleet without nodes has no helper that signs' >&2\nexit 1\n"), []byte("{}"), nil
	}
	spec, err = json.Marshal(x509Helper{
		CA: f.CA(), OwnKey: opts.OwnKey, Defer: opts.Defer, Shutdown: opts.Shutdown, Upgrade: opts.Upgrade,
		Settings: f.nodeSettings(), More: opts.Configuration,
	})
	var b strings.Builder
	b.WriteString("#!/bin/sh\n# Provisioning helper of a provctl fleet: JSON in, JSON out.\nexec")
	for _, arg := range append(slices.Clone(f.opts.NodeCommand), "--helper", specPath) {
		b.WriteString(" " + shellWord(arg))
	}
	return []byte(b.String() + "\n"), spec, err
}

// answerHelper is the helper's process.
func answerHelper(path string, in io.Reader, out io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("fleet helper: %w", err)
	}
	var h x509Helper
	if err = json.Unmarshal(text, &h); err != nil {
		return fmt.Errorf("fleet helper: %s: %w", path, err)
	}
	var input struct {
		Identity string `json:"identity"`
		CSR      struct {
			CSR    string `json:"csr"`
			SSLDir string `json:"ssldir"`
		} `json:"csr"`
	}
	if err = json.NewDecoder(in).Decode(&input); err != nil {
		return fmt.Errorf("fleet helper: its input: %w", err)
	}
	answer, err := h.answer(input.Identity, input.CSR.CSR, input.CSR.SSLDir)
	if err != nil {
		return fmt.Errorf("fleet helper for %q: %w", input.Identity, err)
	}
	return json.NewEncoder(out).Encode(answer)
}

func (h x509Helper) answer(identity, csr, ssldir string) (a x509Answer, err error) {
	switch {
	case identity == "":
		return a, errors.New("the input has no identity")
	case slices.Contains(h.Defer, identity):
		return x509Answer{Defer: true, Msg: "deferred by the fleet helper"}, nil
	case slices.Contains(h.Shutdown, identity):
		return x509Answer{Shutdown: true, Msg: "shut down by the fleet helper"}, nil
	case ssldir == "":
		return a, errors.New("the input has no csr.ssldir")
	}
	ca, err := os.ReadFile(h.CA.Certificate)
	if err != nil {
		return a, err
	}
	a = x509Answer{Msg: "provisioned by the fleet helper", Upgrade: h.Upgrade, CA: string(ca)}
	a.Configuration = fill(h.Settings, identity, filepath.Dir(ssldir), h.More)
	if h.OwnKey {
		a.Certificate, a.Key, err = h.CA.Issue(identity)
	} else {
		a.Certificate, err = h.CA.Sign(csr)
	}
	return a, err
}
