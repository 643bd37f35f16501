package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// pythonClient calls what follows it and prints one line of JSON with the errors of the calls
// and the signatures of the signals.
const pythonClient = `import dbus, dbus.bus, dbus.mainloop.glib, json
from gi.repository import GLib
loop = dbus.mainloop.glib.DBusGMainLoop()
bus, peer = [dbus.bus.BusConnection(dbus.bus.BusConnection.TYPE_SYSTEM, mainloop=loop) for _ in range(2)]
errors, answers, signals = {}, {}, {}
def heard(_, m):
    if m.get_type() == 4 and m.get_interface().startswith("org.example.ctrl1."):
        signals[m.get_interface() + "." + m.get_member()] = m.get_signature()
for b in (bus, peer):
    b.add_message_filter(heard)
    b.add_match_string("type='signal',sender='org.example.ctrl1'")
def call(key, path, iface, member, signature, *args):
    try:
        if key.startswith("Monitor."):
            path = answers["Manager.CreateMonitor"]
        answers[key] = bus.call_blocking("org.example.ctrl1", path, iface, member, signature, args)
        errors[key] = ""
    except dbus.DBusException as e:
        errors[key] = e.get_dbus_name() + ": " + e.get_dbus_message()
def hear(wanted):
    context = GLib.MainContext.default()
    late = []
    GLib.timeout_add_seconds(30, lambda: late.append(1))
    while not late and not wanted <= set(signals):
        context.iteration(True)
`

func callFromPython(t *testing.T, f *fleet.Fleet, jobs []string) {
	wanted := wantedSignals()
	var b strings.Builder
	b.WriteString(pythonClient)
	for _, c := range apiCalls {
		service, path, iface, member, in := c.target(jobs)
		if service == wire.AgentBusName {
			continue
		}
		if c.method == "Monitor.Unsubscribe" { // until here the monitor has heard all that it can
			fmt.Fprintf(&b, "hear({%s})\n", strings.Join(quotedKeys(wanted, "PeerRemoved"), ", "))
		}
		if c.method == "Manager.DisableMetrics" {
			fmt.Fprintf(&b, "hear({%s})\n", strings.Join(quotedKeys(wanted, ""), ", "))
		}
		fmt.Fprintf(&b, "call(%q, %q, %q, %q, %q, %s)\n", c.method, path, iface, member, in, fillIn(c.python, "python", jobs))
	}
	b.WriteString("print(json.dumps([errors, signals]))\n")
	do(t, f.Boss.WriteFile("/root/every.py", []byte(b.String()), 0o644))
	var got [2]map[string]string
	out := on(t, f.Boss, "/usr/bin/python3", "/root/every.py")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range apiCalls {
		failure, called := got[0][c.method]
		refused := c.refused
		if refused == noMonitor {
			refused = ""
		}
		if called {
			c.judge(t, "Python", refused, failure)
		}
	}
	for name, signature := range wanted {
		if got[1][name] != signature {
			t.Errorf("%s came with the signature %q, want %q", name, got[1][name], signature)
		}
	}
}

// wantedSignals are the signals of the XML with their signatures, but for those of workloads,
// which need something to deliver: their own scenarios hear them.
func wantedSignals() map[string]string {
	wanted := make(map[string]string)
	for _, name := range api.Names() {
		for _, s := range api.Load(name).Signals {
			if full := name + "." + s.Name; !strings.Contains(full, ".internal.") && !strings.HasPrefix(full, busName+".Workloads") {
				wanted[full] = string(api.Signature(s.Args))
			}
		}
	}
	return wanted
}

func quotedKeys(m map[string]string, but string) (list []string) {
	for name := range m {
		if but == "" || !strings.HasSuffix(name, but) {
			list = append(list, fmt.Sprintf("%q", name))
		}
	}
	return list
}
