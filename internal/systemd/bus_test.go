package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// The adapter on a real bus, where everyone may send it signals.

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// onBus puts a systemd on a bus.
func onBus(t *testing.T, bus *bustest.Bus) *pid1 {
	t.Helper()
	p := newPID1()
	p.set("StartUnit", wire.SystemdJobPath(7))
	conn, err := peer.DialBus(patience(t), bus.Address, p.options())
	if err != nil {
		t.Fatal(err)
	}
	p.conn = conn
	t.Cleanup(func() { p.leave() })
	if reply, err := conn.RequestName(patience(t), wire.SystemdName, 0); err != nil || reply != peer.NamePrimaryOwner {
		t.Fatalf("cannot own systemd's name: %v, %v", reply, err)
	}
	return p
}

func (p *pid1) leave() {
	p.conn.Close(errors.New("systemd ends"))
	<-p.conn.Done()
}

// serve runs an adapter for a core until the test ends.
func serve(t *testing.T, opt Options, core Core) *Systemd {
	t.Helper()
	s := New(opt, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx, core); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// adapter is serve for a recorder.
func adapter(t *testing.T, opt Options) (*Systemd, *recorder) {
	t.Helper()
	r := newRecorder()
	return serve(t, opt, r), r
}

func takeDown(t *testing.T, r *recorder) {
	t.Helper()
	select {
	case <-r.down:
	case <-patience(t).Done():
		t.Fatal("the end of systemd was not noticed")
	}
}

func TestForgedSignalsAreIgnored(t *testing.T) {
	bus := bustest.Start(t)
	p := onBus(t, bus)
	s, r := adapter(t, Options{NoPrivate: true, Bus: bus.Address})
	takeUp(t, r)
	s.Watch(func(string) bool { return true })
	if job := s.job(wire.Start, "a.service", "replace"); job.err != nil || job.id != 7 {
		t.Fatalf("job %d, %v", job.id, job.err)
	}
	p.mu.Lock()
	victim := p.caller
	p.mu.Unlock()
	forger, err := peer.DialBus(patience(t), bus.Address, peer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer forger.Close(errors.New("the test ends"))
	for _, to := range []string{victim, ""} {
		forger.SignalTo(to, wire.SystemdPath, wire.SystemdManagerInterface, "JobRemoved",
			peer.MustEncode(uint32(7), wire.SystemdJobPath(7), "a.service", "failed"))
		forger.SignalTo(to, wire.UnitPath("a.service"), wire.PropertiesInterface, "PropertiesChanged",
			peer.MustEncode(wire.SystemdUnitInterface, unitChanged("failed"), []string{}))
		forger.SignalTo(to, wire.DBusPath, wire.DBusInterface, "NameOwnerChanged",
			peer.MustEncode(wire.SystemdName, "", forger.UniqueName()))
	}
	// A call of the forger's that the adapter answers shows that all of it has arrived.
	if _, err := forger.Call(patience(t), peer.Call{
		Destination: victim, Path: "/", Interface: wire.SystemdManagerInterface, Member: "JobRemoved",
	}); !errors.Is(err, wire.ErrUnknownMethod) {
		t.Errorf("a call is answered with %v", err)
	}
	p.jobRemoved(7, "a.service", "done")
	if seen := r.until(t, "removed 7 a.service done"); len(seen) != 1 || len(r.down) != 0 {
		t.Errorf("seen %q; %d times down", seen, len(r.down))
	}
}

func TestSystemdComesAndGoesOnTheBus(t *testing.T) {
	bus := bustest.Start(t)
	s, r := adapter(t, Options{NoPrivate: true, Bus: bus.Address})
	for i := range 2 { // also before it was ever there
		p := onBus(t, bus)
		takeUp(t, r)
		s.job(wire.Start, "a.service", "replace")
		p.jobRemoved(7, "a.service", fmt.Sprintf("done%d", i))
		r.until(t, fmt.Sprintf("removed 7 a.service done%d", i))
		p.leave()
		takeDown(t, r)
	}
	onBus(t, bus)
	takeUp(t, r)
	bus.Stop()
	takeDown(t, r)
	bus.Start()
	onBus(t, bus)
	takeUp(t, r)
}

// listen serves a systemd on a unix socket.
func listen(t *testing.T, path string) *pid1 {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := newPID1()
	p.set("StartUnit", wire.SystemdJobPath(9))
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := peer.Server(context.Background(), nc, p.options()); err != nil {
				t.Error(err)
			}
		}
	}()
	return p
}

// TestRoadsToTheUsersSystemd: the private socket first, the user's bus where there is none.
func TestRoadsToTheUsersSystemd(t *testing.T) {
	bus := bustest.Start(t)
	onBus(t, bus)
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	for _, tt := range []struct {
		road string
		job  uint32
	}{{"bus", 7}, {"private socket", 9}} {
		if tt.road == "private socket" {
			listen(t, dir+"/systemd/private")
		}
		s, r := adapter(t, Options{User: true})
		takeUp(t, r)
		var got uint32
		answered := make(chan struct{})
		s.StartJob(agent.JobRequest{Unit: "a.service", Mode: "replace"}, 20*time.Second, func(job uint32, _ error) { got = job; close(answered) })
		<-answered
		if got != tt.job {
			t.Errorf("%s: the answer is job %d, want %d", tt.road, got, tt.job)
		}
	}
}
