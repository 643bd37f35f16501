package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// The simulator: thousands of agents in a process of their own. Each is a connection of
// internal/peer over TCP with the session, the heartbeat and the way back of a real agent;
// behind it there is no systemd but a few lines that answer as one.

// simMark is set for the copy of this program that is the agents.
const simMark = "CTRL_BENCH_AGENTS"

// simTask is what the agents are to do.
type simTask struct {
	What string // connect, await, flap, change
	// Connect: how many agents, to which port of loopback, with the certificates below TLS,
	// where it is not "".
	Agents int
	Port   string
	TLS    *simTLS
	// Await: until all have a session that began at or after Since (UnixNano).
	Since int64
	// Flap: a percentage of the agents drops its connection each second. Change: so many
	// changes of state a second, in turn over all agents. Both for a time.
	Percent, Rate int
	For           time.Duration
}

// simAnswer is what came of it.
type simAnswer struct {
	Error   string
	Started int64   // when they began to connect, UnixNano
	Began   []int64 // when each agent's session began, UnixNano
	Tries   int     // to connect, since the last task
	Lost    int     // sessions that ended since the last task and were not dropped by the task
	Done    int     // drops or changes
}

// simTime bounds what the agents wait for.
const simTime = 2 * time.Minute

type simulation struct {
	agents      []*simAgent
	port        string
	started     int64 // the storm, UnixNano
	tries, lost atomic.Int64
	mu          sync.Mutex
	begun       sync.Cond // broadcast when a session has begun
}

func runSimulation(in io.Reader, out io.Writer) error {
	s := &simulation{}
	s.begun.L = &s.mu
	tasks, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var t simTask
		if err := tasks.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := s.perform(t)
		if err != nil {
			a.Error = err.Error()
		}
		a.Tries, a.Lost = int(s.tries.Swap(0)), int(s.lost.Swap(0))
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (s *simulation) perform(t simTask) (a simAnswer, err error) {
	switch t.What {
	case "connect":
		if err := s.connect(t); err != nil {
			return a, err
		}
		a.Began, err = s.await(0)
		a.Started = s.started
	case "await":
		a.Began, err = s.await(t.Since)
	case "flap":
		a.Done = s.flap(len(s.agents)*t.Percent/100, t.For)
		_, err = s.await(0)
	case "change":
		a.Done, err = s.change(t.Rate, t.For)
	default:
		err = fmt.Errorf("no task %q", t.What)
	}
	return a, err
}

func (s *simulation) connect(t simTask) error {
	s.port = t.Port
	var roots *x509.CertPool
	var err error
	if t.TLS != nil {
		if roots, err = t.TLS.roots(); err != nil {
			return err
		}
	}
	for i := range t.Agents {
		a := newSimAgent(s, i)
		if t.TLS != nil {
			if a.tls, err = t.TLS.config(a.name, roots); err != nil {
				return err
			}
		}
		s.agents = append(s.agents, a)
	}
	s.started = time.Now().UnixNano()
	for _, a := range s.agents {
		go a.run()
	}
	return nil
}

// await waits until the session of each agent began at or after since, and says when.
func (s *simulation) await(since int64) ([]int64, error) {
	deadline := time.Now().Add(simTime)
	late := time.AfterFunc(simTime, s.begun.Broadcast)
	defer late.Stop()
	began := make([]int64, len(s.agents))
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		missing := 0
		for i, a := range s.agents {
			if began[i] = a.began; began[i] == 0 || began[i] < since {
				missing++
			}
		}
		if missing == 0 {
			return began, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d agents have no session after %v; one of them says: %v", missing, len(s.agents), simTime, s.complaint())
		}
		s.begun.Wait()
	}
}

// complaint is why some agent has no session. The lock is held.
func (s *simulation) complaint() error {
	for _, a := range s.agents {
		if a.began == 0 && a.failed != nil {
			return a.failed
		}
	}
	return nil
}

// flap drops connections at a steady pace, of other agents each time.
func (s *simulation) flap(perSecond int, d time.Duration) int {
	perSecond = max(perSecond, 1)
	pace := time.NewTicker(time.Second / time.Duration(perSecond))
	defer pace.Stop()
	end := time.After(d)
	for n := 0; ; n++ {
		select {
		case <-end:
			return n
		case <-pace.C:
			s.agents[n*37%len(s.agents)].drop()
		}
	}
}

// change lets units change, in turn over all agents.
func (s *simulation) change(rate int, d time.Duration) (int, error) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	began, sent := time.Now(), 0
	for time.Since(began) < d {
		<-pace.C
		for due := int(time.Since(began).Seconds() * float64(rate)); sent < due; sent++ {
			if err := s.agents[sent%len(s.agents)].change(); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// agents is the simulator's process.
type agents struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	tasks   *json.Encoder
	answers *json.Decoder
}

func startAgents(ctx context.Context) (*agents, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &agents{cmd: exec.CommandContext(ctx, self)}
	a.cmd.Env = append(os.Environ(), simMark+"=1")
	a.cmd.Stderr = os.Stderr
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.tasks, a.answers = json.NewEncoder(a.in), json.NewDecoder(out)
	return a, a.cmd.Start()
}

func (a *agents) do(t simTask) (got simAnswer, err error) {
	if err = a.tasks.Encode(t); err == nil {
		err = a.answers.Decode(&got)
	}
	if err == nil && got.Error != "" {
		err = errors.New(got.Error)
	}
	if err != nil {
		err = fmt.Errorf("the agents, %s: %w", t.What, err)
	}
	return got, err
}

func (a *agents) close() {
	a.in.Close()
	a.cmd.Process.Kill()
	a.cmd.Wait()
}
