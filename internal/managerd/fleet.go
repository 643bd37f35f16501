package managerd

import (
	"errors"
	"slices"
	"time"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/agentlink"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/authority"
	"example.org/ctrl/internal/wire"
)

// ownFiles reports whether the configuration names certificates, so that the fleet has no
// authority of its own.
func ownFiles(c *config.Manager) bool { return c.CertFile != "" || c.KeyFile != "" || c.CAFile != "" }

// secure opens what proves identities, where a socket needs that: the files that the
// configuration names, or else the fleet's own authority.
func (s *service) secure(sockets *sockets) error {
	if !sockets.overTCP() {
		return nil
	}
	if !s.cfg.TLS {
		s.log.Warn("TLS=no: whoever reaches the port can register as any node that is away")
		return nil
	}
	files := pkiConfig(s.cfg)
	if !ownFiles(s.cfg) {
		var err error
		if s.authority, err = authority.Open(s.cfg.Places.StateDir, s.enrolmentChanged, s.log); err != nil {
			if errors.As(err, new(*authority.DamagedError)) {
				return daemon.Hopeless{Err: err}
			}
			return err
		}
		files = s.authority.Files()
	}
	var err error
	s.store, err = pki.Open(files, s.log)
	return err
}

// reloadFiles takes other certificate files. To change between files and the fleet's authority
// needs a restart.
func (s *service) reloadFiles(next *config.Manager) {
	switch {
	case s.store == nil:
	case (s.authority == nil) != ownFiles(next):
		s.log.Warn("certificates come from files, or from the fleet's own authority: a change between the two takes effect at the next start")
	case s.authority == nil:
		if err := s.store.Reconfigure(pkiConfig(next)); err != nil {
			s.log.Error("certificate files cannot be used; the ones before stay in use", "err", err)
		}
	}
}

// coreConfig is what the core is to know: the fleet is what the files say, then those that
// were added.
func coreConfig(c *config.Manager, added []string) manager.Config {
	out := manager.Config{
		HeartbeatInterval: c.HeartbeatInterval, HeartbeatThreshold: c.NodeHeartbeatThreshold,
		CallTimeout: c.CallTimeout, QueryTimeout: c.QueryTimeout,
	}
	inFiles := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		inFiles[n.Name] = true
		out.Nodes = append(out.Nodes, nodeConfig(n.Name, n))
	}
	for _, name := range slices.Sorted(slices.Values(added)) {
		if !inFiles[name] {
			out.Nodes = append(out.Nodes, nodeConfig(name, c.Node(name)))
		}
	}
	return out
}

// added are the names that were made members of the fleet at run time.
func (s *service) added() []string {
	if s.authority == nil {
		return nil
	}
	return s.authority.Members()
}

// enrolmentChanged hears from the authority, on the goroutine of whoever has changed it. The
// sessions of those that are out end before their nodes do, so that the reason is told.
func (s *service) enrolmentChanged(c authority.Change) {
	if c.Revoked || c.Trust {
		s.agents.Recheck()
	}
	if c.Fleet {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.core.Reconfigure(coreConfig(s.cfg, s.added()))
	}
}

// enrolment is the authority as agents meet it.
type enrolment struct {
	*authority.Authority
	actions *actionlog.Log
}

var _ agentlink.Enrolment = enrolment{}

// Join implements agentlink.Enrolment. Who becomes a node, and who is refused, stands in the
// action log.
func (e enrolment) Join(from, node, token string, csr []byte) (joined string, certificate, ca []byte, err error) {
	g, err := e.Authority.Join(node, token, csr)
	act := actionlog.Entry{Node: g.Node, Verb: "join", Caller: actionlog.Caller{Name: from}}
	if err != nil && wire.ValidNodeName(node) {
		act.Node = node
	}
	act.Judge(wire.MemberJoin, err)
	e.actions.Write(act)
	return g.Node, g.Certificate, g.CA, err
}

// Renew implements agentlink.Enrolment.
func (e enrolment) Renew(node string, generation uint64, csr []byte) (certificate, ca []byte, notAfter time.Time, err error) {
	g, err := e.Authority.Renew(node, generation, csr)
	return g.Certificate, g.CA, g.NotAfter, err
}

// nodeConfig is what a [node NAME] section says to the core.
func nodeConfig(name string, n config.Node) manager.NodeConfig {
	return manager.NodeConfig{
		Name: name, Optional: n.Optional, AllowDependenciesOn: n.AllowDependenciesOn, ReleaseAfter: n.ReleaseAfter,
	}
}
