package config

import (
	"time"

	"example.org/ctrl/internal/logging"
)

// commonKeys are those of both daemons.
func commonKeys(section string) []key {
	rows := []key{
		{name: "TLS", kind: boolean, def: "yes",
			doc:   "Whether connections over TCP are TLS 1.3 with certificates on both sides. no is for tests; both sides must say it.",
			field: common(func(c *Common) any { return &c.TLS })},
		{name: "CertFile", kind: path, reload: true, example: "/etc/ctrl/pki/" + section + ".crt",
			doc:   "This side's certificate, PEM, with intermediate certificates after it. Read again when it changes. Without CertFile=, KeyFile= and CAFile= the manager issues all certificates itself (ctl node add), and agents have theirs from ctrl-agent join.",
			field: common(func(c *Common) any { return &c.CertFile })},
		{name: "KeyFile", kind: path, reload: true, example: "/etc/ctrl/pki/" + section + ".key",
			doc:   "The private key of CertFile=, PEM, not readable by others.",
			field: common(func(c *Common) any { return &c.KeyFile })},
		{name: "CAFile", kind: path, reload: true, example: "/etc/ctrl/pki/ca.crt",
			doc:   "The certificates of the authorities that the other side's certificate must come from, PEM.",
			field: common(func(c *Common) any { return &c.CAFile })},
		{name: "TCPKeepAliveTime", kind: span, def: "1s", unit: time.Second, high: int64(maxKeepAlive), whole: true,
			doc:   "How long a TCP connection may be idle before the kernel probes it, in whole seconds. 0: the kernel's default.",
			field: common(func(c *Common) any { return &c.TCPKeepAliveTime })},
		{name: "TCPKeepAliveInterval", kind: span, def: "1s", unit: time.Second, high: int64(maxKeepAlive), whole: true,
			doc:   "Time between two probes, in whole seconds. 0: the kernel's default.",
			field: common(func(c *Common) any { return &c.TCPKeepAliveInterval })},
		{name: "TCPKeepAliveCount", kind: number, def: "6", high: 127,
			doc:   "Probes without answer that end a connection. 0: the kernel's default.",
			field: common(func(c *Common) any { return &c.TCPKeepAliveCount })},
		{name: "IPReceiveErrors", kind: boolean, def: "yes",
			doc:   "Whether an ICMP error (host unreachable and the like) ends a connection at once. Switch it off on networks that give false alarms.",
			field: common(func(c *Common) any { return &c.IPReceiveErrors })},
		{name: "LogLevel", kind: word, def: "info", words: logging.Levels, reload: true, variable: "CTRL_LOG_LEVEL",
			doc:   "Least important level that is logged: debug, info, warn or error.",
			field: common(func(c *Common) any { return &c.LogLevel })},
		{name: "LogTarget", kind: word, def: "auto", words: logging.Targets, variable: "CTRL_LOG_TARGET",
			doc:   "Where to log: journald; stderr; stderr-full, which adds the place in the source; json, one object a line on standard error; or auto: journald where standard error leads there, else stderr.",
			field: common(func(c *Common) any { return &c.LogTarget })},
		{name: "LogIsQuiet", kind: boolean, def: "no", variable: "CTRL_LOG_IS_QUIET",
			doc:   "yes: log nothing at all.",
			field: common(func(c *Common) any { return &c.LogIsQuiet })},
	}
	for i := range rows {
		rows[i].section = section
	}
	return rows
}

// Limits of time spans.
const (
	maxKeepAlive = 32767 * time.Second // tcp(7)
	minHeartbeat = 100 * ms
	maxHeartbeat = time.Hour
	maxTimeout   = day
)
