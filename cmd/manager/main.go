// Command ctrl-manager runs the manager of ctrl.
package main

import (
	"context"
	"os"

	"example.org/ctrl/internal/managerd"
)

func main() {
	os.Exit(managerd.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
