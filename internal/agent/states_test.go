package agent

import (
	"testing"

	"example.org/ctrl/internal/machine/machinetest"
)

func TestDrawingsShowTheMachines(t *testing.T) {
	machinetest.Check(t, "../../docs/states.md", Machines())
}
