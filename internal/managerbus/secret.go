package managerbus

import (
	"maps"
	"slices"
	"strings"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// hidden stands for a secret.
const hidden = "[hidden]"

type credential struct {
	Name string
	Data []byte
}

// secrets are the unit properties in which secrets are found (systemd.exec(5)), and how each
// looks to who may not see them. systemd itself shows them to everyone on the node; a whole
// fleet's are more than that.
var secrets = map[string]func(wire.Value) (wire.Value, error){
	"Environment": func(v wire.Value) (wire.Value, error) {
		var list []string
		err := peer.DecodeValue(v, &list)
		for i, assignment := range list {
			name, _, _ := strings.Cut(assignment, "=")
			list[i] = name + "=" + hidden
		}
		return valueOf(list, err)
	},
	"SetCredential":          hideCredentials,
	"SetCredentialEncrypted": hideCredentials,
	"StandardInputData": func(v wire.Value) (wire.Value, error) {
		var data []byte
		err := peer.DecodeValue(v, &data)
		if len(data) > 0 {
			data = []byte(hidden)
		}
		return valueOf(data, err)
	},
}

func hideCredentials(v wire.Value) (wire.Value, error) {
	var list []credential
	err := peer.DecodeValue(v, &list)
	for i := range list {
		list[i].Data = []byte(hidden)
	}
	return valueOf(list, err)
}

func valueOf(v any, err error) (wire.Value, error) {
	if err != nil {
		return wire.Value{}, err
	}
	return peer.ValueOf(v)
}

// hide is what is shown of one property; a secret of a type that is not known is refused.
func hide(name string, v wire.Value) (wire.Value, error) {
	conceal, ok := secrets[name]
	if !ok {
		return v, nil
	}
	shown, err := conceal(v)
	if err != nil {
		return shown, wire.ErrAccessDenied.With("property %s is for uid 0 only", name)
	}
	return shown, nil
}

// hideAll is hide for a body "a{sv}"; what would be refused is left out.
func hideAll(body wire.Raw) (wire.Raw, error) {
	var all map[string]wire.Value
	if err := peer.Decode(body, &all); err != nil {
		return wire.Raw{}, err
	}
	found := slices.DeleteFunc(slices.Collect(maps.Keys(secrets)), func(name string) bool {
		_, ok := all[name]
		return !ok
	})
	if len(found) == 0 {
		return body, nil
	}
	for _, name := range found {
		shown, err := hide(name, all[name])
		if err != nil {
			delete(all, name)
			continue
		}
		all[name] = shown
	}
	return peer.Encode(all)
}

// concealed are the methods of a node whose answers may hold secrets.
var concealed = map[string]func(c *busobject.Call, body wire.Raw) (wire.Raw, error){
	"GetUnitProperties": func(_ *busobject.Call, body wire.Raw) (wire.Raw, error) { return hideAll(body) },
	"GetUnitProperty": func(c *busobject.Call, body wire.Raw) (wire.Raw, error) {
		var unit, iface, name string
		var v wire.Value
		err := c.Decode(&unit, &iface, &name)
		if err == nil {
			err = peer.Decode(body, &v)
		}
		if err == nil {
			v, err = hide(name, v)
		}
		if err != nil {
			return wire.Raw{}, err
		}
		return peer.Encode(v)
	},
}

// pass answers with what a node has answered, as far as the caller may see it.
func (b *Bus) pass(c *busobject.Call, m *wire.NodeMethod, body wire.Raw) {
	conceal, ok := concealed[m.Name]
	if !ok || c.Trusted() {
		c.ReplyBody(body)
		return
	}
	b.server.Do(func() { // not on the core's goroutine: it opens what may be large
		shown, err := conceal(c, body)
		if err != nil {
			c.Fail(err)
			return
		}
		c.ReplyBody(shown)
	})
}
