// Package sdnotify tells systemd how the daemon fares (sd_notify(3)) and takes over the sockets
// that systemd has opened for it (sd_listen_fds(3)).
package sdnotify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Notifier sends the daemon's states to systemd. Without systemd its methods do nothing. They
// wait at most sendTime, and are safe from any goroutine.
type Notifier struct {
	socket   *net.UnixAddr // nil: nobody wants to know
	watchdog time.Duration // 0: none
	send     func(string) error
}

// sendTime bounds what a full queue of systemd's may cost.
const sendTime = time.Second

// New reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the
// environment, so that no child speaks for the daemon.
func New() (*Notifier, error) {
	n := &Notifier{}
	n.send = n.write
	interval, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		return nil, fmt.Errorf("cannot read the watchdog's time in WATCHDOG_USEC: %w", err)
	}
	name := os.Getenv("NOTIFY_SOCKET")
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return nil, err
	}
	switch {
	case name == "":
		return n, nil
	case name[0] != '/' && name[0] != '@':
		return nil, fmt.Errorf("cannot tell systemd anything: NOTIFY_SOCKET is %q, and only unix sockets are supported", name)
	}
	n.socket = &net.UnixAddr{Name: name, Net: "unixgram"}
	n.watchdog = interval
	return n, nil
}

// Ready says that the daemon does its work, or that a reload is done.
func (n *Notifier) Ready(status string) error { return n.send("READY=1" + statusLine(status)) }

// Reloading says that the configuration is being read again; Ready must follow.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("cannot read the monotonic clock: %w", err)
	}
	return n.send("RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10))
}

// Stopping says that the daemon ends.
func (n *Notifier) Stopping(status string) error { return n.send("STOPPING=1" + statusLine(status)) }

// Status is one line that `systemctl status` shows.
func (n *Notifier) Status(status string) error {
	return n.send(strings.TrimPrefix(statusLine(status), "\n"))
}

// statusLine keeps a status one line: what follows a line break would be another message.
func statusLine(status string) string {
	if status == "" {
		return ""
	}
	return "\nSTATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(status, "\ufffd"))
}

func (n *Notifier) write(message string) error {
	if n.socket == nil || message == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, n.socket)
	if err != nil {
		return fmt.Errorf("cannot reach systemd at %s: %w", n.socket.Name, err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(message)); err != nil {
		return fmt.Errorf("cannot tell systemd at %s: %w", n.socket.Name, err)
	}
	return nil
}

// WatchdogInterval is WatchdogSec= of the unit, 0 without a watchdog.
func (n *Notifier) WatchdogInterval() time.Duration { return n.watchdog }

// errLate says that the daemon did not show in time that it lives.
var errLate = errors.New("the daemon does not answer its own watchdog")

// Watch shows systemd twice per interval that the daemon lives, until ctx ends. alive must
// come back, within its context, through whatever has to be alive, such as a core's loop: while
// it does not, systemd hears nothing and ends the daemon with SIGABRT, which leaves the stacks
// of all goroutines in the log. complain hears of each round that was missed.
func (n *Notifier) Watch(ctx context.Context, alive func(context.Context) error, complain func(error)) {
	if n.watchdog <= 0 {
		return
	}
	tick := time.NewTicker(n.watchdog / 2)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := n.beat(ctx, alive); err != nil && ctx.Err() == nil {
			complain(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (n *Notifier) beat(ctx context.Context, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.watchdog/2, errLate)
	defer cancel()
	if err := alive(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return context.Cause(ctx)
		}
		return err
	}
	return n.send("WATCHDOG=1")
}
