package wire

import (
	"strings"
)

// LogMethod is one method of the internal Agent interface that reads the node's journal.
type LogMethod struct {
	Name    string
	In, Out Signature
}

// Members of the internal Agent interface for the journal. A node whose agent has them says
// FeatureLogs among its features in Register.
const (
	MemberReadLog  = "ReadLog"
	MemberCloseLog = "CloseLog"
)

// FeatureLogs is the word in FactFeatures of an agent that reads its journal for a manager.
const FeatureLogs = "logs"

// LogMethods are the calls for the journal.
//
// ReadLog (s reader, s query, s position, t wait, u bytes → a(tsa{sv}) entries, s position,
// b idle, b end) gives what comes after a position, which is "" at the beginning and then that
// of the last answer. The query is the JSON of a LogQuery. It waits for the first entry, for
// at most wait microseconds, and gives no more than so many bytes. idle says that there is no
// more for the moment, end that nothing more will come. All that the node keeps between two
// calls it can make anew from their arguments. An entry is its time in microseconds, its
// cursor and its fields.
//
// CloseLog (s reader) says that it is read no more.
var LogMethods = []LogMethod{
	{MemberReadLog, "ssstu", "a(tsa{sv})sbb"},
	{MemberCloseLog, "s", ""},
}

// LogMethodByName finds a method for the journal.
func LogMethodByName(name string) (*LogMethod, bool) {
	for i := range LogMethods {
		if LogMethods[i].Name == name {
			return &LogMethods[i], true
		}
	}
	return nil, false
}

// LogEntry is one entry of a journal on its way, "(tsa{sv})". Fields have the names of
// systemd.journal-fields(7); their values are s, or ay where they are no text, or lists of
// these where a field stands more than once.
type LogEntry struct {
	Time   uint64 // microseconds since 1970, when journald got it
	Cursor string
	Fields map[string]Value
}

// Fields that entries have beside those of the journal. Names of the journal's have no lower
// case letters.
const (
	LogFieldNode   = "Node"   // s: whose journal it is from
	LogFieldTime   = "Time"   // t: microseconds since 1970
	LogFieldCursor = "Cursor" // s
	LogFieldCut    = "Cut"    // as: fields that were too large and end early
	LogFieldNote   = "Note"   // s: it is no entry, but news of the node that readers should know
	LogFieldError  = "Error"  // s: beside Note: the D-Bus name of an error because of which no more comes from this node, for now or at all
)

// Options of Logs.Open; each may be left out.
const (
	LogOptionFollow     = "Follow"     // b: go on with what comes
	LogOptionLines      = "Lines"      // u: only so many of the latest entries of each node
	LogOptionSince      = "Since"      // t: microseconds since 1970
	LogOptionUntil      = "Until"      // t
	LogOptionPriority   = "Priority"   // s: as for journalctl --priority=
	LogOptionGrep       = "Grep"       // s: a regular expression for MESSAGE=
	LogOptionBoot       = "Boot"       // s: as for journalctl --boot=; "0" is the present one
	LogOptionInvocation = "Invocation" // s: the id of one start of a unit
	LogOptionAllFields  = "AllFields"  // b: all fields, not only those that people read
)

// LogQuery is what a reader wants of a journal.
type LogQuery struct {
	Units      []string `json:"units,omitempty"` // names and globs; none is everything
	Follow     bool     `json:"follow,omitempty"`
	Limited    bool     `json:"limited,omitempty"` // Lines counts
	Lines      uint32   `json:"lines,omitempty"`
	Since      uint64   `json:"since,omitempty"`
	Until      uint64   `json:"until,omitempty"`
	Priority   string   `json:"priority,omitempty"`
	Grep       string   `json:"grep,omitempty"`
	Boot       string   `json:"boot,omitempty"`
	Invocation string   `json:"invocation,omitempty"`
	AllFields  bool     `json:"all,omitempty"`
}

// Bounds of a LogQuery.
const (
	MaxLogUnits = 128
	maxLogWord  = 1024
	maxLogTime  = 1 << 53 // the year 2255; journalctl refuses what its clock cannot show
)

// Check refuses what cannot be asked of a journal, with an error of kind ErrInvalidArgs. It
// leaves unit names to their own package.
func (q *LogQuery) Check() error {
	switch {
	case len(q.Units) > MaxLogUnits:
		return ErrInvalidArgs.With("%d units were given, at most %d are allowed; use a glob", len(q.Units), MaxLogUnits)
	case len(q.Grep) > maxLogWord || strings.ContainsRune(q.Grep, 0):
		return ErrInvalidArgs.With("the expression to search for is longer than %d bytes or holds a NUL", maxLogWord)
	case q.Since > maxLogTime || q.Until > maxLogTime:
		return ErrInvalidArgs.With("Since and Until are microseconds since 1970, and this is too many")
	case q.Since > 0 && q.Until > 0 && q.Since > q.Until:
		return ErrInvalidArgs.With("Since is later than Until")
	case q.Priority != "" && !validPriority(q.Priority):
		return ErrInvalidArgs.With("priority %.40q is not known; use emerg, alert, crit, err, warning, notice, info, debug, 0 to 7, or a range such as err..info", q.Priority)
	case q.Boot != "" && !validBoot(q.Boot):
		return ErrInvalidArgs.With("boot %.60q is neither an id of 32 hexadecimal digits nor a number such as 0 or -1", q.Boot)
	case q.Invocation != "" && !isHexID(q.Invocation):
		return ErrInvalidArgs.With("invocation %.60q is no id of 32 hexadecimal digits", q.Invocation)
	}
	return nil
}

var priorities = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "0", "1", "2", "3", "4", "5", "6", "7"}

func validPriority(s string) bool {
	from, to, isRange := strings.Cut(s, "..")
	known := func(word string) bool {
		for _, p := range priorities {
			if p == word {
				return true
			}
		}
		return false
	}
	return known(from) && (!isRange || known(to))
}

func validBoot(s string) bool {
	if isHexID(s) {
		return true
	}
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || len(digits) > 6 {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

// isHexID reports whether s is an id as systemd writes 128 bits.
func isHexID(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}
