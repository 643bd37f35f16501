package journal

import (
	"fmt"
	"strconv"
	"strings"

	"example.org/ctrl/internal/wire"
)

// shortFields are the fields that people are shown, and those that tell what journald has left
// out.
var shortFields = []string{
	"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "_COMM", "_PID", "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT", "UNIT", "USER_UNIT",
	"OBJECT_SYSTEMD_UNIT", "MESSAGE_ID", "N_DROPPED",
}

// where is a place in a journal to go on from.
type where struct {
	cursor string // of the last entry that was read
	since  uint64 // microseconds since 1970, where none was read yet; 0 is the query's own
}

// positionMark begins the position of a reader that has seen the journal's end and no entry.
const positionMark = "@"

func (w where) String() string {
	if w.cursor == "" && w.since > 0 {
		return positionMark + strconv.FormatUint(w.since, 10)
	}
	return w.cursor
}

// parseWhere reads a position; what is none of ours is refused.
func parseWhere(s string) (where, error) {
	if digits, ok := strings.CutPrefix(s, positionMark); ok {
		since, err := strconv.ParseUint(digits, 10, 63)
		if err != nil {
			return where{}, wire.ErrInvalidArgs.With("%.80q is no position in a journal", s)
		}
		return where{since: since}, nil
	}
	if len(s) > maxCursor || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return where{}, wire.ErrInvalidArgs.With("%.80q is no position in a journal", s)
	}
	return where{cursor: s}, nil
}

// maxCursor is longer than any cursor (some 140 bytes), which are opaque.
const maxCursor = 512

// arguments are journalctl's. Each option and its value are one word, so that no value can be
// taken for an option.
func arguments(q *wire.LogQuery, user bool, from where, follow bool) []string {
	args := []string{"--no-pager", "--quiet", "--output=export"}
	if !q.AllFields {
		args = append(args, "--output-fields="+strings.Join(shortFields, ","))
	}
	switch {
	case from.cursor != "":
		args = append(args, "--cursor="+from.cursor)
	case from.since > 0:
		args = append(args, "--since="+moment(from.since))
	case q.Since > 0:
		args = append(args, "--since="+moment(q.Since))
	}
	if follow {
		args = append(args, "--follow", "--no-tail")
	} else if q.Limited && from == (where{}) {
		args = append(args, "--lines="+strconv.FormatUint(uint64(q.Lines), 10))
	}
	return append(args, filters(q, user)...)
}

// filters are the arguments that choose entries.
func filters(q *wire.LogQuery, user bool) []string {
	var args []string
	option, own, manager := "--unit=", "_SYSTEMD_INVOCATION_ID=", "INVOCATION_ID="
	if user {
		args, option, manager = append(args, "--user"), "--user-unit=", "USER_INVOCATION_ID="
	} else {
		args = append(args, "--system")
	}
	for _, u := range q.Units {
		args = append(args, option+u)
	}
	for _, o := range []struct{ option, value string }{{"--priority=", q.Priority}, {"--grep=", q.Grep}, {"--boot=", q.Boot}} {
		if o.value != "" {
			args = append(args, o.option+o.value)
		}
	}
	if q.Until > 0 {
		args = append(args, "--until="+moment(q.Until))
	}
	if q.Invocation != "" {
		// What it wrote, or what the service manager wrote about it.
		args = append(args, own+q.Invocation, "+", manager+q.Invocation)
	}
	return args
}

// moment words a time for journalctl (systemd.time(7)).
func moment(us uint64) string { return fmt.Sprintf("@%d.%06d", us/1e6, us%1e6) }
