package ctl

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/term"
)

// passwordAgent is the program that asks for a password on the terminal for polkit, as
// systemctl has it: pkttyagent(1).
const passwordAgent = "pkttyagent"

// agentReady is how long it may take until it can be asked.
const agentReady = 5 * time.Second

// canAsk reports whether somebody who may have to give a password sits at the terminal.
func (a *app) canAsk() bool {
	f, ok := a.in.(*os.File)
	return ok && os.Geteuid() != 0 && term.IsTerminal(int(f.Fd()))
}

// beforeChange starts the agent where a call may need a password. Without it calls that need
// one are refused, which says so.
func (a *app) beforeChange() {
	// Polkit is on this machine's system bus only. Root is never asked.
	if a.opt.noAsk || a.opt.user || a.opt.host != "" || a.opt.address != "" || !a.asks() {
		return
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return
	}
	defer ready.Close()
	// It is the agent of its parent process. Without --fallback, with which polkit 122 asks it
	// in sessions of logind only.
	cmd := exec.Command(a.passwordAgent, "--notify-fd", "3")
	cmd.ExtraFiles = []*os.File{tell}
	err = cmd.Start()
	_ = tell.Close()
	if err != nil {
		return // it is not installed
	}
	a.asking.Lock()
	a.agent = cmd
	a.asking.Unlock()
	_ = ready.SetReadDeadline(time.Now().Add(agentReady))
	_, _ = ready.Read(make([]byte, 1)) // it closes its end when it can be asked, or has ended
}

// endAgent ends the agent, which gives the terminal back as it was.
func (a *app) endAgent() {
	a.asking.Lock()
	defer a.asking.Unlock()
	if a.agent != nil {
		_ = a.agent.Process.Signal(syscall.SIGTERM)
		_ = a.agent.Wait()
	}
}
