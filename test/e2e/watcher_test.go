package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// watcher is a client with a monitor, and what it knows from its signals alone. It gets them
// in the order in which they come; its connection answers Ping when it comes to it.
type watcher struct {
	conn    *peer.Conn
	monitor wire.ObjectPath

	mu     sync.Mutex
	turn   sync.Cond
	pause  bool   // it does not read
	work   func() // what it does with each signal; not changed while signals come
	units  map[string]map[string]string
	events []string // "UnitNew node1 a.service real"
	news   chan struct{}
}

// watch makes a client on the bus of the manager's machine, and its monitor.
func watch(t *testing.T, f *fleet.Fleet) *watcher {
	t.Helper()
	w := listen(t, f)
	answer, err := w.conn.Call(within(t), peer.Call{Destination: wire.BusName, Path: wire.RootPath, Interface: wire.ManagerInterface, Member: "CreateMonitor"})
	do(t, err)
	do(t, peer.Decode(answer.Body, &w.monitor))
	return w
}

// listen makes a client without a monitor.
func listen(t *testing.T, f *fleet.Fleet) *watcher {
	t.Helper()
	w := &watcher{units: make(map[string]map[string]string), news: make(chan struct{}, 1)}
	w.turn.L = &w.mu
	address := fmt.Sprintf("unix:path=/proc/%d/root/run/dbus/system_bus_socket", f.Boss.PID())
	conn, err := peer.DialBus(within(t), address, peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) { w.handle(m) }})
	do(t, err)
	w.conn = conn
	t.Cleanup(func() {
		w.setPause(false)
		conn.Close(nil)
		<-conn.Done()
	})
	return w
}

// slow makes it ask the bus something with each signal, from before its first subscription.
func (w *watcher) slow(t *testing.T, f *fleet.Fleet) {
	other := listen(t, f)
	w.work = func() { other.conn.NameOwner(context.Background(), wire.BusName) }
}

func (w *watcher) subscribe(t *testing.T, node string, units ...string) {
	t.Helper()
	_, err := w.call(t, "SubscribeList", node, units)
	do(t, err)
}

func (w *watcher) call(t *testing.T, member string, args ...any) (*peer.Message, error) {
	return w.conn.Call(within(t), peer.Call{
		Destination: wire.BusName, Path: w.monitor, Interface: wire.MonitorInterface, Member: member, Body: peer.MustEncode(args...),
	})
}

func (w *watcher) setPause(on bool) {
	w.mu.Lock()
	w.pause = on
	w.turn.Broadcast()
	w.mu.Unlock()
}

func (w *watcher) handle(m *peer.Message) {
	if w.work != nil && m.Interface == wire.MonitorInterface {
		w.work()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.pause {
		w.turn.Wait()
	}
	if m.Interface != wire.MonitorInterface {
		return
	}
	w.take(m)
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *watcher) take(m *peer.Message) {
	args, err := peer.BodyAny(m.Body)
	if err != nil || len(args) < 3 {
		w.events = append(w.events, fmt.Sprint(m.Member, " ", args))
		return
	}
	node, unit := args[0].(string), args[1].(string)
	if w.units[node] == nil {
		w.units[node] = make(map[string]string)
	}
	switch m.Member {
	case wire.MemberUnitNew:
		w.units[node][unit] = "inactive"
	case wire.MemberUnitRemoved:
		delete(w.units[node], unit)
	case wire.MemberUnitStateChanged:
		w.units[node][unit] = args[2].(string)
	case wire.MemberUnitPropertiesChanged:
		var iface string
		var properties map[string]wire.Value
		if err := peer.Decode(m.Body, &node, &unit, &iface, &properties); err != nil {
			w.events = append(w.events, err.Error())
		}
		args[3] = slices.Sorted(maps.Keys(properties))
	}
	text := m.Member
	for _, a := range args {
		text += fmt.Sprint(" ", a)
	}
	w.events = append(w.events, text)
}

// shows is what it knows of some units of a node.
func (w *watcher) shows(node string, which func(string) bool) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	shown := maps.Clone(w.units[node])
	maps.DeleteFunc(shown, func(unit, _ string) bool { return unit == "*" || !which(unit) })
	return shown
}

func (w *watcher) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// hears waits until it has heard all these, each the beginning of an event, in this order.
func (w *watcher) hears(t *testing.T, want ...string) {
	t.Helper()
	ctx := within(t)
	for {
		left := want
		for _, e := range w.heard() {
			if len(left) > 0 && strings.HasPrefix(e, left[0]) {
				left = left[1:]
			}
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			t.Fatalf("not heard: %q; heard was\n  %s", left, strings.Join(w.heard(), "\n  "))
		}
	}
}

// systemdSays is what systemctl lists on a node: every unit that is loaded, and its state.
func systemdSays(t *testing.T, n *lab.Node, which func(string) bool) map[string]string {
	t.Helper()
	var rows []struct{ Unit, Active string }
	do(t, json.Unmarshal([]byte(on(t, n, "systemctl", "list-units", "--all", "-o", "json")), &rows))
	all := make(map[string]string)
	for _, r := range rows {
		if which(r.Unit) {
			all[r.Unit] = r.Active
		}
	}
	return all
}

// showsTruth waits until a watcher knows of a node's units what systemd says, and no more.
func (w *watcher) showsTruth(t *testing.T, n *lab.Node, which func(string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		want, got := systemdSays(t, n, which), w.shows(n.Name, which)
		if maps.Equal(want, got) {
			return
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			t.Fatalf("a monitor does not show the truth of %s: %s", n.Name, untruths(got, want))
		}
	}
}

func untruths(got, want map[string]string) string {
	var all []string
	for unit, state := range want {
		if got[unit] != state {
			all = append(all, fmt.Sprintf("%s is %s, shown as %q", unit, state, got[unit]))
		}
	}
	for unit, state := range got {
		if want[unit] == "" {
			all = append(all, fmt.Sprintf("%s is not there, shown as %s", unit, state))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func everyUnit(string) bool { return true }
