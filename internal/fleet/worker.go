package fleet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// WorkerOptions vary the files of a worker.
type WorkerOptions struct {
	// StateDir is the worker's state directory; empty means "state" below the directory of the files. It is not made:
	// that is the worker's own initialisation.
	StateDir string
	// Helper replaces the written helper script by a command line.
	Helper string
	// Defer and Shutdown list the nodes for which the written helper answers defer or shutdown.
	Defer, Shutdown []string
	// OwnKey lets the written helper of a fleet with X509 supply the node's key, in place of signing the node's request.
	OwnKey bool
	// Upgrade is the version that the written helper asks of every node; it also turns upgrades on in the worker's YAML.
	Upgrade string
	// Configuration is added to the settings that the written helper gives each node.
	Configuration map[string]string
	// Values replace or add keys of the worker's YAML; nil removes a key.
	Values map[string]any
}

// WorkerFiles are the paths that WriteWorkerFiles wrote, and what else a worker's test wants to know.
type WorkerFiles struct {
	Config       string // the worker's YAML
	ChoriaConfig string // Choria's client configuration
	Helper       string // the helper script, also when WorkerOptions.Helper names another
	SignerSeed   string
	SignerToken  string
	StateDir     string
	// IssuerPublic is the issuer's ed25519 public key in hex, Password the provisioning account's, Token what the nodes
	// ask for.
	IssuerPublic, Password, Token string
}

// WriteWorkerFiles writes into dir, which is made, all that a worker needs to provision this fleet with ed25519 keys and
// server tokens, or with certificates in a fleet with X509, so that each node restarts into the collective "choria".
func (f *Fleet) WriteWorkerFiles(dir string, opts WorkerOptions) (WorkerFiles, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return WorkerFiles{}, fmt.Errorf("writing the worker's files: %w", err)
	}
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return WorkerFiles{}, fmt.Errorf("writing the worker's files: %w", err)
	}
	w := WorkerFiles{
		Config:       filepath.Join(dir, "provctl.yaml"),
		ChoriaConfig: filepath.Join(dir, "choria.conf"),
		Helper:       filepath.Join(dir, "helper.sh"),
		SignerSeed:   f.keys.signerSeed,
		SignerToken:  f.keys.signerJWT,
		StateDir:     opts.StateDir,
		IssuerPublic: f.keys.issuerHex,
		Password:     f.keys.password,
		Token:        f.keys.nodeToken,
	}
	if w.StateDir == "" {
		w.StateDir = filepath.Join(dir, "state")
	}
	values, err := yaml.Marshal(f.workerValues(w, opts))
	if err != nil {
		return WorkerFiles{}, fmt.Errorf("encoding the worker's configuration: %w", err)
	}
	helperSpec := filepath.Join(dir, "helper.json")
	helper, spec, err := f.helperScripts(opts, helperSpec)
	if err != nil {
		return WorkerFiles{}, fmt.Errorf("encoding the worker's helper: %w", err)
	}
	for _, file := range []struct {
		path string
		text []byte
		mode os.FileMode
	}{
		{w.Config, values, 0o600},
		{w.ChoriaConfig, []byte(f.clientConfiguration()), 0o600},
		{w.Helper, helper, 0o700},
		{helperSpec, spec, 0o600},
	} {
		if file.text == nil {
			continue
		}
		if err = os.WriteFile(file.path, file.text, file.mode); err != nil {
			return WorkerFiles{}, fmt.Errorf("writing the worker's files: %w", err)
		}
	}
	return w, nil
}

// workerValues are the worker's settings: the existing provisioner's keys, then ours.
func (f *Fleet) workerValues(w WorkerFiles, opts WorkerOptions) map[string]any {
	helper := opts.Helper
	if helper == "" {
		helper = shellWord(w.Helper)
	}
	values := map[string]any{
		"workers":                      4,
		"interval":                     "1m",
		"loglevel":                     "info",
		"helper":                       helper,
		"token":                        w.Token,
		"features":                     f.workerFeatures(opts),
		"jwt_verify_cert":              w.IssuerPublic,
		"broker_provisioning_password": w.Password,
		"lifecycle_component":          "provision_mode_server",
		"state_dir":                    w.StateDir,
		"effect_ttl":                   "60s",
		"clock_skew":                   "10s",
		"stop_timeout":                 "90s",
	}
	if !f.opts.X509 {
		values["jwt_signing_key"], values["jwt_signing_token"] = w.SignerSeed, w.SignerToken
	}
	if opts.Upgrade != "" {
		values["upgrades_repository"] = f.Repository()
	}
	maps.Copy(values, opts.Values)
	maps.DeleteFunc(values, func(_ string, v any) bool { return v == nil })
	return values
}

// workerFeatures are what the fleet's nodes need of the worker.
func (f *Fleet) workerFeatures(opts WorkerOptions) map[string]any {
	features := map[string]any{"jwt": true}
	if f.opts.X509 {
		features["pki"] = true
	} else {
		features["ed25519"] = true
	}
	if opts.Upgrade != "" {
		features["upgrades"] = true
	}
	return features
}

func (f *Fleet) clientConfiguration() string {
	security := []string{
		"plugin.security.provider=choria",
		"plugin.security.choria.token_file=" + f.keys.signerJWT,
		"plugin.security.choria.seed_file=" + f.keys.signerSeed,
	}
	if f.opts.X509 {
		security = f.keys.fileSecurity("provisioner")
	}
	return strings.Join(append([]string{
		"identity=" + provisionerName,
		"loglevel=warn",
		"plugin.choria.use_srv=false",
		"plugin.choria.middleware_hosts=" + f.BrokerURL(),
	}, security...), "\n") + "\n"
}

// helperScript answers for every node in plain POSIX sh. It takes identity and directory from its input with sed: inside
// strings that hold JSON themselves, such as the inventory, the quotes before the colon are escaped and do not match.
func (f *Fleet) helperScript(opts WorkerOptions) string {
	var b strings.Builder
	b.WriteString(`#!/bin/sh
# Provisioning helper of a provctl fleet: JSON in, JSON out.
set -eu
input=$(tr -d '\n\r')
field() { printf '%s' "$input" | sed -n 's/.*[{,][[:space:]]*"'"$1"'"[[:space:]]*:[[:space:]]*"\([^"\\]*\)".*/\1/p'; }
identity=$(field identity)
directory=$(field directory)
if [ -z "$identity" ]; then
	echo 'the input has no identity' >&2
	exit 1
fi
`)
	writeCase(&b, opts.Defer, `{"defer":true,"msg":"deferred by the fleet helper"}`)
	writeCase(&b, opts.Shutdown, `{"shutdown":true,"msg":"shut down by the fleet helper"}`)
	b.WriteString(`if [ -z "$directory" ]; then
	echo "the input for $identity has no ed25519_pubkey.directory" >&2
	exit 1
fi
expires=$(($(date +%s) + 31536000))
cat <<ANSWER
{"defer":false,"msg":"provisioned by the fleet helper",
"server_claims":{"exp":$expires,"collectives":["choria"],"permissions":{"streams":true,"governor":true}},
"configuration":{
`)
	b.WriteString(f.nodeConfiguration(opts.Configuration))
	b.WriteString("}")
	if opts.Upgrade != "" {
		b.WriteString(",\n" + shellText(`"upgrade":`+quote(opts.Upgrade)))
	}
	b.WriteString("}\nANSWER\n")
	return b.String()
}

func writeCase(b *strings.Builder, nodes []string, answer string) {
	if len(nodes) == 0 {
		return
	}
	fmt.Fprintf(b, "case \"$identity\" in\n%s)\n\techo '%s'\n\texit 0\n\t;;\nesac\n", strings.Join(nodes, "|"), answer)
}
