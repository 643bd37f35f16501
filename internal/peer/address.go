package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Address is one parsed D-Bus address (D-Bus specification, "Server Addresses").
type Address struct {
	Transport string            // "unix" or "tcp" are the ones that can be dialled
	Keys      map[string]string // unescaped
}

// ParseAddress parses a list of addresses separated by ";".
func ParseAddress(s string) ([]Address, error) {
	var list []Address
	for one := range strings.SplitSeq(s, ";") {
		if one == "" {
			continue
		}
		a, err := parseOne(one)
		if err != nil {
			return nil, fmt.Errorf("D-Bus address %q: %w", clip(one), err)
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("D-Bus address %q is empty", clip(s))
	}
	return list, nil
}

func parseOne(s string) (Address, error) {
	transport, rest, ok := strings.Cut(s, ":")
	if !ok || transport == "" {
		return Address{}, errors.New("no transport; write it like unix:path=/run/x or tcp:host=h,port=1")
	}
	a := Address{Transport: transport, Keys: make(map[string]string)}
	if rest == "" {
		return a, nil
	}
	for pair := range strings.SplitSeq(rest, ",") {
		key, escaped, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return Address{}, fmt.Errorf("%q is not key=value", clip(pair))
		}
		if _, twice := a.Keys[key]; twice {
			return Address{}, fmt.Errorf("key %q stands twice", clip(key))
		}
		value, err := unescapeAddress(escaped)
		if err != nil {
			return Address{}, fmt.Errorf("key %q: %w", clip(key), err)
		}
		a.Keys[key] = value
	}
	return a, nil
}

// optionallyEscaped reports whether a byte may stand in an address as it is.
func optionallyEscaped(c byte) bool {
	return byteClass[c] != 0 || strings.IndexByte("/.\\*", c) >= 0
}

func unescapeAddress(s string) (string, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '%':
			if i+2 >= len(s) {
				return "", fmt.Errorf("%q ends within an escape", clip(s))
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("%q is not an escape; write two hexadecimal digits behind %%", s[i:i+3])
			}
			out = append(out, byte(n))
			i += 2
		case optionallyEscaped(s[i]):
			out = append(out, s[i])
		default:
			return "", fmt.Errorf("byte %q must be written as %%%02x", s[i], s[i])
		}
	}
	return string(out), nil
}

// EscapeAddress writes a value for use in a D-Bus address.
func EscapeAddress(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if optionallyEscaped(s[i]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02x", s[i])
		}
	}
	return b.String()
}

// String writes the address as ParseAddress reads it, keys that are known first.
func (a Address) String() string {
	var parts []string
	add := func(key string) {
		if v, ok := a.Keys[key]; ok {
			parts = append(parts, key+"="+EscapeAddress(v))
		}
	}
	known := []string{"path", "abstract", "runtime", "host", "port", "family", "guid"}
	for _, key := range known {
		add(key)
	}
	for _, key := range slices.Sorted(maps.Keys(a.Keys)) {
		if !slices.Contains(known, key) {
			add(key)
		}
	}
	return a.Transport + ":" + strings.Join(parts, ",")
}

// Endpoint is the network and address to dial or to listen on, as package net wants them.
func (a Address) Endpoint() (network, address string, err error) {
	switch a.Transport {
	case "unix":
		return a.unixEndpoint()
	case "tcp":
		return a.tcpEndpoint()
	}
	return "", "", fmt.Errorf("D-Bus address %q: transport %q is not supported, only unix and tcp are", a, a.Transport)
}

func (a Address) unixEndpoint() (network, address string, err error) {
	path, isPath := a.Keys["path"]
	abstract, isAbstract := a.Keys["abstract"]
	switch {
	case isPath == isAbstract:
		return "", "", fmt.Errorf("D-Bus address %q: exactly one of path= and abstract= is wanted", a)
	case isPath && path != "":
		return "unix", path, nil
	case isAbstract && abstract != "":
		return "unix", "@" + abstract, nil
	}
	return "", "", fmt.Errorf("D-Bus address %q: the socket's name is empty", a)
}

func (a Address) tcpEndpoint() (network, address string, err error) {
	network = "tcp"
	switch family := a.Keys["family"]; family {
	case "":
	case "ipv4":
		network = "tcp4"
	case "ipv6":
		network = "tcp6"
	default:
		return "", "", fmt.Errorf("D-Bus address %q: family is %q, not ipv4 or ipv6", a, clip(family))
	}
	host, port := a.Keys["host"], a.Keys["port"]
	if host == "" {
		return "", "", fmt.Errorf("D-Bus address %q: host= is missing", a)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", fmt.Errorf("D-Bus address %q: port= is %q, not 1 to 65535", a, clip(port))
	}
	return network, net.JoinHostPort(host, port), nil
}

// Dial connects to the address.
func (a Address) Dial(ctx context.Context) (net.Conn, error) {
	network, address, err := a.Endpoint()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// DialAddress connects to the first address of a list that answers. ctx bounds all of it.
func DialAddress(ctx context.Context, address string) (net.Conn, error) {
	list, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, a := range list {
		nc, err := a.Dial(ctx)
		if err == nil {
			return nc, nil
		}
		failed = append(failed, err)
	}
	return nil, fmt.Errorf("cannot connect to %q: %w", clip(address), errors.Join(failed...))
}
