package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a journalctl that runs. It is read entry by entry; while nobody takes them its pipe
// is full and it waits.
type child struct {
	entries chan *entry   // closed at its end
	ended   chan struct{} // closed when err is known
	err     error         // of its end; nil where it came to the end of the journal
	broke   bool          // it ended without a word: it was killed
	cancel  context.CancelFunc
	asked   time.Time // when it was started
}

// start runs journalctl. Its goroutine ends with ctx or with stop.
func start(ctx context.Context, program string, args []string) (*child, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &child{entries: make(chan *entry), ended: make(chan struct{}), cancel: cancel, asked: time.Now()}
	said := &complaints{}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = said
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_LOG_LEVEL=notice", "SYSTEMD_LOG_TARGET=console")
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // an agent that is killed leaves none behind
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("cannot run journalctl: %w", err)
	}
	go c.read(ctx, cmd, out, said)
	return c, nil
}

func (c *child) read(ctx context.Context, cmd *exec.Cmd, out io.Reader, said *complaints) {
	defer close(c.ended)
	defer close(c.entries)
	defer c.cancel()
	x := newExportReader(out)
	var broke error
	for broke == nil {
		var e *entry
		if e, broke = x.next(); broke != nil {
			break
		}
		select {
		case c.entries <- e:
		case <-ctx.Done():
			broke = ctx.Err()
		}
	}
	if !errors.Is(broke, io.EOF) && !errors.Is(broke, io.ErrUnexpectedEOF) {
		c.cancel() // it is not read any more
	}
	exit := cmd.Wait()
	switch text := said.last(); {
	case exit == nil:
	case strings.Contains(text, nothingThere):
	case text != "" && cmd.ProcessState.ExitCode() > 0:
		c.err = errors.New(text)
	default:
		c.err, c.broke = fmt.Errorf("journalctl ended early: %w", exit), true
	}
}

// nothingThere is what journalctl says where a glob matches no unit that ever logged.
const nothingThere = "Failed to add filter for units: No data available"

// stop ends it and waits until it is gone.
func (c *child) stop() {
	c.cancel()
	for range c.entries {
	}
	<-c.ended
}

// complaints keeps the end of what journalctl says on standard error.
type complaints struct {
	mu   sync.Mutex
	text []byte
}

const maxComplaint = 4 << 10

func (w *complaints) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if over := len(w.text) - maxComplaint; over > 0 {
		w.text = append(w.text[:0], w.text[over:]...)
	}
	return len(p), nil
}

// last is the last line.
func (w *complaints) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(w.text), "?")), "\n")
	return lines[len(lines)-1]
}
