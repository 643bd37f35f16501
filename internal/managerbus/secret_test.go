package managerbus

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// doorman lets everyone in, and trusts some.
type doorman struct{ trusted bool }

func (doorman) Check(busobject.Request, func(error)) (bool, error) { return true, nil }
func (doorman) Left(*peer.Conn, string)                            {}
func (d doorman) Trusted(*peer.Conn, string) bool                  { return d.trusted }

const secret = "opensesame"

// withSecrets are properties of which some hold the secret.
var withSecrets = map[string]wire.Value{
	"Id":                     peer.MustValue("web.service"),
	"Environment":            peer.MustValue([]string{"TOKEN=" + secret, "EMPTY="}),
	"SetCredential":          peer.MustValue([]credential{{"key", []byte(secret)}}),
	"SetCredentialEncrypted": peer.MustValue([]credential{{"key", []byte(secret)}}),
	"StandardInputData":      peer.MustValue([]byte(secret)),
}

// TestSecretsAreHidden: from who is not trusted, by every road; types stay what they are.
func TestSecretsAreHidden(t *testing.T) {
	if missing := slices.DeleteFunc(slices.Collect(maps.Keys(secrets)), func(n string) bool { _, ok := withSecrets[n]; return ok }); len(missing) > 0 {
		t.Errorf("not tried: %v", missing)
	}
	for _, trusted := range []bool{true, false} {
		w := &world{t: t, bus: bustest.Start(t), core: newFakeCore()}
		w.serve(doorman{trusted})
		var name string
		w.do(func() {
			w.core.call = func(_, method string, _ wire.Raw, reply func(wire.Raw, error)) {
				if method == "GetUnitProperties" {
					reply(peer.MustEncode(withSecrets), nil)
					return
				}
				reply(peer.MustEncode(withSecrets[name]), nil)
			}
		})
		events := make(chan *peer.Message, 1)
		conn := w.raw(func(m *peer.Message) {
			if m.Member == "UnitPropertiesChanged" {
				events <- m.Clone()
			}
		})
		see := func(where string, body wire.Raw, err error) {
			if err != nil || strings.Contains(string(body.Data), secret) != trusted {
				t.Errorf("%s, trusted: %v: %q, %v", where, trusted, body.Data, err)
			}
		}
		call := func(member string, args ...any) (wire.Raw, error) {
			m, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: wire.NodePath("node1"), Member: member, Body: peer.MustEncode(args...)})
			if err != nil {
				return wire.Raw{}, err
			}
			return m.Body, nil
		}
		body, err := call("GetUnitProperties", "web.service", "")
		see("all", body, err)
		var all map[string]wire.Value
		if err := peer.Decode(body, &all); err != nil || len(all) != len(withSecrets) {
			t.Errorf("all properties: %v, %v", all, err)
		}
		for key, v := range withSecrets {
			if all[key].Sig != v.Sig {
				t.Errorf("%s is of type %q, not %q", key, all[key].Sig, v.Sig)
			}
			if _, ok := secrets[key]; ok {
				w.do(func() { name = key })
				body, err := call("GetUnitProperty", "web.service", "", key)
				see(key, body, err)
			}
		}
		w.do(func() {
			w.core.events.UnitEvent(manager.UnitEvent{Kind: manager.UnitPropertiesChanged, Properties: peer.MustEncode(withSecrets)},
				[]manager.Audience{{Monitor: 1, To: []string{conn.UniqueName()}}})
		})
		see("event", wait(t, events).Body, nil)
		w.stop()
	}
}

// TestSecretOfAnotherType: what cannot be hidden is not shown.
func TestSecretOfAnotherType(t *testing.T) {
	odd := map[string]wire.Value{"Environment": peer.MustValue(secret), "Id": peer.MustValue("x")}
	body, err := hideAll(peer.MustEncode(odd))
	if err != nil || strings.Contains(string(body.Data), secret) || !strings.Contains(string(body.Data), "Id") {
		t.Errorf("%q, %v", body.Data, err)
	}
	if v, err := hide("Environment", odd["Environment"]); err == nil {
		t.Errorf("it is shown: %q", v.Data)
	}
}

// TestValuesAreConcealed: whatever method of a node answers with values of properties hides
// what is secret.
func TestValuesAreConcealed(t *testing.T) {
	for _, m := range wire.NodeMethods {
		if _, ok := concealed[m.Name]; strings.Contains(string(m.Out), "v") != ok {
			t.Errorf("%s answers %q; its secrets are hidden: %v", m.Name, m.Out, ok)
		}
	}
}
