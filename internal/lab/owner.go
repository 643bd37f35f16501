package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A lab belongs to the process that holds the lock on its lock file. The kernel drops the
// lock of a process that ends in whatever way, so nothing is guessed from process numbers.
// The guard is a child that shares the lock: it sees its parent end, removes the lab, and only
// then lets the name go.

// owner is the hold on a lab's name.
type owner struct {
	lock  *os.File
	guard *exec.Cmd
	leash io.WriteCloser // the guard acts when this end is gone
}

// ownTimeout bounds how long a lab waits for another process to let its name go.
const ownTimeout = 2 * time.Minute

func lockFile(name string) string { return filepath.Join(root, name+".lock") }

// own takes the name, when the process that has it lets it go.
func own(ctx context.Context, name string) (*owner, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ownTimeout, fmt.Errorf("not within %s", ownTimeout))
	defer cancel()
	for {
		o, err := tryOwn(name)
		if !errors.Is(err, errOwned) {
			return o, err
		}
		if holder(name) == os.Getpid() {
			return nil, errors.New("this process has a lab of that name already")
		}
		if err := awaitRelease(ctx, name); err != nil {
			return nil, fmt.Errorf("process %d has a lab of that name, and it did not end: %w", holder(name), err)
		}
	}
}

var errOwned = errors.New("a living process has a lab of that name")

// tryOwn takes the name if nobody has it.
func tryOwn(name string) (*owner, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(lockFile(name), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errOwned
	}
	if err == nil && !current(lock, name) {
		err = errOwned // its last owner has removed this file; look again
	}
	if err == nil {
		err = errors.Join(lock.Truncate(0), writeAt(lock, strconv.Itoa(os.Getpid())+"\n"))
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &owner{lock: lock}, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// current tells whether the file is still the one at the lock's path.
func current(lock *os.File, name string) bool {
	mine, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(lockFile(name))
	return err == nil && os.SameFile(mine, there)
}

// holder is the process that took the name last.
func holder(name string) int {
	text, _ := os.ReadFile(lockFile(name))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// awaitRelease waits until the name might be free. The kernel's wait for a lock does not
// hear of a context, so it has a goroutine, which ends with the lock's holder at the latest.
func awaitRelease(ctx context.Context, name string) error {
	lock, err := os.Open(lockFile(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	free := make(chan error, 1)
	go func() {
		defer lock.Close()
		for {
			if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); !errors.Is(err, unix.EINTR) {
				free <- err
				return
			}
		}
	}()
	select {
	case err := <-free:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// guardVariable makes a copy of this program the guard of the lab that it names.
const guardVariable = "CTRL_LAB_GUARD"

// watch starts the guard.
func (o *owner) watch(name string) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{guardVariable + "=" + name, "PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{o.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C at the test is not for it
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the lab's guard: %w", err)
	}
	o.guard, o.leash = cmd, leash
	return nil
}

// guard is the guard's life: a byte ends it, the end of its parent makes it act.
func guard(name string) {
	var word [1]byte
	if n, _ := os.Stdin.Read(word[:]); n == 0 {
		remove(name)
		os.Remove(lockFile(name))
	}
}

// release lets the name go.
func (o *owner) release() {
	if o == nil || o.lock == nil {
		return
	}
	if o.guard != nil {
		o.leash.Write([]byte("."))
		o.leash.Close()
		o.guard.Wait()
	}
	os.Remove(o.lock.Name())
	o.lock.Close()
	o.lock = nil
}
