package manager

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func (w *world) call(as, node, method string, args wire.Raw) {
	w.m.CallNode(node, method, args, func(body wire.Raw, err error) { w.note("%s: %s%s", as, body.Data, kind(err)) })
	synctest.Wait()
}

// query notes the answer as "node=body" or "node=error", in order.
func (w *world) query(as string, patterns ...string) {
	w.m.QueryNodes(patterns, "ListUnits", wire.Raw{}, func(all []NodeReply, err error) {
		line := as + ":"
		for _, r := range all {
			line += " " + r.Node + "=" + string(r.Body.Data)
			if r.Err != nil {
				line += kind(r.Err)
			}
		}
		if err != nil {
			line += " " + kind(err)
		}
		w.note("%s", line)
	})
	synctest.Wait()
}

func raw(s string) wire.Raw { return wire.Raw{Sig: "s", Data: []byte(s)} }

func TestCallNode(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.call("a", "node1", "GetUnitFileState", raw("x"))
		l.reply("GetUnitFileState", raw("enabled "), nil)
		w.expect("node1< GetUnitFileState", "a: enabled ok")
		w.call("b", "node1", "KillUnit", wire.Raw{Sig: "ssi"})
		l.reply("KillUnit", wire.Raw{}, wire.ErrSystemdNoSuchUnit.With("no"))
		w.expect("node1< KillUnit", "b: NoSuchUnit")
		w.call("c", "node1", "Reload", wire.Raw{})
		l.keepAlive(31 * time.Second)
		w.expect("node1< Reload", "c: Timeout")

		w.call("offline", "node2", "Reload", wire.Raw{})
		w.call("unknown node", "stranger", "Reload", wire.Raw{})
		w.call("unknown method", "node1", "Reboot", wire.Raw{})
		w.call("job method", "node1", "StartUnit", wire.Raw{Sig: "ss"})
		w.call("wrong arguments", "node1", "Reload", raw("x"))
		w.expect("offline: NodeOffline", "unknown node: NoSuchNode", "unknown method: UnknownMethod",
			"job method: UnknownMethod", "wrong arguments: InvalidArgs")
	})
}

func TestOfflineNamesWhenLastSeen(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		seen := time.Now()
		time.Sleep(time.Minute / 20)
		var during, after error
		w.m.CallNode("node1", "Reload", wire.Raw{}, func(_ wire.Raw, err error) { during = err })
		synctest.Wait()
		w.close(l, "cable pulled")
		w.m.CallNode("node1", "Reload", wire.Raw{}, func(_ wire.Raw, err error) { after = err })
		synctest.Wait()
		for _, err := range []error{during, after} {
			for _, want := range []string{"node1", seen.UTC().Format(time.RFC3339), "cable pulled"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		}
	})
}

func TestQueryNodes(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.query("nobody")
		w.expect("nobody:")
		flaky, two, one := w.connect("flaky"), w.connect("node2"), w.connect("node1")
		w.query("all")
		flaky.reply("ListUnits", raw("f"), nil)
		one.reply("ListUnits", raw("1"), nil)
		two.reply("ListUnits", wire.Raw{}, wire.ErrFailed.With("systemd is away"))
		w.expect("node1< ListUnits", "node2< ListUnits", "flaky< ListUnits", "all: node1=1 node2=Failed flaky=f")

		w.query("globs", "node*", "*2")
		one.reply("ListUnits", raw("1"), nil)
		two.reply("ListUnits", raw("2"), nil)
		w.expect("node1< ListUnits", "node2< ListUnits", "globs: node1=1 node2=2")

		w.query("one by name", "flaky")
		w.close(flaky, "cut")
		w.expect("flaky< ListUnits", "node flaky offline", "one by name: flaky=NodeOffline")

		w.query("offline", "flaky")
		w.query("unknown", "node1", "web*")
		w.query("bad pattern", "node[")
		w.query("too many", make([]string, MaxNodePatterns+1)...)
		w.expect("offline:", "unknown: NoSuchNode", "bad pattern: InvalidArgs", "too many: LimitsExceeded")
		w.m.QueryNodes(nil, "Reload", raw("x"), func(_ []NodeReply, err error) { w.note("%s", kind(err)) })
		w.expect("InvalidArgs")
	})
}

func TestSlowNodeDoesNotHoldUpAQuery(t *testing.T) {
	in(t, fleet, func(w *world) {
		one := w.connect("node1")
		w.connect("node2")
		began := time.Now()
		w.query("all")
		one.reply("ListUnits", raw("1"), nil)
		w.take()
		time.Sleep(2 * time.Second)
		w.expect("all: node1=1 node2=Timeout")
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

func TestAnswersTogetherAreBounded(t *testing.T) {
	in(t, fleet, func(w *world) {
		one, two := w.connect("node1"), w.connect("node2")
		var got []NodeReply
		w.m.QueryNodes(nil, "ListUnits", wire.Raw{}, func(all []NodeReply, _ error) { got = all })
		one.reply("ListUnits", wire.Raw{Data: make([]byte, maxQueryBytes)}, nil)
		two.reply("ListUnits", raw("x"), nil)
		if len(got) != 2 || got[0].Err != nil || kind(got[1].Err) != "LimitsExceeded" || got[1].Body.Data != nil {
			t.Errorf("got %d answers, the second %v", len(got), got[1].Err)
		}
	})
}

func TestCallsPerNodeAreBounded(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("job", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		for range MaxCallsPerNode {
			w.m.CallNode("node1", "Reload", wire.Raw{}, func(wire.Raw, error) {})
		}
		w.take()
		w.call("call", "node1", "Reload", wire.Raw{})
		w.query("query")
		w.cancel("cancel", 1)
		w.expect("call: LimitsExceeded", "query: node1=LimitsExceeded", "cancel: LimitsExceeded")
		// Jobs have bounds of their own.
		w.start("other job", ask(wire.Start, "db.service"))
		w.expect(fmt.Sprintf("node1< StartUnit db.service replace %d", 2))
	})
}
