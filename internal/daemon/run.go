package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/logging"
	"example.org/ctrl/internal/sdnotify"
	"example.org/ctrl/internal/version"
)

// stopTime is how long the end may take: a little less than the 5 s that are promised.
const stopTime = 4500 * time.Millisecond

// Run runs a daemon until a signal or ctx ends it, and returns its exit code. args are those
// after the program's name, env is as os.Environ gives it.
func Run[C Config](ctx context.Context, spec Spec[C], args, env []string, stdout, stderr io.Writer) int {
	for _, c := range spec.Commands {
		if len(args) > 0 && args[0] == c.Name {
			return c.Run(ctx, args[1:], env, stdout, stderr)
		}
	}
	r, set, err := spec.parse(args, env)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\ntry '%s --help'\n", spec.Name, err, spec.Name)
		return ExitUsage
	case r.help:
		spec.usage(stdout, set)
		return ExitOK
	case r.version:
		spec.printVersion(stdout)
		return ExitOK
	}
	cfg, err := spec.Load(r.options)
	if err == nil && r.print {
		err = cfg.Print(stdout)
		if err != nil || !r.check {
			return spec.report(stderr, err, ExitFailed)
		}
	}
	if err != nil {
		return spec.report(stderr, err, configCode(err))
	}
	p, err := newProcess(spec, cfg, r.options)
	if err != nil {
		return spec.report(stderr, err, ExitFailed)
	}
	defer p.closeLog()
	if err := p.check(cfg, r.check); err != nil {
		return spec.report(stderr, err, ExitConfig)
	}
	if r.check {
		for _, note := range spec.Common(cfg).Notes {
			fmt.Fprintf(stderr, "%s: note: %s\n", spec.Name, note)
		}
		return ExitOK
	}
	return p.run(ctx, cfg, stderr)
}

// configCode tells wrong options from wrong files: each line begins with where the mistake is.
func configCode(err error) int {
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "--") {
			return ExitConfig
		}
	}
	return ExitUsage
}

func (s *Spec[C]) report(stderr io.Writer, err error, code int) int {
	if err == nil {
		return ExitOK
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "%s: %s\n", s.Name, strings.TrimSuffix(line, "\n"))
	}
	return code
}

// process is one run of a daemon.
type process[C Config] struct {
	spec   Spec[C]
	env    *Env
	log    *slog.Logger
	system *sdnotify.Notifier
}

func newProcess[C Config](spec Spec[C], cfg C, options config.Options) (*process[C], error) {
	p := &process[C]{spec: spec, env: &Env{Options: options}}
	out, err := logging.SystemOutput(spec.Name, p.env.Getenv)
	if err != nil {
		return nil, err
	}
	set, err := logConfig(spec.Common(cfg))
	if err != nil {
		return nil, err
	}
	if p.system, err = sdnotify.New(); err != nil {
		return nil, err
	}
	p.env.Log = logging.New(set, out)
	p.log = p.env.Logger()
	return p, nil
}

func logConfig(c *config.Common) (logging.Config, error) {
	level, err := logging.ParseLevel(c.LogLevel)
	if err != nil {
		return logging.Config{}, fmt.Errorf("LogLevel=: %w", err)
	}
	target, err := logging.ParseTarget(c.LogTarget)
	if err != nil {
		return logging.Config{}, fmt.Errorf("LogTarget=: %w", err)
	}
	return logging.Config{Level: level, Target: target, Quiet: c.LogIsQuiet}, nil
}

func (p *process[C]) closeLog() {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	p.env.Log.Close(ctx)
}

func (p *process[C]) check(cfg C, thorough bool) error {
	if err := cfg.CheckStart(); err != nil {
		return err
	}
	return p.spec.Check(cfg, p.env, thorough)
}

// errSignal is why a daemon ends that was asked to.
type errSignal struct{ os.Signal }

func (e errSignal) Error() string { return "got " + e.String() }

// errFailed is why a daemon ends that cannot go on.
type errFailed struct{ error }

var errAsked = errors.New("asked to shut down")

func (p *process[C]) run(ctx context.Context, cfg C, stderr io.Writer) int {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	reload := make(chan struct{}, 1)
	go watch(ctx, signals, reload, end)

	p.env.Shutdown = func() { end(errAsked) }
	p.env.Fail = func(reason error) { end(errFailed{reason}) }
	p.env.Status = func(text string) { p.tell(p.system.Status(text)) }
	p.log.Info("starting", "version", version.Short())
	for _, note := range p.spec.Common(cfg).Notes {
		p.log.Warn("configuration", "note", note)
	}
	service, err := p.spec.Start(ctx, cfg, p.env)
	if err != nil {
		if ctx.Err() != nil {
			p.log.Info("stopped before it had started", "reason", context.Cause(ctx))
			return ExitOK
		}
		// Not by the log: the journal may have lost sight of a process that ends at once, and
		// then does not show under its unit what the process sent. What it writes on standard
		// error always is.
		code := ExitFailed
		if errors.As(err, new(Hopeless)) {
			code = ExitConfig
		}
		return p.spec.report(stderr, fmt.Errorf("cannot start: %w", err), code)
	}
	p.tell(p.system.Ready(""))
	p.serve(ctx, service, reload)
	p.tell(p.system.Stopping(""))
	var failed errFailed
	if errors.As(context.Cause(ctx), &failed) {
		p.log.Error("stopping", "reason", failed)
		p.stop(service, stopTime)
		return ExitFailed
	}
	p.log.Info("stopping", "reason", context.Cause(ctx))
	p.stop(service, stopTime)
	return ExitOK
}

// watch turns signals into what they mean, until ctx ends.
func watch(ctx context.Context, signals <-chan os.Signal, reload chan<- struct{}, end context.CancelCauseFunc) {
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGHUP {
				end(errSignal{s})
				return
			}
			select {
			case reload <- struct{}{}:
			default: // one is due already
			}
		case <-ctx.Done():
			return
		}
	}
}

func (p *process[C]) serve(ctx context.Context, service Service[C], reload <-chan struct{}) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.system.Watch(ctx, func(ctx context.Context) error { return alive(ctx, service.Alive) },
			func(err error) { p.log.Error("watchdog round missed", "err", err) })
	}()
	for {
		select {
		case <-ctx.Done():
			<-watched
			return
		case <-reload:
			p.tell(p.system.Reloading())
			p.reload(service)
			p.tell(p.system.Ready(""))
		}
	}
}

// tell logs, at debug level, that systemd could not be told something.
func (p *process[C]) tell(err error) {
	if err != nil {
		p.log.Debug("systemd cannot be told", "err", err)
	}
}

// reload reads the configuration again. A mistake in it changes nothing.
func (p *process[C]) reload(service Service[C]) {
	cfg, err := p.spec.Load(p.env.Options)
	if err == nil {
		err = p.check(cfg, false)
	}
	if err != nil {
		p.log.Error("configuration cannot be used; the one before stays in use", "err", err)
		return
	}
	service.Reload(cfg)
}

func (p *process[C]) stop(service Service[C], limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		service.Stop(ctx)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		p.log.Warn("not everything has ended in time", "limit", limit)
	}
}

// alive asks the service's core for a sign of life, for the watchdog.
func alive(ctx context.Context, ask func(reply func())) error {
	answered := make(chan struct{})
	go ask(func() { close(answered) })
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
