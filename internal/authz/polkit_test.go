package authz

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// asked is one check that has reached the fake polkit, which answers it when told to.
type asked struct {
	sender, action string
	details        map[string]string
	interactive    bool
	id             string

	reply func(verdict)
	fail  func(error)
}

func (a asked) String() string {
	var d []string
	for _, k := range slices.Sorted(maps.Keys(a.details)) {
		d = append(d, k+"="+a.details[k])
	}
	return fmt.Sprint(a.sender, " ", strings.TrimPrefix(a.action, wire.BusName+"."), " ", strings.Join(d, " "), " ", a.interactive)
}

// polkitBus is a bus with users and a polkit.
type polkitBus struct {
	t         *testing.T
	conn      *peer.Conn
	polkit    *Polkit
	log       *strings.Builder
	asked     chan asked
	cancelled chan string
}

// users are the callers on the bus.
var users = map[string]uint32{":1.0": 0, ":1.1": 1000, ":1.2": 3000000000, ":1.3": 1000, ":1.4": 1000, ":1.5": 1000, ":1.6": 1000}

func newPolkitBus(t *testing.T) *polkitBus {
	t.Helper()
	b := &polkitBus{t: t, log: &strings.Builder{}, asked: make(chan asked, 256), cancelled: make(chan string, 256)}
	b.polkit = NewPolkit(slog.New(slog.NewTextHandler(b.log, nil)))
	near, far := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() {
		conn, err := peer.Server(t.Context(), far, peer.Options{Handler: b.handle})
		if err != nil {
			t.Error(err)
			return
		}
		<-conn.Done()
	})
	conn, err := peer.ClientBus(t.Context(), near, peer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.conn = conn
	return b
}

// end ends the bus and waits for all that used it.
func (b *polkitBus) end() {
	b.polkit.Left(b.conn, "")
	b.conn.Close(nil)
	<-b.conn.Done()
	b.polkit.Wait()
}

func (b *polkitBus) handle(c *peer.Conn, m *peer.Message) {
	switch m.Member {
	case "Hello":
		c.Reply(m, peer.MustEncode(":1.99"))
	case "GetConnectionUnixUser":
		var name string
		peer.Decode(m.Body, &name)
		if uid, ok := users[name]; ok {
			c.Reply(m, peer.MustEncode(uid))
			return
		}
		c.ReplyError(m, wire.ErrNameHasNoOwner.With("nobody is %s", name))
	case "CheckAuthorization":
		var who subjectKind
		var flags uint32
		var a asked
		if err := peer.Decode(m.Body, &who, &a.action, &a.details, &flags, &a.id); err != nil || who.Kind != "system-bus-name" {
			b.t.Errorf("polkit was asked %v, %v", who, err)
		}
		peer.DecodeValue(who.Details["name"], &a.sender)
		a.interactive = flags == flagAllowInteraction
		m = m.Clone()
		a.reply = func(v verdict) { c.Reply(m, peer.MustEncode(v)) }
		a.fail = func(err error) { c.ReplyError(m, err) }
		b.asked <- a
	case "CancelCheckAuthorization":
		var id string
		peer.Decode(m.Body, &id)
		b.cancelled <- id
	default:
		c.ReplyError(m, peer.UnknownMethod(m))
	}
}

// check begins a check; its decision is the channel's.
func (b *polkitBus) check(r busobject.Request) <-chan error {
	b.t.Helper()
	r.Conn = b.conn
	result := make(chan error, 1)
	if decided, err := b.polkit.Check(r, func(err error) { result <- err }); decided {
		result <- err
	}
	return result
}

func restart(sender string, interactive bool, units ...string) busobject.Request {
	return busobject.Request{
		Sender: sender, Action: wire.ActionManageUnits, Verb: "restart", Interactive: interactive,
		About: busobject.About{Node: "node1", Units: units},
	}
}

// in runs a scenario on a bus of its own, in fake time.
func in(t *testing.T, scenario func(t *testing.T, b *polkitBus)) {
	synctest.Test(t, func(t *testing.T) {
		b := newPolkitBus(t)
		defer b.end()
		scenario(t, b)
	})
}

// denied checks a refusal: its kind, the right that it names, and its words.
func (b *polkitBus) denied(err error, words ...string) {
	b.t.Helper()
	if !errors.Is(err, wire.ErrAccessDenied) {
		b.t.Errorf("the decision is %v, want AccessDenied", err)
		return
	}
	for _, w := range append(words, wire.ActionManageUnits) {
		if !strings.Contains(err.Error(), w) {
			b.t.Errorf("%q does not say %q", err, w)
		}
	}
}

var (
	yes       = verdict{Authorized: true}
	no        = verdict{}
	challenge = verdict{Challenge: true}
)

// TestRootNeedsNoPolkit: uid 0 may do everything, and nobody is asked; what is for uid 0
// alone is for nobody else.
func TestRootNeedsNoPolkit(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		for range 2 {
			if err := <-b.check(restart(":1.0", true, "a.service")); err != nil {
				t.Error(err)
			}
		}
		r := restart(":1.1", true)
		r.Action = wire.ActionRoot
		for range 2 {
			if err := <-b.check(r); !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "only uid 0") {
				t.Error(err)
			}
		}
		if !b.polkit.Trusted(b.conn, ":1.0") || b.polkit.Trusted(b.conn, ":1.1") || b.polkit.Trusted(b.conn, ":1.5") {
			t.Error("who is trusted is not uid 0 alone")
		}
		b.denied(<-b.check(restart(":1.77", false)), "nobody is :1.77")
		if len(b.asked) > 0 {
			t.Errorf("polkit was asked %v", <-b.asked)
		}
	})
}

// TestWhatPolkitIsAsked: each unit on each node, until one is refused, with all details.
func TestWhatPolkitIsAsked(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		r := restart(":1.2", false, "a.service", "b.service", "c.service")
		r.About.Nodes = []string{"node1", "node2"}
		result := b.check(r)
		for _, want := range []string{"node=node1 unit=a.service", "node=node1 unit=b.service", "node=node1 unit=c.service", "node=node2 unit=a.service"} {
			q := <-b.asked
			if got := q.String(); got != ":1.2 manage-units "+want+" verb=restart false" {
				t.Errorf("polkit was asked %q, want %q", got, want)
			}
			q.reply(verdict{Authorized: want != "node=node2 unit=a.service"})
		}
		b.denied(<-result, "restart a.service on node2", "uid 3000000000")
		result = b.check(busobject.Request{Sender: ":1.2", Action: wire.ActionInspect, Verb: "list-nodes"})
		q := <-b.asked
		if q.String() != ":1.2 inspect verb=list-nodes false" {
			t.Errorf("polkit was asked %q", q)
		}
		q.reply(yes)
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// TestWhatIsFoundIsAsked: what completes a request is asked for, and its error is the answer.
func TestWhatIsFoundIsAsked(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		r := restart(":1.1", false, "alias.service")
		r.Find = func(done func(busobject.About, error)) {
			go done(busobject.About{Node: "node1", Units: []string{"real.service"}}, nil)
		}
		result := b.check(r)
		q := <-b.asked
		if q.details[detailUnit] != "real.service" {
			t.Errorf("polkit was asked %v", q)
		}
		q.reply(yes)
		if err := <-result; err != nil {
			t.Error(err)
		}
		r.Find = func(done func(busobject.About, error)) { done(busobject.About{}, wire.ErrNodeOffline.With("away")) }
		if err := <-b.check(r); !errors.Is(err, wire.ErrNodeOffline) {
			t.Error(err)
		}
		r.Find = func(func(busobject.About, error)) {} // the node is silent
		result = b.check(r)
		synctest.Wait()
		b.polkit.Left(b.conn, ":1.1")
		if err := <-result; err == nil {
			t.Error("who has left may do it")
		}
	})
}

// TestNoStrangeNames: what would look like something else to a person, and what is too much.
func TestNoStrangeNames(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		for _, unit := range []string{"a\x1b[2K.service", "a\n.service", strings.Repeat("x", maxName+1), "a\u202eb.service"} {
			if err := <-b.check(restart(":1.1", true, unit)); !errors.Is(err, wire.ErrInvalidArgs) {
				t.Errorf("%.20q: %v", unit, err)
			}
		}
		if err := <-b.check(restart(":1.1", true, make([]string, MaxSubjects+1)...)); !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Error(err)
		}
	})
}

// TestAPersonIsAsked: only if polkit says that it can help and the caller agreed, and with a
// message that polkit fills in.
func TestAPersonIsAsked(t *testing.T) {
	for _, test := range []struct {
		name        string
		interactive bool
		first, then verdict
		want        string // "" is yes
	}{
		{"not allowed to ask", false, challenge, no, "does not allow to ask"},
		{"it would not help", true, no, no, "polkit does not give to uid 1000"},
		{"yes", true, challenge, yes, ""},
		{"no agent", true, challenge, challenge, "no polkit agent"},
		{"wrong password", true, challenge, no, "not given"},
		{"closed", true, challenge, verdict{Challenge: true, Details: map[string]string{"polkit.dismissed": "true"}}, "was closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T, b *polkitBus) {
				result := b.check(restart(":1.1", test.interactive, "a.service"))
				q := <-b.asked
				if q.interactive || q.id != "" {
					t.Errorf("a person was asked at once: %+v", q)
				}
				q.reply(test.first)
				if test.first.Challenge && test.interactive {
					q = <-b.asked
					if !q.interactive || q.id == "" || q.details[detailMessage] != "Authentication is required to $(verb) $(unit) on $(node)." {
						t.Errorf("the person was asked %+v", q)
					}
					q.reply(test.then)
				}
				err := <-result
				if test.want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				b.denied(err, test.want)
			})
		})
	}
}
