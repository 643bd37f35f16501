package busobject

import (
	"fmt"
	"strings"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// values is an "a{sv}".
type values map[string]wire.Value

// get is Properties.Get. An empty interface looks in all of the object's.
func (s *Server) get(c *Call) {
	var iface, name string
	var found *Interface
	if err := c.Decode(&iface, &name); err != nil {
		c.Fail(err)
		return
	}
	found, _, err := s.property(c, iface, name)
	s.load(c, func(state any) {
		if err != nil {
			c.Fail(err)
			return
		}
		s.Do(func() {
			v, err := found.value(name, state)
			if err != nil {
				c.answer(wire.Raw{}, err)
				return
			}
			c.answerWith(v)
		})
	})
}

func (s *Server) getAll(c *Call) {
	var iface string
	if err := c.Decode(&iface); err != nil {
		c.Fail(err)
		return
	}
	var from []*Interface
	for _, i := range s.interfaces(c) {
		if iface == "" || i.Spec.Name == iface {
			from = append(from, i)
		}
	}
	s.load(c, func(state any) {
		if from == nil {
			c.Fail(s.noInterface(c, iface))
			return
		}
		s.Do(func() {
			all := make(values)
			for _, i := range from {
				if err := i.values(all, state); err != nil {
					c.answer(wire.Raw{}, err)
					return
				}
			}
			c.answerWith(all)
		})
	})
}

// set refuses: all properties are read-only.
func (s *Server) set(c *Call) {
	var iface, name string
	var value wire.Value
	if err := c.Decode(&iface, &name, &value); err != nil {
		c.Fail(err)
		return
	}
	_, p, err := s.property(c, iface, name)
	if err == nil {
		err = wire.ErrPropertyReadOnly.With("property %s of %s can only be read", p.Name, c.Path)
	}
	s.unknown(c, err)
}

// property finds a property of the object that a call is for.
func (s *Server) property(c *Call, iface, name string) (*Interface, *api.Property, error) {
	known := false
	for _, i := range s.interfaces(c) {
		if iface != "" && i.Spec.Name != iface {
			continue
		}
		known = true
		if p, ok := i.Spec.Property(name); ok {
			return i, p, nil
		}
	}
	if !known {
		return nil, nil, s.noInterface(c, iface)
	}
	if iface == "" {
		iface = "object " + string(c.Path)
	}
	return nil, nil, wire.ErrUnknownProperty.With("%s has no property %q", iface, name)
}

func (s *Server) noInterface(c *Call, name string) error {
	var have []string
	for _, i := range s.interfaces(c) {
		have = append(have, i.Spec.Name)
	}
	return wire.ErrUnknownInterface.With("object %s has no interface %q; it has %s", c.Path, name, strings.Join(have, ", "))
}

// value reads one property. A value that is not of the XML's type is a mistake of ours.
func (i *Interface) value(name string, state any) (wire.Value, error) {
	spec, _ := i.Spec.Property(name)
	v, err := peer.ValueOf(i.Properties[name](state))
	if err == nil && v.Sig != spec.Type {
		err = fmt.Errorf("its value is of type %q instead of %q", v.Sig, spec.Type)
	}
	if err != nil {
		return wire.Value{}, fmt.Errorf("property %s of %s: %w", name, i.Spec.Name, err)
	}
	return v, nil
}

// values adds all properties to all.
func (i *Interface) values(all values, state any) error {
	for _, p := range i.Spec.Properties {
		v, err := i.value(p.Name, state)
		if err != nil {
			return err
		}
		all[p.Name] = v
	}
	return nil
}

// interfaces gives all properties of the object by interface, "a{sa{sv}}".
func (o Object) interfaces() (map[string]values, error) {
	out := make(map[string]values)
	for _, i := range o.Class.Interfaces {
		all := make(values)
		if err := i.values(all, o.State); err != nil {
			return nil, err
		}
		out[i.Spec.Name] = all
	}
	return out, nil
}

func (s *Server) managedObjects(c *Call) {
	s.list(func(objects []Object) {
		s.Do(func() {
			all := make(map[wire.ObjectPath]map[string]values, len(objects))
			for _, o := range objects {
				if o.Class.Private {
					continue
				}
				interfaces, err := o.interfaces()
				if err != nil {
					c.answer(wire.Raw{}, err)
					return
				}
				all[o.Path] = interfaces
			}
			c.answerWith(all)
		})
	})
}
