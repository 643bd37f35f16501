// Package api is the contract: the introspection XML of every D-Bus interface of ctrl.
package api

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed dbus-xml/*.xml
var files embed.FS

// Names lists the interfaces, in the order of their file names.
func Names() []string {
	found, err := fs.Glob(files, "dbus-xml/*.xml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for i, file := range found {
		found[i] = strings.TrimSuffix(strings.TrimPrefix(file, "dbus-xml/"), ".xml")
	}
	return found
}

// Load reads the XML of one interface. It panics where there is none or where it is not
// right: it is part of the program, and a test loads all of Names.
func Load(name string) Interface {
	text, err := files.ReadFile("dbus-xml/" + name + ".xml")
	if err != nil {
		panic(fmt.Sprintf("no introspection XML for interface %q: %v", name, err))
	}
	found, err := Parse(string(text))
	if err == nil && (len(found) != 1 || found[0].Name != name) {
		err = fmt.Errorf("it holds not just this interface")
	}
	if err != nil {
		panic(fmt.Sprintf("introspection XML of %q: %v", name, err))
	}
	return found[0]
}
