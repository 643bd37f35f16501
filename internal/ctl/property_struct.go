package ctl

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"example.org/ctrl/internal/client"
)

// Values of properties that are structs on the wire.
type (
	execValue struct { // (sasb)
		Path   string
		Argv   []string
		Ignore bool
	}
	execExValue struct { // (sasas)
		Path  string
		Argv  []string
		Flags []string
	}
	conditionValue struct { // (sbbs)
		Type            string
		Trigger, Negate bool
		Parameter       string
	}
	pathBool struct { // (sb)
		Path   string
		Ignore bool
	}
	pathText   struct{ Path, Text string } // (ss)
	pathNumber struct {                    // (st)
		Path string
		N    uint64
	}
	allowList struct { // (bas)
		Allow bool
		Words []string
	}
	exitStatusSet struct{ Statuses, Signals []int32 } // (aiai)
	bindPath      struct {                            // (ssbt)
		Source, Target string
		Ignore         bool
		Flags          uint64
	}
	addressPrefix struct { // (iayu)
		Family  int32
		Address []byte
		Length  uint32
	}
)

// asExec is a command line with its prefixes (systemd.service(5), "COMMAND LINES"). An empty
// one takes all away.
func asExec(name, value string) ([]client.Property, error) {
	if value == "" {
		return one(name, []execValue{}), nil
	}
	var ignore, argv0 bool
	var flags []string
	rest := value
prefixes:
	for rest != "" {
		switch rest[0] {
		case '-':
			ignore = true
			flags = append(flags, "ignore-failure")
		case '@':
			argv0 = true
		case ':':
			flags = append(flags, "no-env-expand")
		case '+':
			flags = append(flags, "privileged")
		case '!':
			flags = append(flags, "no-setuid")
		default:
			break prefixes
		}
		rest = rest[1:]
	}
	argv, err := splitWords(rest)
	if err != nil {
		return nil, err
	}
	if len(argv) == 0 || argv0 && len(argv) == 1 {
		return nil, fmt.Errorf("%q has no command", value)
	}
	path := argv[0]
	if argv0 {
		argv = argv[1:]
	}
	if len(flags) == 0 || len(flags) == 1 && ignore {
		return one(name, []execValue{{path, argv, ignore}}), nil
	}
	return one(name+"Ex", []execExValue{{path, argv, flags}}), nil
}

func asCondition(name, value string) ([]client.Property, error) {
	group := "Conditions"
	if strings.HasPrefix(name, "Assert") {
		group = "Asserts"
	}
	if value == "" {
		return one(group, []conditionValue{}), nil
	}
	c := conditionValue{Type: name}
	value, c.Trigger = strings.CutPrefix(value, "|")
	c.Parameter, c.Negate = strings.CutPrefix(value, "!")
	return one(group, []conditionValue{c}), nil
}

// asExitStatuses is a list of numbers, names of exit statuses, and names of signals.
func asExitStatuses(name, value string) ([]client.Property, error) {
	set := exitStatusSet{[]int32{}, []int32{}}
	for word := range strings.FieldsSeq(value) {
		if n, err := strconv.ParseUint(word, 10, 8); err == nil {
			set.Statuses = append(set.Statuses, int32(n))
		} else if n, ok := exitStatusOf(word); ok {
			set.Statuses = append(set.Statuses, n)
		} else if n, err := parseSignal(word); err == nil {
			set.Signals = append(set.Signals, n)
		} else {
			return nil, fmt.Errorf("%q is neither an exit status nor a signal", word)
		}
	}
	return one(name, set), nil
}

func exitStatusOf(word string) (int32, bool) {
	if i := indexOf(lsbNames, word); i >= 0 {
		return int32(i), true
	}
	for n, name := range exitNames {
		if name == word {
			return n, true
		}
	}
	return 0, false
}

// asTemporary is a list of PATH[:OPTIONS].
func asTemporary(name, value string) ([]client.Property, error) {
	words, err := splitWords(value)
	list := []pathText{}
	for _, word := range words {
		path, options, _ := strings.Cut(word, ":")
		list = append(list, pathText{path, options})
	}
	return one(name, list), err
}

// msRec is MS_REC of mount(2): a bind mount with what is mounted below.
const msRec = 16384

// asBindPaths is a list of SOURCE[:TARGET[:rbind|norbind]], each with a "-" before it where a
// source may be missing.
func asBindPaths(name, value string) ([]client.Property, error) {
	words, err := splitWords(value)
	list := []bindPath{}
	for _, word := range words {
		parts := strings.SplitN(word, ":", 3)
		b := bindPath{Flags: msRec}
		b.Source, b.Ignore = strings.CutPrefix(parts[0], "-")
		b.Target = b.Source
		if len(parts) > 1 {
			b.Target = parts[1]
		}
		switch {
		case len(parts) < 3 || parts[2] == "rbind":
		case parts[2] == "norbind":
			b.Flags = 0
		default:
			return nil, fmt.Errorf("option %q is neither rbind nor norbind", parts[2])
		}
		list = append(list, b)
	}
	return one(name, list), err
}

func asEnvironmentFile(_, value string) ([]client.Property, error) {
	if value == "" {
		return one("EnvironmentFiles", []pathBool{}), nil
	}
	path, ignore := strings.CutPrefix(value, "-")
	return one("EnvironmentFiles", []pathBool{{path, ignore}}), nil
}

func asPathText(name, value string) ([]client.Property, error) {
	if value == "" {
		return one(name, []pathText{}), nil
	}
	path, text, _ := strings.Cut(value, " ")
	return one(name, []pathText{{path, strings.TrimSpace(text)}}), nil
}

// asPathNumber is a device and a number, read by parse.
func asPathNumber(parse func(string) (uint64, error)) convert {
	return func(name, value string) ([]client.Property, error) {
		if value == "" {
			return one(name, []pathNumber{}), nil
		}
		path, number, ok := strings.Cut(value, " ")
		if !ok {
			return nil, fmt.Errorf("%q is no device with a value", value)
		}
		n, err := parse(strings.TrimSpace(number))
		return one(name, []pathNumber{{path, n}}), err
	}
}

func bandwidth(s string) (uint64, error) {
	if s == "infinity" {
		return math.MaxUint64, nil
	}
	return parseSize(s, 1000)
}

func weightNumber(s string) (uint64, error) {
	props, err := asWeight("", s)
	if err != nil {
		return 0, err
	}
	n, _ := props[0].Value.(uint64)
	return n, nil
}

func asLatency(_, value string) ([]client.Property, error) {
	return asPathNumber(func(s string) (uint64, error) { return parseSpan(s, second) })("IODeviceLatencyTargetUSec", value)
}

func asAllowList(name, value string) ([]client.Property, error) {
	value, deny := strings.CutPrefix(value, "~")
	words, err := splitWords(value)
	return one(name, allowList{!deny, words}), err
}

func asCapabilities(name, value string) ([]client.Property, error) {
	bits, err := parseCapabilities(value)
	return one(name, bits), err
}

func asNamespaces(name, value string) ([]client.Property, error) {
	flags, err := parseNamespaces(value)
	return one(name, flags), err
}

// asCPUSet reads "0-3,5 7" as bits.
func asCPUSet(name, value string) ([]client.Property, error) {
	bits := []byte{}
	for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ' ' || r == ',' }) {
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		low, err1 := strconv.ParseUint(first, 10, 13)
		high, err2 := strconv.ParseUint(last, 10, 13)
		if err1 != nil || err2 != nil || low > high {
			return nil, fmt.Errorf("%q is no CPU number or range", word)
		}
		for i := low; i <= high; i++ {
			for uint64(len(bits)) <= i/8 {
				bits = append(bits, make([]byte, 8)...) // systemd's sets are of whole words
			}
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return one(name, bits), nil
}

// asAddresses reads IP addresses with prefixes, and systemd's words for some.
func asAddresses(name, value string) ([]client.Property, error) {
	list := []addressPrefix{}
	words := map[string][]string{
		"any": {"0.0.0.0/0", "::/0"}, "localhost": {"127.0.0.0/8", "::1/128"},
		"link-local": {"169.254.0.0/16", "fe80::/64"}, "multicast": {"224.0.0.0/4", "ff00::/8"},
	}
	for word := range strings.FieldsSeq(value) {
		texts := words[word]
		if texts == nil {
			texts = []string{word}
		}
		for _, text := range texts {
			p, err := parsePrefix(text)
			if err != nil {
				return nil, err
			}
			list = append(list, p)
		}
	}
	return one(name, list), nil
}

func parsePrefix(text string) (addressPrefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, aerr := netip.ParseAddr(text)
		if aerr != nil {
			return addressPrefix{}, fmt.Errorf("%q is no IP address or prefix", text)
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	family := int32(syscall.AF_INET6)
	if prefix.Addr().Is4() {
		family = syscall.AF_INET
	}
	return addressPrefix{family, prefix.Addr().AsSlice(), uint32(prefix.Bits())}, nil
}
