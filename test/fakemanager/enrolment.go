package fakemanager

import (
	"slices"
	"strings"

	"example.org/ctrl/internal/wire"
)

// Enrolment is what the manager pretends about tokens and certificates.
type Enrolment struct {
	None         string // why it issues no certificates, where it issues none
	Members      []wire.MemberRow
	Tokens       []wire.TokenRow
	Certificates []wire.CertificateRow
	Waiting      []string
}

// FakeToken is what every token looks like.
const FakeToken = "ctrl1faketoken"

func (m *Manager) serveEnrolment(c *call) error {
	e := &m.fleet.Enrolment
	m.calls = append(m.calls, strings.TrimSpace("enrolment "+c.member+" "+arguments(c.body)))
	if e.None != "" && c.member != "ListMembers" {
		return wire.ErrFailed.With("%s", e.None)
	}
	first := ""
	if len(c.body) > 0 {
		first, _ = c.body[0].(string)
	}
	switch c.member {
	case "AddNode":
		if !wire.ValidNodeName(first) {
			return wire.ErrInvalidArgs.With("node name %q is not valid: %s", first, wire.NodeNameRule)
		}
		c.reply(FakeToken, "boss:842")
	case "AddToken":
		c.reply(FakeToken, "boss:842")
	case "WithdrawToken":
		if !slices.ContainsFunc(e.Tokens, func(t wire.TokenRow) bool { return t.ID == first }) {
			return wire.ErrInvalidArgs.With("no token %q can be used; list the tokens to see which can", first)
		}
		c.reply()
	case "RemoveNode":
		return m.removeMember(c, first)
	case "ListMembers":
		c.reply(append([]wire.MemberRow{}, e.Members...))
	case "ListTokens":
		c.reply(append([]wire.TokenRow{}, e.Tokens...))
	case "ShowAuthority":
		c.reply("/state", append([]wire.CertificateRow{}, e.Certificates...), append([]string{}, e.Waiting...))
	case "RotateAuthority":
		if len(e.Waiting) > 0 && c.body[0] == false {
			return wire.ErrFailed.With("the authority is being replaced already; it waits for %s", strings.Join(e.Waiting, ", "))
		}
		c.reply()
	default:
		return wire.ErrUnknownMethod.With("no method %s", c.member)
	}
	return nil
}

func (m *Manager) removeMember(c *call, name string) error {
	for _, r := range m.fleet.Enrolment.Members {
		switch {
		case r.Name != name:
		case strings.Contains(r.Origin, ":"):
			return wire.ErrFailed.With("node %q is in the fleet by %s; take it out there first, then: systemctl reload ctrl-manager", name, r.Origin)
		default:
			c.reply()
			return nil
		}
	}
	return wire.ErrNoSuchNode.With("node %q was not added with `ctl node add`, nor has it joined", name)
}
