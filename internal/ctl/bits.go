package ctl

import (
	"fmt"
	"strings"
)

// capabilityNames are the capabilities of Linux by bit (capabilities(7)).
var capabilityNames = strings.Fields(`chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap
linux_immutable net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot
sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write
audit_control setfcap mac_override mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore`)

func capabilityText(bits uint64) string {
	var names []string
	for i, name := range capabilityNames {
		if bits>>i&1 == 1 {
			names = append(names, "cap_"+name)
		}
	}
	return strings.Join(names, " ")
}

func parseCapabilities(value string) (uint64, error) {
	value, inverted := strings.CutPrefix(value, "~")
	var bits uint64
	for word := range strings.FieldsSeq(value) {
		i := indexOf(capabilityNames, strings.TrimPrefix(strings.ToLower(word), "cap_"))
		if i < 0 {
			return 0, fmt.Errorf("capability %q is not known", word)
		}
		bits |= 1 << i
	}
	if inverted {
		bits = ^bits
	}
	return bits, nil
}

// namespaces are the flags of clone(2) that make namespaces.
var namespaces = []struct {
	name string
	flag uint64
}{{"cgroup", 0x02000000}, {"ipc", 0x08000000}, {"net", 0x40000000}, {"mnt", 0x00020000}, {"pid", 0x20000000}, {"user", 0x10000000}, {"uts", 0x04000000}}

// namespaceText writes the namespaces that a unit may make; all of them is no restriction.
func namespaceText(flags uint64) string {
	var names []string
	for _, ns := range namespaces {
		if flags&ns.flag != 0 {
			names = append(names, ns.name)
		}
	}
	switch len(names) {
	case len(namespaces):
		return "no"
	case 0:
		return "yes"
	}
	return strings.Join(names, " ")
}

func parseNamespaces(value string) (uint64, error) {
	var all uint64
	for _, ns := range namespaces {
		all |= ns.flag
	}
	if on, err := parseBool(value); err == nil {
		if on {
			return 0, nil
		}
		return all, nil
	}
	value, inverted := strings.CutPrefix(value, "~")
	var flags uint64
words:
	for word := range strings.FieldsSeq(value) {
		for _, ns := range namespaces {
			if ns.name == word {
				flags |= ns.flag
				continue words
			}
		}
		return 0, fmt.Errorf("namespace %q is not known", word)
	}
	if inverted {
		flags = all &^ flags
	}
	return flags, nil
}

func indexOf(list []string, s string) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return -1
}

// parseBool reads a boolean as systemd does (parse_boolean).
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "yes", "y", "true", "t", "on":
		return true, nil
	case "0", "no", "n", "false", "f", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither yes nor no", s)
}
