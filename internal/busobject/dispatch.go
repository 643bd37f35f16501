package busobject

import (
	"fmt"
	"strings"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// call finds the member that a message is for. The errors are those of the D-Bus
// specification ("Method Call"), and say what was asked for and what there is.
func (s *Server) call(conn *peer.Conn, m *peer.Message) {
	c := &Call{
		Path: m.Path, Sender: m.Sender, Args: m.Body, server: s, conn: conn, msg: m,
		class: s.classAt(m.Path), iface: m.Interface,
	}
	member, ok := s.member(c, m.Member)
	switch {
	case ok:
	case c.class == nil && !s.leads(m.Path):
		// Peer is answered at every path, so only members of others come here.
		s.unknown(c, nil)
		return
	default:
		s.unknown(c, s.unknownMember(c, m.Member))
		return
	}
	c.spec, c.method = member.spec, member.method
	if want := api.Signature(c.spec.In); m.Body.Sig != want {
		s.unknown(c, wire.ErrInvalidArgs.With("%s takes %s, not arguments of type %q", m.Member, describe(c.spec.In), m.Body.Sig))
		return
	}
	s.admit(c)
}

// member is one method with its handler.
type member struct {
	spec   *api.Method
	method Method
}

// member looks in the interface that the caller named, or in all. In a call without an
// interface the object's own come first.
func (s *Server) member(c *Call, name string) (member, bool) {
	for _, i := range s.interfaces(c) {
		if c.iface != "" && c.iface != i.Spec.Name {
			continue
		}
		if spec, ok := i.Spec.Method(name); ok {
			return member{spec, i.Methods[name]}, true
		}
	}
	return member{}, false
}

// interfaces lists what the object at a call's path implements.
func (s *Server) interfaces(c *Call) []*Interface {
	switch {
	case c.class == s.root:
		return append(append([]*Interface(nil), c.class.Interfaces...), s.standard.root...)
	case c.class != nil:
		return append(append([]*Interface(nil), c.class.Interfaces...), s.standard.object...)
	case s.leads(c.Path):
		return s.standard.node
	}
	return s.standard.nowhere
}

// unknown answers a call that has no handler with err, or that there is no such object
// where that is so: the object decides before its members do.
func (s *Server) unknown(c *Call, err error) {
	if c.spec == nil {
		c.spec = &api.Method{Name: c.msg.Member}
	}
	if c.class == nil {
		if err == nil {
			err = NoObject(c.Path, fmt.Errorf("the objects are %s and some below it", s.root.Fixed))
		}
		c.Fail(err)
		return
	}
	s.load(c, func(any) { c.Fail(err) })
}

// load finds a call's object, or answers that there is none.
func (s *Server) load(c *Call, found func(state any)) {
	c.class.Load(c.Path, func(state any, err error) {
		if err != nil {
			c.Fail(NoObject(c.Path, err))
			return
		}
		found(state)
	})
}

// NoObject says that there is no object at a path, and why. An error that only says that
// the manager ends is passed on as it is.
func NoObject(path wire.ObjectPath, why error) error {
	if e := wire.AsError(why); e.Name == wire.ErrShuttingDown.Name {
		return why
	}
	return wire.ErrUnknownObject.With("there is no object %s: %v", path, why)
}

func (s *Server) unknownMember(c *Call, name string) error {
	var names []string
	for _, i := range s.interfaces(c) {
		if i.Spec.Name == c.iface {
			return wire.ErrUnknownMethod.With("interface %s has no method %q", c.iface, name)
		}
		names = append(names, i.Spec.Name)
	}
	if c.iface == "" {
		return wire.ErrUnknownMethod.With("object %s has no method %q in any of its interfaces %s", c.Path, name, strings.Join(names, ", "))
	}
	return wire.ErrUnknownInterface.With("object %s has no interface %q; it has %s", c.Path, c.iface, strings.Join(names, ", "))
}

// describe words the arguments of a method: `"ss" (name, mode)`.
func describe(args []api.Arg) string {
	if len(args) == 0 {
		return "no arguments"
	}
	var names []string
	for _, a := range args {
		names = append(names, a.Name)
	}
	return fmt.Sprintf("arguments of type %q (%s)", api.Signature(args), strings.Join(names, ", "))
}

// classAt finds the class whose objects can be at path; nil where there is none.
func (s *Server) classAt(path wire.ObjectPath) *Class {
	for _, class := range s.classes {
		if class.At(path) {
			return class
		}
	}
	return nil
}

// leads reports whether a path is no object's own but leads to objects.
func (s *Server) leads(path wire.ObjectPath) bool {
	for _, class := range s.classes {
		if under(path, class.Below) || under(path, class.Fixed) {
			return true
		}
	}
	return false
}

// under reports whether path is target or leads to it.
func under(path, target wire.ObjectPath) bool {
	return target != "" && (path == "/" || path == target || strings.HasPrefix(string(target), string(path)+"/"))
}
