package agentd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/sdnotify"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

func nodeLoss(l config.NodeLoss) agent.NodeLoss { return agent.NodeLoss{Stop: l.Stop, After: l.After} }

func parseNodeLoss(text string) (agent.NodeLoss, error) {
	l, err := config.ParseNodeLoss(text)
	return nodeLoss(l), err
}

// proxyCommand is the word after which the program is not the agent, but what the units of
// dependencies run (units/ctrl-proxy@.service, ctrl-dep@.service).
const proxyCommand = "proxy"

const proxyUsage = `ctrl-agent proxy: what the units of dependencies on other nodes run.

Usage:
  ctrl-agent proxy start [--user] INSTANCE   wait until the unit of another node is up, then stay
  ctrl-agent proxy stop [--user] INSTANCE    say that it is not needed any more
  ctrl-agent proxy hold [--user] UNIT        wait until what needs UNIT on other nodes has stopped

INSTANCE is NODE_UNIT, as in ctrl-proxy@node2_db.service; "ctl proxy-name" prints it. Nobody has
to call this: systemctl start ctrl-proxy@node2_db.service does.

Example:
  ctrl-agent proxy stop node2_db
`

// proxyRun is one run of the command.
type proxyRun struct {
	user   bool
	getenv func(string) string
	stderr io.Writer
}

func runProxy(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	r := proxyRun{stderr: stderr, getenv: func(key string) string { return lookupEnv(env, key) }}
	var words []string
	for _, a := range args {
		switch {
		case a == "--help" || a == "-h":
			fmt.Fprint(stdout, proxyUsage)
			return daemon.ExitOK
		case a == "--user":
			r.user = true
		default:
			words = append(words, a)
		}
	}
	verbs := map[string]func(context.Context, string) error{"start": r.start, "stop": r.stop, "hold": r.hold}
	if len(words) != 2 || verbs[words[0]] == nil {
		fmt.Fprint(stderr, proxyUsage)
		return daemon.ExitUsage
	}
	err := verbs[words[0]](ctx, words[1])
	var bad malformed
	switch {
	case errors.As(err, &bad):
		fmt.Fprintf(stderr, "ctrl-agent proxy: %v\n", err)
		return daemon.ExitUsage
	case err != nil:
		fmt.Fprintf(stderr, "ctrl-agent proxy: %v\n", err)
		return daemon.ExitFailed
	}
	return daemon.ExitOK
}

// malformed is a name that no unit can have.
type malformed struct{ error }

func lookupEnv(env []string, key string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], key+"="); ok {
			return value
		}
	}
	return ""
}

func (r *proxyRun) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, client.Options{User: r.user, Getenv: r.getenv, UID: os.Getuid()})
}

// start waits for the target and becomes what stays of the proxy.
func (r *proxyRun) start(ctx context.Context, instance string) error {
	node, target, err := unit.ParseProxyInstance(instance)
	if err != nil {
		return malformed{err}
	}
	local := unit.ProxyOf(instance)
	if r.getenv("NOTIFY_SOCKET") == "" {
		return fmt.Errorf("this is run by systemd for %s; start that: systemctl start '%s'", local, local)
	}
	stay, err := stayer()
	if err != nil {
		return err
	}
	system, err := sdnotify.New()
	if err != nil {
		return err
	}
	_ = system.Status("Waiting for " + target + " on " + node) // for people; nothing depends on it
	if err := r.ask(ctx, local, node, target); err != nil {
		return err
	}
	if err := system.Ready(target + " on " + node + " is up"); err != nil {
		return err
	}
	return syscall.Exec(stay, []string{"sleep", "infinity"}, nil)
}

// stayer is the program that a proxy is while its target is up: one that does nothing and takes
// little, since only the end of a process lets a unit end without a job, as its target may.
func stayer() (string, error) {
	paths := []string{"/usr/bin/sleep", "/bin/sleep"}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s is there", strings.Join(paths, ", "))
}

// Times of the wait for the agent itself, which may be restarted meanwhile.
const (
	agentLimit = 90 * time.Second
	agentPause = 200 * time.Millisecond
)

// ask asks the agent until it has an answer about the target. The agent decides how long that
// takes; only when there is none for long is that the answer.
func (r *proxyRun) ask(ctx context.Context, local, node, target string) error {
	gone := time.Now()
	for {
		began := time.Now()
		err := r.askOnce(ctx, local, node, target)
		if err == nil || !absent(err) {
			return err
		}
		if time.Since(began) > agentPause {
			gone = time.Now() // it was there until now
		}
		if time.Since(gone) > agentLimit {
			return fmt.Errorf("%s on node %s cannot be started: %w; see: systemctl status %s", target, node, err, wire.AgentUnit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(agentPause):
		}
	}
}

func (r *proxyRun) askOnce(ctx context.Context, local, node, target string) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Agent().CreateProxy(ctx, local, node, target)
}

// absent reports that there was no agent to answer, for now.
func absent(err error) bool {
	for _, kind := range []error{client.ErrNoBus, client.ErrNotRunning, client.ErrManagerGone, wire.ErrShuttingDown} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// stop says that the proxy is not needed any more. Without an agent there is nobody to tell: the
// next one reads from systemd what there is.
func (r *proxyRun) stop(ctx context.Context, instance string) error {
	node, target, err := unit.ParseProxyInstance(instance)
	if err != nil {
		return malformed{err}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := r.dial(ctx)
	if err == nil {
		defer c.Close()
		err = c.Agent().RemoveProxy(ctx, unit.ProxyOf(instance), node, target)
	}
	if absent(err) {
		return nil
	}
	return err
}

// holdLimit is how long the stop of a target waits for units of other nodes to stop: no longer
// than systemd waits, by default, for one of its own.
const holdLimit = 85 * time.Second

// hold lets a stop wait until dependents on other nodes have stopped. Whatever is in the way of
// that must not keep the unit from being stopped.
func (r *proxyRun) hold(ctx context.Context, target string) error {
	target = unit.WithSuffix(target)
	if err := unit.CheckInstance(target); err != nil {
		return malformed{err}
	}
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	c, err := r.dial(ctx)
	if err == nil {
		defer c.Close()
		err = c.Agent().WaitDependents(ctx, target)
	}
	if err != nil && !absent(err) {
		fmt.Fprintf(r.stderr, "ctrl-agent proxy: units of other nodes that need %s are not waited for: %v\n", target, err)
	}
	return nil
}
