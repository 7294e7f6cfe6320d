package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// nodeSettings are what makes a provisioned server of a node; $identity and $directory stand for its own.
func (f *Fleet) nodeSettings() map[string]string {
	settings := map[string]string{
		"identity":                       "$identity",
		"loglevel":                       "warn",
		"collectives":                    organisation,
		"main_collective":                organisation,
		"rpcauthorization":               "0", // the fleet has no policies to consult
		"plugin.yaml":                    "$directory/facts.json",
		"plugin.choria.server.provision": "false",
		"plugin.choria.use_srv":          "false",
		"plugin.choria.middleware_hosts": f.BrokerURL(),
	}
	if f.opts.X509 {
		// The files are those of gencsr and configure.
		maps.Copy(settings, map[string]string{
			"plugin.security.provider":         "file",
			"plugin.security.file.certificate": "$directory/ssl/certificate.pem",
			"plugin.security.file.key":         "$directory/ssl/private.pem",
			"plugin.security.file.ca":          "$directory/ssl/ca.pem",
		})
		return settings
	}
	maps.Copy(settings, map[string]string{
		"plugin.security.provider":          "choria",
		"plugin.security.choria.token_file": "$directory/server.jwt",
		"plugin.security.choria.seed_file":  "$directory/server.seed",
		"plugin.security.issuer.names":      organisation,

		"plugin.security.issuer." + organisation + ".public": f.keys.issuerHex,
	})
	return settings
}

// NodeConfiguration is what a helper must answer as "configuration" for that node to join the collective "choria", in a
// fleet of either kind; more is added to it.
func (f *Fleet) NodeConfiguration(node string, more map[string]string) (map[string]string, error) {
	n, err := f.node(node)
	if err != nil {
		return nil, err
	}
	return fill(f.nodeSettings(), n.name, n.dir, more), nil
}

// fill puts a node's own into the settings.
func fill(settings map[string]string, identity, directory string, more map[string]string) map[string]string {
	own := strings.NewReplacer("$identity", identity, "$directory", directory)
	out := make(map[string]string, len(settings)+len(more))
	for key, value := range settings {
		out[key] = own.Replace(value)
	}
	maps.Copy(out, more)
	return out
}

// nodeConfiguration are JSON members for the helper script's here-document, where $identity and $directory are the
// shell's.
func (f *Fleet) nodeConfiguration(more map[string]string) string {
	settings := f.nodeSettings()
	maps.DeleteFunc(settings, func(key, _ string) bool { _, replaced := more[key]; return replaced })
	members := make([]string, 0, len(settings)+len(more))
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		members = append(members, quote(key)+":"+quote(settings[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(more)) {
		members = append(members, shellText(quote(key)+":"+quote(more[key])))
	}
	return strings.Join(members, ",\n") + "\n"
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""` // a string always encodes
	}
	return string(text)
}

// shellText keeps a here-document from reading anything into s.
func shellText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "$", `\$`, "`", "\\`").Replace(s)
}
