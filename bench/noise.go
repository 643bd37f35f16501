package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// noise watches what else happens on the machine during the run.
type noise struct {
	began  time.Time
	before map[string]float64
	work   sample
}

func startNoise() *noise {
	n := &noise{began: time.Now(), before: processorTime()}
	n.spin()
	return n
}

// spin does the same work many times; on a quiet machine it always takes as long.
func (n *noise) spin() {
	const times, steps = 100, 1 << 20
	x := uint64(1)
	for range times {
		began := time.Now()
		for range steps {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		n.work = append(n.work, time.Since(began).Nanoseconds())
	}
	if x == 0 {
		panic("xorshift never gives 0")
	}
}

func (n *noise) report(r *report) {
	n.spin()
	after := processorTime()
	t := newTable("The machine's noise", "")
	t.add("seconds of this run", time.Since(n.began).Seconds())
	t.add("the same work again and again, before and after: p99 ÷ p50", ratio(n.work.at(99), n.work.at(50)))
	total := 0.0
	for name, v := range after {
		total += v - n.before[name]
	}
	for _, name := range []string{"idle", "steal"} {
		t.add("% of the processors' time: "+name, 100*ratio(after[name]-n.before[name], total))
	}
	t.add("load of the last minute", loadAverage())
	r.print(t)
}

// processorTime is the first line of /proc/stat (proc_stat(5)).
func processorTime() map[string]float64 {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	times := make(map[string]float64)
	for i, name := range []string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"} {
		if i+1 < len(fields) {
			times[name], _ = strconv.ParseFloat(fields[i+1], 64)
		}
	}
	return times
}

func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return unknown
	}
	return v
}
