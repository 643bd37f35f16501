package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
)

func TestMain(m *testing.M) {
	if why := lab.Unavailable(); why != "" {
		fmt.Println("left out: the demo:", why)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestDemo: a newcomer sees what the demo promises, in this order.
func TestDemo(t *testing.T) {
	const name = "demo-test"
	t.Cleanup(func() { lab.Remove(name) })
	var out strings.Builder
	if err := demo(t.Context(), &out, name, true); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	rest := out.String()
	for _, want := range []string{
		`boss# ctl list-nodes\nNODE +STATUS .*\nnode1 +online .*\nnode2 +online .*\nnode3 +online `,
		`boss# ctl start node1 hello.service\n\n`,
		`boss# ctl list-units node1 hello.service\nNODE .*\nnode1 +hello.service +loaded +active +running +Says hello`,
		`boss# ctl status node1 hello.service\n(.*\n)*? +Active: active \(running\)`,
		`boss# ctl stop node1 hello.service\n\n`,
		`boss# ctl status node1 hello.service\n(.*\n)*? +Active: inactive \(dead\)`,
		`boss# ctl start node1 greeter.service\n\n`,
		`boss# ctl list-dependencies node1 greeter.service\nnode1 greeter.service +active\n.*node2 hello.service +active\n`,
		`boss# ctl stop node2 hello.service\n\n`,
		`boss# ctl list-dependencies node1 greeter.service\nnode1 greeter.service +inactive\n.*node2 hello.service +inactive\n`,
		`labctl shell demo-test boss\n`,
		`labctl destroy demo-test\n`,
	} {
		at := regexp.MustCompile(want).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("%s is not in the rest of the demo:\n%s\nall of it:\n%s", want, rest, &out)
		}
		rest = rest[at[1]:]
	}
	if nodes, err := lab.NodesOf(name); err != nil || len(nodes) != 4 {
		t.Errorf("kept are %d nodes, %v", len(nodes), err)
	}
}
