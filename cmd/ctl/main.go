// Command ctl controls systemd units on many machines.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"example.org/ctrl/internal/ctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends ctl at once
	os.Exit(ctl.Run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
