package manager

import (
	"strings"
	"testing"

	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/wire"
)

// parseJobs reads a queue written as "start:running reload:waiting:fail transient:asking".
func parseJobs(t *testing.T, text string) []*job {
	t.Helper()
	var queue []*job
	for i, word := range strings.Fields(text) {
		part := strings.Split(word, ":")
		j := &job{id: uint32(i + 1), state: machine.State[jobState]{Is: jobState(part[1])}}
		j.req = parseRequest(t, part[0])
		if len(part) > 2 {
			j.req.Mode = part[2]
		}
		queue = append(queue, j)
	}
	return queue
}

func parseRequest(t *testing.T, text string) JobRequest {
	t.Helper()
	name, mode, _ := strings.Cut(text, ":")
	r := JobRequest{Unit: "web.service", Mode: modeReplace}
	if mode != "" {
		r.Mode = mode
	}
	if name == "transient" {
		r.Transient = &wire.Raw{Sig: transientSignature}
		return r
	}
	for _, v := range wire.Verbs() {
		if v.String() == name {
			r.Verb = v
			return r
		}
	}
	t.Fatalf("no such verb: %s", name)
	return r
}

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		queue, req string
		want       action
		with       uint32
	}{
		// An idle unit.
		{"", "start", send, 0},
		{"", "reload:fail", send, 0},
		{"", "transient", send, 0},

		// Equal jobs.
		{"start:asking", "start", share, 1},
		{"start:taken", "start", share, 1},
		{"start:running", "start", share, 1},
		{"stop:asking", "stop", share, 1},
		{"stop:running", "stop", share, 1},
		{"start:running reload:waiting", "start", share, 1},
		{"start:running reload:waiting", "reload", share, 2},
		{"start:running reload:sent", "reload", wait, 0},
		{"reload:asking", "reload", wait, 0},
		{"reload:taken", "reload", wait, 0},
		{"reload:running", "reload", wait, 0},
		{"reload:running reload:waiting", "reload", share, 2},
		{"restart:running", "restart", send, 0},
		{"try-restart:taken", "try-restart", send, 0},
		{"reload-or-restart:running", "reload-or-restart", send, 0},
		{"try-reload-or-restart:running", "try-reload-or-restart", send, 0},

		// Equal but for the mode: once systemd has accepted the job its mode is history.
		{"start:running:fail", "start", share, 1},
		{"start:running", "start:fail", share, 1},
		{"start:asking:fail", "start", wait, 0},
		{"reload:running start:waiting:fail", "start", wait, 0},
		{"reload:running start:waiting:fail", "start:fail", share, 2},
		{"start:running:ignore-dependencies", "start", wait, 0},

		// What systemd judges alone.
		{"start:running", "start:ignore-dependencies", send, 0},
		{"start:running", "start:isolate", send, 0},
		{"start:running", "start:replace-irreversibly", send, 0},
		{"start:running", "reload:ignore-requirements", send, 0},
		{"start:running", "transient", send, 0},

		// A transient unit that is asked for may be refused for reasons of its own.
		{"transient:asking", "start", send, 0},
		{"transient:asking", "reload", send, 0},
		{"transient:running", "start", share, 1},
		{"transient:running", "reload", wait, 0},

		// Those that wait.
		{"start:running", "reload", wait, 0},
		{"restart:running", "start", wait, 0},
		{"restart:asking", "reload", wait, 0},
		{"reload:running", "start", wait, 0},

		// A job that hangs can be overruled.
		{"start:running", "stop", send, 0},
		{"start:asking", "stop", send, 0},
		{"start:running", "restart", send, 0},
		{"start:running", "try-restart", send, 0},
		{"start:running", "reload-or-restart", send, 0},
		{"start:running", "try-reload-or-restart", send, 0},
		{"start:running reload:waiting", "stop", send, 0},
		{"stop:running", "start", send, 0},
		{"stop:running", "reload", send, 0},
		{"stop:asking", "restart", send, 0},
		{"start:running stop:asking", "start", send, 0},
		{"stop:running start:asking", "stop", send, 0},
		{"stop:running start:asking", "start", share, 2},
		{"stop:running start:asking", "reload", send, 0},
		{"start:running reload:waiting stop:asking", "reload", send, 0},

		// Mode fail.
		{"stop:running", "start:fail", busy, 1},
		{"start:running", "stop:fail", busy, 1},
		{"start:running stop:asking", "reload:fail", busy, 2},
		{"reload:running start:waiting", "stop:fail", busy, 1},
		{"start:running", "reload:fail", wait, 0},
		{"start:running", "restart:fail", send, 0},
		{"stop:running", "stop:fail", share, 1},
	} {
		got := admit(parseJobs(t, c.queue), parseRequest(t, c.req))
		var with uint32
		if got.with != nil {
			with = got.with.id
		}
		if got.action != c.want || with != c.with {
			t.Errorf("%q with [%s]: action %d with job %d, want %d with %d", c.req, c.queue, got.action, with, c.want, c.with)
		}
	}
}

func TestOverruledAndNext(t *testing.T) {
	for _, c := range []struct {
		queue string
		of    int // the job that systemd accepts
		want  []uint32
		next  uint32
	}{
		{"start:running reload:waiting stop:taken", 3, []uint32{2}, 0},
		{"start:running reload:waiting restart:taken", 3, nil, 0},
		{"restart:running start:waiting reload:waiting stop:taken", 4, []uint32{2, 3}, 0},
		{"start:running reload:waiting", 1, nil, 0},
		{"stop:taken reload:waiting", 1, nil, 0},
		{"reload:waiting start:waiting", 2, nil, 1},
		{"reload:sent start:waiting", 2, nil, 0},
	} {
		queue := parseJobs(t, c.queue)
		var got []uint32
		for _, j := range overruled(queue, queue[c.of-1]) {
			got = append(got, j.id)
		}
		if len(got) != len(c.want) || len(got) > 0 && (got[0] != c.want[0] || got[len(got)-1] != c.want[len(got)-1]) {
			t.Errorf("[%s]: job %d overrules %v, want %v", c.queue, c.of, got, c.want)
		}
		var next uint32
		if j := nextJob(queue); j != nil {
			next = j.id
		}
		if next != c.next {
			t.Errorf("[%s]: next is %d, want %d", c.queue, next, c.next)
		}
	}
}
