// Package packaging holds what a package of provctl brings besides the program.
package packaging

import _ "embed"

// SampleConfig is a worker's configuration file for a site to fill in: valid but for the lines marked FILL IN.
//
//go:embed provctl.yaml
var SampleConfig string

// SampleChoria is the Choria client configuration that goes with SampleConfig.
//
//go:embed choria.conf
var SampleChoria string
