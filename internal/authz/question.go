package authz

import (
	"context"
	"errors"
	"strconv"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// question is what polkit is asked: may this user do this to that?
type question struct {
	busobject.Request
	uid     uint32
	subject subject
}

// Details of a check, which rules can look up (polkit(8), "Action.lookup").
const (
	detailNode    = "node"
	detailUnit    = "unit"
	detailVerb    = "verb"
	detailMessage = "polkit.message"
)

// details leaves out what the call is not about.
func (q question) details() map[string]string {
	d := map[string]string{detailVerb: q.Verb}
	if q.subject.node != "" {
		d[detailNode] = q.subject.node
	}
	if q.subject.unit != "" {
		d[detailUnit] = q.subject.unit
	}
	return d
}

// message is what a person reads who is asked for a password. polkit puts the details in,
// once, so that a name cannot stand for another.
func (q question) message() string {
	text := "Authentication is required to $(verb)"
	if q.subject.unit != "" {
		text += " $(unit)"
	}
	if q.subject.node != "" {
		return text + " on $(node)."
	}
	return text + " (ctrl)."
}

// verdict is polkit's answer: AuthorizationResult.
type verdict struct {
	Authorized bool
	Challenge  bool // somebody who is asked may be authorized
	Details    map[string]string
}

// dismissed reports that the person who was asked has closed the question.
func (v verdict) dismissed() bool { return v.Details["polkit.dismissed"] != "" }

const flagAllowInteraction uint32 = 1 // CheckAuthorizationFlags

// ask decides about one subject: first by polkit alone, then by a person, where the caller
// agreed to wait for one and that can help.
func (p *Polkit) ask(c *client, q question) error {
	v, err := p.quickly(c, q)
	switch {
	case err != nil:
		return p.unanswered(q, err)
	case v.Authorized:
		return nil
	case !v.Challenge:
		return refused(q)
	case !q.Interactive:
		return unasked(q)
	}
	return p.prompt(c, q)
}

// quickly asks what polkit can answer at once.
func (p *Polkit) quickly(c *client, q question) (verdict, error) {
	ctx, cancel := context.WithTimeout(c.gone, questionTimeout)
	defer cancel()
	for _, slot := range []chan struct{}{c.turn, p.questions} {
		select {
		case slot <- struct{}{}:
			defer func() { <-slot }()
		case <-ctx.Done():
			return verdict{}, wire.ErrTimeout.With("it has too much to do")
		}
	}
	v, err := p.call(ctx, q, q.details(), 0, "")
	if err == nil {
		p.found()
	}
	return v, err
}

// prompt has a person asked, and calls that off when it takes too long or the caller leaves.
func (p *Polkit) prompt(c *client, q question) error {
	id, err := p.begin(c, q)
	if err != nil {
		return err
	}
	defer p.end(c, q, id)
	ctx, cancel := context.WithTimeout(c.gone, promptTimeout)
	defer cancel()
	details := q.details()
	details[detailMessage] = q.message()
	v, err := p.call(ctx, q, details, flagAllowInteraction, id)
	switch {
	case ctx.Err() != nil || errors.Is(err, wire.ErrTimeout):
		p.mu.Lock()
		c.cancel(q.Conn, id)
		p.mu.Unlock()
		return unheard(q)
	case err != nil:
		return p.unanswered(q, err)
	case v.Authorized:
		return nil
	case v.dismissed():
		return dismissed(q)
	case v.Challenge:
		return nobodyToAsk(q)
	}
	return failed(q)
}

// begin counts a prompt, unless there are too many.
func (p *Polkit) begin(c *client, q question) (id string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.gone.Err() != nil:
		return "", c.gone.Err()
	case p.prompts[q.uid] >= MaxPromptsPerUser:
		return "", tooManyPrompts(q, "this user", MaxPromptsPerUser)
	case p.asking >= MaxPrompts:
		return "", tooManyPrompts(q, "users", MaxPrompts)
	}
	p.serial++
	id = "ctrl-" + strconv.FormatUint(p.serial, 10)
	p.prompts[q.uid]++
	p.asking++
	c.prompts[id] = true
	return id, nil
}

func (p *Polkit) end(c *client, q question, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking--
	if p.prompts[q.uid]--; p.prompts[q.uid] == 0 {
		delete(p.prompts, q.uid)
	}
	delete(c.prompts, id)
}

// cancel closes a question that a person sees, unless that is done. The lock is held.
func (c *client) cancel(conn *peer.Conn, id string) {
	if !c.prompts[id] {
		return
	}
	delete(c.prompts, id)
	_ = conn.Send(authority("CancelCheckAuthorization", peer.MustEncode(id))) // a closed connection cancels too
}

type subjectKind struct {
	Kind    string
	Details map[string]wire.Value
}

func (p *Polkit) call(ctx context.Context, q question, details map[string]string, flags uint32, id string) (v verdict, err error) {
	who := subjectKind{"system-bus-name", map[string]wire.Value{"name": peer.MustValue(q.Sender)}}
	args, err := peer.Encode(who, q.Action, details, flags, id)
	if err != nil {
		return v, err
	}
	m, err := q.Conn.Call(ctx, authority("CheckAuthorization", args))
	if err == nil {
		err = peer.Decode(m.Body, &v)
	}
	return v, err
}

func authority(member string, args wire.Raw) peer.Call {
	return peer.Call{
		Destination: wire.PolkitName, Path: wire.PolkitPath, Interface: wire.PolkitAuthorityInterface,
		Member: member, Body: args,
	}
}

func userOf(name wire.Raw) peer.Call {
	return peer.Call{
		Destination: wire.DBusName, Path: wire.DBusPath, Interface: wire.DBusInterface,
		Member: "GetConnectionUnixUser", Body: name,
	}
}
