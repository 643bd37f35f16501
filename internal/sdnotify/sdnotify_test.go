package sdnotify

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// systemd is the receiving end of NOTIFY_SOCKET.
func systemd(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return c
}

func receive(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestMessages(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@ctrl-test-" + strconv.Itoa(os.Getpid())} {
		c := systemd(t, name)
		n, err := New()
		if err != nil {
			t.Fatal(err)
		}
		if left, set := os.LookupEnv("NOTIFY_SOCKET"); set {
			t.Errorf("children would still find %s", left)
		}
		for _, m := range []struct {
			send func() error
			want string
		}{
			{func() error { return n.Ready("") }, "READY=1"},
			{func() error { return n.Ready("3 nodes") }, "READY=1\nSTATUS=3 nodes"},
			{func() error { return n.Status("2 of 3 nodes online") }, "STATUS=2 of 3 nodes online"},
			{func() error { return n.Status("a\nREADY=1\x00\xff") }, "STATUS=a READY=1 \ufffd"},
			{func() error { return n.Stopping("going") }, "STOPPING=1\nSTATUS=going"},
		} {
			if err := m.send(); err != nil {
				t.Fatal(err)
			}
			if got := receive(t, c); got != m.want {
				t.Errorf("over %s came %q, want %q", name, got, m.want)
			}
		}
		if err := n.Status(""); err != nil {
			t.Error(err)
		}
	}
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano() / 1000
}

func TestReloadingCarriesTheMonotonicTime(t *testing.T) {
	c := systemd(t, filepath.Join(t.TempDir(), "notify"))
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	before := monotonic(t)
	if err := n.Reloading(); err != nil {
		t.Fatal(err)
	}
	got := receive(t, c)
	stamp, ok := strings.CutPrefix(got, "RELOADING=1\nMONOTONIC_USEC=")
	usec, err := strconv.ParseInt(stamp, 10, 64)
	if !ok || err != nil || usec < before || usec > monotonic(t) {
		t.Errorf("came %q; the clock stood at %d before", got, before)
	}
}

func TestNobodyWantsToKnow(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "1000")
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, send := range []func() error{func() error { return n.Ready("x") }, n.Reloading, func() error { return n.Stopping("") }, func() error { return n.Status("x") }} {
		if err := send(); err != nil {
			t.Error(err)
		}
	}
	if n.WatchdogInterval() != 0 {
		t.Error("a watchdog without anybody who watches")
	}
	n.Watch(t.Context(), func(context.Context) error { t.Error("asked without a watchdog"); return nil }, func(error) {})
}

func TestBadEnvironment(t *testing.T) {
	for _, c := range []struct{ socket, usec, pid string }{
		{"vsock:2:1234", "", ""},
		{"/run/x", "soon", ""},
		{"/run/x", "0", ""},
		{"/run/x", "1000", "me"},
	} {
		t.Setenv("NOTIFY_SOCKET", c.socket)
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		if n, err := New(); err == nil {
			t.Errorf("%+v gave %+v", c, n)
		}
	}
}

func TestDeadSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(""); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v", err)
	}
}

func TestWatchdogIsForThisProcess(t *testing.T) {
	for pid, want := range map[string]time.Duration{"": 3 * time.Second, strconv.Itoa(os.Getpid()): 3 * time.Second, "1": 0} {
		t.Setenv("NOTIFY_SOCKET", "/run/x")
		t.Setenv("WATCHDOG_USEC", "3000000")
		t.Setenv("WATCHDOG_PID", pid)
		n, err := New()
		if err != nil {
			t.Fatal(err)
		}
		if got := n.WatchdogInterval(); got != want {
			t.Errorf("for process %q the interval is %v, want %v", pid, got, want)
		}
		if _, set := os.LookupEnv("WATCHDOG_USEC"); set {
			t.Error("children would be watched too")
		}
	}
}

// recorder is a Notifier that only remembers when it showed that it lives.
func recorder(interval time.Duration) (*Notifier, *[]time.Duration) {
	start, beats := time.Now(), &[]time.Duration{}
	n := &Notifier{watchdog: interval}
	n.send = func(m string) error {
		if m == "WATCHDOG=1" {
			*beats = append(*beats, time.Since(start))
		}
		return nil
	}
	return n, beats
}

func TestWatchBeatsTwicePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, beats := recorder(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		defer cancel()
		n.Watch(ctx, func(context.Context) error { return nil }, func(err error) { t.Error(err) })
		if want := []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second}; !reflect.DeepEqual(*beats, want) {
			t.Errorf("beats at %v, want %v", *beats, want)
		}
	})
}

func TestWatchIsSilentWhileTheDaemonIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, beats := recorder(10 * time.Second)
		start := time.Now()
		var complaints []error
		alive := func(ctx context.Context) error {
			if since := time.Since(start); since < 10*time.Second || since >= 30*time.Second {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 33*time.Second)
		defer cancel()
		n.Watch(ctx, alive, func(err error) { complaints = append(complaints, err) })
		if want := []time.Duration{0, 5 * time.Second, 30 * time.Second}; !reflect.DeepEqual(*beats, want) {
			t.Errorf("beats at %v, want %v", *beats, want)
		}
		if len(complaints) != 4 || !errors.Is(complaints[0], errLate) {
			t.Errorf("complaints are %v", complaints)
		}
	})
}

func TestWatchPassesOnWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, beats := recorder(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		dead := errors.New("dead")
		var got error
		n.Watch(ctx, func(context.Context) error { return dead }, func(err error) { got = err })
		if got != dead || len(*beats) != 0 {
			t.Errorf("complaint is %v, beats %v", got, *beats)
		}
	})
}
