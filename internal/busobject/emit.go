package busobject

import (
	"fmt"

	"example.org/ctrl/internal/wire"
)

// Changed tells that properties of an object have changed, each as its XML is annotated:
// with the value, by name only, or not at all.
func (s *Server) Changed(o Object, iface *Interface, names ...string) {
	s.Do(func() {
		changed, invalidated := make(values), []string{}
		for _, name := range names {
			spec, ok := iface.Spec.Property(name)
			if !ok {
				s.dropped("PropertiesChanged", iface.Spec.Name, fmt.Errorf("no such property: %s", name))
				continue
			}
			switch spec.Emits {
			case "true":
				v, err := iface.value(name, o.State)
				if err != nil {
					s.dropped("PropertiesChanged", iface.Spec.Name, err)
					continue
				}
				changed[name] = v
			case "invalidates":
				invalidated = append(invalidated, name)
			}
		}
		if len(changed)+len(invalidated) > 0 {
			s.send(o.Path, wire.PropertiesInterface, "PropertiesChanged", iface.Spec.Name, changed, invalidated)
		}
	})
}

// Added tells that an object has come into being.
func (s *Server) Added(o Object) {
	s.Do(func() {
		interfaces, err := o.interfaces()
		if err != nil {
			s.dropped("InterfacesAdded", wire.ObjectManagerInterface, err)
			return
		}
		s.send(s.root.Fixed, wire.ObjectManagerInterface, "InterfacesAdded", o.Path, interfaces)
	})
}

// Removed tells that an object is gone.
func (s *Server) Removed(o Object) {
	s.Do(func() {
		names := make([]string, len(o.Class.Interfaces))
		for k, i := range o.Class.Interfaces {
			names[k] = i.Spec.Name
		}
		s.send(s.root.Fixed, wire.ObjectManagerInterface, "InterfacesRemoved", o.Path, names)
	})
}

// Emit sends a signal of an object's interface to everyone on the bus.
func (s *Server) Emit(path wire.ObjectPath, iface *Interface, signal string, args ...any) {
	s.Do(func() { s.send(path, iface.Spec.Name, signal, args...) })
}

// Target is one client and the object that speaks to it.
type Target struct {
	Path wire.ObjectPath
	To   string // unique name
}
