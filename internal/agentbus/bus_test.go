package agentbus

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/wire"
)

const patience = 30 * time.Second

type fakeCore struct {
	loop *loop.Loop
	info agent.Info
	bus  *Bus
}

func (c *fakeCore) Info(reply func(agent.Info)) { c.loop.Post(func() { reply(c.info) }) }

// SwitchManager does what the real core does: address first, then status, then the answer.
func (c *fakeCore) SwitchManager(address string, reply func(error)) {
	c.loop.Post(func() {
		if address == c.info.ManagerAddress {
			reply(wire.ErrFailed.With("the agent has this manager already"))
			return
		}
		c.info.ManagerAddress = address
		c.bus.ManagerAddressChanged(c.info)
		c.info.Status, c.info.DisconnectedAt = wire.NodeOffline, time.UnixMicro(99)
		c.bus.StatusChanged(c.info)
		reply(nil)
	})
}

type fakeDaemon struct{}

func (fakeDaemon) LogLevel() string  { return "WARN" }
func (fakeDaemon) LogTarget() string { return "journald" }

// serve runs the API on a bus of its own; callers with uid may call.
func serve(t *testing.T, uid uint32) (*fakeCore, *bustest.Bus) {
	t.Helper()
	bus := bustest.Start(t)
	core := &fakeCore{loop: loop.New(16), info: agent.Info{
		Status: wire.NodeOnline, ManagerAddress: "tcp:host=a,port=842", LastSeen: time.Now(),
	}}
	core.bus = New(Options{
		Address: bus.Address, Authorizer: authz.NewByUID(uid), Daemon: fakeDaemon{}, Log: slog.New(slog.DiscardHandler),
	})
	if err := core.bus.Connect(t.Context(), core); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() { core.loop.Run(context.Background()) })
	ends.Go(func() { core.bus.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		core.loop.Stop()
		ends.Wait()
	})
	return core, bus
}

func connect(t *testing.T, bus *bustest.Bus) (*dbus.Conn, dbus.BusObject) {
	t.Helper()
	conn, err := dbus.Connect(bus.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, conn.Object(wire.AgentBusName, dbus.ObjectPath(wire.RootPath))
}

func TestProperties(t *testing.T) {
	core, bus := serve(t, uint32(os.Getuid()))
	_, object := connect(t, bus)
	var all map[string]dbus.Variant
	if err := object.Call(wire.PropertiesInterface+".GetAll", 0, wire.AgentInterface).Store(&all); err != nil {
		t.Fatal(err)
	}
	for _, p := range api.Load(wire.AgentInterface).Properties {
		if got := all[p.Name].Signature().String(); got != string(p.Type) {
			t.Errorf("%s is of type %q, want %q", p.Name, got, p.Type)
		}
	}
	for name, want := range map[string]any{
		"Status": "online", "ManagerAddress": "tcp:host=a,port=842", "LogLevel": "WARN", "LogTarget": "journald",
		"LastSeenTimestamp": uint64(core.info.LastSeen.UnixMicro()), "DisconnectTimestamp": uint64(0), "DisconnectTimestampMonotonic": uint64(0),
	} {
		if all[name].Value() != want {
			t.Errorf("%s is %v, want %v", name, all[name], want)
		}
	}
	if _, now := all["LastSeenTimestampMonotonic"].Value().(uint64); !now || all["LastSeenTimestampMonotonic"].Value() == uint64(0) {
		t.Errorf("LastSeenTimestampMonotonic is %v", all["LastSeenTimestampMonotonic"])
	}
}

func TestSwitchManager(t *testing.T) {
	_, bus := serve(t, uint32(os.Getuid()))
	conn, object := connect(t, bus)
	signals := make(chan *dbus.Signal, 8)
	conn.Signal(signals)
	if err := conn.AddMatchSignal(dbus.WithMatchSender(wire.AgentBusName)); err != nil {
		t.Fatal(err)
	}
	if err := object.Call(wire.AgentInterface+".SwitchManager", 0, "tcp:host=b,port=842").Err; err != nil {
		t.Fatal(err)
	}
	var changed []string
	for len(changed) < 4 {
		select {
		case s := <-signals:
			if s.Name != wire.PropertiesInterface+".PropertiesChanged" {
				continue // the bus greets a new connection
			}
			values := s.Body[1].(map[string]dbus.Variant)
			for _, name := range []string{"ManagerAddress", "Status", "DisconnectTimestamp", "DisconnectTimestampMonotonic"} {
				if v, ok := values[name]; ok {
					changed = append(changed, name+"="+strings.Trim(v.String(), "@t "))
				}
			}
		case <-time.After(patience):
			t.Fatalf("only %v has come", changed)
		}
	}
	want := []string{`ManagerAddress="tcp:host=b,port=842"`, `Status="offline"`, "DisconnectTimestamp=99", "DisconnectTimestampMonotonic=0"}
	if !slices.Equal(changed, want) {
		t.Errorf("changes are %v, want %v", changed, want)
	}
	err := object.Call(wire.AgentInterface+".SwitchManager", 0, "tcp:host=b,port=842").Err
	var failed dbus.Error
	if !errors.As(err, &failed) || failed.Name != wire.ErrFailed.Name {
		t.Errorf("switching to the same manager gave %v", err)
	}
}

// TestOthersMayOnlyRead: whoever is not allowed reads properties and calls nothing.
func TestOthersMayOnlyRead(t *testing.T) {
	core, bus := serve(t, uint32(os.Getuid())+1)
	_, object := connect(t, bus)
	if v, err := object.GetProperty(wire.AgentInterface + ".Status"); err != nil || v.Value() != "online" {
		t.Errorf("Status is %v, %v", v, err)
	}
	err := object.Call(wire.AgentInterface+".SwitchManager", 0, "tcp:host=b,port=842").Err
	var refused dbus.Error
	if !errors.As(err, &refused) || refused.Name != wire.ErrAccessDenied.Name {
		t.Errorf("SwitchManager gave %v", err)
	}
	if address, _ := loop.Call(t.Context(), core.loop, func() string { return core.info.ManagerAddress }); address != "tcp:host=a,port=842" {
		t.Errorf("the manager is %s now", address)
	}
}

func TestBusctl(t *testing.T) {
	_, bus := serve(t, uint32(os.Getuid()))
	out, err := exec.CommandContext(t.Context(), "busctl", "--address="+bus.Address, "introspect", wire.AgentBusName, string(wire.RootPath)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{wire.AgentInterface, ".SwitchManager", "emits-change", wire.ObjectManagerInterface, `"online"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("busctl introspect does not show %s:\n%s", want, out)
		}
	}
}
