package managerd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/agentlink"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/managerbus"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/authority"
	"example.org/ctrl/internal/wire"
)

// enrolling is as much of a manager as adds and removes nodes: its core runs, and no bus.
type enrolling struct {
	*service
	log *bytes.Buffer // the action log
	mu  sync.Mutex
	all []string // changes of the fleet
}

// noBus takes events that a bus would show.
type noBus struct {
	*managerbus.Bus // none
	w               *enrolling
}

func (b noBus) NodeChanged(manager.NodeInfo) {}
func (b noBus) StatusChanged(string)         {}
func (b noBus) FleetChanged(added, removed []manager.NodeInfo) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	for _, n := range added {
		b.w.all = append(b.w.all, "+"+n.Name)
	}
	for _, n := range removed {
		b.w.all = append(b.w.all, "-"+n.Name)
	}
}

func newEnrolling(t *testing.T, lines string) *enrolling {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	w := &enrolling{log: new(bytes.Buffer)}
	w.service = &service{log: quiet, cfg: load(t, lines), port: 842, actions: actionlog.New(slog.New(slog.NewTextHandler(w.log, nil)))}
	sockets, err := listen(load(t, lines+"Port=0\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sockets.close)
	if err := w.secure(sockets); err != nil {
		t.Fatal(err)
	}
	w.core = manager.New(coreConfig(w.cfg, w.added()), noBus{w: w}, quiet)
	w.agents = agentlink.New(w.core, w.linkSettings(), quiet)
	done := make(chan bool)
	go func() { w.core.Run(t.Context()); close(done) }()
	t.Cleanup(func() {
		<-done
		if w.authority != nil {
			w.authority.Close()
		}
	})
	return w
}

// fleet is who is in it, after all that was asked before.
func (w *enrolling) fleet() []string {
	answer := make(chan []string, 1)
	w.core.Nodes(func(nodes []manager.NodeInfo) {
		var names []string
		for _, n := range nodes {
			names = append(names, n.Name)
		}
		answer <- names
	})
	return <-answer
}

// TestAddAndRemove: what is added and removed takes effect on the running core, and outlives
// it; files are named where they say otherwise.
func TestAddAndRemove(t *testing.T) {
	w := newEnrolling(t, "AllowedNodeNames=node1\n")
	word, address, err := w.AddNode("node2", 0)
	if err != nil || !strings.HasSuffix(address, ":842") {
		t.Fatalf("%s, %v", address, err)
	}
	if got := w.fleet(); !slices.Equal(got, []string{"node1", "node2"}) {
		t.Errorf("the fleet is %v", got)
	}
	_, csr, _ := pki.NewKeyAndCSR("node2")
	e := w.linkSettings().Enrolment
	if _, _, _, err := e.Join("192.0.2.1", "node1", word, csr); !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("got %v", err)
	}
	if name, _, _, err := e.Join("192.0.2.1", "", word, csr); err != nil || name != "node2" {
		t.Errorf("%s, %v", name, err)
	}
	for _, want := range []string{`msg="act refused" `, "node=node1 verb=join result=refused caller=192.0.2.1", "node=node2 verb=join result=done caller=192.0.2.1"} {
		if !strings.Contains(w.log.String(), want) || strings.Contains(w.log.String(), word[5:31]) {
			t.Errorf("the action log is %s", w.log)
		}
	}
	reusable, _, err := w.AddToken("web-*", 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := e.Join("192.0.2.2", "web-1", reusable, csr); err != nil {
		t.Error(err)
	}
	if got := w.fleet(); !slices.Equal(got, []string{"node1", "node2", "web-1"}) {
		t.Errorf("the fleet is %v", got)
	}
	var rows []string
	for _, m := range w.Members() {
		rows = append(rows, fmt.Sprint(m.Name, " ", strings.HasSuffix(m.Origin, "test.conf:2"), " ", m.Origin == wire.MemberAdded, " ", m.State, " ", m.Generation))
	}
	if want := []string{"node1 true false none 0", "node2 false true joined 1", "web-1 false true joined 1"}; !slices.Equal(rows, want) {
		t.Errorf("members are %q, want %q", rows, want)
	}
	if err := w.RemoveNode("node1"); !errors.Is(err, wire.ErrFailed) || !strings.Contains(err.Error(), "test.conf:2") {
		t.Errorf("got %v", err)
	}
	if err := w.RemoveNode("node3"); !errors.Is(err, wire.ErrNoSuchNode) {
		t.Errorf("got %v", err)
	}
	if err := w.RemoveNode("node2"); err != nil {
		t.Error(err)
	}
	if got := w.fleet(); !slices.Equal(got, []string{"node1", "web-1"}) {
		t.Errorf("the fleet is %v", got)
	}
	w.mu.Lock()
	if want := []string{"+node2", "+web-1", "-node2"}; !slices.Equal(w.all, want) {
		t.Errorf("told %v, want %v", w.all, want)
	}
	w.mu.Unlock()
	// What a file takes out of the fleet keeps its certificate until it is removed.
	if err := e.Check("web-1", 1); err != nil {
		t.Error(err)
	}
	w.authority.Close()
	again, err := authority.Open(w.cfg.Places.StateDir, func(authority.Change) {}, w.service.log)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := again.Members(); !slices.Equal(got, []string{"web-1"}) {
		t.Errorf("after a restart the members are %v", got)
	}
}

// TestNoAuthority: a manager that issues no certificates says why.
func TestNoAuthority(t *testing.T) {
	for lines, want := range map[string]string{
		"TLS=no\n": "this manager has TLS=no", "UseTCP=no\n": "awaits no agents over TCP",
	} {
		w := newEnrolling(t, "AllowedNodeNames=node1\n"+lines)
		_, _, add := w.AddNode("node2", 0)
		_, _, _, show := w.Authority()
		_, tokens := w.Tokens()
		for _, err := range []error{add, show, tokens, w.RotateAuthority(false), w.RemoveNode("node2"), w.WithdrawToken("x")} {
			if !errors.Is(err, wire.ErrFailed) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", lines, err)
			}
		}
		if rows := w.Members(); len(rows) != 1 || rows[0].State != "" {
			t.Errorf("%s: %+v", lines, rows)
		}
	}
}

func TestShowAuthority(t *testing.T) {
	w := newEnrolling(t, "")
	roles := func() (all []string) {
		_, certificates, _, err := w.Authority()
		if err != nil {
			t.Error(err)
		}
		for _, c := range certificates {
			all = append(all, c.Role)
		}
		return all
	}
	if got := roles(); !slices.Equal(got, []string{wire.RoleAuthority, wire.RoleManager}) {
		t.Errorf("there are %v", got)
	}
	word, _, err := w.AddNode("node1", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, csr, _ := pki.NewKeyAndCSR("")
	if _, _, _, err := w.linkSettings().Enrolment.Join("x", "", word, csr); err != nil {
		t.Fatal(err)
	}
	if err := w.RotateAuthority(false); err != nil {
		t.Fatal(err)
	}
	if got := roles(); !slices.Equal(got, []string{wire.RoleAuthority, wire.RoleSuccessor, wire.RoleManager}) {
		t.Errorf("there are %v", got)
	}
	if m := w.Members(); m[0].State != wire.MemberRenewing {
		t.Errorf("it is %+v", m)
	}
	if err := w.RotateAuthority(true); err != nil {
		t.Fatal(err)
	}
	if got := roles(); !slices.Equal(got, []string{wire.RoleAuthority, wire.RoleManager}) {
		t.Errorf("there are %v", got)
	}
}

// TestReloadFiles: certificates do not change between files and the authority while it runs.
func TestReloadFiles(t *testing.T) {
	w := newEnrolling(t, "")
	before := w.store.Expires()
	next := *w.cfg
	next.CertFile, next.KeyFile, next.CAFile = "/a", "/b", "/c"
	w.reloadFiles(&next)
	if w.store.Name() != "manager" || !w.store.Expires().Equal(before) {
		t.Error("the certificate is another one")
	}
}
