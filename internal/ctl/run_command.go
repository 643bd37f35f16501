package ctl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// runFlags are the flags of ctl run, with systemd-run's names.
type runFlags struct {
	jobFlags
	unit        string
	description string
	slice       string
	kind        string
	uid, gid    string
	nice        int
	dir         string
	env         []string
	properties  []string
	remain      bool
	collect     bool
	sighup      bool
	wait        bool
}

func runCommand(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run NODE -- COMMAND [ARGUMENT…]",
		Short: "Run a command on a node as a transient unit",
		Long: `Runs a command on a node as a unit that lives only while it runs, and returns when it has started;
with --wait, when it has ended, and then its exit code is that of the command. The command is
looked up on the node; its arguments arrive as they are, nothing expands them. A node allows it by
AllowTransientUnits=yes in [policy] of its agent.conf, which is not the default.`,
		Example: "  ctl run node1 -- sleep 60\n  ctl run node1 --wait -p MemoryMax=1G --unit backup -- /usr/bin/backup --all",
		GroupID: groupUnits,
	}
	f.jobFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.unit, "unit", "u", "", "`NAME` of the unit; made up where there is none")
	flags.StringVar(&f.description, "description", "", "`TEXT` of Description=")
	flags.StringVar(&f.slice, "slice", "", "run in this `SLICE`")
	flags.StringVar(&f.kind, "service-type", "", "`TYPE` of service, as Type= has it")
	flags.StringVar(&f.uid, "uid", "", "run as this `USER`")
	flags.StringVar(&f.gid, "gid", "", "run as this `GROUP`")
	flags.IntVar(&f.nice, "nice", 0, "nice `LEVEL`")
	flags.StringVar(&f.dir, "working-directory", "", "run in this `FOLDER` of the node")
	flags.StringArrayVarP(&f.env, "setenv", "E", nil, "set an environment variable, `NAME[=VALUE]`")
	flags.StringArrayVarP(&f.properties, "property", "p", nil, "set a property of the unit, `NAME=VALUE`")
	flags.BoolVarP(&f.remain, "remain-after-exit", "r", false, "keep the unit when the command has ended")
	flags.BoolVarP(&f.collect, "collect", "G", false, "forget the unit also when it has failed")
	flags.BoolVar(&f.sighup, "send-sighup", false, "send SIGHUP too when the unit is stopped")
	flags.BoolVar(&f.wait, "wait", false, "wait until the command has ended")
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.runOnNode(cmd, args, f) }
	return cmd
}

func (a *app) runOnNode(cmd *cobra.Command, args []string, f runFlags) error {
	pattern, command, err := f.split(cmd, args)
	if err == nil && len(command) == 0 {
		err = needs(cmd, "a NODE and a COMMAND")
	}
	if err == nil {
		err = f.check()
	}
	if err == nil && f.wait && f.noWait {
		err = usage("--wait and --no-wait exclude each other")
	}
	if err != nil {
		return err
	}
	name, err := f.name()
	if err != nil {
		return err
	}
	props, err := f.props(a.env, cmd, command)
	if err != nil {
		return err
	}
	if err := a.awaitOnline(pattern, f.waitOnline); err != nil {
		return err
	}
	nodes, err := a.nodes(a.ctx, pattern)
	if err != nil {
		return err
	}
	if f.wait && len(nodes) != 1 {
		return usage("--wait is for one node, and %d are meant", len(nodes))
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	job := &transientJob{c: c, mode: f.mode, props: props}
	if f.wait {
		return a.runAndWait(job, nodes[0], name, f)
	}
	job.made = func(node string) { a.note("Running as unit: %s on %s", name, node) }
	return a.runJobs(nodes, []string{name}, job, f.jobFlags)
}

// name is the unit's name: one that was given, or one that is not used twice.
func (f *runFlags) name() (string, error) {
	if f.unit == "" {
		var random [16]byte
		_, _ = rand.Read(random[:]) // it never fails
		return "run-r" + hex.EncodeToString(random[:]) + ".service", nil
	}
	name := unit.Mangle(f.unit, false)
	if err := unit.CheckInstance(name); err != nil {
		return "", usage("%v", err)
	}
	if !strings.HasSuffix(name, ".service") {
		return "", usage("%s is no service, and only a service can run a command", name)
	}
	return name, nil
}

// props are the properties of the transient unit.
func (f *runFlags) props(env func(string) string, cmd *cobra.Command, command []string) ([]client.Property, error) {
	if command[0] == "" || strings.Contains(command[0], "/") && command[0][0] != '/' {
		return nil, usage("%q is neither the name of a program nor an absolute path", command[0])
	}
	description := f.description
	if description == "" {
		description = strings.Join(command, " ")
	}
	props := one("Description", description)
	add := func(name string, value any) { props = append(props, client.Property{Name: name, Value: value}) }
	if f.slice != "" {
		slice := f.slice
		if unit.TypeOf(slice) == "" {
			slice += ".slice"
		}
		if unit.TypeOf(slice) != "slice" || unit.CheckName(slice) != nil {
			return nil, usage("%s is no slice", f.slice)
		}
		add("Slice", slice)
	}
	for _, text := range []struct{ name, value string }{{"Type", f.kind}, {"User", f.uid}, {"Group", f.gid}, {"WorkingDirectory", f.dir}} {
		if text.value != "" {
			add(text.name, text.value)
		}
	}
	if cmd.Flags().Changed("nice") {
		if f.nice < -20 || f.nice > 19 {
			return nil, usage("--nice=%d is not between -20 and 19", f.nice)
		}
		add("Nice", int32(f.nice))
	}
	if f.remain {
		add("RemainAfterExit", true)
	}
	if f.collect {
		add("CollectMode", "inactive-or-failed")
	}
	if f.sighup {
		add("SendSIGHUP", true)
	}
	if len(f.env) > 0 {
		vars, err := f.environment(env)
		if err != nil {
			return nil, err
		}
		add("Environment", vars)
	}
	set, err := assignments(f.properties)
	if err != nil {
		return nil, err
	}
	props = append(props, set...)
	add("ExecStart", []execValue{{command[0], literal(command), false}})
	return props, nil
}

// literal doubles each $, so that systemd puts no environment variables into arguments
// (systemd.service(5), "COMMAND LINES"). The flag no-env-expand would say it better, but
// systemd 252 writes it into the unit's file as ExecStartEx=, which it cannot read again: at
// the next daemon-reload the unit has a bad setting. What is left of systemd's own mistake is
// that a $ is read back as \$, which a restart after a reload sees, with systemd-run too.
func literal(command []string) []string {
	out := make([]string, len(command))
	for i, arg := range command {
		out[i] = strings.ReplaceAll(arg, "$", "$$")
	}
	return out
}

// environment takes the values of bare names from our own environment, as systemd-run does.
func (f *runFlags) environment(env func(string) string) ([]string, error) {
	vars := make([]string, len(f.env))
	for i, v := range f.env {
		name, _, has := strings.Cut(v, "=")
		if name == "" {
			return nil, usage("--setenv=%s has no name", v)
		}
		if !has {
			v += "=" + env(name)
		}
		vars[i] = v
	}
	return vars, nil
}

// transientJob makes transient units.
type transientJob struct {
	c     *client.Client
	mode  string
	props []client.Property
	made  func(node string) // called when a job was made, before it is waited for
}

func (j *transientJob) word() string { return "run" }

func (j *transientJob) before(context.Context, string, []string) error { return nil }

func (j *transientJob) follow(ctx context.Context, node, unit string) (*client.Job, error) {
	job, err := j.c.StartTransient(ctx, node, unit, j.mode, j.props)
	if err == nil && j.made != nil {
		j.made(node)
	}
	return job, err
}

func (j *transientJob) queue(ctx context.Context, node, unit string) (uint32, error) {
	return j.c.QueueTransient(ctx, node, unit, j.mode, j.props)
}

func (j *transientJob) spares(error) bool { return false }

func (j *transientJob) after(ctx context.Context, node, unit string) verdict {
	return judgeStart(ctx, j.c, node, unit, wire.Start)
}
