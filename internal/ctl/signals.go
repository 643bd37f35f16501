package ctl

import (
	"fmt"
	"strconv"
	"strings"
)

// signalNames are the signals of Linux (signal(7)); their numbers are the same on all
// architectures that systemd's packages are built for but MIPS.
var signalNames = []string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1",
	11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP",
	21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS"}

// The real-time signals that the C library leaves to programs.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// signalName is the name of a signal as systemd writes it.
func signalName(n int32) string {
	switch {
	case n > 0 && int(n) < len(signalNames):
		return "SIG" + signalNames[n]
	case n >= sigRTMin && n <= sigRTMax:
		return fmt.Sprintf("SIGRTMIN+%d", n-sigRTMin)
	}
	return fmt.Sprintf("signal %d", n)
}

// parseSignal reads a signal: a number, or a name with or without SIG, also RTMIN+3 and
// RTMAX-1.
func parseSignal(word string) (int32, error) {
	if n, err := strconv.ParseInt(word, 10, 32); err == nil {
		if n < 1 || n > sigRTMax {
			return 0, usage("signal %d is not between 1 and %d", n, sigRTMax)
		}
		return int32(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(word), "SIG")
	for n, known := range signalNames {
		if known == name && name != "" {
			return int32(n), nil
		}
	}
	if n, ok := realTime(name); ok {
		return n, nil
	}
	return 0, usage("signal %q is not known; use a name such as SIGTERM or RTMIN+3, or a number", word)
}

func realTime(name string) (int32, bool) {
	base, sign, rest := 0, 1, ""
	switch {
	case strings.HasPrefix(name, "RTMIN"):
		base, rest = sigRTMin, name[len("RTMIN"):]
	case strings.HasPrefix(name, "RTMAX"):
		base, sign, rest = sigRTMax, -1, name[len("RTMAX"):]
	default:
		return 0, false
	}
	if rest == "" {
		return int32(base), true
	}
	if mark := map[int]byte{1: '+', -1: '-'}[sign]; rest[0] != mark {
		return 0, false
	}
	n, err := strconv.ParseUint(rest[1:], 10, 8)
	if err != nil || n > sigRTMax-sigRTMin {
		return 0, false
	}
	return int32(base + sign*int(n)), true
}

// exitNames are systemd's names for exit statuses (systemd.exec(5), "Process Exit Codes").
var exitNames = map[int32]string{
	200: "CHDIR", 201: "NICE", 202: "FDS", 203: "EXEC", 204: "MEMORY", 205: "LIMITS", 206: "OOM_ADJUST", 207: "SIGNAL_MASK",
	208: "STDIN", 209: "STDOUT", 210: "CHROOT", 211: "IOPRIO", 212: "TIMERSLACK", 213: "SECUREBITS", 214: "SETSCHEDULER",
	215: "CPUAFFINITY", 216: "GROUP", 217: "USER", 218: "CAPABILITIES", 219: "CGROUP", 220: "SETSID", 221: "CONFIRM", 222: "STDERR",
	224: "PAM", 225: "NETWORK", 226: "NAMESPACE", 227: "NO_NEW_PRIVILEGES", 228: "SECCOMP", 229: "SELINUX_CONTEXT", 230: "PERSONALITY",
	231: "APPARMOR_PROFILE", 232: "ADDRESS_FAMILIES", 233: "RUNTIME_DIRECTORY", 235: "CHOWN", 236: "SMACK_PROCESS_LABEL", 237: "KEYRING",
	238: "STATE_DIRECTORY", 239: "CACHE_DIRECTORY", 240: "LOGS_DIRECTORY", 241: "CONFIGURATION_DIRECTORY", 242: "NUMA_POLICY",
	243: "CREDENTIALS", 245: "BPF",
}

func exitStatusName(status int32) string {
	if name := exitNames[status]; name != "" {
		return fmt.Sprintf("%d/%s", status, name)
	}
	return fmt.Sprint(status)
}
