package managerd

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"example.org/ctrl/internal/managerbus"
	"example.org/ctrl/internal/pki/authority"
	"example.org/ctrl/internal/wire"
)

var _ managerbus.Enrolment = (*service)(nil)

// issuer is the fleet's authority, or the reason why there is none.
func (s *service) issuer() (*authority.Authority, error) {
	switch {
	case s.authority != nil:
		return s.authority, nil
	case s.store != nil:
		return nil, wire.ErrFailed.With("this manager issues no certificates, since it has its own from CertFile=%s: issue the node's from the same authority "+
			"(docs/tls.md), and name the node in AllowedNodeNames=", s.config().CertFile)
	case !s.config().TLS:
		return nil, wire.ErrFailed.With("this manager has TLS=no, so there are no certificates: name the node in AllowedNodeNames=")
	}
	return nil, wire.ErrFailed.With("this manager awaits no agents over TCP (UseTCP=no), so it issues no certificates: name the node in AllowedNodeNames=")
}

// AddNode implements managerbus.Enrolment.
func (s *service) AddNode(node string, life time.Duration) (token, manager string, err error) {
	a, err := s.issuer()
	if err != nil {
		return "", "", err
	}
	t, err := a.AddNode(node, life)
	return t.String(), s.address(), err
}

// AddToken implements managerbus.Enrolment.
func (s *service) AddToken(pattern string, count int, life time.Duration) (token, manager string, err error) {
	a, err := s.issuer()
	if err != nil {
		return "", "", err
	}
	t, err := a.AddReusable(pattern, count, life)
	return t.String(), s.address(), err
}

// WithdrawToken implements managerbus.Enrolment.
func (s *service) WithdrawToken(id string) error {
	a, err := s.issuer()
	if err != nil {
		return err
	}
	return a.Withdraw(id)
}

// RemoveNode implements managerbus.Enrolment.
func (s *service) RemoveNode(node string) error {
	for _, n := range s.config().Nodes {
		if n.Name == node {
			return wire.ErrFailed.With("node %q is in the fleet by %s; take it out there first, then: systemctl reload ctrl-manager", node, n.Origin)
		}
	}
	a, err := s.issuer()
	if err != nil {
		return err
	}
	return a.RemoveNode(node)
}

// Members implements managerbus.Enrolment: those of the files in their order, then the others.
func (s *service) Members() []wire.MemberRow {
	known := make(map[string]authority.Node)
	var rest []string
	if s.authority != nil {
		for _, n := range s.authority.Nodes() {
			if n.Removed.IsZero() {
				known[n.Name] = n
				rest = append(rest, n.Name)
			}
		}
	}
	var rows []wire.MemberRow
	inFiles := make(map[string]bool)
	for _, n := range s.config().Nodes {
		inFiles[n.Name] = true
		rows = append(rows, s.member(n.Name, n.Origin, known[n.Name]))
	}
	for _, name := range rest {
		if inFiles[name] {
			continue
		}
		origin := ""
		if known[name].Added {
			origin = wire.MemberAdded
		}
		rows = append(rows, s.member(name, origin, known[name]))
	}
	return rows
}

func (s *service) member(name, origin string, n authority.Node) wire.MemberRow {
	row := wire.MemberRow{Name: name, Origin: origin}
	if s.authority == nil {
		return row
	}
	row.State = wire.MemberNone
	if n.Joined.IsZero() {
		return row
	}
	row.Generation, row.Joined, row.Expires = n.Generation, micros(n.Joined), micros(n.NotAfter)
	switch {
	case !time.Now().Before(n.NotAfter):
		row.State = wire.MemberExpired
	case n.Outdated:
		row.State = wire.MemberRenewing
	default:
		row.State = wire.MemberJoined
	}
	return row
}

func micros(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

// Tokens implements managerbus.Enrolment.
func (s *service) Tokens() ([]wire.TokenRow, error) {
	a, err := s.issuer()
	if err != nil {
		return nil, err
	}
	var rows []wire.TokenRow
	for _, t := range a.Tokens() {
		rows = append(rows, wire.TokenRow{
			ID: t.ID, Name: t.Name, Reusable: t.Reusable, Count: uint32(t.Count), Left: uint32(t.Left),
			Created: micros(t.Created), Expires: micros(t.Expires),
		})
	}
	return rows, nil
}

// Authority implements managerbus.Enrolment.
func (s *service) Authority() (directory string, certificates []wire.CertificateRow, waiting []string, err error) {
	a, err := s.issuer()
	if err != nil {
		return "", nil, nil, err
	}
	state, err := a.State()
	if err != nil {
		return "", nil, nil, err
	}
	row := func(role string, c authority.Certificate) {
		certificates = append(certificates, wire.CertificateRow{
			Role: role, Subject: c.Subject, Fingerprint: c.Fingerprint, NotBefore: micros(c.NotBefore), NotAfter: micros(c.NotAfter),
		})
	}
	for i, c := range state.Authorities {
		row([]string{wire.RoleAuthority, wire.RoleSuccessor}[i], c)
	}
	row(wire.RoleManager, state.Manager)
	return state.Directory, certificates, state.Waiting, nil
}

// RotateAuthority implements managerbus.Enrolment.
func (s *service) RotateAuthority(finish bool) error {
	a, err := s.issuer()
	if err != nil {
		return err
	}
	if finish {
		return a.FinishRotation()
	}
	return a.Rotate()
}

// address is where nodes probably find this manager: under the machine's name or, where that
// means nothing to others, the first address of the machine that others may reach.
func (s *service) address() string {
	host, err := os.Hostname()
	if err != nil || host == "" || host == "(none)" || strings.HasPrefix(host, "localhost") {
		host = ownAddress()
	}
	return net.JoinHostPort(host, strconv.Itoa(s.port))
}

func ownAddress() string {
	all, _ := net.InterfaceAddrs() // none where that fails
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "localhost"
}
