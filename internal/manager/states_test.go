package manager

import (
	"strings"
	"testing"

	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/machine/machinetest"
)

func TestDrawingsShowTheMachines(t *testing.T) {
	machinetest.Check(t, "../../docs/states.md", Machines())
}

func TestIllegalMovesAreRefused(t *testing.T) {
	var logged strings.Builder
	s := machine.State[jobState]{Is: jobEnded}
	before := s
	if s.Transition(&jobMachine, jobRunning, textLog(&logged), "a mistake") || s != before {
		t.Errorf("an ended job became %v", s)
	}
	for _, want := range []string{"level=ERROR", "from=ended", "to=running"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log does not say %s: %s", want, logged.String())
		}
	}
}
