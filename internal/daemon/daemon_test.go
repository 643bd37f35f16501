package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/ctrl/internal/config"
)

// fakeConfig has one key.
type fakeConfig struct {
	config.Common
	text  string
	start error
}

func (c *fakeConfig) CheckStart() error { return c.start }
func (c *fakeConfig) Print(w io.Writer) error {
	_, err := io.WriteString(w, "text="+c.text+"\n")
	return err
}

// fakeDaemon tells what is done with it.
type fakeDaemon struct {
	events    chan string
	load      func() (*fakeConfig, error)
	check     error
	thorough  error
	failStart error
	hang      chan struct{} // Stop waits for it
	dead      bool          // the core does not answer
	env       *Env
}

func newFake() *fakeDaemon {
	return &fakeDaemon{events: make(chan string, 64), load: func() (*fakeConfig, error) { return good("one"), nil }}
}

func good(text string) *fakeConfig {
	return &fakeConfig{text: text, Common: config.Common{LogLevel: "info", LogTarget: "stderr", LogIsQuiet: true}}
}

func (f *fakeDaemon) Reload(c *fakeConfig) { f.events <- "reload " + c.text }
func (f *fakeDaemon) Stop(context.Context) {
	f.events <- "stop"
	if f.hang != nil {
		<-f.hang
	}
}
func (f *fakeDaemon) Alive(reply func()) {
	if !f.dead {
		reply()
	}
}

func (f *fakeDaemon) spec() Spec[*fakeConfig] {
	return Spec[*fakeConfig]{
		Name: "ctrl-test", Summary: "does nothing.", Example: "ctrl-test --port 1",
		Flags:  []Flag{{Short: "p", Long: "port", Key: "Port", Value: "PORT", Help: "some port"}},
		Load:   func(o config.Options) (*fakeConfig, error) { f.noteFlags(o); return f.load() },
		Common: func(c *fakeConfig) *config.Common { return &c.Common },
		Check: func(_ *fakeConfig, _ *Env, thorough bool) error {
			if thorough && f.thorough != nil {
				return f.thorough
			}
			return f.check
		},
		Start: func(_ context.Context, c *fakeConfig, e *Env) (Service[*fakeConfig], error) {
			f.env = e
			f.events <- "start " + c.text
			return f, f.failStart
		},
	}
}

func (f *fakeDaemon) noteFlags(o config.Options) {
	for _, flag := range o.Flags {
		f.events <- flag.Option + " " + flag.Key + "=" + flag.Value
	}
}

func (f *fakeDaemon) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-f.events:
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	case <-t.Context().Done():
		t.Fatalf("%q did not come", want)
	}
}

func TestCommandLine(t *testing.T) {
	fileError := errors.New("/etc/x.conf:2: mistake\n--port: mistake")
	tests := map[string]struct {
		args   []string
		change func(*fakeDaemon)
		code   int
		stdout string
		stderr string
	}{
		"help":               {args: []string{"-h"}, code: ExitOK, stdout: "-p, --port PORT"},
		"version":            {args: []string{"--version"}, code: ExitOK, stdout: "ctrl-test "},
		"unknown option":     {args: []string{"--prot", "1"}, code: ExitUsage, stderr: "ctrl-test: unknown flag: --prot\ntry 'ctrl-test --help'"},
		"argument":           {args: []string{"now"}, code: ExitUsage, stderr: `argument "now" is not understood`},
		"value missing":      {args: []string{"-p"}, code: ExitUsage, stderr: "flag needs an argument"},
		"good configuration": {args: []string{"--check-config"}, code: ExitOK},
		"printed":            {args: []string{"--print-config"}, code: ExitOK, stdout: "text=one\n"},
		"printed, not right": {args: []string{"--print-config", "--check-config"}, change: func(f *fakeDaemon) { f.check = errors.New("no such group") }, code: ExitConfig, stdout: "text=one\n", stderr: "no such group"},
		"printed though not right": {args: []string{"--print-config"}, change: func(f *fakeDaemon) { f.check = errors.New("no such group") },
			code: ExitOK, stdout: "text=one\n"},
		"mistake in a file": {change: func(f *fakeDaemon) { f.load = func() (*fakeConfig, error) { return nil, fileError } },
			code: ExitConfig, stderr: "ctrl-test: /etc/x.conf:2: mistake\nctrl-test: --port: mistake\n"},
		"mistake in an option": {args: []string{"-p", "x"}, change: func(f *fakeDaemon) {
			f.load = func() (*fakeConfig, error) { return nil, errors.New("--port: no number") }
		}, code: ExitUsage, stderr: "ctrl-test: --port: no number\n"},
		"cannot start so": {change: func(f *fakeDaemon) {
			f.load = func() (*fakeConfig, error) {
				c := good("one")
				c.start = errors.New("no certificates")
				return c, nil
			}
		}, code: ExitConfig, stderr: "ctrl-test: no certificates\n"},
		"named files":       {change: func(f *fakeDaemon) { f.check = errors.New("no such group") }, code: ExitConfig, stderr: "no such group"},
		"not yet":           {args: []string{"--check-config"}, change: func(f *fakeDaemon) { f.thorough = errors.New("expired") }, code: ExitConfig, stderr: "expired"},
		"start is hopeless": {change: func(f *fakeDaemon) { f.failStart = fmt.Errorf("state: %w", Hopeless{errors.New("damaged")}) }, code: ExitConfig, stderr: "ctrl-test: cannot start: state: damaged\n"},
		"start fails":       {change: func(f *fakeDaemon) { f.failStart = errors.New("port in use") }, code: ExitFailed, stderr: "ctrl-test: cannot start: port in use\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			if test.change != nil {
				test.change(f)
			}
			var stdout, stderr bytes.Buffer
			if code := Run(t.Context(), f.spec(), test.args, nil, &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, out := range []struct {
				name string
				got  *bytes.Buffer
				want string
			}{{"stdout", &stdout, test.stdout}, {"stderr", &stderr, test.stderr}} {
				if !strings.Contains(out.got.String(), out.want) || out.want == "" && out.got.Len() > 0 {
					t.Errorf("%s is %q, want %q", out.name, out.got, out.want)
				}
			}
		})
	}
}

func TestFlagsBecomeSettings(t *testing.T) {
	f := newFake()
	if code := Run(t.Context(), f.spec(), []string{"-p", "1", "-l", "debug", "--print-config"}, nil, io.Discard, io.Discard); code != ExitOK {
		t.Fatalf("exit code %d", code)
	}
	f.want(t, "--port Port=1")
	f.want(t, "--log-level LogLevel=debug")
}

// systemd is the other end of NOTIFY_SOCKET.
type systemd struct{ *net.UnixConn }

func newSystemd(t *testing.T) systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return systemd{c}
}

// want waits for a message that begins so, past signs of life where others are wanted.
func (s systemd) want(t *testing.T, want string) {
	t.Helper()
	buf := make([]byte, 4096)
	for {
		n, err := s.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got := string(buf[:n])
		if strings.HasPrefix(got, want) {
			return
		}
		if got != "WATCHDOG=1" {
			t.Fatalf("systemd was told %q, want %q", got, want)
		}
	}
}

// start runs a daemon beside the test.
func (f *fakeDaemon) start(t *testing.T) (ended <-chan int, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	codes := make(chan int, 1)
	go func() { codes <- Run(ctx, f.spec(), nil, nil, io.Discard, io.Discard) }()
	f.want(t, "start one")
	return codes, cancel
}

func TestLife(t *testing.T) {
	for name, end := range map[string]func(f *fakeDaemon, cancel func()){
		"SIGTERM":   func(*fakeDaemon, func()) { syscall.Kill(os.Getpid(), syscall.SIGTERM) },
		"SIGINT":    func(*fakeDaemon, func()) { syscall.Kill(os.Getpid(), syscall.SIGINT) },
		"asked":     func(f *fakeDaemon, _ func()) { f.env.Shutdown() },
		"cancelled": func(_ *fakeDaemon, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", "2000")
			s, f := newSystemd(t), newFake()
			ended, cancel := f.start(t)
			defer cancel()
			s.want(t, "READY=1")
			s.want(t, "WATCHDOG=1")
			f.env.Status("at work")
			s.want(t, "STATUS=at work")
			end(f, cancel)
			s.want(t, "STOPPING=1")
			f.want(t, "stop")
			if code := <-ended; code != ExitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestReload(t *testing.T) {
	s, f := newSystemd(t), newFake()
	loads := 0
	f.load = func() (*fakeConfig, error) {
		loads++
		switch loads {
		case 2:
			return nil, errors.New("/etc/x.conf:1: mistake")
		case 3:
			c := good("three")
			c.start = errors.New("no certificates")
			return c, nil
		case 4:
			return good("four"), nil
		}
		return good("one"), nil
	}
	ended, cancel := f.start(t)
	s.want(t, "READY=1")
	for range 3 {
		syscall.Kill(os.Getpid(), syscall.SIGHUP)
		s.want(t, "RELOADING=1")
		s.want(t, "READY=1")
	}
	f.want(t, "reload four")
	cancel()
	f.want(t, "stop")
	<-ended
}

func TestNoSignOfLife(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "2000")
	f := newFake()
	f.dead = true
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := alive(ctx, f.Alive); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a dead core gave %v", err)
	}
}

// TestStopHangs: the end comes in time whatever does not end.
func TestStopHangs(t *testing.T) {
	f := newFake()
	f.hang = make(chan struct{})
	defer close(f.hang)
	p, err := newProcess(f.spec(), good("one"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.closeLog()
	p.stop(f, time.Millisecond)
	f.want(t, "stop")
}

func TestKeepUntilRestart(t *testing.T) {
	now := config.Common{TLS: true, TCPKeepAliveTime: 1, TCPKeepAliveInterval: 2, TCPKeepAliveCount: 3, IPReceiveErrors: true, LogTarget: "json", LogIsQuiet: true}
	next := config.Common{CertFile: "/new", LogLevel: "debug"}
	KeepUntilRestart(&next, &now)
	want := now
	want.CertFile, want.LogLevel = "/new", "debug"
	if next.TLS != want.TLS || next.TCPKeepAliveTime != 1 || next.TCPKeepAliveInterval != 2 || next.TCPKeepAliveCount != 3 ||
		!next.IPReceiveErrors || next.LogTarget != "json" || !next.LogIsQuiet || next.CertFile != "/new" || next.LogLevel != "debug" {
		t.Errorf("got %+v", next)
	}
}

func TestLookup(t *testing.T) {
	env := []string{"A=1", "AB=2", "A=3", "C="}
	for key, want := range map[string]string{"A": "3", "AB": "2", "C": "", "D": ""} {
		if got := Lookup(env, key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}
