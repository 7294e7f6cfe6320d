package crashtests

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	chbuild "github.com/choria-io/go-choria/build"
	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/client/rpcutilclient"
	"github.com/choria-io/go-choria/config"
	"github.com/sirupsen/logrus"

	"provctl/internal/fleet"
)

// withCertificates makes a fleet of certificates.
func withCertificates(o *fleet.Options) { o.X509 = true }

// member is Choria's own client in the collective that nodes are provisioned into.
func (s *site) member(x509 bool) *choria.Framework {
	s.t.Helper()
	path := s.files.ChoriaConfig
	if x509 {
		path = s.userConfig()
	}
	cfg, err := config.NewSystemConfig(path, false)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.ApplyBuildSettings(&chbuild.Info{})
	cfg.Collectives, cfg.MainCollective = []string{"choria"}, "choria"
	cfg.CustomLogger = logrus.New()
	cfg.CustomLogger.SetOutput(s.t.Output())
	cfg.CustomLogger.SetLevel(logrus.WarnLevel)
	fw, err := choria.NewWithConfig(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return fw
}

// userConfig is the configuration of a user whose certificate provisioned nodes accept requests from.
func (s *site) userConfig() string {
	s.t.Helper()
	const name = "user.mcollective"
	certificate, key, err := s.fleet.CA().Issue(name)
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	at := func(file string) string { return filepath.Join(dir, file) }
	write(s.t, at("crt"), certificate)
	write(s.t, at("key"), key)
	write(s.t, at("conf"), "identity="+name+"\nplugin.choria.use_srv=false\nplugin.choria.middleware_hosts="+s.fleet.BrokerURL()+
		"\nplugin.security.provider=file\nplugin.security.file.certificate="+at("crt")+"\nplugin.security.file.key="+at("key")+
		"\nplugin.security.file.ca="+s.fleet.CA().Certificate+"\n")
	return at("conf")
}

// answers asks the nodes in their main collective and wants an answer of the very process that the fleet runs.
func (s *site) answers(x509 bool, nodes ...string) {
	s.t.Helper()
	c, err := rpcutilclient.New(s.member(x509))
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := c.OptionTargets(nodes).DaemonStats().Do(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	seen := map[string]bool{}
	res.EachOutput(func(r *rpcutilclient.DaemonStatsOutput) {
		node := r.ResultDetails().Sender()
		seen[node] = true
		state := s.fleet.State().Nodes[node]
		var stats struct {
			PID     int    `json:"pid"`
			Version string `json:"version"`
		}
		if err := r.ParseDaemonStatsOutput(&stats); err != nil || !r.ResultDetails().OK() {
			s.t.Errorf("%s: %v, %s", node, err, r.ResultDetails().StatusMessage())
		}
		if stats.PID != state.PID || state.Version != "" && stats.Version != state.Version {
			s.t.Errorf("%s answers as pid %d, version %s; the fleet runs pid %d, version %s", node, stats.PID, stats.Version, state.PID, state.Version)
		}
	})
	for _, node := range nodes {
		if !seen[node] {
			s.t.Errorf("%s does not answer in its main collective", node)
		}
	}
}

// mode is the permissions of a file.
func mode(t testing.TB, path string) os.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

// nodeFile is the path of a file in a node's directory.
func (s *site) nodeFile(node string, name ...string) string {
	s.t.Helper()
	dir, err := s.fleet.NodeDir(node)
	if err != nil {
		s.t.Fatal(err)
	}
	return filepath.Join(append([]string{dir}, name...)...)
}

// patient are the times of short for runs in which nothing may be unknown or stale, however busy the machine is: a TTL that requests
// of protocol 1 may have, and an interval whose second discovery comes when all is done.
func patient(more map[string]any) map[string]any {
	values := short(map[string]any{"effect_ttl": "30s", "stop_timeout": "60s", "interval": "30s"})
	maps.Copy(values, more)
	return values
}
