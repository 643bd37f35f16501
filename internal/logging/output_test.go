package logging

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// TestNobodyReadsStandardError runs itself with a standard error that is closed at the other
// end. A write to file number 2 would end the process with SIGPIPE.
func TestNobodyReadsStandardError(t *testing.T) {
	if os.Getenv("CTRL_TEST_CHILD") != "" {
		out, err := SystemOutput("child", os.Getenv)
		if err != nil {
			os.Exit(3)
		}
		if out.Terminal || out.Colour || out.Journal {
			os.Exit(4)
		}
		_, _ = io.ReadAll(os.Stdin) // until the parent has closed the other end
		l := New(Config{Target: Stderr}, out)
		l.Logger().Info("nobody hears this")
		l.Close(t.Context())
		os.Exit(42)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNobodyReadsStandardError$")
	cmd.Env = append(os.Environ(), "CTRL_TEST_CHILD=1")
	cmd.Stderr = w
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	stdin.Close()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 42 {
		t.Errorf("the child ended with %v", err)
	}
}
