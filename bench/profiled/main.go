// Command profiled runs the manager or the agent as the programs do, and writes profiles:
// CPU_PROFILE=FILE names that of the processor time of the whole run, HEAP_PROFILE=FILE that
// of the memory at its end, or when it gets SIGUSR1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"

	"example.org/ctrl/internal/agentd"
	"example.org/ctrl/internal/managerd"
)

func main() { os.Exit(run()) }

func run() int {
	stop, err := start(os.Getenv("CPU_PROFILE"), os.Getenv("HEAP_PROFILE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	defer stop()
	program := managerd.Run
	if strings.Contains(filepath.Base(os.Args[0]), "agent") {
		program = agentd.Run
	}
	return program(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
}

// start begins to profile; stop writes what is written at the end.
func start(cpu, heap string) (stop func(), err error) {
	var cpuFile *os.File
	if cpu != "" {
		if cpuFile, err = os.Create(cpu); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpuFile); err != nil {
			return nil, err
		}
	}
	written := make(chan os.Signal, 1)
	signal.Notify(written, syscall.SIGUSR1)
	go func() {
		for range written {
			writeHeap(heap)
		}
	}()
	return func() {
		if cpuFile != nil {
			pprof.StopCPUProfile()
			cpuFile.Close()
		}
		if _, err := os.Stat(heap); err != nil {
			writeHeap(heap)
		}
	}, nil
}

// writeHeap writes the profile, and beside it what the runtime holds.
func writeHeap(file string) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	runtime.GC()
	runtime.ReadMemStats(&after)
	var text strings.Builder
	for i, s := range []*runtime.MemStats{&before, &after} {
		fmt.Fprintf(&text, "%s: heap live %d in use %d idle %d released %d, stacks %d, mspan %d, mcache %d, profiles %d, gc %d, other %d; goroutines %d, collections %d\n",
			[]string{"as it was", "collected"}[i], s.HeapAlloc, s.HeapInuse, s.HeapIdle, s.HeapReleased, s.StackSys, s.MSpanSys, s.MCacheSys, s.BuckHashSys, s.GCSys, s.OtherSys,
			runtime.NumGoroutine(), s.NumGC)
	}
	os.WriteFile(file+".stats", []byte(text.String()), 0o644)
	if f, err := os.Create(file); err == nil {
		pprof.WriteHeapProfile(f)
		f.Close()
	}
}
