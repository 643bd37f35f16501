package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

// TestDepsDifference: a pair of units, of which one depends on the other, fares the same on one
// node and split over two: the states and the order in which commands were run agree, for every
// directive and every thing that may happen. What differs for a reason stands in the table of
// docs/dependencies.md.

// directives are those of systemd.unit(5) by which one unit depends on another. Requisite= and
// PartOf= start nothing, on one node as on two, so Wants= stands beside them.
var directives = []string{"Wants", "Requires", "Requisite", "BindsTo", "PartOf", "Upholds"}

// noted is a command that notes, with the time, that it was run. All nodes have one clock.
func noted(what string) string {
	return `/bin/sh -c 'echo "$(date +%%s.%%N) %n ` + what + `" >>/run/noted'`
}

// pairUnits are the two units of a pair, and the second once more with Restart=. The first names
// the second as it is called on its node.
func pairUnits(into map[string]string, prefix, directive, second string) {
	first := "[Unit]\n" + directive + "=" + second + "\nAfter=" + second + "\n"
	if directive == "Requisite" || directive == "PartOf" {
		first += "Wants=" + second + "\n"
	}
	into[prefix+"a.service"] = first + service("")
	into[prefix+"b.service"] = "[Unit]\nStartLimitIntervalSec=0\n" + service("ExecCondition=/bin/sh -c '[ ! -e /run/no-%n ] || exit 255'\n")
	into[prefix+"r.service"] = "[Unit]\nStartLimitIntervalSec=0\n" + service("Restart=on-failure\nRestartSec=500ms\n")
}

func service(more string) string {
	return "[Service]\n" + more + "ExecStartPre=" + noted("start") + "\nExecStart=/bin/sleep infinity\nExecReload=" + noted("reload") +
		"\nExecStopPost=" + noted("stop") + "\n"
}

func diffUnits() map[string]string {
	all := make(map[string]string)
	for _, d := range directives {
		word := strings.ToLower(d)
		pairUnits(all, "one-"+word+"-", d, "one-"+word+"-b.service")
		pairUnits(all, "two-"+word+"-", d, "ctrl-proxy@node2_two-"+word+"-b.service")
		// The same with a second that restarts itself.
		for prefix, name := range map[string]string{"one-": "one-" + word + "-r.service", "two-": "ctrl-proxy@node2_two-" + word + "-r.service"} {
			all[prefix+word+"-ar.service"] = strings.ReplaceAll(all[prefix+word+"-a.service"], strings.TrimSuffix(name, "r.service")+"b.service", name)
		}
	}
	return all
}

// pair is one of both: its units, and the nodes that they are on.
type pair struct {
	a, b  string
	aNode *lab.Node
	bNode *lab.Node
}

// happening is something that happens to the second of a pair, or the start of the first.
type happening struct {
	name   string
	r      bool                   // the second has Restart=
	before []string               // states of both before it, "" if nothing was started
	do     func(*testing.T, pair) // makes it happen
	want   map[string]string      // states of first and second afterwards, by directive
	log    map[string]string      // commands that were run, by directive; "" is not compared, and the order after "~" is free
}

func same(states string) map[string]string {
	all := make(map[string]string)
	for _, d := range directives {
		all[d] = states
	}
	return all
}

func but(all map[string]string, other string, of ...string) map[string]string {
	for _, d := range of {
		all[d] = other
	}
	return all
}

func cmd(argv ...string) func(*testing.T, pair) {
	return func(t *testing.T, p pair) { on(t, p.bNode, append(slices.Clone(argv), p.b)...) }
}

var happenings = []happening{
	{name: "start", do: func(t *testing.T, p pair) { on(t, p.aNode, "systemctl", "start", p.a) },
		want: same("active active"), log: same("b start, a start")},
	{name: "failing start", do: func(t *testing.T, p pair) {
		on(t, p.bNode, "touch", "/run/no-"+p.b)
		r, err := p.aNode.Exec(within(t), "systemctl", "start", p.a)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Code // as the directive says
	}, want: but(same("inactive failed"), "active failed", "Wants", "PartOf", "Upholds"),
		log: but(but(same("b stop"), "b stop, a start", "Wants", "PartOf"), "", "Upholds")},
	{name: "stop", before: []string{"active", "active"}, do: cmd("systemctl", "stop"),
		want: map[string]string{"Wants": "active inactive", "Requires": "inactive inactive", "Requisite": "inactive inactive", "BindsTo": "inactive inactive", "PartOf": "inactive inactive", "Upholds": "active active"},
		log:  but(but(same("a stop, b stop"), "b stop", "Wants"), "b stop, b start", "Upholds")},
	{name: "crash", before: []string{"active", "active"}, do: cmd("systemctl", "kill", "-s", "KILL"),
		want: but(but(same("active failed"), "inactive failed", "BindsTo"), "active active", "Upholds"),
		log:  but(but(same("b stop"), "~a stop, b stop", "BindsTo"), "b stop, b start", "Upholds")},
	{name: "exit", before: []string{"active", "active"}, do: cmd("systemctl", "kill", "-s", "TERM"),
		want: but(but(same("active inactive"), "inactive inactive", "BindsTo"), "active active", "Upholds"),
		log:  but(but(same("b stop"), "~a stop, b stop", "BindsTo"), "b stop, b start", "Upholds")},
	{name: "restart", before: []string{"active", "active"}, do: cmd("systemctl", "restart"),
		want: same("active active"), log: but(same("a stop, b stop, b start, a start"), "b stop, b start", "Wants", "Upholds")},
	{name: "automatic restart", r: true, before: []string{"active", "active"}, do: cmd("systemctl", "kill", "-s", "KILL"),
		want: but(same("active active"), "inactive active", "BindsTo"),
		log:  but(but(same("b stop, a stop, b start, a start"), "b stop, b start", "Wants", "Upholds"), "b stop, a stop, b start", "BindsTo")},
	{name: "reload", before: []string{"active", "active"}, do: cmd("systemctl", "reload"),
		want: same("active active"), log: same("b reload")},
}

func TestDepsDifference(t *testing.T) {
	units := diffUnits()
	f, err := fleet.New(t.Context(), fleet.Options{Lab: labName(t.Name()), Nodes: []string{"node1", "node2"}, Units: units, Manager: allowDeps})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, h := range happenings {
		for _, d := range directives {
			t.Run(h.name+"/"+d, func(t *testing.T) {
				for _, p := range pairs(f, h, d) {
					happens(t, f, h, d, p)
				}
			})
		}
	}
	if t.Failed() {
		t.Log(f.Evidence(t.Context()))
	}
}

func pairs(f *fleet.Fleet, h happening, d string) []pair {
	word := strings.ToLower(d)
	a, b := "-a.service", "-b.service"
	if h.r {
		a, b = "-ar.service", "-r.service"
	}
	one, two := f.Nodes["node1"], f.Nodes["node2"]
	return []pair{{"one-" + word + a, "one-" + word + b, one, one}, {"two-" + word + a, "two-" + word + b, one, two}}
}

// happens lets h happen to one pair, and looks at the outcome.
func happens(t *testing.T, f *fleet.Fleet, h happening, d string, p pair) {
	t.Helper()
	if h.before != nil {
		on(t, p.aNode, "systemctl", "start", p.a)
	}
	for _, n := range []*lab.Node{p.aNode, p.bNode} {
		forgetNoted(t, n)
	}
	h.do(t, p)
	want := strings.Fields(h.want[d])
	waitLog(t, p, h.log[d])
	await(t, p.aNode, p.a, want[0])
	await(t, p.bNode, p.b, want[1])
	depsSettle(t, f)
	if got := active(t, p.aNode, p.a) + " " + active(t, p.bNode, p.b); got != h.want[d] {
		t.Errorf("%s: %s and %s are %q, want %q", p.a, p.a, p.b, got, h.want[d])
	}
	if got := log(t, p); h.log[d] != "" && got != h.log[d] && (h.log[d][0] != '~' || sorted(got) != h.log[d][1:]) {
		t.Errorf("%s: run were %q, want %q", p.a, got, h.log[d])
	}
	on(t, p.aNode, "systemctl", "stop", p.a)
	on(t, p.bNode, "sh", "-c", "rm -f /run/no-* && systemctl stop "+p.b)
	depsSettle(t, f)
	for _, n := range []*lab.Node{p.aNode, p.bNode} {
		on(t, n, "systemctl", "reset-failed")
	}
}

// sorted brings commands that systemd runs at the same time into one order.
func sorted(log string) string {
	parts := strings.Split(log, ", ")
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func forgetNoted(t *testing.T, n *lab.Node) {
	t.Helper()
	if err := os.Remove(fmt.Sprintf("/proc/%d/root/run/noted", n.PID())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// log is what was run of a pair, in order.
func log(t *testing.T, p pair) string {
	t.Helper()
	lines := notedLines(t, p.aNode)
	if p.bNode != p.aNode {
		lines = append(lines, notedLines(t, p.bNode)...)
	}
	slices.Sort(lines)
	var out []string
	for _, line := range lines {
		part := strings.Fields(line)
		switch {
		case len(part) != 3:
		case part[1] == p.a:
			out = append(out, "a "+part[2])
		case part[1] == p.b:
			out = append(out, "b "+part[2])
		}
	}
	return strings.Join(out, ", ")
}

// notedLines reads what noted has written on a node, through that node's own root.
func notedLines(t *testing.T, n *lab.Node) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/noted", n.PID()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// waitLog waits until as many commands were run of both as are wanted.
func waitLog(t *testing.T, p pair, want string) {
	t.Helper()
	for _, side := range []struct {
		unit string
		node *lab.Node
		n    int
	}{{p.b, p.bNode, strings.Count(want, "b ")}, {p.a, p.aNode, strings.Count(want, "a ")}} {
		seen := func() bool {
			return strings.Count(strings.Join(notedLines(t, side.node), "\n"), " "+side.unit+" ") >= side.n
		}
		if err := fleet.WaitFor(within(t), side.node, want, seen); err != nil {
			t.Fatalf("%s: run were only %q, want %q: %v", p.a, log(t, p), want, err)
		}
	}
}

// depsSettle waits until neither node has a job: a job on one may follow from one on the other.
func depsSettle(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	for _, name := range []string{"node1", "node2", "node1"} {
		if err := fleet.WaitIdle(within(t), f.Nodes[name]); err != nil {
			t.Fatal(err)
		}
	}
}
