package peer

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"example.org/ctrl/internal/wire"
)

// plan is how a Go type is written and read as a D-Bus type. Plans are made once per type.
type plan struct {
	code   byte // first type code
	sig    wire.Signature
	goType reflect.Type
	key    *plan   // of a map
	elem   *plan   // of a slice or map
	fields []*plan // of a struct
	index  []int   // of those fields
}

var (
	plans         sync.Map // reflect.Type → *plan
	pathType      = reflect.TypeFor[wire.ObjectPath]()
	signatureType = reflect.TypeFor[wire.Signature]()
	valueType     = reflect.TypeFor[wire.Value]()
)

// planFor gives the plan of t, or says why t has no D-Bus type.
func planFor(t reflect.Type) (*plan, error) {
	if p, ok := plans.Load(t); ok {
		return p.(*plan), nil
	}
	p, err := makePlan(t, 0)
	if err != nil {
		return nil, err
	}
	if err := checkSingle(p.sig); err != nil {
		return nil, fmt.Errorf("type %v: %w", t, err)
	}
	plans.Store(t, p)
	return p, nil
}

var kindCodes = map[reflect.Kind]byte{
	reflect.Bool: 'b', reflect.Uint8: 'y', reflect.Int16: 'n', reflect.Uint16: 'q',
	reflect.Int32: 'i', reflect.Uint32: 'u', reflect.Int64: 'x', reflect.Uint64: 't',
	reflect.Float64: 'd', reflect.String: 's',
}

func makePlan(t reflect.Type, depth int) (*plan, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("type %v contains itself or is nested deeper than %d", t, maxDepth)
	}
	switch t {
	case pathType:
		return &plan{code: 'o', sig: "o", goType: t}, nil
	case signatureType:
		return &plan{code: 'g', sig: "g", goType: t}, nil
	case valueType:
		return &plan{code: 'v', sig: "v", goType: t}, nil
	}
	if code, ok := kindCodes[t.Kind()]; ok {
		return &plan{code: code, sig: wire.Signature(code), goType: t}, nil
	}
	switch t.Kind() {
	case reflect.Slice:
		elem, err := makePlan(t.Elem(), depth+1)
		if err != nil {
			return nil, err
		}
		return &plan{code: 'a', sig: "a" + elem.sig, goType: t, elem: elem}, nil
	case reflect.Map:
		return mapPlan(t, depth)
	case reflect.Struct:
		return structPlan(t, depth)
	case reflect.Int, reflect.Uint:
		return nil, fmt.Errorf("type %v has no D-Bus type: its size must be said, as in %v32", t, t.Kind())
	}
	return nil, fmt.Errorf("type %v has no D-Bus type", t)
}

func mapPlan(t reflect.Type, depth int) (*plan, error) {
	key, err := makePlan(t.Key(), depth+1)
	if err != nil {
		return nil, err
	}
	if !isBasic(key.code) {
		return nil, fmt.Errorf("type %v has no D-Bus type: its key is not basic", t)
	}
	elem, err := makePlan(t.Elem(), depth+2)
	if err != nil {
		return nil, err
	}
	return &plan{code: 'a', sig: "a{" + key.sig + elem.sig + "}", goType: t, key: key, elem: elem}, nil
}

func structPlan(t reflect.Type, depth int) (*plan, error) {
	p := &plan{code: '(', sig: "(", goType: t}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			return nil, fmt.Errorf("type %v has no D-Bus type: field %s is not exported", t, f.Name)
		}
		fp, err := makePlan(f.Type, depth+1)
		if err != nil {
			return nil, err
		}
		p.sig += fp.sig
		if len(p.sig) > maxSignature {
			return nil, fmt.Errorf("type %v: %w", t, errSignatureLength)
		}
		p.fields = append(p.fields, fp)
		p.index = append(p.index, i)
	}
	if len(p.fields) == 0 {
		return nil, fmt.Errorf("type %v has no D-Bus type: a struct needs a field", t)
	}
	p.sig += ")"
	return p, nil
}

func (p *plan) encode(e *Encoder, v reflect.Value) {
	switch p.code {
	case 'y':
		e.Byte(byte(v.Uint()))
	case 'b':
		e.Bool(v.Bool())
	case 'n':
		e.Int16(int16(v.Int()))
	case 'q':
		e.Uint16(uint16(v.Uint()))
	case 'i':
		e.Int32(int32(v.Int()))
	case 'u':
		e.Uint32(uint32(v.Uint()))
	case 'x':
		e.Int64(v.Int())
	case 't':
		e.Uint64(v.Uint())
	case 'd':
		e.Float64(v.Float())
	case 's':
		e.String(v.String())
	case 'o':
		e.ObjectPath(wire.ObjectPath(v.String()))
	case 'g':
		e.Signature(wire.Signature(v.String()))
	case 'v':
		e.Value(v.Interface().(wire.Value))
	case '(':
		e.BeginStruct()
		for k, fp := range p.fields {
			fp.encode(e, v.Field(p.index[k]))
		}
		e.EndStruct()
	case 'a':
		if p.key != nil {
			p.encodeMap(e, v)
			return
		}
		p.encodeSlice(e, v)
	}
}

func (p *plan) encodeSlice(e *Encoder, v reflect.Value) {
	a := e.BeginArray(p.elem.code)
	if p.elem.code == 'y' {
		e.buf = append(e.buf, v.Bytes()...)
	} else {
		for i := 0; i < v.Len() && e.err == nil; i++ {
			p.elem.encode(e, v.Index(i))
		}
	}
	e.EndArray(a)
}

// encodeMap writes entries in the order of their keys, so that equal maps make equal bodies.
func (p *plan) encodeMap(e *Encoder, v reflect.Value) {
	a := e.BeginArray('{')
	keys := v.MapKeys()
	slices.SortFunc(keys, p.key.compare)
	for _, k := range keys {
		if e.err != nil {
			break
		}
		e.BeginStruct()
		p.key.encode(e, k)
		p.elem.encode(e, v.MapIndex(k))
		e.EndStruct()
	}
	e.EndArray(a)
}

func (p *plan) compare(a, b reflect.Value) int {
	switch p.code {
	case 'b':
		if a.Bool() == b.Bool() {
			return 0
		} else if b.Bool() {
			return -1
		}
		return 1
	case 'n', 'i', 'x':
		return cmp.Compare(a.Int(), b.Int())
	case 'y', 'q', 'u', 't':
		return cmp.Compare(a.Uint(), b.Uint())
	case 'd':
		return cmp.Compare(a.Float(), b.Float())
	}
	return cmp.Compare(a.String(), b.String())
}

func (p *plan) decode(d *Decoder, v reflect.Value) {
	switch p.code {
	case 'y':
		v.SetUint(uint64(d.Byte()))
	case 'b':
		v.SetBool(d.Bool())
	case 'n':
		v.SetInt(int64(d.Int16()))
	case 'q':
		v.SetUint(uint64(d.Uint16()))
	case 'i':
		v.SetInt(int64(d.Int32()))
	case 'u':
		v.SetUint(uint64(d.Uint32()))
	case 'x':
		v.SetInt(d.Int64())
	case 't':
		v.SetUint(d.Uint64())
	case 'd':
		v.SetFloat(d.Float64())
	case 's', 'o':
		v.SetString(d.String())
	case 'g':
		v.SetString(string(d.Signature()))
	case 'v':
		v.Set(reflect.ValueOf(d.Value()))
	case '(':
		d.Struct()
		for k, fp := range p.fields {
			fp.decode(d, v.Field(p.index[k]))
		}
	case 'a':
		if p.key != nil {
			p.decodeMap(d, v)
			return
		}
		p.decodeSlice(d, v)
	}
}

func (p *plan) decodeSlice(d *Decoder, v reflect.Value) {
	end := d.Array(p.elem.code)
	if p.elem.code == 'y' {
		b := append(make([]byte, 0, end-d.pos), d.take(end-d.pos, 1)...)
		v.SetBytes(b)
		return
	}
	v.Set(reflect.MakeSlice(p.goType, 0, p.guess(end-d.pos)))
	for n := 0; d.More(end); n++ {
		if n == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(n + 1)
		p.elem.decode(d, v.Index(n))
	}
}

// guess is how many elements to make room for at first, less than could lie in n bytes.
func (p *plan) guess(n int) int {
	if size := int(fixedSizes[p.elem.code]); size != 0 {
		return n / size
	}
	return min(n/16, 16)
}

func (p *plan) decodeMap(d *Decoder, v reflect.Value) {
	end := d.Array('{')
	m := reflect.MakeMap(p.goType)
	key, elem := reflect.New(p.key.goType).Elem(), reflect.New(p.elem.goType).Elem()
	for d.More(end) {
		d.Struct()
		p.key.decode(d, key)
		p.elem.decode(d, elem)
		m.SetMapIndex(key, elem)
	}
	v.Set(m)
}
