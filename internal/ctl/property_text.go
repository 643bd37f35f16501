package ctl

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
)

// propertyText writes a property's value as systemctl show does (print_property in its
// systemctl-show.c, bus_print_property in bus-print-properties.c). Some properties take a
// line per element; one that is empty has no line.
func propertyText(name string, v client.Value) []string {
	switch data := v.Data.(type) {
	case string:
		return some(data)
	case bool:
		return []string{yesNo(data)}
	case uint64:
		return some(bigText(name, data))
	case uint32:
		return []string{smallText(name, data)}
	case int32:
		return some(signedText(name, data))
	case uint16:
		if data == math.MaxUint16 { // TTYRows and the like: not set
			return nil
		}
	case []string:
		return some(wordsText(data))
	case []byte:
		return some(bytesOf(name, data))
	case []any:
		return structText(name, data)
	case [][]any:
		return rowsText(name, data)
	}
	return some(genericText(v.Data))
}

func some(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// bigText writes a 64 bit number, which may be a time, a limit or a set of bits.
func bigText(name string, n uint64) string {
	switch {
	case strings.HasSuffix(name, "Timestamp"), slices.Contains([]string{"NextElapseUSecRealtime", "LastTriggerUSec", "TimeUSec", "RTCTimeUSec"}, name):
		if t := client.Moment(n); !t.IsZero() {
			return render.Stamp(t)
		}
		return ""
	case strings.Contains(name, "USec"):
		return render.Span(n, 0)
	case name == "CoredumpFilter":
		return fmt.Sprintf("%#x", n)
	case name == "MountFlags":
		return map[uint64]string{1 << 20: "shared", 1 << 19: "slave", 1 << 18: "private"}[n]
	case name == "CapabilityBoundingSet", name == "AmbientCapabilities":
		return capabilityText(n)
	case name == "RestrictNamespaces":
		return namespaceText(n)
	case n != math.MaxUint64:
		return fmt.Sprint(n)
	case strings.HasPrefix(name, "Limit"), strings.HasPrefix(name, "Memory") && name != "MemoryCurrent", strings.HasPrefix(name, "DefaultMemory"), name == "TasksMax":
		return "infinity"
	case strings.HasPrefix(name, "IP"):
		return "[no data]"
	case strings.HasSuffix(name, "NSec"), strings.HasSuffix(name, "Current"), strings.HasSuffix(name, "Weight"), strings.HasSuffix(name, "Shares"), strings.HasSuffix(name, "Peak"):
		return "[not set]"
	}
	return fmt.Sprint(n)
}

func signedText(name string, n int32) string {
	switch {
	case strings.HasSuffix(name, "ActionExitStatus") && n < 0:
		return ""
	case name == "NUMAPolicy":
		if words := []string{"default", "preferred", "bind", "interleave", "local"}; n >= 0 && int(n) < len(words) {
			return words[n]
		}
		return "n/a"
	}
	return fmt.Sprint(n)
}

func smallText(name string, n uint32) string {
	switch {
	case strings.Contains(name, "UMask"), strings.Contains(name, "Mode"):
		return fmt.Sprintf("%04o", n)
	case (name == "UID" || name == "GID") && n == math.MaxUint32:
		return "[not set]"
	}
	return fmt.Sprint(n)
}

// wordsText joins words with blanks and quotes those that a shell would split.
func wordsText(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = shellQuote(w)
	}
	return strings.Join(out, " ")
}

func shellQuote(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n\"'\\`$*?[]();&<>|!~{}#") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`).Replace(s) + `"`
}

func bytesOf(name string, data []byte) string {
	switch {
	case strings.HasSuffix(name, "InputData"):
		return base64.StdEncoding.EncodeToString(data)
	case strings.Contains(name, "CPU"), strings.Contains(name, "MemoryNodes"), name == "NUMAMask":
		return cpuSetText(data)
	}
	return fmt.Sprintf("%x", data)
}

// cpuSetText writes a set of bits as ranges: "0-3 5".
func cpuSetText(bits []byte) string {
	var parts []string
	has := func(i int) bool { return i < 8*len(bits) && bits[i/8]>>(i%8)&1 == 1 }
	for i := 0; i < 8*len(bits); i++ {
		if !has(i) {
			continue
		}
		first := i
		for has(i + 1) {
			i++
		}
		if first == i {
			parts = append(parts, fmt.Sprint(first))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", first, i))
		}
	}
	return strings.Join(parts, " ")
}

func structText(name string, row []any) []string {
	if len(row) != 2 {
		return some(genericText(row))
	}
	switch first := row[0].(type) {
	case []int32: // (aiai), exit statuses and signals
		second, _ := row[1].([]int32)
		return some(strings.Trim(fmt.Sprint(append(slices.Clone(first), second...)), "[]"))
	case uint32: // (uo), a job
		if first == 0 {
			return nil
		}
		return []string{fmt.Sprint(first)}
	case bool:
		switch second := row[1].(type) {
		case []string: // (bas), a list of what is allowed, or not
			if !first && len(second) > 0 {
				return []string{"~" + strings.Join(second, " ")}
			}
			if first {
				return []string{strings.Join(second, " ")} // empty allows nothing
			}
			return nil
		case string: // (bs), a label that may be missing
			if first && second != "" {
				return []string{"-" + second}
			}
			return some(second)
		}
	case string:
		second, _ := row[1].(string)
		switch {
		case name == "LoadError" && first != "":
			return []string{fmt.Sprintf("%s %q", first, second)}
		case name == "LoadError":
			return nil
		}
		return some(first)
	}
	return some(genericText(row))
}

// rowsText writes an array of structs, a line each; addresses share one.
func rowsText(name string, rows [][]any) []string {
	var lines []string
	for _, row := range rows {
		lines = append(lines, rowText(name, row))
	}
	if strings.HasPrefix(name, "IPAddress") {
		return some(strings.Join(lines, " "))
	}
	return lines
}

func rowText(name string, row []any) string {
	switch {
	case strings.HasPrefix(name, "Exec") && len(row) == 10:
		return execText(row)
	case name == "Conditions" || name == "Asserts":
		return conditionText(row)
	case name == "EnvironmentFiles" && len(row) == 2:
		ignore, _ := row[1].(bool)
		return fmt.Sprintf("%v (ignore_errors=%s)", row[0], yesNo(ignore))
	case (name == "Listen" || name == "Paths") && len(row) == 2:
		return fmt.Sprintf("%v (%v)", row[1], row[0])
	case strings.HasPrefix(name, "Timers") && len(row) == 3:
		return timerText(row)
	case strings.HasPrefix(name, "IPAddress") && len(row) == 3:
		return prefixText(row)
	case strings.HasSuffix(name, "USec") && len(row) == 2:
		n, _ := row[1].(uint64)
		return fmt.Sprintf("%v %s", row[0], render.Span(n, 0))
	}
	words := make([]string, len(row))
	for i, field := range row {
		words[i] = genericText(field)
	}
	return strings.Join(words, " ")
}

// execText writes a command with how it last went: "(sasbttttuii)", or with flags "(sasasttttuii)".
func execText(row []any) string {
	argv, _ := row[1].([]string)
	how := ""
	switch v := row[2].(type) {
	case bool:
		how = "ignore_errors=" + yesNo(v)
	case []string:
		how = "flags=" + strings.Join(v, " ")
	}
	began, _ := row[3].(uint64)
	ended, _ := row[5].(uint64)
	code, _ := row[8].(int32)
	status, _ := row[9].(int32)
	word, end := "(null)", fmt.Sprintf("%d/%d", status, status)
	switch code {
	case cldExited:
		word, end = "exited", fmt.Sprint(status)
	case cldKilled, cldDumped:
		word = map[int32]string{cldKilled: "killed", cldDumped: "dumped"}[code]
		end = fmt.Sprintf("%d/%s", status, strings.TrimPrefix(signalName(status), "SIG"))
	}
	return fmt.Sprintf("{ path=%v ; argv[]=%s ; %s ; start_time=[%s] ; stop_time=[%s] ; pid=%v ; code=%s ; status=%s }",
		row[0], strings.Join(argv, " "), how, render.Stamp(client.Moment(began)), render.Stamp(client.Moment(ended)), row[7], word, end)
}

// conditionText writes what systemctl calls unprintable: a condition and whether it was met.
func conditionText(row []any) string {
	if len(row) != 5 {
		return genericText(row)
	}
	text := fmt.Sprint(row[0], "=")
	if trigger, _ := row[1].(bool); trigger {
		text += "|"
	}
	if negate, _ := row[2].(bool); negate {
		text += "!"
	}
	text += fmt.Sprint(row[3])
	switch state, _ := row[4].(int32); {
	case state < 0:
		return text + " (failed)"
	case state > 0:
		return text + " (met)"
	}
	return text + " (not tested)"
}

// timerText writes a timer: "(stt)" where it counts from something, "(sst)" with a calendar.
func timerText(row []any) string {
	next, _ := row[2].(uint64)
	what, when := fmt.Sprint(row[1]), render.Stamp(client.Moment(next))
	if base, ok := row[1].(uint64); ok {
		what, when = render.Span(base, 0), render.Span(next, 0)
	}
	return fmt.Sprintf("{ %v=%s ; next_elapse=%s }", row[0], what, when)
}

// prefixText writes an address with its prefix: "(iayu)".
func prefixText(row []any) string {
	raw, _ := row[1].([]byte)
	address, ok := netip.AddrFromSlice(raw)
	if !ok {
		return genericText(row)
	}
	return fmt.Sprintf("%s/%v", address, row[2])
}

// genericText writes a value that nothing special is known about.
func genericText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		return yesNo(v)
	case string:
		return v
	case []string:
		return wordsText(v)
	case []byte:
		return fmt.Sprintf("%x", v)
	case client.Value:
		return genericText(v.Data)
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = genericText(v[i])
		}
		return strings.Join(words, " ")
	}
	return strings.Trim(fmt.Sprint(v), "[]")
}
