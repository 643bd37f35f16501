package client

import (
	"context"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// enrolment is the root object's other interface.
func enrolment() target {
	return target{wire.BusName, dbus.ObjectPath(wire.RootPath), wire.EnrolmentInterface}
}

// Invitation is what a machine needs to join.
type Invitation struct {
	Token   string // a secret
	Manager string // host:port, as the manager's machine calls itself
}

// AddNode makes a name a member of the fleet, and a token for one machine that is good for
// life, 0 for an hour. Errors: wire.ErrInvalidArgs, ErrLimitsExceeded, ErrAccessDenied.
func (c *Client) AddNode(ctx context.Context, name string, life time.Duration) (Invitation, error) {
	return invitation(c.change(ctx, enrolment(), "AddNode", name, uint64(life.Microseconds())))
}

// AddToken makes a token for up to count machines whose names match a glob.
func (c *Client) AddToken(ctx context.Context, pattern string, count uint32, life time.Duration) (Invitation, error) {
	return invitation(c.change(ctx, enrolment(), "AddToken", pattern, count, uint64(life.Microseconds())))
}

func invitation(body []any, err error) (Invitation, error) {
	var i Invitation
	if err != nil {
		return i, err
	}
	return i, store(body, &i.Token, &i.Manager)
}

// WithdrawToken ends a token before its time, by its id.
func (c *Client) WithdrawToken(ctx context.Context, id string) error {
	_, err := c.change(ctx, enrolment(), "WithdrawToken", id)
	return err
}

// RemoveNode takes a node out of the fleet. Errors: wire.ErrNoSuchNode.
func (c *Client) RemoveNode(ctx context.Context, name string) error {
	_, err := c.change(ctx, enrolment(), "RemoveNode", name)
	return err
}

// Members lists the fleet with what makes each node a member and the state of its certificate.
func (c *Client) Members(ctx context.Context) ([]wire.MemberRow, error) {
	body, err := c.read(ctx, enrolment(), "ListMembers")
	if err != nil {
		return nil, err
	}
	var rows []wire.MemberRow
	return rows, store(body, &rows)
}

// Tokens lists the tokens that can still be used.
func (c *Client) Tokens(ctx context.Context) ([]wire.TokenRow, error) {
	body, err := c.change(ctx, enrolment(), "ListTokens") // whoever may not is asked for a password
	if err != nil {
		return nil, err
	}
	var rows []wire.TokenRow
	return rows, store(body, &rows)
}

// Authority is the fleet's certificate authority.
type Authority struct {
	Directory    string
	Certificates []wire.CertificateRow
	Waiting      []string // nodes that a replacement waits for
}

// Authority shows the fleet's authority. Errors: wire.ErrFailed where there is none.
func (c *Client) Authority(ctx context.Context) (Authority, error) {
	var a Authority
	body, err := c.read(ctx, enrolment(), "ShowAuthority")
	if err != nil {
		return a, err
	}
	return a, store(body, &a.Directory, &a.Certificates, &a.Waiting)
}

// RotateAuthority begins to replace the authority, or ends a replacement without those who
// have not renewed their certificates.
func (c *Client) RotateAuthority(ctx context.Context, finish bool) error {
	_, err := c.change(ctx, enrolment(), "RotateAuthority", finish)
	return err
}
