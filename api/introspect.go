package api

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"example.org/ctrl/internal/wire"
)

// Interface is one interface as its XML describes it (D-Bus specification, "Introspection
// Data Format"). A comment before a member is that member's documentation, the first one
// inside the interface is the interface's own.
type Interface struct {
	Name       string
	Doc        string
	Methods    []Method
	Signals    []Signal
	Properties []Property
	// XML is the element itself, unchanged, as introspection serves it.
	XML string
}

// Method is one method.
type Method struct {
	Name string
	Doc  string
	In   []Arg
	Out  []Arg
	// Action is the right that a caller needs, Verb the word for what the method does
	// (wire.AnnotationAction, wire.AnnotationVerb); "" where the XML does not say.
	Action string
	Verb   string
}

// Signal is one signal.
type Signal struct {
	Name string
	Doc  string
	Args []Arg
}

// Property is one property.
type Property struct {
	Name   string
	Doc    string
	Type   wire.Signature
	Access string // read, write, readwrite
	// Emits is the value of the annotation EmitsChangedSignal: true, invalidates, const or
	// false; "" where the XML does not say.
	Emits string
}

// Arg is one argument.
type Arg struct {
	Name string
	Type wire.Signature
}

// Signature is the types of arguments, one after the other.
func Signature(args []Arg) wire.Signature {
	var b strings.Builder
	for _, a := range args {
		b.WriteString(string(a.Type))
	}
	return wire.Signature(b.String())
}

// Method finds a method by name.
func (i *Interface) Method(name string) (*Method, bool) {
	return find(i.Methods, func(m *Method) bool { return m.Name == name })
}

// Signal finds a signal by name.
func (i *Interface) Signal(name string) (*Signal, bool) {
	return find(i.Signals, func(s *Signal) bool { return s.Name == name })
}

// Property finds a property by name.
func (i *Interface) Property(name string) (*Property, bool) {
	return find(i.Properties, func(p *Property) bool { return p.Name == name })
}

func find[T any](all []T, match func(*T) bool) (*T, bool) {
	for i := range all {
		if match(&all[i]) {
			return &all[i], true
		}
	}
	return nil, false
}

// Parse reads all interfaces of an introspection document. It is strict: an element or
// annotation that it does not know is an error, so that no line of the contract is without
// effect.
func Parse(text string) ([]Interface, error) {
	p := parser{text: text, decoder: xml.NewDecoder(strings.NewReader(text))}
	for {
		token, err := p.decoder.Token()
		if errors.Is(err, io.EOF) {
			return p.out, nil
		}
		if err == nil {
			err = p.token(token)
		}
		if err != nil {
			line, _ := p.decoder.InputPos()
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// parser keeps where in the document it is: the elements around the current one.
type parser struct {
	text    string
	decoder *xml.Decoder
	out     []Interface
	path    []string
	comment string
	begin   int64 // where the interface element begins
}

func (p *parser) token(token xml.Token) error {
	switch t := token.(type) {
	case xml.Comment:
		p.remark(string(t))
	case xml.StartElement:
		p.path = append(p.path, t.Name.Local)
		return p.start(t)
	case xml.EndElement:
		if t.Name.Local == "interface" {
			p.current().XML = p.text[p.begin:p.decoder.InputOffset()]
		}
		p.path = p.path[:len(p.path)-1]
	case xml.CharData:
		if s := strings.TrimSpace(string(t)); s != "" {
			return fmt.Errorf("unexpected text %q", s)
		}
	}
	return nil
}

func (p *parser) remark(text string) {
	if len(p.path) == 0 || p.path[len(p.path)-1] != "interface" {
		return
	}
	doc := strings.Join(strings.Fields(text), " ")
	i := p.current()
	if i.Doc == "" && len(i.Methods)+len(i.Signals)+len(i.Properties) == 0 {
		i.Doc = doc
		return
	}
	p.comment = doc
}

func (p *parser) current() *Interface { return &p.out[len(p.out)-1] }

func (p *parser) start(t xml.StartElement) error {
	attr := make(map[string]string)
	for _, a := range t.Attr {
		attr[a.Name.Local] = a.Value
	}
	name, doc := attr["name"], p.comment
	switch where := strings.Join(p.path, "/"); where {
	case "node":
	case "node/interface":
		p.begin = int64(strings.LastIndex(p.text[:p.decoder.InputOffset()], "<"))
		p.out = append(p.out, Interface{Name: name})
	case "node/interface/method":
		p.current().Methods = append(p.current().Methods, Method{Name: name, Doc: doc})
	case "node/interface/signal":
		p.current().Signals = append(p.current().Signals, Signal{Name: name, Doc: doc})
	case "node/interface/property":
		p.current().Properties = append(p.current().Properties,
			Property{Name: name, Doc: doc, Type: wire.Signature(attr["type"]), Access: attr["access"]})
	case "node/interface/method/arg", "node/interface/signal/arg":
		return p.arg(where, Arg{Name: name, Type: wire.Signature(attr["type"])}, attr["direction"])
	case "node/interface/method/annotation", "node/interface/property/annotation":
		return p.annotation(where, name, attr["value"])
	default:
		return fmt.Errorf("unexpected element %s", where)
	}
	p.comment = ""
	return nil
}

func (p *parser) arg(where string, a Arg, direction string) error {
	i := p.current()
	switch {
	case where == "node/interface/signal/arg" && direction == "":
		s := &i.Signals[len(i.Signals)-1]
		s.Args = append(s.Args, a)
	case where == "node/interface/method/arg" && direction == "in":
		m := &i.Methods[len(i.Methods)-1]
		m.In = append(m.In, a)
	case where == "node/interface/method/arg" && direction == "out":
		m := &i.Methods[len(i.Methods)-1]
		m.Out = append(m.Out, a)
	default:
		return fmt.Errorf("argument %q has direction %q", a.Name, direction)
	}
	return nil
}

var emits = []string{"true", "invalidates", "const", "false"}

func (p *parser) annotation(where, name, value string) error {
	i := p.current()
	switch {
	case where == "node/interface/property/annotation" && name == wire.AnnotationEmitsChanged && slices.Contains(emits, value):
		i.Properties[len(i.Properties)-1].Emits = value
	case where == "node/interface/method/annotation" && name == wire.AnnotationAction && wire.IsAction(value):
		i.Methods[len(i.Methods)-1].Action = value
	case where == "node/interface/method/annotation" && name == wire.AnnotationVerb:
		i.Methods[len(i.Methods)-1].Verb = value
	default:
		return fmt.Errorf("annotation %s=%q is not known here", name, value)
	}
	return nil
}
