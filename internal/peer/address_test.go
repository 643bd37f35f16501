package peer

import (
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	keys := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	good := []struct {
		in       string
		want     []Address
		network  string
		endpoint string
	}{
		{"unix:path=/run/dbus/system_bus_socket", []Address{{"unix", keys("path", "/run/dbus/system_bus_socket")}}, "unix", "/run/dbus/system_bus_socket"},
		{"unix:abstract=/tmp/x,guid=0af", []Address{{"unix", keys("abstract", "/tmp/x", "guid", "0af")}}, "unix", "@/tmp/x"},
		{"unix:path=/a%20b%2cc%3Bd", []Address{{"unix", keys("path", "/a b,c;d")}}, "unix", "/a b,c;d"},
		{"tcp:host=manager.example,port=842", []Address{{"tcp", keys("host", "manager.example", "port", "842")}}, "tcp", "manager.example:842"},
		{"tcp:host=127.0.0.1,port=1,family=ipv4", []Address{{"tcp", keys("host", "127.0.0.1", "port", "1", "family", "ipv4")}}, "tcp4", "127.0.0.1:1"},
		{"tcp:host=%3a%3a1,port=1,family=ipv6", []Address{{"tcp", keys("host", "::1", "port", "1", "family", "ipv6")}}, "tcp6", "[::1]:1"},
		{";tcp:host=a,port=1;unix:path=/b;", []Address{{"tcp", keys("host", "a", "port", "1")}, {"unix", keys("path", "/b")}}, "tcp", "a:1"},
	}
	for _, test := range good {
		got, err := ParseAddress(test.in)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, %v", test.in, got, err)
			continue
		}
		if network, endpoint, err := got[0].Endpoint(); network != test.network || endpoint != test.endpoint || err != nil {
			t.Errorf("%s: endpoint %s %s, %v", test.in, network, endpoint, err)
		}
		var written []string
		for _, a := range got {
			written = append(written, a.String())
		}
		if again, err := ParseAddress(strings.Join(written, ";")); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: written as %v, which reads as %v, %v", test.in, written, again, err)
		}
	}
	for _, in := range []string{
		"", ";", "unix", ":path=/a", "unix:path", "unix:=/a", "unix:path=/a,path=/b", "unix:path=/a b", "unix:path=/a%",
		"unix:path=/a%2", "unix:path=/a%zz", "unix:path=/a%+1", "unix:path=/ä", "tcp:host=a,port=1,", "/run/socket", "10.0.0.1:842",
	} {
		if got, err := ParseAddress(in); err == nil {
			t.Errorf("%q was read as %v", in, got)
		}
	}
	for _, in := range []string{
		"unix:", "unix:path=", "unix:abstract=", "unix:path=/a,abstract=b", "unix:tmpdir=/tmp", "tcp:port=1", "tcp:host=a",
		"tcp:host=a,port=0", "tcp:host=a,port=65536", "tcp:host=a,port=x", "tcp:host=a,port=1,family=ipx", "unixexec:path=ssh", "launchd:env=X",
	} {
		list, err := ParseAddress(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if network, endpoint, err := list[0].Endpoint(); err == nil {
			t.Errorf("%q leads to %s %s", in, network, endpoint)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("unix:path=/a%20b;tcp:host=h,port=1,family=ipv6")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseAddress(s)
		if err != nil {
			return
		}
		for _, a := range list {
			again, err := ParseAddress(a.String())
			if err != nil || !reflect.DeepEqual(again, []Address{a}) {
				t.Fatalf("%q is written as %q, which reads as %v, %v", s, a, again, err)
			}
			a.Endpoint()
		}
	})
}

func TestDialAddress(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dead, live := "unix:path="+EscapeAddress(dir)+"/a", "unix:path="+EscapeAddress(dir)+"/b"
	nc, err := DialAddress(limited(t), dead+";bad:;"+live)
	if err != nil {
		t.Fatal(err)
	}
	if got := nc.RemoteAddr().String(); got != l.Addr().String() {
		t.Errorf("connected to %s", got)
	}
	nc.Close()
	_, err = DialAddress(limited(t), dead+";bad:")
	if err == nil || !strings.Contains(err.Error(), "/a") || !strings.Contains(err.Error(), "bad") {
		t.Errorf("the error does not name both addresses: %v", err)
	}
}

func TestBusAddresses(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := SystemBusAddress(); got != "unix:path=/run/dbus/system_bus_socket" {
		t.Errorf("system bus at %s", got)
	}
	if got, err := UserBusAddress(); err == nil {
		t.Errorf("user bus at %s", got)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/a b")
	if got, err := UserBusAddress(); got != "unix:path=/run/user/a%20b/bus" || err != nil {
		t.Errorf("user bus at %s, %v", got, err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/s")
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/t")
	if got, err := UserBusAddress(); got != "unix:path=/s" || err != nil {
		t.Errorf("user bus at %s, %v", got, err)
	}
	if got := SystemBusAddress(); got != "unix:path=/t" {
		t.Errorf("system bus at %s", got)
	}
}
