package managerbus

import (
	"time"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/wire"
)

// Enrolment is what the Enrolment interface needs of the process. Its methods may wait for
// the disk; they are called one at a time, in the order of the calls on the bus.
type Enrolment interface {
	// AddNode and AddToken make tokens, which are good for life (0: the default), and tell the
	// address at which nodes find this manager.
	AddNode(node string, life time.Duration) (token, manager string, err error)
	AddToken(pattern string, count int, life time.Duration) (token, manager string, err error)
	WithdrawToken(id string) error
	RemoveNode(node string) error
	Members() []wire.MemberRow
	Tokens() ([]wire.TokenRow, error)
	Authority() (directory string, certificates []wire.CertificateRow, waiting []string, err error)
	RotateAuthority(finish bool) error
}

// maxEnrolling is how many calls may wait for the one that is being served.
const maxEnrolling = 64

func (b *Bus) enrolmentInterface() *busobject.Interface {
	return busobject.NewInterface(wire.EnrolmentInterface, map[string]busobject.Method{
		"AddNode":         {Serve: b.addNode, About: aboutNode},
		"AddToken":        {Serve: b.addToken, About: aboutNode},
		"WithdrawToken":   {Serve: b.withdrawToken},
		"RemoveNode":      {Serve: b.removeNode, About: aboutNode},
		"ListMembers":     {Serve: b.listMembers},
		"ListTokens":      {Serve: b.listTokens},
		"ShowAuthority":   {Serve: b.showAuthority},
		"RotateAuthority": {Serve: b.rotateAuthority},
	}, nil)
}

// aboutNode says which node a call is about: the first argument, which may be a glob.
func aboutNode(c *busobject.Call) (busobject.About, error) {
	names, ok := c.Args.FirstStrings()
	if !ok || len(names) != 1 {
		return busobject.About{}, wire.ErrInvalidArgs.With("the first argument is no name")
	}
	return busobject.About{Node: names[0]}, nil
}

// enrol decodes a call and serves it in its turn, away from the server's goroutine.
func (b *Bus) enrol(c *busobject.Call, serve func() ([]any, error), args ...any) {
	if err := c.Decode(args...); err != nil {
		c.Fail(err)
		return
	}
	err := b.enrolling.enter(func() {
		b.work.Go(func() {
			defer b.enrolling.leave()
			values, err := serve()
			if err != nil {
				c.Fail(err)
				return
			}
			c.Reply(values...)
		})
	})
	if err != nil {
		c.Fail(err)
	}
}

func invitation(token, manager string, err error) ([]any, error) { return []any{token, manager}, err }

func (b *Bus) addNode(c *busobject.Call) {
	var node string
	var life uint64
	b.enrol(c, func() ([]any, error) {
		return invitation(b.enrolment.AddNode(node, lifetime(life)))
	}, &node, &life)
}

func (b *Bus) addToken(c *busobject.Call) {
	var pattern string
	var count uint32
	var life uint64
	b.enrol(c, func() ([]any, error) {
		return invitation(b.enrolment.AddToken(pattern, int(count), lifetime(life)))
	}, &pattern, &count, &life)
}

// lifetime is a number of microseconds; what no duration can hold is longer than any token may
// be good for.
func lifetime(us uint64) time.Duration {
	const most = 1 << 62 / uint64(time.Microsecond)
	return time.Duration(min(us, most)) * time.Microsecond
}

func (b *Bus) withdrawToken(c *busobject.Call) {
	var id string
	b.enrol(c, func() ([]any, error) { return nil, b.enrolment.WithdrawToken(id) }, &id)
}

func (b *Bus) removeNode(c *busobject.Call) {
	var node string
	b.enrol(c, func() ([]any, error) { return nil, b.enrolment.RemoveNode(node) }, &node)
}

func (b *Bus) listMembers(c *busobject.Call) {
	b.enrol(c, func() ([]any, error) {
		return []any{append([]wire.MemberRow{}, b.enrolment.Members()...)}, nil
	})
}

func (b *Bus) listTokens(c *busobject.Call) {
	b.enrol(c, func() ([]any, error) {
		rows, err := b.enrolment.Tokens()
		return []any{append([]wire.TokenRow{}, rows...)}, err
	})
}

func (b *Bus) showAuthority(c *busobject.Call) {
	b.enrol(c, func() ([]any, error) {
		directory, certificates, waiting, err := b.enrolment.Authority()
		return []any{directory, append([]wire.CertificateRow{}, certificates...), append([]string{}, waiting...)}, err
	})
}

func (b *Bus) rotateAuthority(c *busobject.Call) {
	var finish bool
	b.enrol(c, func() ([]any, error) { return nil, b.enrolment.RotateAuthority(finish) }, &finish)
}
