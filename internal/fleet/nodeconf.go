package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// nodeConfiguration is what makes a provisioned server of a node: JSON members for the helper's here-document, where
// $identity and $directory are the shell's.
func (f *Fleet) nodeConfiguration(more map[string]string) string {
	settings := map[string]string{
		"identity":                          "$identity",
		"loglevel":                          "warn",
		"collectives":                       organisation,
		"main_collective":                   organisation,
		"rpcauthorization":                  "0", // the fleet has no policies to consult
		"plugin.yaml":                       "$directory/facts.json",
		"plugin.choria.server.provision":    "false",
		"plugin.choria.use_srv":             "false",
		"plugin.choria.middleware_hosts":    f.BrokerURL(),
		"plugin.security.provider":          "choria",
		"plugin.security.choria.token_file": "$directory/server.jwt",
		"plugin.security.choria.seed_file":  "$directory/server.seed",
		"plugin.security.issuer.names":      organisation,

		"plugin.security.issuer." + organisation + ".public": f.keys.issuerHex,
	}
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
