package ctl

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"example.org/ctrl/internal/client"
)

// convert makes the properties that one assignment stands for.
type convert func(name, value string) ([]client.Property, error)

// assignment makes the properties that NAME=VALUE stands for, with the types that systemd
// wants: D-Bus carries values, and only the caller knows what "50%" is.
func assignment(text string) ([]client.Property, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return nil, usage("%q is no NAME=VALUE", text)
	}
	conv := converterOf(name)
	if conv == nil {
		err := &usageError{text: fmt.Sprintf("property %s is not known", name)}
		if near := closest(name, propertyNames()); near != "" {
			err.hint = fmt.Sprintf("did you mean %s=?", near)
		}
		return nil, err
	}
	props, err := conv(name, value)
	if err != nil {
		return nil, usage("%s=: %v", name, err)
	}
	return props, nil
}

// assignments makes the properties of all assignments, in their order.
func assignments(texts []string) ([]client.Property, error) {
	var out []client.Property
	for _, text := range texts {
		props, err := assignment(text)
		if err != nil {
			return nil, err
		}
		out = append(out, props...)
	}
	return out, nil
}

func one(name string, value any) []client.Property {
	return []client.Property{{Name: name, Value: value}}
}

func asText(name, value string) ([]client.Property, error) { return one(name, value), nil }

func asBool(name, value string) ([]client.Property, error) {
	b, err := parseBool(value)
	return one(name, b), err
}

func asWords(name, value string) ([]client.Property, error) {
	words, err := splitWords(value)
	return one(name, words), err
}

func asUint64(name, value string) ([]client.Property, error) {
	n, err := strconv.ParseUint(value, 0, 64)
	return one(name, n), numberError(value, err)
}

func asUint32(name, value string) ([]client.Property, error) {
	n, err := strconv.ParseUint(value, 0, 32)
	return one(name, uint32(n)), numberError(value, err)
}

func asInt32(name, value string) ([]client.Property, error) {
	n, err := strconv.ParseInt(value, 0, 32)
	return one(name, int32(n)), numberError(value, err)
}

func asMode(name, value string) ([]client.Property, error) {
	n, err := strconv.ParseUint(value, 8, 32)
	if err != nil || n > 0o7777 {
		return nil, fmt.Errorf("%q is no octal mode up to 7777", value)
	}
	return one(name, uint32(n)), nil
}

func asSignal(name, value string) ([]client.Property, error) {
	n, err := parseSignal(value)
	return one(name, n), err
}

func numberError(value string, err error) error {
	if err != nil {
		return fmt.Errorf("%q is no number that fits", value)
	}
	return nil
}

// asSpan makes NameUSec of NameSec.
func asSpan(name, value string) ([]client.Property, error) {
	us, err := parseSpan(value, second)
	return one(strings.TrimSuffix(name, "Sec")+"USec", us), err
}

func asNanoSpan(name, value string) ([]client.Property, error) {
	us, err := parseSpan(value, 1e-3)
	if err == nil && us > math.MaxUint64/1000 {
		return nil, fmt.Errorf("time span %q is too long", value)
	}
	return one(name, us*1000), err
}

// asBothTimeouts sets the time limits of start and stop.
func asBothTimeouts(_, value string) ([]client.Property, error) {
	us, err := parseSpan(value, second)
	return []client.Property{{Name: "TimeoutStartUSec", Value: us}, {Name: "TimeoutStopUSec", Value: us}}, err
}

// parseSize reads bytes with a suffix of base 1024, or 1000 where it is for devices.
func parseSize(s string, base float64) (uint64, error) {
	number, power := s, 0
	if s != "" {
		if i := strings.IndexByte("BKMGTPE", s[len(s)-1]); i >= 0 {
			number, power = s[:len(s)-1], i
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, fmt.Errorf("%q is no size; write it like 512M or 1.5G", s)
	}
	if f *= math.Pow(base, float64(power)); f >= math.MaxUint64 {
		return 0, fmt.Errorf("size %q is too large", s)
	}
	return uint64(f), nil
}

// parsePermyriad reads a percentage in hundredths of a percent.
func parsePermyriad(s string) (uint64, bool) {
	number, ok := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || f < 0 || f > 1e12 {
		return 0, false
	}
	return uint64(math.Round(f * 100)), true
}

// asLimit is a limit in bytes: infinity, a size, or a share of the whole.
func asLimit(name, value string) ([]client.Property, error) {
	if value == "infinity" || value == "" && !strings.HasSuffix(name, "Low") && !strings.HasSuffix(name, "Min") {
		return one(name, uint64(math.MaxUint64)), nil
	}
	if value == "" {
		return one(name, uint64(0)), nil
	}
	if p, ok := parsePermyriad(value); ok {
		return scaled(name, value, p)
	}
	n, err := parseSize(value, 1024)
	return one(name, n), err
}

func scaled(name, value string, permyriad uint64) ([]client.Property, error) {
	if permyriad > 10000 {
		return nil, fmt.Errorf("%q is more than 100%%", value)
	}
	return one(name+"Scale", uint32((permyriad*math.MaxUint32+5000)/10000)), nil
}

func asTasks(name, value string) ([]client.Property, error) {
	if value == "infinity" || value == "" {
		return one(name, uint64(math.MaxUint64)), nil
	}
	if p, ok := parsePermyriad(value); ok {
		return scaled(name, value, p)
	}
	return asUint64(name, value)
}

func asWeight(name, value string) ([]client.Property, error) {
	switch {
	case value == "":
		return one(name, uint64(math.MaxUint64)), nil
	case value == "idle" && strings.HasSuffix(name, "CPUWeight"):
		return one(name, uint64(0)), nil
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n < 1 || n > 10000 {
		return nil, fmt.Errorf("%q is no weight from 1 to 10000", value)
	}
	return one(name, n), nil
}

func asQuota(_, value string) ([]client.Property, error) {
	if value == "" || value == "infinity" {
		return one("CPUQuotaPerSecUSec", uint64(math.MaxUint64)), nil
	}
	p, ok := parsePermyriad(value)
	if !ok || p == 0 {
		return nil, fmt.Errorf("%q is no percentage above 0; write it like 50%% or 200%%", value)
	}
	return one("CPUQuotaPerSecUSec", p*100), nil
}

// asRlimit sets both halves of a resource limit: "N", "SOFT:HARD" or infinity.
func asRlimit(name, value string) ([]client.Property, error) {
	soft, hard, both := strings.Cut(value, ":")
	if !both {
		hard = soft
	}
	s, err := rlimit(name, soft)
	if err != nil {
		return nil, err
	}
	h, err := rlimit(name, hard)
	if err != nil {
		return nil, err
	}
	if s > h {
		return nil, fmt.Errorf("soft limit %s is above hard limit %s", soft, hard)
	}
	return []client.Property{{Name: name, Value: h}, {Name: name + "Soft", Value: s}}, nil
}

func rlimit(name, value string) (uint64, error) {
	switch {
	case value == "infinity":
		return math.MaxUint64, nil
	case name == "LimitCPU":
		us, err := parseSpan(value, second)
		return (us + 999_999) / 1_000_000, err
	case name == "LimitRTTIME":
		return parseSpan(value, 1)
	case name == "LimitNICE":
		if nice, err := strconv.Atoi(value); err == nil && (value[0] == '+' || value[0] == '-') && nice >= -20 && nice <= 19 {
			return uint64(20 - nice), nil
		}
	case strings.Contains("LimitFSIZE LimitDATA LimitSTACK LimitCORE LimitRSS LimitAS LimitMEMLOCK LimitMSGQUEUE", name):
		return parseSize(value, 1024)
	}
	n, err := strconv.ParseUint(value, 10, 64)
	return n, numberError(value, err)
}

// asStream is where a standard stream leads: a word, or a file, or a descriptor's name.
func asStream(name, value string) ([]client.Property, error) {
	for prefix, suffix := range map[string]string{"fd:": "FileDescriptorName", "file:": "File", "append:": "FileToAppend", "truncate:": "FileToTruncate"} {
		if rest, ok := strings.CutPrefix(value, prefix); ok {
			return one(name+suffix, rest), nil
		}
	}
	return one(name, value), nil
}

// asWord is a word out of a list that stands for its index.
func asWord(words ...string) convert {
	return func(name, value string) ([]client.Property, error) {
		if i := indexOf(words, value); i >= 0 {
			return one(name, int32(i)), nil
		}
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not known; use %s", value, strings.Join(words, ", "))
		}
		return one(name, int32(n)), nil
	}
}

func asDelegate(_, value string) ([]client.Property, error) {
	if b, err := parseBool(value); err == nil {
		return one("Delegate", b), nil
	}
	words, err := splitWords(value)
	return one("DelegateControllers", words), err
}

// splitWords takes a text apart as systemd does (extract_first_word with quotes): blanks
// separate, quotes and backslashes keep.
func splitWords(s string) ([]string, error) {
	words := []string{}
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && quote != '\'':
			if i++; i == len(s) {
				return nil, fmt.Errorf("%q ends with a backslash", s)
			}
			word.WriteByte(unescaped(s[i]))
			inWord = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && strings.IndexByte(" \t\n\r", c) >= 0:
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%q has a quote without its end", s)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

func unescaped(c byte) byte {
	if i := strings.IndexByte("abfnrtv", c); i >= 0 {
		return "\a\b\f\n\r\t\v"[i]
	}
	if c == 's' {
		return ' '
	}
	return c
}
