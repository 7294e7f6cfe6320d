package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/choria-io/go-choria/build"
	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/config"
	"github.com/choria-io/go-choria/providers/provtarget"
	"github.com/choria-io/go-choria/server"
	"github.com/choria-io/tokens"
	"github.com/sirupsen/logrus"
)

// prepare makes the server instance as the real server's command does (cmd/server_run.go), without connecting it.
func (n *nodeProcess) prepare(ctx context.Context) error {
	build.ProvisionJWTFile = filepath.Join(n.dir, provisionFile)
	build.ProvisionModeDefault = "true"
	n.log = logrus.WithField("node", n.spec.Name)
	cfg, err := n.configuration(ctx)
	if err != nil {
		return err
	}
	cfg.ApplyBuildSettings(&build.Info{})
	fw, err := choria.NewWithConfig(cfg)
	if err != nil {
		return fmt.Errorf("setting up the server with %s: %w", cfg.ConfigFile, err)
	}
	fw.ConfigureProvisioning(ctx)
	n.log = fw.Logger("fleet").WithField("node", n.spec.Name)
	n.mode = Provisioned
	if fw.ProvisionMode() {
		n.mode = Provisioning
	}
	if n.instance, err = server.NewInstance(fw); err != nil {
		return fmt.Errorf("making the server: %w", err)
	}
	n.start = n.instance.StartTime()
	return nil
}

// configuration decides between the node's server.conf and provisioning (cmd/server_run.go:55-119).
func (n *nodeProcess) configuration(ctx context.Context) (*config.Config, error) {
	path := filepath.Join(n.dir, serverConfig)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return n.provisioningConfiguration(path)
	}
	cfg, err := config.NewSystemConfig(path, true)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	// A real host would find its own name here.
	if !cfg.HasOption("identity") {
		cfg.Identity = n.spec.Name
	}
	if !cfg.HasOption("loglevel") {
		cfg.LogLevel = n.spec.LogLevel
	}
	provtarget.Configure(ctx, cfg, n.log)
	if why := reprovision(cfg); why != "" {
		n.log.Warnf("Provisioning again: %s", why)
		// What belonged to the failed configuration goes, so that it is not mistaken for a match later
		// (cmd/server_run.go:62-73).
		forget(cfg)
		return n.provisioningConfiguration(path)
	}
	return cfg, nil
}

// forget removes the token and the seed that a configuration names.
func forget(cfg *config.Config) {
	for _, f := range []string{
		cfg.Choria.ServerTokenSeedFile, cfg.Choria.ServerTokenFile,
		cfg.Choria.ChoriaSecuritySeedFile, cfg.Choria.ChoriaSecurityTokenFile,
	} {
		if f != "" {
			_ = os.Remove(f)
		}
	}
}

// provisioningConfiguration is that of a server in provisioning mode. The identity comes from a file because go-choria
// would ask the network for a name otherwise.
func (n *nodeProcess) provisioningConfiguration(path string) (*config.Config, error) {
	cfg, err := config.NewSystemConfig(filepath.Join(n.dir, identityFile), true)
	if err != nil {
		return nil, fmt.Errorf("making the provisioning configuration: %w", err)
	}
	cfg.ConfigFile = path
	cfg.LogLevel = n.spec.LogLevel
	cfg.Choria.SecurityProvider = "file"
	cfg.DisableSecurityProviderVerify = true
	return cfg, nil
}

// reprovision tells why a server with that configuration goes back into provisioning, empty when it does not
// (cmd/server_run.go:176-203).
func reprovision(cfg *config.Config) string {
	if cfg.Choria.ServerAnonTLS && cfg.Choria.ServerTokenSeedFile != "" && cfg.Choria.ServerTokenFile != "" {
		if why := mismatch(cfg.Choria.ServerTokenFile, cfg.Choria.ServerTokenSeedFile); why != "" {
			return why
		}
	}
	if cfg.Choria.SecurityProvider == "choria" {
		if why := mismatch(cfg.Choria.ChoriaSecurityTokenFile, cfg.Choria.ChoriaSecuritySeedFile); why != "" {
			return why
		}
	}
	if cfg.HasOption("plugin.choria.server.provision") && !cfg.Choria.Provision {
		return ""
	}
	return "the configuration does not set plugin.choria.server.provision to false"
}

// mismatch tells why a token and a seed do not make an identity, empty when they do (cmd/server_run.go:140-174).
func mismatch(token, seed string) string {
	for _, f := range []string{seed, token} {
		if _, err := os.Stat(f); err != nil {
			return err.Error()
		}
	}
	claims, err := tokens.ParseServerTokenFileUnverified(token)
	if err != nil {
		return fmt.Sprintf("the token %s cannot be read: %v", token, err)
	}
	matched, err := claims.IsMatchingSeedFile(seed)
	switch {
	case err != nil:
		return fmt.Sprintf("the token %s cannot be compared with the seed %s: %v", token, seed, err)
	case !matched:
		return fmt.Sprintf("the token %s is not for the seed %s", token, seed)
	case claims.IsExpired():
		return fmt.Sprintf("the token %s has expired", token)
	}
	return ""
}
