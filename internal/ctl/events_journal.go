package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Words of the column EVENT.
const (
	eventActed   = "act"
	eventRefused = "refused"
	eventEnded   = "job-ended"
	eventMore    = "more"
)

var actionWords = map[string]string{
	wire.MessageActed: eventActed, wire.MessageRefused: eventRefused, wire.MessageJobEnded: eventEnded, wire.MessageSummarised: eventMore,
}

// journalQuery are journalctl's arguments. Entries are those that journald says our daemons
// wrote: what else they say anybody could write.
func (a *app) journalQuery(f eventsFlags, nodes []string) ([]string, error) {
	query, units := []string{"--no-pager", "--output=json"}, "_SYSTEMD_UNIT="
	if a.opt.user {
		query, units = append(query, "--user"), "_SYSTEMD_USER_UNIT="
	}
	for _, limit := range []struct{ option, value string }{{"--since=", f.since}, {"--until=", f.until}} {
		if limit.value != "" {
			query = append(query, limit.option+a.journalTime(limit.value))
		}
	}
	if f.follow {
		query = append(query, "--follow")
	}
	switch {
	case f.lines < -1:
		return nil, usage("--lines=%d: it is a number of lines", f.lines)
	case f.lines >= 0 && slices.ContainsFunc(nodes, unit.HasGlob):
		return nil, usage("--lines counts what the journal has; it goes with names of nodes, not with globs")
	case f.lines >= 0:
		query = append(query, "--lines="+strconv.Itoa(f.lines))
	}
	query = append(query, units+wire.ManagerUnit, units+wire.AgentUnit)
	for _, id := range []string{wire.MessageActed, wire.MessageRefused, wire.MessageJobEnded, wire.MessageSummarised} {
		query = append(query, "MESSAGE_ID="+id)
	}
	if !slices.ContainsFunc(nodes, unit.HasGlob) {
		for _, n := range nodes {
			query = append(query, "CTRL_NODE="+n)
		}
	}
	return query, nil
}

// journalTime makes of a time span a time so long ago; everything else is journalctl's own.
func (a *app) journalTime(s string) string {
	if us, err := parseSpan(s, second); err == nil && us < math.MaxInt64/1000 {
		ago := a.now().Add(-time.Duration(us) * time.Microsecond)
		return fmt.Sprintf("@%d.%06d", ago.Unix(), ago.Nanosecond()/1000)
	}
	return s
}

// readJournal gives the entries that journalctl prints, one after the other.
func (a *app) readJournal(query []string, take func(journalEntry) error) error {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	complaints := &denials{deny: cancel}
	cmd := exec.CommandContext(ctx, a.journalctl, query...)
	cmd.Stderr = complaints
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0")
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	read := eachEntry(out, take)
	if read != nil {
		cancel()
	}
	ended := cmd.Wait()
	switch {
	case complaints.denied:
		return errJournalDenied
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case read != nil:
		return read
	case ended != nil && len(complaints.text) > 0:
		return errors.New(strings.TrimSpace(string(complaints.text)))
	}
	return ended
}

func eachEntry(r io.Reader, take func(journalEntry) error) error {
	for d := json.NewDecoder(r); ; {
		var raw map[string]json.RawMessage
		if err := d.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil // a journalctl that ended early says why by its exit code
			}
			return fmt.Errorf("journalctl printed what is no JSON: %w", err)
		}
		e := make(journalEntry, len(raw))
		for name, value := range raw {
			e[name] = journalText(value)
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

// journalEntry are the fields of an entry, of one that stands twice the first.
type journalEntry map[string]string

// journalText reads a value as journalctl(1) writes them: a string, numbers where it is no
// text, a list where the field stands more than once, null where it is too long.
func journalText(raw json.RawMessage) string {
	var (
		text  string
		bytes []byte
		many  []json.RawMessage
	)
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &many) != nil || len(many) == 0:
		return ""
	}
	for _, one := range many {
		var n uint8
		if json.Unmarshal(one, &n) != nil {
			return journalText(many[0])
		}
		bytes = append(bytes, n)
	}
	return string(bytes)
}

// action reads an entry of ours. What is not as we write it is left empty.
func (e journalEntry) action() actionRow {
	us, _ := strconv.ParseInt(e["__REALTIME_TIMESTAMP"], 10, 64)
	job, _ := strconv.ParseUint(e["CTRL_JOB"], 10, 32)
	source := "agent"
	if e["_SYSTEMD_UNIT"] == wire.ManagerUnit || e["_SYSTEMD_USER_UNIT"] == wire.ManagerUnit {
		source = "manager"
	}
	return actionRow{
		Time: time.UnixMicro(us), Node: e["CTRL_NODE"], Unit: e["CTRL_UNIT"], Verb: e["CTRL_VERB"], Job: uint32(job),
		Event: actionWords[e["MESSAGE_ID"]], Result: e["CTRL_RESULT"], CallerUID: e["CTRL_CALLER_UID"], Caller: e["CTRL_CALLER"],
		Reason: e["CTRL_REASON"], Source: source,
	}
}

// errJournalDenied is the end of a user who may see its own entries only.
var errJournalDenied = wire.ErrAccessDenied.With("this user may not read the system's journal")

// denials takes what journalctl says on standard error. With too few rights it says so and
// then goes on with the user's own entries, which are none of ours.
type denials struct {
	text   []byte
	denied bool
	deny   func()
}

const maxComplaint = 4 << 10

func (d *denials) Write(p []byte) (int, error) {
	d.text = append(d.text, p[:min(len(p), maxComplaint-len(d.text))]...)
	for _, words := range []string{"insufficient permissions", "not seeing messages from other users"} {
		if !d.denied && bytes.Contains(d.text, []byte(words)) {
			d.denied = true
			d.deny()
		}
	}
	return len(p), nil
}
