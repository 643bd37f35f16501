package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// monitorMark is set for the copy of this program that is the clients of monitors. Its value
// is the address of the bus, how many clients read and how many do not.
const monitorMark = "CTRL_BENCH_MONITORS"

// seen is what clients have seen. Those that were stopped are not in LeftOut.
type seen struct {
	LeftOut, Disorder int
	LeftOutStopped    int    // by those that were stopped
	Wrong             int    // units whose last state some client does not know
	Delays            sample // a part of them, of those that read
	Error             string
}

// clients is the process of the clients.
type clients struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startClients(ctx context.Context, address string, reading, stopped int) (*clients, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &clients{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", monitorMark, address, reading, stopped))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, c.reached(0)
}

// ask sends one line and reads the answer.
func (c *clients) ask(line string, into any) error {
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		return err
	}
	text, err := c.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the clients have ended: %w", err)
	}
	return json.Unmarshal([]byte(text), into)
}

// reached waits until all clients that read have seen n changes.
func (c *clients) reached(n int) error {
	var s seen
	if err := c.ask(strconv.Itoa(n), &s); err != nil {
		return err
	}
	if s.Error != "" {
		return errors.New(s.Error)
	}
	return nil
}

// end waits until all clients have seen the last state of all units, lets those that are
// stopped read, and waits for them too.
func (c *clients) end() (s seen, err error) {
	if err = c.ask("end", &s); err == nil && s.Error != "" {
		err = errors.New(s.Error)
	}
	return s, err
}

func (c *clients) close() {
	c.in.Close()
	c.cmd.Process.Kill()
	c.cmd.Wait()
}
