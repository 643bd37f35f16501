package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Addresses are the D-Bus addresses of the manager, in the order in which they are tried.
func (c *Agent) Addresses() []string {
	if len(c.ManagerAddress) > 0 {
		return c.ManagerAddress
	}
	host := strings.Trim(c.ManagerHost, "[]")
	return []string{"tcp:host=" + escape(host) + ",port=" + strconv.Itoa(c.ManagerPort)}
}

// escape writes a value of a D-Bus address (D-Bus specification, "Server Addresses"). Package
// peer, which reads them, stands above this one.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_/.\\*", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}
