package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeEnv makes of this test binary a journalctl whose journal is the file that it names: each
// line "CURSOR TIME MESSAGE".
const fakeEnv = "CTRL_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if file := os.Getenv(fakeEnv); file != "" {
		os.Exit(fakeJournalctl(file, os.Args[1:]))
	}
	os.Exit(m.Run())
}

type fakeEntry struct{ cursor, time, message string }

func fakeEntries(file string) []fakeEntry {
	text, _ := os.ReadFile(file)
	var all []fakeEntry
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(parts) == 3 && strings.HasSuffix(line, "\n") {
			all = append(all, fakeEntry{parts[0], parts[1], parts[2]})
		}
	}
	return all
}

func option(args []string, name string) (string, bool) {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, name); ok {
			return v, true
		}
	}
	return "", false
}

// after cuts off what comes before the place that the arguments name, as journalctl does: an
// entry that is not there any more stands for what came after it.
func after(all []fakeEntry, args []string) []fakeEntry {
	if cursor, ok := option(args, "--cursor="); ok {
		return slices.DeleteFunc(all, func(e fakeEntry) bool { return number(e.cursor) < number(cursor) })
	}
	if since, ok := option(args, "--since=@"); ok {
		return slices.DeleteFunc(all, func(e fakeEntry) bool { return number(e.time) < number(strings.Replace(since, ".", "", 1)) })
	}
	return all
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimLeft(s, "c"), 10, 64)
	return n
}

func fakeJournalctl(file string, args []string) int {
	if p, ok := option(args, "--grep="); ok && p == "(" {
		fmt.Fprintln(os.Stderr, `Bad pattern "(": missing closing parenthesis`)
		return 1
	}
	out := bufio.NewWriter(os.Stdout)
	print := func(e fakeEntry) {
		fmt.Fprintf(out, "__CURSOR=%s\n__REALTIME_TIMESTAMP=%s\n__MONOTONIC_TIMESTAMP=1\nPRIORITY=6\n", e.cursor, e.time)
		if n, ok := strings.CutPrefix(e.message, "binary:"); ok {
			value := bytes.Repeat([]byte{0xff}, int(number(n)))
			out.WriteString("MESSAGE\n")
			_ = binary.Write(out, binary.LittleEndian, uint64(len(value)))
			out.Write(value)
			out.WriteString("\n\n")
		} else {
			fmt.Fprintf(out, "MESSAGE=%s\n\n", e.message)
		}
		if out.Flush() != nil {
			os.Exit(1)
		}
	}
	all := after(fakeEntries(file), args)
	if n, ok := option(args, "--lines="); ok {
		all = all[max(0, len(all)-int(number(n))):]
	}
	if slices.Contains(args, "--reverse") {
		slices.Reverse(all)
	}
	for _, e := range all {
		print(e)
	}
	if !slices.Contains(args, "--follow") {
		return 0
	}
	last := uint64(0)
	if len(all) > 0 {
		last = number(all[len(all)-1].cursor)
	}
	for range time.Tick(2 * time.Millisecond) {
		for _, e := range after(fakeEntries(file), args) {
			if number(e.cursor) > last {
				print(e)
				last = number(e.cursor)
			}
		}
	}
	return 0
}
