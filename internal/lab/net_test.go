package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// reaches tells whether packets come back. A port nobody listens on answers "refused" where
// they do, and nothing where they vanish; any other answer is a fault of the lab.
func reaches(t *testing.T, from *Node, to, seconds string) bool {
	t.Helper()
	r, err := from.Exec(context30(t), "timeout", seconds, "bash", "-c", "</dev/tcp/"+to+"/1")
	do(t, err)
	switch {
	case strings.Contains(r.Stderr, "refused"):
		return true
	case r.Code == 124:
		return false
	}
	t.Fatalf("%s to %s: %+v", from.Name, to, r)
	return false
}

func expect(t *testing.T, want bool, from *Node, to, when string) {
	t.Helper()
	limit := "1"
	if want {
		limit = "20" // resolving an address that was not there takes its time
	}
	if got := reaches(t, from, to, limit); got != want {
		t.Errorf("%s: %s reaches %s: %v", when, from.Name, to, got)
	}
}

func TestCutAndHeal(t *testing.T) {
	t.Parallel()
	l := newLab(t, "t-cut", Options{})
	n := boot(t, l, "a", "b", "c")
	ctx := context30(t)
	nc := serve(t, n[1])
	for _, to := range []string{"b", "b-v6", n[1].Addr, Outside} {
		expect(t, true, n[0], to, "at first")
	}
	do(t, n[1].Cut(ctx))
	expect(t, false, n[0], "b", "cut")
	expect(t, false, n[1], "a-v6", "cut")
	expect(t, true, n[0], "c", "cut")
	nc.Write([]byte("ping\n"))
	hush(t, nc)
	if carrier := out(t, n[1], "cat", "/sys/class/net/eth0/carrier"); carrier != "1" {
		t.Errorf("the link of a cut node is down (carrier %s)", carrier)
	}
	do(t, n[1].Kill(ctx))
	do(t, n[1].Boot(ctx))
	expect(t, false, n[1], "a", "cut and booted again")
	do(t, n[1].Heal(ctx))
	expect(t, true, n[0], "b", "healed")
	expect(t, true, n[1], "a-v6", "healed")
}

func TestPartition(t *testing.T) {
	t.Parallel()
	l := newLab(t, "t-part", Options{})
	n := boot(t, l, "a", "b", "c")
	ctx := context30(t)
	for _, other := range n[1:] {
		expect(t, true, n[0], other.Name, "at first")
	}
	do(t, n[0].Partition(ctx, n[2]))
	expect(t, false, n[0], "c", "partitioned")
	expect(t, false, n[2], "a-v6", "partitioned")
	expect(t, true, n[1], "c", "partitioned")
	do(t, n[2].Kill(ctx))
	do(t, n[2].Boot(ctx))
	expect(t, false, n[2], "a", "partitioned and booted again")
	do(t, n[2].Rejoin(ctx, n[0]))
	expect(t, true, n[0], "c", "rejoined")
	expect(t, true, n[2], "a-v6", "rejoined")
}

// TestLabsAreApart: two labs have the same addresses and do not meet.
func TestLabsAreApart(t *testing.T) {
	t.Parallel()
	one, two := newLab(t, "t-apart", Options{}), newLab(t, "t-apart-2", Options{})
	a, b := boot(t, one, "a")[0], boot(t, two, "a", "b")
	if a.Addr != b[0].Addr {
		t.Fatalf("%s and %s", a.Addr, b[0].Addr)
	}
	expect(t, false, a, b[1].Addr, "in another lab")
	expect(t, true, b[0], b[1].Addr, "in its own lab")
	if _, err := net.DialTimeout("tcp", a.Addr+":1", 200*time.Millisecond); err != nil && strings.Contains(err.Error(), "refused") {
		t.Error("this machine reaches a node")
	}
}

// TestShape measures lower bounds only: nothing arrives before its time.
func TestShape(t *testing.T) {
	t.Parallel()
	l := newLab(t, "t-shape", Options{})
	n := boot(t, l, "a", "b")
	ctx := context30(t)
	nc := serve(t, n[0])
	roundTrip := func() time.Duration {
		began := time.Now()
		echo(t, nc)
		return time.Since(began)
	}
	const delay = 150 * time.Millisecond
	do(t, n[0].Shape(ctx, Link{Delay: delay}))
	if took := roundTrip(); took < 2*delay {
		t.Errorf("with a delay of %v both ways an answer came after %v", delay, took)
	}
	do(t, n[0].Shape(ctx, Link{Delay: time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.05}))
	for range 3 {
		transfer(t, nc, 300_000)
	}
	const rate = 400_000
	do(t, n[0].Shape(ctx, Link{Rate: rate}))
	// What one direction's buffer takes at once does not count.
	if took, least := transfer(t, nc, 200_000), time.Second*200_000/rate*9/10; took < least {
		t.Errorf("200 kB at %d B/s took %v", rate, took)
	}
	do(t, n[0].Shape(ctx, Link{Loss: 1}))
	expect(t, false, n[1], "a", "all frames lost")
	do(t, n[0].Shape(ctx, Link{Delay: time.Millisecond}))
	expect(t, true, n[1], "a", "shaped")
	do(t, n[0].Cut(ctx))
	expect(t, false, n[1], "a", "shaped and cut")
	do(t, n[0].Shape(ctx, Link{}))
	expect(t, false, n[1], "a", "cut, no longer shaped")
	do(t, n[0].Heal(ctx))
	transfer(t, nc, 2_000_000)
	for _, bad := range []Link{{Loss: 1.1}, {Loss: -1}, {Delay: -1}, {Rate: -1}, {Jitter: -1}} {
		if n[0].Shape(ctx, bad) == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// transfer sends bytes to the service and back, and checks that they are the same.
func transfer(t *testing.T, nc net.Conn, size int) time.Duration {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	began := time.Now()
	nc.SetDeadline(began.Add(25 * time.Second))
	failed := make(chan error, 1)
	go func() {
		_, err := nc.Write(data)
		failed <- err
	}()
	back := make([]byte, len(data))
	if _, err := io.ReadFull(nc, back); err != nil {
		t.Fatal(err)
	}
	do(t, <-failed)
	if sha256.Sum256(back) != sha256.Sum256(data) {
		t.Error("the link changes what it carries")
	}
	return time.Since(began)
}

func TestRoad(t *testing.T) {
	now := time.Unix(1000, 0)
	ms := func(n int) time.Time { return now.Add(time.Duration(n) * time.Millisecond) }
	for _, tt := range []struct {
		name   string
		link   Link
		frames [][2]int // ms of arrival, bytes
		want   []int    // ms
	}{
		{"perfect", Link{}, [][2]int{{0, 1000}, {1, 1000}}, []int{0, 1}},
		{"delay", Link{Delay: 50 * time.Millisecond}, [][2]int{{0, 1000}, {7, 1000}}, []int{50, 57}},
		{"rate", Link{Rate: 1000}, [][2]int{{0, 10}, {0, 10}, {5, 10}, {100, 1}}, []int{10, 20, 30, 101}},
		{"rate and delay", Link{Rate: 1000, Delay: 5 * time.Millisecond}, [][2]int{{0, 10}, {0, 10}}, []int{15, 25}},
	} {
		r := road{link: tt.link}
		var got []int
		for _, f := range tt.frames {
			due, arrives := r.take(ms(f[0]), f[1])
			if !arrives {
				t.Errorf("%s: a frame vanished", tt.name)
			}
			got = append(got, int(due.Sub(now).Milliseconds()))
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: frames arrive at %v, want %v", tt.name, got, tt.want)
		}
	}
	r := road{link: Link{Jitter: time.Second, Loss: 0.5}}
	var last time.Time
	lost := 0
	for i := range 1000 {
		due, arrives := r.take(ms(i), 1)
		if !arrives {
			lost++
			continue
		}
		if due.Before(last) {
			t.Fatal("frames overtake each other")
		}
		last = due
	}
	if lost == 0 || lost == 1000 {
		t.Errorf("of 1000 frames %d are lost", lost)
	}
}

func TestQueueIsBounded(t *testing.T) {
	q := &queue{wake: make(chan struct{}, 1)}
	for range 3 {
		q.push(frame{data: make([]byte, queueBytes/2)})
	}
	if q.size > queueBytes {
		t.Errorf("%d bytes wait", q.size)
	}
	q.close()
	if _, open := q.pop(); open {
		t.Error("a closed queue gives frames")
	}
}

func TestDialFromOutside(t *testing.T) {
	l := newLab(t, "t-dial", Options{})
	a := boot(t, l, "a")[0]
	serve(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if nc, err := l.Dial(ctx, "tcp", a.Addr+":7"); err == nil {
		nc.Close()
		t.Error("a dead context connects")
	}
	if text, err := l.Command(t.Context(), "ip", "-o", "addr", "show", "br0").Output(); err != nil || !strings.Contains(string(text), Outside+"/16") {
		t.Errorf("outside is %s, %v", text, err)
	}
}
