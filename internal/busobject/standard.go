package busobject

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/wire"
)

//go:embed standard.xml
var standardXML string

// standard is the interfaces of the D-Bus specification ("Standard Interfaces"), by what
// kind of path has them.
type standard struct {
	nowhere []*Interface // at any path
	node    []*Interface // where a path leads to objects
	object  []*Interface
	root    []*Interface
}

func (s *Server) makeStandard() {
	found, err := api.Parse(standardXML)
	if err != nil {
		panic(fmt.Sprintf("standard interfaces: %v", err))
	}
	methods := map[string]map[string]Method{
		wire.PeerInterface: {
			"Ping":         {Serve: func(c *Call) { c.Reply() }},
			"GetMachineId": {Serve: machineID},
		},
		wire.IntrospectableInterface: {"Introspect": {Serve: s.introspect}},
		wire.PropertiesInterface: {
			"Get":    {Serve: s.get},
			"GetAll": {Serve: s.getAll},
			"Set":    {Serve: s.set},
		},
		wire.ObjectManagerInterface: {"GetManagedObjects": {Serve: s.managedObjects}},
	}
	var all []*Interface
	for _, spec := range found {
		i := &Interface{Spec: spec, Methods: methods[spec.Name]}
		if err := i.compare(); err != nil {
			panic(err.Error())
		}
		all = append(all, i)
	}
	// In the order of the XML: Peer, Introspectable, Properties, ObjectManager.
	s.standard = standard{nowhere: all[:1], node: all[:2], object: all[:3], root: all}
}

func machineID(c *Call) {
	text, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		c.Fail(fmt.Errorf("the machine has no id: %w", err))
		return
	}
	c.Reply(strings.TrimSpace(string(text)))
}

const introspectHead = `<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
<node>
`

func (s *Server) introspect(c *Call) {
	reply := func(objects []Object) {
		var b strings.Builder
		b.WriteString(introspectHead)
		for _, i := range s.interfaces(c) {
			b.WriteString("  " + i.Spec.XML + "\n")
		}
		for _, child := range s.children(c.Path, objects) {
			b.WriteString("  <node name=\"" + child + "\"/>\n")
		}
		b.WriteString("</node>\n")
		c.answerWith(b.String())
	}
	switch {
	case s.lists(c.Path):
		s.list(func(objects []Object) { s.Do(func() { reply(objects) }) })
	case c.class == nil:
		reply(nil)
	default:
		s.load(c, func(any) { s.Do(func() { reply(nil) }) })
	}
}

// lists reports whether the children of path are objects that come and go.
func (s *Server) lists(path wire.ObjectPath) bool {
	for _, class := range s.classes {
		if class.Below == path {
			return true
		}
	}
	return false
}

// children gives the last elements of the paths right below path, each once, in the order
// of classes and objects.
func (s *Server) children(path wire.ObjectPath, objects []Object) []string {
	var out []string
	seen := make(map[string]bool)
	add := func(p wire.ObjectPath) {
		rest, ok := strings.CutPrefix(string(p), strings.TrimSuffix(string(path), "/")+"/")
		name, _, _ := strings.Cut(rest, "/")
		if ok && name != "" && !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	for _, class := range s.classes {
		add(class.Fixed)
		add(class.Below)
	}
	for _, o := range objects {
		add(o.Path)
	}
	return out
}
