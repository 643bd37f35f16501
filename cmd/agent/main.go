// Command ctrl-agent runs the agent of ctrl.
package main

import (
	"context"
	"os"

	"example.org/ctrl/internal/agentd"
)

func main() {
	os.Exit(agentd.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
