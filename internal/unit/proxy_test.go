package unit

import (
	"strings"
	"testing"
)

func TestProxyNames(t *testing.T) {
	for _, tt := range []struct{ node, target, name string }{
		{"node2", "db", "ctrl-proxy@node2_db.service"},
		{"node2", "db.service", "ctrl-proxy@node2_db.service"},
		{"node2", "data.mount", "ctrl-proxy@node2_data.mount.service"},
		{"a.b-c", "web@1.service", "ctrl-proxy@a.b-c_web@1.service"},
		{"lab_pi_3", "my_app", `ctrl-proxy@lab\x5fpi\x5f3_my_app.service`},
		{"node2", `a\x2db.service`, `ctrl-proxy@node2_a\x2db.service`},
		{"node2", "odd.mount.service", "ctrl-proxy@node2_odd.mount.service.service"},
	} {
		got, err := ProxyName(tt.node, tt.target)
		if err != nil || got != tt.name {
			t.Errorf("%s on %s: %q, %v; want %q", tt.target, tt.node, got, err, tt.name)
		}
		if !Valid(got) {
			t.Errorf("%q is no unit name", got)
		}
		if node, target, err := ParseProxy(got); err != nil || node != tt.node || target != WithSuffix(tt.target) {
			t.Errorf("%q is read as %q on %q, %v", got, target, node, err)
		}
	}
	for _, bad := range []string{"web@.service", "a b", "", strings.Repeat("x", 240)} {
		if got, err := ProxyName("node2", bad); err == nil {
			t.Errorf("%q gave %q", bad, got)
		}
	}
}

func TestMalformedProxyNames(t *testing.T) {
	for instance, want := range map[string]string{
		"node2": "no _", "_db": "no node", "node2_": "no unit", `no\x2dde_db`: "escape", `no\x5_db`: "escape",
		"node2_web@": "template", "": "no _",
	} {
		_, _, err := ParseProxyInstance(instance)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "NODE_UNIT") {
			t.Errorf("%q: %v", instance, err)
		}
	}
	if _, _, err := ParseProxy("db.service"); err == nil {
		t.Error("db.service was taken for a proxy")
	}
}

func TestDepNames(t *testing.T) {
	for target, name := range map[string]string{
		"db.service": "ctrl-dep@db.service", "data.mount": "ctrl-dep-unit@data.mount.service",
		"web@1.service": "ctrl-dep@web@1.service", "odd.mount.service": "ctrl-dep@odd.mount.service",
	} {
		got, err := DepName(target)
		if err != nil || got != name {
			t.Errorf("%s: %q, %v", target, got, err)
		}
		if back, ok := ParseDep(got); !ok || back != target {
			t.Errorf("%s is read as %q, %v", got, back, ok)
		}
	}
	for _, bad := range []string{"db.service", "ctrl-dep@.service", "ctrl-dep-unit@db.service", "ctrl-dep-unit@a.service.service", "ctrl-dep@db.mount"} {
		if target, ok := ParseDep(bad); ok {
			t.Errorf("%q was read as %q", bad, target)
		}
	}
}

func FuzzProxyInstance(f *testing.F) {
	f.Add("node2_db")
	f.Add(`lab\x5f3_data.mount`)
	f.Fuzz(func(t *testing.T, instance string) {
		node, target, err := ParseProxyInstance(instance)
		if err != nil {
			return
		}
		name, err := ProxyName(node, target)
		if err != nil {
			return // too long with its prefix
		}
		if n, u, err := ParseProxy(name); err != nil || n != node || u != target {
			t.Errorf("%q: %q on %q came back as %q on %q, %v", instance, target, node, u, n, err)
		}
	})
}
