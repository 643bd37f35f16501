package authority

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/pki"
)

// TestRotate replaces the authority of a fleet whose nodes renew one after the other. At every
// moment each of them can reach the manager.
func TestRotate(t *testing.T) {
	w := newWorld(t)
	machines, trusts := make(map[string]machine), make(map[string]Granted)
	for _, name := range []string{"node1", "node2", "node3"} {
		machines[name] = w.machine(name)
		trusts[name] = w.join(machines[name], name, w.add(name))
	}
	pinned := w.add("node4")
	w.changes = nil
	meets := func() {
		t.Helper()
		for name, g := range trusts {
			// The node's side: the manager's certificate by what the node trusts.
			manager := parse(t, []byte(w.files()["manager.pem"]))
			known := false
			for rest := string(g.CA); rest != ""; {
				cut := strings.Index(rest, "-----END CERTIFICATE-----\n") + len("-----END CERTIFICATE-----\n")
				known = known || manager.CheckSignatureFrom(parse(t, []byte(rest[:cut]))) == nil
				rest = rest[cut:]
			}
			// The manager's side.
			if _, err := pki.CheckIssued(name, machines[name].key, g.Certificate, []byte(w.files()["ca.crt"])); err != nil || !known {
				t.Errorf("%s and the manager do not know each other: %v", name, err)
			}
			if err := w.Check(name, g.Generation); err != nil {
				t.Error(err)
			}
		}
		if _, err := pki.Open(w.Files(), quiet); err != nil {
			t.Error(err)
		}
	}
	renew := func(name string) {
		t.Helper()
		machines[name] = w.machine(name)
		g, err := w.Renew(name, trusts[name].Generation, machines[name].csr)
		if err != nil {
			t.Fatal(err)
		}
		trusts[name] = g
	}
	outdated := func(want ...string) {
		t.Helper()
		var got []string
		for _, n := range w.Nodes() {
			if n.Outdated {
				got = append(got, n.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("outdated are %v, want %v", got, want)
		}
	}
	meets()
	if err := w.FinishRotation(); err == nil {
		t.Error("finished what has not begun")
	}
	if err := w.Rotate(); err != nil {
		t.Fatal(err)
	}
	meets()
	outdated("node1", "node2", "node3")
	if err := w.Rotate(); err == nil || !strings.Contains(err.Error(), "node1, node2, node3") {
		t.Errorf("a second rotation gave %v", err)
	}
	renew("node1")
	meets()
	outdated("node2", "node3")
	w.restart()
	meets()
	renew("node2")
	w.join(machines["node4"].orNew(w), "node4", pinned)
	if err := w.RemoveNode("node4"); err != nil {
		t.Fatal(err)
	}
	meets()
	late := w.add("node5")
	if want := (Change{Trust: true}); !slices.Contains(w.changes, want) {
		t.Errorf("told %+v", w.changes)
	}
	w.changes = nil
	renew("node3")
	meets()
	if want := []Change{{Trust: true}}; !slices.Equal(w.changes, want) {
		t.Errorf("told %+v", w.changes)
	}
	if got := w.names(); !slices.Equal(got, []string{"authority-2.pem", "ca.crt", "fleet", "manager.pem"}) {
		t.Errorf("there are %v", got)
	}
	_, err := w.Join("node5", late.String(), w.machine("").csr)
	refused(t, err, "withdrawn") // it pins an authority that the manager has no certificate from
	outdated("node1", "node2", "node3")
	for _, name := range []string{"node1", "node2", "node3"} {
		renew(name)
	}
	outdated()
	w.restart()
	meets()
	w.join(w.machine("node5"), "node5", w.add("node5"))
}

func (m machine) orNew(w *world) machine {
	if m.key == nil {
		return w.machine("")
	}
	return m
}

func TestRotateWithoutNodes(t *testing.T) {
	w := newWorld(t)
	token := w.add("node1")
	if err := w.Rotate(); err != nil {
		t.Fatal(err)
	}
	if got := w.names(); !slices.Contains(got, "authority-2.pem") || slices.Contains(got, "authority-1.pem") {
		t.Errorf("there are %v", got)
	}
	_, err := w.Join("", token.String(), w.machine("").csr)
	refused(t, err, "withdrawn")
}

// TestFinishWithoutSome: who has not renewed is out, by name.
func TestFinishWithoutSome(t *testing.T) {
	w := newWorld(t)
	w.join(w.machine("node1"), "node1", w.add("node1"))
	w.join(w.machine("node2"), "node2", w.add("node2"))
	if err := w.Rotate(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Renew("node1", 1, w.machine("").csr); err != nil {
		t.Fatal(err)
	}
	s, err := w.State()
	if err != nil || len(s.Authorities) != 2 || !slices.Equal(s.Waiting, []string{"node2"}) {
		t.Errorf("%+v, %v", s, err)
	}
	w.changes = nil
	if err := w.FinishRotation(); err != nil {
		t.Fatal(err)
	}
	if want := []Change{{Revoked: true, Trust: true}}; !slices.Equal(w.changes, want) {
		t.Errorf("told %+v", w.changes)
	}
	if err := w.Check("node1", 1); err != nil {
		t.Error(err)
	}
	refused(t, w.Check("node2", 1), `the certificate of node "node2" comes from an authority that was replaced`)
	w.restart()
	refused(t, w.Check("node2", 1), `the certificate of node "node2" comes from an authority that was replaced`)
	if s, err := w.State(); err != nil || len(s.Authorities) != 1 || len(s.Waiting) != 0 || time.Until(s.Manager.NotAfter) < Life/2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestCrashInRotation: a manager that ends between two files finds its way at the next start.
func TestCrashInRotation(t *testing.T) {
	w := newWorld(t)
	w.join(w.machine("node1"), "node1", w.add("node1"))
	before := w.files()
	if err := w.Rotate(); err != nil {
		t.Fatal(err)
	}
	during := w.files()
	if _, err := w.Renew("node1", 1, w.machine("").csr); err != nil {
		t.Fatal(err)
	}
	after := w.files()
	put := func(files map[string]string) {
		w.Close()
		for name := range w.files() {
			os.Remove(w.path(name))
		}
		for name, text := range files {
			os.WriteFile(w.path(name), []byte(text), 0o600)
		}
		w.open()
	}
	mix := func(base map[string]string, others map[string]string, names ...string) map[string]string {
		out := make(map[string]string)
		for name, text := range base {
			out[name] = text
		}
		for _, name := range names {
			out[name] = others[name]
		}
		return out
	}
	for name, files := range map[string]map[string]string{
		"authority written":         mix(before, during, "authority-2.pem"),
		"authority half written":    mix(before, map[string]string{".authority-2.pem.new-1": "half"}, ".authority-2.pem.new-1"),
		"ledger, not the list":      mix(during, before, "ca.crt"),
		"last renewal, no more":     mix(during, after, "fleet"),
		"manager's, not the list":   mix(during, after, "fleet", "manager.pem"),
		"all but the old authority": mix(after, before, "authority-1.pem"),
	} {
		put(files)
		if _, err := pki.Open(w.Files(), quiet); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s, err := w.State()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, file := range w.names() {
			if file[0] == '.' {
				t.Errorf("%s: %s is still there", name, file)
			}
			if file == "authority-1.pem" && s.Authorities[0].Subject != "CN=ctrl fleet authority 1" {
				t.Errorf("%s: the key of the replaced authority is still there", name)
			}
		}
		if err := w.Check("node1", 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.Authorities) == 1 {
			if err := w.Rotate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestOldAuthority: after ten years the manager still starts, to have its authority replaced.
func TestOldAuthority(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir}
		w.open()
		time.Sleep(authorityLife - 30*24*time.Hour)
		w.look(time.Now())
		if !w.warned {
			t.Error("nothing was said before")
		}
		if g := w.join(w.machine("node1"), "node1", w.add("node1")); time.Until(g.NotAfter) > 31*24*time.Hour {
			t.Errorf("the certificate is good until %v, longer than the authority", g.NotAfter)
		}
		time.Sleep(31 * 24 * time.Hour)
		w.restart()
		defer w.Close()
		if _, err := w.Renew("node1", 1, w.machine("").csr); err == nil || !strings.Contains(err.Error(), "the fleet's authority expired at 2009-12-29T00:00:00Z; `ctl pki rotate`") {
			t.Errorf("got %v", err)
		}
		if err := w.Rotate(); err != nil {
			t.Fatal(err)
		}
		if err := w.FinishRotation(); err != nil {
			t.Fatal(err)
		}
		w.join(w.machine("node1"), "node1", w.add("node1"))
	})
}
