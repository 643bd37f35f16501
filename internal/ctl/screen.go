package ctl

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/term"

	"example.org/ctrl/internal/ctl/render"
)

// screen is what a stream leads to.
type screen struct {
	terminal bool
	width    int // cells; 0 where it is no terminal
	height   int // lines; 0 where nobody knows
	color    bool
}

// look finds out what the streams lead to, after the flags are known.
func (a *app) look() {
	a.outIs, a.errIs = a.screen(a.out), a.screen(a.errOut)
}

func (a *app) screenOf(w io.Writer) screen {
	s := screen{color: a.opt.color == "always"}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.terminal = true
	if a.opt.color == "auto" {
		s.color = a.env("NO_COLOR") == "" && a.env("TERM") != "dumb"
	}
	s.width, s.height, _ = term.GetSize(int(f.Fd())) // 0 where the terminal does not know
	if n, err := strconv.Atoi(a.env("COLUMNS")); err == nil && n > 0 {
		s.width = n
	}
	return s
}

func (a *app) utf8() bool {
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := a.env(key); v != "" {
			return strings.Contains(strings.ToUpper(strings.ReplaceAll(v, "-", "")), "UTF8")
		}
	}
	return false
}

// options are how results are written.
func (a *app) options() render.Options {
	return render.Options{
		Format: a.opt.format, Header: !a.opt.noLegend, Full: a.opt.full, Width: a.outIs.width, Color: a.outIs.color,
		Marks: a.outIs.terminal && !a.opt.plain, UTF8: a.utf8(),
	}
}

// pager is the program that pages what is written, as the user's environment names it.
type pager struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Writer // where output went before
}

// page sends what follows through the user's pager: on a terminal only, and only where
// CTRL_PAGER or PAGER name one.
func (a *app) page() {
	command := a.env("CTRL_PAGER")
	if command == "" {
		command = a.env("PAGER")
	}
	if !a.outIs.terminal || a.opt.noPager || a.pager != nil || command == "" || command == "cat" {
		return
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr, cmd.Env = a.out, a.errOut, os.Environ()
	if a.env("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRSXMK") // as systemd's tools
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		a.note("cannot run the pager %q: %v", command, err)
		return
	}
	a.pager = &pager{cmd, in, a.out}
	a.out = in
}

// closePager waits until the user has left the pager.
func (a *app) closePager() (paged bool) {
	if a.pager == nil {
		return false
	}
	_ = a.pager.in.Close()
	_ = a.pager.cmd.Wait() // its exit code says nothing about us
	a.out = a.pager.out
	return true
}

// write writes rows; where there are none, a line on standard error says so.
func write[T any](a *app, rows []T, nothing string) error {
	if len(rows) == 0 && a.opt.format == render.Table {
		a.note("%s", nothing)
		return nil
	}
	return render.Write(a.out, rows, a.options())
}
