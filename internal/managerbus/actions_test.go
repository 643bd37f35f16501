package managerbus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// written is what the action log holds: kind, node, unit, verb, job, result. Each line has
// the caller.
func (w *world) written(caller string) (out []string) {
	w.t.Helper()
	w.do(func() {
		for line := range bytes.Lines(w.actions.take()) {
			var e struct {
				ID                       string `json:"message_id"`
				Node, Unit, Verb, Result string
				Job                      int
				UID                      *int `json:"caller_uid"`
				Caller                   string
			}
			if err := json.Unmarshal(line, &e); err != nil || e.Caller != caller || e.UID == nil || *e.UID != os.Getuid() {
				w.t.Errorf("%s: %v", line, err)
			}
			kind := slices.Index(actionlog.MessageIDs[:], e.ID)
			out = append(out, fmt.Sprintf("%d %s %s %s %d %s", kind, e.Node, e.Unit, e.Verb, e.Job, e.Result))
		}
	})
	return out
}

func TestActsAndRefusalsAreWrittenDown(t *testing.T) {
	for name, allowed := range map[string]uint32{"allowed": uint32(os.Getuid()), "refused": uint32(os.Getuid()) + 1} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, bus: bustest.Start(t), core: newFakeCore()}
			w.core.call = func(node, method string, _ wire.Raw, reply func(wire.Raw, error)) {
				if method == "StopUnit" || method == "FreezeUnit" {
					reply(wire.Raw{}, wire.ErrAccessDenied.With("DenyUnits="))
					return
				}
				m, _ := wire.NodeMethodByName(method)
				reply(samples[m.Out], nil)
			}
			w.serve(authz.NewByUID(allowed))
			conn := w.raw(func(*peer.Message) {})
			call := func(path wire.ObjectPath, member string, args wire.Raw) {
				_, _ = conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: path, Member: member, Body: args})
			}
			node := wire.NodePath("node1")
			call(node, "RestartUnit", samples["ss"])
			call(node, "ListUnits", wire.Raw{})
			call(wire.RootPath, "ListNodes", wire.Raw{})
			call(wire.RootPath, "Properties", wire.Raw{})
			call(node, "FreezeUnit", peer.MustEncode("web.service"))
			call(node, "EnableUnitFiles", peer.MustEncode([]string{"a.service", "b.service"}, true, false))
			if name == "allowed" {
				call(wire.RootPath, "CancelJob", samples["u"])
				call(wire.RootPath, "CancelJob", samples["u"])
			}
			call(wire.RootPath, "SetLogLevel", peer.MustEncode("debug"))
			want := []string{
				"0 node1 web.service restart 1 queued", "1 node1 web.service freeze 0 refused", "0 node1 a.service b.service enable 0 done",
				"2 node1 web.service restart 1 canceled", "0 node1 web.service cancel 1 done", "0   cancel 1 failed", "0   log-level 0 done",
			}
			if name == "refused" {
				want = []string{
					"1 node1 web.service restart 0 refused", "1 node1  list-units 0 refused", "1   list-nodes 0 refused",
					"1 node1 web.service freeze 0 refused",
					"1 node1 a.service b.service enable 0 refused", "1   log-level 0 refused",
				}
			}
			if got := w.written(conn.UniqueName()); !slices.Equal(got, want) {
				t.Errorf("written %q\nwant    %q", got, want)
			}
		})
	}
}
