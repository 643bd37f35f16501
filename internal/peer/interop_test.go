package peer

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

const testInterface = "org.example.Test"

const testXML = `<node>
 <interface name="org.example.Test">
  <method name="Echo"><arg type="ya{sv}(st)ad" direction="in"/><arg type="ya{sv}(st)ad" direction="out"/></method>
  <property name="Answer" type="u" access="read"/>
  <signal name="Echoed"><arg type="s"/></signal>
 </interface>
</node>
`

// testServer is the object that the clients of these tests call.
func testServer(c *Conn, m *Message) {
	switch m.Interface + "." + m.Member {
	case testInterface + ".Echo":
		c.Reply(m, m.Body)
		c.Signal(m.Path, testInterface, "Echoed", MustEncode("x"))
	case testInterface + ".Refuse":
		c.ReplyError(m, &wire.Error{Name: "org.example.Error.Refused", Text: "no"})
	case wire.IntrospectableInterface + ".Introspect":
		c.Reply(m, MustEncode(testXML))
	case wire.PropertiesInterface + ".GetAll":
		c.Reply(m, MustEncode(map[string]wire.Value{"Answer": MustValue(uint32(42))}))
	case wire.PropertiesInterface + ".Get":
		c.Reply(m, MustEncode(MustValue(uint32(42))))
	default:
		c.ReplyError(m, UnknownMethod(m))
	}
}

// run runs a program that must succeed, and returns what it says.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(limited(t), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestBusctlIsAClient(t *testing.T) {
	busctl := need(t, "busctl")
	address := "--address=" + serve(t, Options{Handler: testServer})
	out := run(t, busctl, address, "introspect", testInterface, "/a")
	for _, want := range []string{testInterface, ".Echo", "ya{sv}(st)ad", ".Answer", "42", ".Echoed"} {
		if !strings.Contains(out, want) {
			t.Errorf("introspect does not show %q:\n%s", want, out)
		}
	}
	out = run(t, busctl, address, "--", "call", testInterface, "/a", testInterface, "Echo", "ya{sv}(st)ad",
		"7", "1", "key", "as", "2", "a", "b", "text", "18446744073709551615", "2", "0.5", "-1")
	if want := `ya{sv}(st)ad 7 1 "key" as 2 "a" "b" "text" 18446744073709551615 2 0.5 -1`; strings.TrimSpace(out) != want {
		t.Errorf("call says %q, want %q", out, want)
	}
	if out = run(t, busctl, address, "get-property", testInterface, "/a", testInterface, "Answer"); out != "u 42\n" {
		t.Errorf("get-property says %q", out)
	}
	text, err := exec.CommandContext(limited(t), busctl, address, "call", testInterface, "/a", testInterface, "Refuse").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "no") {
		t.Errorf("a refused call says %q, %v", text, err)
	}
}

func TestPythonIsAClient(t *testing.T) {
	const python = "/usr/bin/python3" // Debian's, which has the distribution's dbus-python
	if err := exec.Command(python, "-c", "import dbus").Run(); err != nil {
		missing(t, "dbus-python (apt-get install python3-dbus)")
	}
	out := run(t, python, "testdata/client.py", serve(t, Options{Handler: testServer}))
	if out != "ok\n" {
		t.Errorf("it says %q", out)
	}
}

func TestGodbusIsAClient(t *testing.T) {
	c, err := dbus.Connect(serve(t, Options{Handler: testServer}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if names := c.Names(); len(names) != 1 || names[0] != ":1.0" {
		t.Errorf("its names are %v", names)
	}
	type inner struct {
		S string
		T uint64
	}
	var y byte
	var props map[string]dbus.Variant
	var in inner
	var d []float64
	err = c.Object(testInterface, "/a").Call(testInterface+".Echo", 0, byte(1),
		map[string]dbus.Variant{"k": dbus.MakeVariant([]string{"v"})}, inner{"s", 2}, []float64{3}).Store(&y, &props, &in, &d)
	if err != nil || y != 1 || props["k"].String() != `["v"]` || in != (inner{"s", 2}) || d[0] != 3 {
		t.Errorf("got %v %v %v %v, %v", y, props, in, d, err)
	}
	var e dbus.Error
	if err := c.Object(testInterface, "/a").Call(testInterface+".Refuse", 0).Err; !errors.As(err, &e) || e.Name != "org.example.Error.Refused" {
		t.Errorf("refused with %v", err)
	}
}

// sdbus compiles the sd-bus side.
func sdbus(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/systemd/sd-bus.h"); err != nil {
		missing(t, "sd-bus.h (apt-get install libsystemd-dev)")
	}
	program := filepath.Join(t.TempDir(), "sdbus")
	run(t, need(t, "cc"), "-Wall", "-o", program, "testdata/sdbus.c", "-lsystemd")
	return program
}

func TestSDBusIsAClient(t *testing.T) {
	program := sdbus(t)
	address := serve(t, Options{Handler: testServer})
	for _, kind := range []string{"client", "peer"} {
		if out := run(t, program, kind, address); out != "ok\n" {
			t.Errorf("as %s it says %q", kind, out)
		}
	}
}

func TestSDBusIsTheServer(t *testing.T) {
	program := sdbus(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := DialAddress(limited(t), "unix:path="+EscapeAddress(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	file, err := far.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limited(t), program, "server", "3")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file.Close()
	far.Close()
	var signals atomic.Int32
	client, err := Client(limited(t), nc, Options{Handler: func(_ *Conn, m *Message) {
		if m.Member == "Echoed" {
			signals.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	type inner struct {
		S string
		T uint64
	}
	body := MustEncode(byte(7), map[string]wire.Value{"k": MustValue([]string{"v"})}, inner{"s", 2}, []float64{3})
	const count = 500
	results := make(chan error, count)
	for range count {
		client.Go(Call{Path: "/a", Interface: testInterface, Member: "Echo", Body: body}, time.Minute, func(m *Message, err error) {
			if err == nil && (m.Body.Sig != body.Sig || string(m.Body.Data) != string(body.Data)) {
				err = errors.New("the answer differs")
			}
			results <- err
		})
	}
	for range count {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	_, err = client.Call(limited(t), Call{Path: "/a", Interface: testInterface, Member: "Refuse"})
	if e := wire.AsError(err); e == nil || e.Name != "org.example.Error.Refused" || e.Text != "no" {
		t.Errorf("refused with %v", err)
	}
	if n := signals.Load(); n != count {
		t.Errorf("%d signals came before the last answer, want %d", n, count)
	}
	client.Close(nil)
	<-client.Done()
	if err := cmd.Wait(); err != nil {
		t.Errorf("sd-bus ended with %v", err)
	}
}
