// Package unit knows the names of systemd units: what is valid, how they are completed and
// escaped, and which of them a glob matches.
package unit

import (
	"fmt"
	"slices"
	"strings"
)

// MaxName is the longest unit name in bytes (UNIT_NAME_MAX in systemd, less the final NUL).
const MaxName = 255

// Types are the unit types, which are also the suffixes of names (systemd.unit(5)).
var Types = []string{
	"service", "socket", "target", "device", "mount", "automount",
	"swap", "timer", "path", "slice", "scope",
}

// TypeOf is the type that the suffix of a name says, "" where it is none of Types.
func TypeOf(name string) string {
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 || !slices.Contains(Types, name[dot+1:]) {
		return ""
	}
	return name[dot+1:]
}

// nameByte reports whether c may stand in a name (VALID_CHARS in systemd's unit-name.c).
func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte(`:-_.\`, c) >= 0
}

// CheckName refuses what is no complete unit name, with an error that says why. Templates
// (foo@.service) are names too; CheckInstance refuses them.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("unit name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("unit name is %d bytes long, at most %d are allowed: %q…", len(name), MaxName, name[:40])
	case TypeOf(name) == "":
		return fmt.Errorf("unit name %q does not end in a unit type such as .service, .target or .timer", name)
	case name[0] == '@':
		return fmt.Errorf("unit name %q has nothing before the @", name)
	}
	stem := name[:strings.LastIndexByte(name, '.')]
	for i := range len(stem) {
		if c := stem[i]; c != '@' && !nameByte(c) {
			return fmt.Errorf("unit name %q contains %q; allowed are letters, digits and : - _ . \\ @", name, c)
		}
	}
	return nil
}

// Valid reports whether name is a complete unit name, template or not.
func Valid(name string) bool { return CheckName(name) == nil }

// IsTemplate reports whether a valid name is a template without instance: foo@.service.
func IsTemplate(name string) bool {
	at, dot := strings.IndexByte(name, '@'), strings.LastIndexByte(name, '.')
	return at > 0 && dot == at+1
}

// CheckInstance refuses what cannot be started, stopped or asked about: names that are not
// valid, and templates without an instance.
func CheckInstance(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if IsTemplate(name) {
		at := strings.IndexByte(name, '@')
		return fmt.Errorf("%s is a template and needs an instance name, for example %sNAME%s",
			name, name[:at+1], name[at+1:])
	}
	return nil
}

// Split takes a valid name apart: "foo@bar.service" is "foo", "bar", "service"; without an
// @ the instance is empty.
func Split(name string) (prefix, instance, kind string) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return name, "", ""
	}
	kind = name[dot+1:]
	prefix, instance, _ = strings.Cut(name[:dot], "@")
	return prefix, instance, kind
}

// WithSuffix adds .service to a name that ends in no unit type, as systemctl does.
func WithSuffix(name string) string {
	if TypeOf(name) != "" {
		return name
	}
	return name + ".service"
}
