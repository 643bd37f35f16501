package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// sshHost is where -H leads: [USER@]HOST[:PORT], an IPv6 address in brackets.
type sshHost struct {
	host string // with user, as ssh wants it
	port string
}

// parseHost takes a host apart as systemctl does. What begins with "-" would be an option
// to ssh.
func parseHost(s string) (sshHost, error) {
	user, host, hasUser := "", s, false
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		user, host, hasUser = s[:at], s[at+1:], true
	}
	h := sshHost{}
	switch {
	case strings.HasPrefix(host, "["):
		inside, rest, closed := strings.Cut(host[1:], "]")
		if !closed || rest != "" && rest[0] != ':' {
			return h, wire.ErrInvalidArgs.With("host %q: a bracketed address ends in ] or ]:PORT", s)
		}
		host, h.port = inside, strings.TrimPrefix(rest, ":")
		if rest == ":" {
			return h, wire.ErrInvalidArgs.With("host %q has no port after its colon", s)
		}
	case strings.Count(host, ":") == 1:
		host, h.port, _ = strings.Cut(host, ":")
		if h.port == "" {
			return h, wire.ErrInvalidArgs.With("host %q has no port after its colon", s)
		}
	}
	if h.port != "" {
		if n, err := strconv.ParseUint(h.port, 10, 16); err != nil || n == 0 {
			return h, wire.ErrInvalidArgs.With("host %q: port %q is not a number from 1 to 65535", s, h.port)
		}
	}
	if host == "" || hasUser && user == "" || strings.HasPrefix(s, "-") || strings.HasPrefix(host, "-") ||
		strings.ContainsAny(s, " \t\n\x00") {
		return h, wire.ErrInvalidArgs.With("%q is no host; write it like root@node1, node1:2222 or root@[::1]", s)
	}
	h.host = host
	if hasUser {
		h.host = user + "@" + host
	}
	return h, nil
}

// args are ssh's arguments: no terminal, no X11, nothing of the user's ssh configuration
// overridden.
func (h sshHost) args(user bool) []string {
	args := []string{"-xT"}
	if h.port != "" {
		args = append(args, "-p", h.port)
	}
	args = append(args, "--", h.host, "systemd-stdio-bridge")
	if user {
		args = append(args, "--user")
	}
	return args
}

// dialHost reaches the bus of another machine through ssh and systemd-stdio-bridge(1), as
// systemctl -H does.
func dialHost(ctx context.Context, o Options) (*Client, error) {
	host, err := parseHost(o.Host)
	if err != nil {
		return nil, err
	}
	pipe, err := startPipe(exec.Command("ssh", host.args(o.User)...))
	if err != nil {
		return nil, ErrNoBus.With("cannot run ssh: %v", err)
	}
	c, err := handshake(ctx, pipe, "the bus of "+o.Host, dbus.AuthExternal("0"), dbus.AuthAnonymous())
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	why := pipe.complaint()
	if why == "" {
		why = err.Error()
	}
	return nil, ErrNoBus.With("cannot reach the bus of %s: %s", o.Host, why)
}

// pipe is a child process as a connection: what it prints is read, what is written it reads.
type pipe struct {
	io.Reader
	io.Writer
	stdin  io.Closer
	cmd    *exec.Cmd
	stderr *tail
	once   sync.Once
}

func startPipe(cmd *exec.Cmd) (*pipe, error) {
	p := &pipe{cmd: cmd, stderr: &tail{}}
	cmd.Stderr = p.stderr
	cmd.WaitDelay = pipeGrace // a ControlMaster in the background may hold stderr open
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Writer, p.stdin, p.Reader = in, in, out
	return p, cmd.Start()
}

// pipeGrace is how long a child may take to end after its standard input was closed.
const pipeGrace = 2 * time.Second

// Close ends the child: it sees the end of its input, and is killed if it does not mind.
func (p *pipe) Close() error {
	p.once.Do(func() {
		_ = p.stdin.Close()
		kill := time.AfterFunc(pipeGrace, func() { _ = p.cmd.Process.Kill() })
		defer kill.Stop()
		_ = p.cmd.Wait()
	})
	return nil
}

// complaint is the last thing that the child said on its standard error. The child must have
// been closed.
func (p *pipe) complaint() string {
	text := strings.TrimSpace(p.stderr.String())
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = strings.TrimSpace(text[i+1:])
	}
	switch {
	case text == "" && p.cmd.ProcessState != nil && !p.cmd.ProcessState.Success():
		return fmt.Sprintf("ssh ended with %s", p.cmd.ProcessState)
	case strings.Contains(text, "systemd-stdio-bridge") && strings.Contains(text, "not found"):
		return text + " (systemd must be installed there)"
	}
	return text
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ToValidUTF8(t.kept, []byte("?")))
}
