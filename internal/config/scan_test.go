package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestScan(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		text string
		want []assignment
	}{
		{"\xef\xbb\xbf[s]\r\nA = b c \r\n", []assignment{{"s", "A", "b c", 2}}},
		{"[ node   a ]\nA: b\nB=c:d\nC:e=f", []assignment{{"node a", "A", "b", 2}, {"node a", "B", "c:d", 3}, {"node a", "C", "e=f", 4}}},
		{"# A=1\n; B=2\n  # C=3\n[s]\nD=#x\nE=a ;b\nF=\"q\"", []assignment{{"s", "D", "#x", 5}, {"s", "E", "a ;b", 6}, {"s", "F", `"q"`, 7}}},
		{"[s]\nA=", []assignment{{"s", "A", "", 2}}},
		{"[s]\nA=\n  b\n\tc\n", []assignment{{"s", "A", "bc", 2}}},
		{"[s]\nA=one\n # between\n\n  two\nB=3", []assignment{{"s", "A", "onetwo", 2}, {"s", "B", "3", 6}}},
		{"[s]\nA=a,\\\n# between\nb,\\\n  c\nB=1", []assignment{{"s", "A", "a, b, c", 2}, {"s", "B", "1", 6}}},
		{"[s]\nA=\\\n  b", []assignment{{"s", "A", "b", 2}}},
		{"[s]\nA=x \\\t\ny", []assignment{{"s", "A", "x y", 2}}},
		{`[s]` + "\nA=x\\\\\nB=y\\\\\\\n z", []assignment{{"s", "A", `x\\`, 2}, {"s", "B", `y\\ z`, 3}}},
		// Indented, what stands first in its section is a key all the same.
		{"[s]\n  A=1\n", []assignment{{"s", "A", "1", 2}}},
		// These look like keys, but no table has them, and they are indented.
		{"[s]\nA=x\n  Zone=1\n", []assignment{{"s", "A", "xZone=1", 2}}},
		{"[s]\nA=a,\\\n  Zone=1\n", []assignment{{"s", "A", "a, Zone=1", 2}}},
		{"[s]\nA=tcp:host=a;\\\ntcp:host=b", []assignment{{"s", "A", "tcp:host=a; tcp:host=b", 2}}},
		{"[s]\n# " + long + "LogLevel=debug\nA=" + long, []assignment{{"s", "A", long, 3}}},
		{"[s]\nA=1\n[t]\n", []assignment{{"s", "A", "1", 2}}},
	} {
		if got, _, err := scan("f", []byte(c.text)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.200q:\ngot  %.500q, %v\nwant %.500q", c.text, fmt.Sprint(got), err, fmt.Sprint(c.want))
		}
	}
}

func TestScanNamesMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Port=1\n", `f:1: Port= stands before the first [section]`},
		{"[manager\nPort=1\n", `f:1: "[manager" has no ] at its end`},
		{"[manager] # here\n", `f:1: "[manager] # here" has text behind the ]`},
		{"[]\n", `f:1: "[]" is no section`},
		{"[[a]]\n", `f:1: `},
		{"[s]\nPort\n", `f:2: "Port" is neither KEY=VALUE, nor [section], nor a comment`},
		{"[s]\n=1\n", "f:2: \"=1\" has no key before the ="},
		{"[s]\nA=\xff\n", "f:2: contains bytes that are not UTF-8 text"},
		{"[s]\nA=a\x00b\n", `f:2: contains the control character '\x00'`},
		{"[s]\nA=a\rB=b\n", `f:2: contains the control character '\r'`},
		{"[s]\n# \x1b[2J\n", "f:2: contains the control character"},
		// What would be swallowed.
		{"[s]\nA=/srv/odd\\\nLogLevel=debug\n", `f:2: ends in a backslash, so line 3 ("LogLevel=debug") would become part of A=`},
		{"[s]\nA=/srv/odd\\\n  LogLevel = debug\n", "f:2: ends in a backslash, so line 3"},
		{"[s]\nA=/srv/odd\\\nLogLevl=debug\n", "f:2: ends in a backslash, so line 3"},
		{"[s]\nA=/srv/odd\\\n[t]\n", "f:2: ends in a backslash, so line 3"},
		{"[s]\nA=/srv/odd\\\n\nB=1", "f:2: ends in a backslash, which joins the next line, but a blank line follows"},
		{"[s]\nA=/srv/odd\\\n", "f:2: ends in a backslash, which joins the next line, but the end of the file follows"},
		{"[s]\n  Port=1\n  LogLevel=debug\n", `f:3: is indented, so "LogLevel=debug" would become part of Port= of line 2; keys and sections begin at the start of a line`},
		{"[s]\nA=1\n\n  LogLevel: debug\n", "f:4: is indented"},
		{"[s]\nA=1\n  [t]\n", "f:3: is indented"},
	} {
		_, _, err := scan("f", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

// Values that other parsers cut or lose (cases 62 to 64).
func TestWholeValues(t *testing.T) {
	long := strings.Repeat("x", 5000)
	a := must[*Agent](t)(loadAgent(t, "\xef\xbb\xbf# "+long[:2046]+"LogLevel=debug\n[agent]\n"+
		"ManagerAddress=tcp:host=a,port=842;tcp:host=b,port=842\nCertFile=/etc/ctrl/a#b.pem\nKeyFile=/etc/ctrl/a ;b.pem\nCAFile=/"+long+"\r\n"))
	if !reflect.DeepEqual(a.Addresses(), []string{"tcp:host=a,port=842", "tcp:host=b,port=842"}) ||
		a.CertFile != "/etc/ctrl/a#b.pem" || a.KeyFile != "/etc/ctrl/a ;b.pem" || a.CAFile != "/"+long || a.LogLevel != "info" {
		t.Errorf("got %+v", a)
	}
	_, err := loadAgent(t, "[policy]\nAllowFilePaths=/srv/odd\\\nLogLevel=debug\n")
	if err == nil || !strings.Contains(err.Error(), "agent.conf:2: ends in a backslash") {
		t.Errorf("a swallowed key: %v", err)
	}
}

// Any bytes give a configuration that prints as it is, or an error that names the file.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("[manager]\nPort=1\nAllowedNodeNames=a,\\\n b\n c\n; x\n[node a]\nOptional=yes\nAllowDependenciesOn=b\n[agent]\nLabels=a=b\n"))
	f.Add([]byte("[agent]\nLabels=a=b\nManagerAddress=unix:path=/a;tcp:host=b,port=1\nOnNodeLoss=stop-after=1y 2M 3us\n[policy]\nAllowUnits=*\n"))
	f.Add([]byte("[manager]\nHeartbeatInterval=1.5s\nNodeHeartbeatThreshold=1min 3.25s\nTLS: no\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		file := dir + fmt.Sprintf("/%d.conf", os.Getpid())
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		opt := Options{Root: dir, File: file, Hostname: "h"}
		if m, err := LoadManager(opt); err != nil {
			checkError(t, file, err)
		} else {
			again(t, m, LoadManager, opt)
		}
		if a, err := LoadAgent(opt); err != nil {
			checkError(t, file, err)
		} else {
			again(t, a, LoadAgent, opt)
		}
	})
}

func checkError(t *testing.T, file string, err error) {
	t.Helper()
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.Contains(line, file+":") && !strings.HasPrefix(line, "and ") {
			t.Fatalf("an error does not say where: %q", line)
		}
		if badText(line) != "" {
			t.Fatalf("an error %s: %q", badText(line), line)
		}
	}
}
