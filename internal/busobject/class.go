package busobject

import (
	"fmt"
	"maps"
	"slices"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/wire"
)

// Class is a kind of object: the root, all nodes, all jobs. Its objects are looked up when
// they are asked for and never registered, so an object costs nothing here.
type Class struct {
	// At reports whether a path has the form of this class's paths, without looking whether
	// the object exists.
	At func(path wire.ObjectPath) bool
	// Below is the path whose children the objects are; "" for a single object, which
	// introspection then finds at Fixed.
	Below wire.ObjectPath
	Fixed wire.ObjectPath
	// Private objects are none of the ObjectManager's.
	Private bool
	// Load finds the object at a path and gives what the property getters read. An error
	// says why there is no such object. reply is called once, from any goroutine.
	Load func(path wire.ObjectPath, reply func(state any, err error))
	// Interfaces are what the objects implement besides the standard ones, in the order in
	// which a call without an interface looks for its member.
	Interfaces []*Interface
}

// Object is one object of a class.
type Object struct {
	Path  wire.ObjectPath
	Class *Class
	State any
}

// Interface ties an interface's XML to its handlers.
type Interface struct {
	Spec       api.Interface
	Methods    map[string]Method
	Properties map[string]Getter
}

// Method carries out one method.
type Method struct {
	// Serve is called on the server's goroutine, when the arguments have the right types and
	// the caller may call. It must not block, except to post to a core, and leads to one
	// Reply, ReplyBody or Fail of the call, from any goroutine.
	Serve func(*Call)
	// About says what the call is about, for the check of the caller's right, as far as the
	// call itself says so; nil: nothing in particular. Find says it where something has to be
	// looked up elsewhere first, on the server's goroutine: its done is called once, from any
	// goroutine. It is asked only for callers whose rights depend on it.
	About func(*Call) (About, error)
	Find  func(c *Call, done func(About, error))
}

// About is what a right can depend on.
type About struct {
	Node string // "" for the whole fleet
	// Nodes are the nodes of a call that names several, instead of Node; all must be allowed.
	Nodes []string
	// Units are the units that the call names; all must be allowed, on all nodes.
	Units []string
}

// Getter reads one property from an object's state, as a value that package peer encodes.
type Getter func(state any) any

// Property makes a Getter from a function of the state's real type.
func Property[T any](get func(T) any) Getter {
	return func(state any) any { return get(state.(T)) }
}

// NewInterface ties XML to handlers. It panics where the two do not have the same members: both are
// part of the program.
func NewInterface(name string, methods map[string]Method, properties map[string]Getter) *Interface {
	i := &Interface{Spec: api.Load(name), Methods: methods, Properties: properties}
	if err := i.compare(); err != nil {
		panic(err.Error())
	}
	return i
}

func (i *Interface) compare() error {
	var want []string
	for _, m := range i.Spec.Methods {
		want = append(want, m.Name)
	}
	if err := same(want, slices.Collect(maps.Keys(i.Methods))); err != nil {
		return fmt.Errorf("methods of %s: %w", i.Spec.Name, err)
	}
	want = nil
	for _, p := range i.Spec.Properties {
		want = append(want, p.Name)
	}
	if err := same(want, slices.Collect(maps.Keys(i.Properties))); err != nil {
		return fmt.Errorf("properties of %s: %w", i.Spec.Name, err)
	}
	return nil
}

// same compares the members of the XML with those that have a handler.
func same(want, have []string) error {
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("the XML has %v, the handlers are %v", want, have)
	}
	return nil
}

func (c *Class) implementation(name string) *Interface {
	for _, i := range c.Interfaces {
		if i.Spec.Name == name {
			return i
		}
	}
	return nil
}
