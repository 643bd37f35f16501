package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSourcesInOrder(t *testing.T) {
	root := tree(t, map[string]string{
		"usr/lib/ctrl/manager.conf":                "[manager]\nLogLevel=error\nPort=1\nAllowedNodeNames=vendor\n",
		"usr/lib/ctrl/manager.conf.d/50-site.conf": "[manager]\nLogLevel=warn\nCallTimeout=1\n",
		"etc/ctrl/manager.conf":                    "[manager]\nPort=2\nAllowedNodeNames=a,b\nUseUDS=no\n",
		"etc/ctrl/manager.conf.d/10-site.conf":     "[manager]\nLogLevel=debug\nPort=3\nUseUDS=\n",
		"etc/ctrl/manager.conf.d/20-none.conf":     "",
		"etc/ctrl/manager.conf.d/ignored.conf.bak": "nonsense\n",
		"etc/ctrl/manager.conf.d/.ignored.conf":    "nonsense\n",
		"own.conf":                                 "[manager]\nQueryTimeout=7\nCallTimeout=8\nAllowedNodeNames=c\nLogTarget=stderr\n",
	})
	opt := Options{Root: root, File: root + "/own.conf", Getenv: environment("CTRL_LOG_TARGET=json", "CTRL_LOG_LEVEL=", "CTRL_LOG_IS_QUIET=yes"),
		Flags: []Flag{{"--port", "Port", "8"}, {"--port", "Port", "9"}}}
	m := must[*Manager](t)(LoadManager(opt))
	if m.LogLevel != "warn" || m.Port != 9 || m.CallTimeout != 8*time.Second || m.QueryTimeout != 7*time.Second ||
		m.LogTarget != "stderr" || !m.LogIsQuiet || !m.UseUDS || !reflect.DeepEqual(m.AllowedNodeNames, []string{"vendor", "a", "b", "c"}) {
		t.Errorf("got %+v", m)
	}
	var out bytes.Buffer
	if err := m.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# --port\nPort=9\n", "# CTRL_LOG_IS_QUIET\nLogIsQuiet=yes\n", "# default\nTLS=yes\n", "# default\nUseUDS=yes\n",
		"# " + root + "/usr/lib/ctrl/manager.conf.d/50-site.conf:2\nLogLevel=warn\n", "# " + root + "/own.conf:2\nQueryTimeout=7s\n",
		"# " + root + "/usr/lib/ctrl/manager.conf:4\nAllowedNodeNames=vendor\n# " + root + "/etc/ctrl/manager.conf:3\nAllowedNodeNames=a,b\n# " + root + "/own.conf:4\nAllowedNodeNames=c\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	// A namesake below /etc takes the place of the package's drop-in, also one that is empty.
	namesake := root + "/etc/ctrl/manager.conf.d/50-site.conf"
	for _, replace := range []func() error{
		func() error { return os.WriteFile(namesake, []byte("[manager]\nLogLevel=debug\n"), 0o644) },
		func() error { return os.Truncate(namesake, 0) },
		func() error { os.Remove(namesake); return os.Symlink("/dev/null", namesake) },
	} {
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		if m, err := LoadManager(opt); err != nil || m.LogLevel != "debug" {
			t.Errorf("namesake: %v", err)
		}
	}
	for level, opt := range map[string]Options{
		"debug": {Root: root, Getenv: environment("CTRL_LOG_LEVEL=DEBUG"), File: root + "/etc/ctrl/manager.conf.d/20-none.conf"},
		"error": {Root: root, Getenv: environment("CTRL_LOG_LEVEL=debug"), Flags: []Flag{{"-l", "LogLevel", "ERROR"}}},
	} {
		if m := must[*Manager](t)(LoadManager(opt)); m.LogLevel != level {
			t.Errorf("level is %s, want %s", m.LogLevel, level)
		}
	}
}

func TestFilesOfAUser(t *testing.T) {
	root := tree(t, map[string]string{
		"etc/ctrl/agent.conf": "[agent]\nLogLevel=error\n", "usr/lib/ctrl/agent.conf": "nonsense", "c/ctrl/agent.conf": "[agent]\nManagerPort=7\n",
		"c/ctrl/agent.conf.d/1.conf": "[agent]\nLogLevel=debug\n",
	})
	a := must[*Agent](t)(LoadAgent(Options{Root: root, User: true, Hostname: "h", Getenv: environment("XDG_CONFIG_HOME=/c", "HOME=/h")}))
	if a.LogLevel != "debug" || a.ManagerPort != 7 {
		t.Errorf("got %+v", a)
	}
}

// Only what -c names must be there; but what is there must be readable.
func TestUnreadableFiles(t *testing.T) {
	for name, prepare := range map[string]func(root string) (Options, error){
		"none.conf": func(root string) (Options, error) { return Options{Root: root, File: root + "/none.conf"}, nil },
		"manager.conf is no file": func(root string) (Options, error) {
			return Options{Root: root}, os.MkdirAll(root+"/etc/ctrl/manager.conf", 0o755)
		},
		"1.conf is no file": func(root string) (Options, error) {
			os.MkdirAll(root+"/etc/ctrl/manager.conf.d", 0o755)
			return Options{Root: root}, syscall.Mkfifo(root+"/etc/ctrl/manager.conf.d/1.conf", 0o644)
		},
		"2.conf: no such file": func(root string) (Options, error) { // a link that leads nowhere
			os.MkdirAll(root+"/etc/ctrl/manager.conf.d", 0o755)
			return Options{Root: root}, os.Symlink("nowhere", root+"/etc/ctrl/manager.conf.d/2.conf")
		},
		"manager.conf.d": func(root string) (Options, error) { // a file where a folder is expected
			os.MkdirAll(root+"/etc/ctrl", 0o755)
			return Options{Root: root}, os.WriteFile(root+"/etc/ctrl/manager.conf.d", nil, 0o644)
		},
		"larger than 16 MiB": func(root string) (Options, error) {
			return Options{Root: root, File: root + "/big"}, os.WriteFile(root+"/big", make([]byte, maxFile+1), 0o644)
		},
		"is a directory": func(root string) (Options, error) { return Options{Root: root, File: root}, nil },
	} {
		opt, err := prepare(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := LoadManager(opt); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// A pipe is what `-c <(…)` gives.
	fifo := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(fifo, []byte("[manager]\nPort=7\n"), 0o600)
	if m, err := LoadManager(Options{Root: t.TempDir(), File: fifo}); err != nil || m.Port != 7 {
		t.Errorf("a pipe: %v", err)
	}
}

func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[manager]\nLogLevl=debug\n", `:2: key LogLevl= is not known in [manager]; did you mean LogLevel=?`},
		{"[manager]\nloglevel=debug\n", "did you mean LogLevel=?"},
		{"[manager]\nqqqqqqqqqqqq=1\n", `:2: key qqqqqqqqqqqq= is not known in [manager]` + "\n"},
		{"[manager]\n\x1b[2J=1\n", "control character"},
		{"[manager]\nManagerHost=a\n", `it belongs to the other daemon, into [agent]`},
		{"[manager]\nOptional=yes\n", "it belongs into [node NAME]"},
		{"[node a]\nPort=1\n", "it belongs into [manager]"},
		{"[manager]\nControllerPort=1\n", "here it is called Port="},
		{"[manager]\nPort=842O\n", `:2: Port=: "842O" is no number from 0 to 65535`},
		{"[manager]\nPort=65538\n", "is no number"},
		{"[manager]\nPort=842 # the default\n", "comments stand on lines of their own"},
		{"[manager]\nPort=1\nUseUDS=no\n\nPort=2\n", ":5: Port= is set twice in this file, in line 2"},
		{"[manager]\nPort=1\n[node a]\nAllowed=1\n[manager]\nPort=\n", ":6: Port= is set twice in this file, in line 2"},
		{"[manager]\nUseTCP=maybe\n", `"maybe" is neither yes nor no`},
		{"[manager]\nLogLevel=loud\n", "none of debug, info, warn, error"},
		{"[manager]\nHeartbeatInterval=soon\n", "no time span"},
		{"[manager]\nHeartbeatInterval=-1s\n", "no time span"},
		{"[manager]\nHeartbeatInterval=5 parsecs\n", "no time span"},
		{"[manager]\nHeartbeatInterval=2\n", `"2" is 2ms, since a number alone is in milliseconds here, and at least 100ms are wanted; write 2s for seconds`},
		{"[manager]\nHeartbeatInterval=2h\n", "not between 100ms and 1h"},
		{"[manager]\nCallTimeout=0\n", "not between 1ms and 1d"},
		{"[manager]\nCallTimeout=infinity\n", "not between"},
		{"[manager]\nTCPKeepAliveTime=1500ms\n", "no whole number of seconds"},
		{"[manager]\nTCPKeepAliveTime=32768\n", "not between"},
		{"[manager]\nTCPKeepAliveCount=128\n", "from 0 to 127"},
		{"[manager]\nCertFile=here.pem\n", `"here.pem" is no absolute path`},
		{"[manager]\nAllowedNodeNames=a,b/c\n", `:2: AllowedNodeNames=: "b/c" is no node name: a node name is`},
		{"[manager]\nAllowedNodeNames=a b\n", "names in a list have commas between them"},
		{"[manager]\nAllowedNodeNames=" + strings.Repeat("n", 65) + "\n", "is no node name"},
		{"[manager]\nSocketGroup=two words\n", "is no name of a group"},
		{"[node my node]\nAllowed=yes\n", `:1: "my node" is no node name`},
		{"[node]\nAllowed=yes\n", "write [node NAME]"},
		{"[agent]\nNodeName=a\n", ":1: section [agent] belongs into agent.conf; here stand [manager] and [node NAME]"},
		{"[policy]\n", "belongs into agent.conf"},
		{"[managers]\nPort=1\n", ":1: section [managers] is not known; did you mean [manager]?"},
		{"[bluechi-controller]\nPort=1\n", ":1: section [bluechi-controller] is not known; here stand [manager]"},
		{"[manager]\nHeartbeatInterval=0\n", ":2) switches heartbeats off, and without them NodeHeartbeatThreshold=6s (default) has no effect; set an interval, or NodeHeartbeatThreshold=0 as well"},
		{"[manager]\nNodeHeartbeatThreshold=2500\n", ":2) is less than one and a half times HeartbeatInterval=2s (default)"},
		{"[manager]\nAllowedNodeNames=a\n[node a]\nAllowed=no\n", ":4: Allowed=no does not take a out of the fleet, since AllowedNodeNames= names it ("},
		{"[manager]\nCertFile=/a\nCAFile=/b\n", ":2: CertFile= is of no use without KeyFile="},
		{"[manager]\nKeyFile=/a\n", ":2: KeyFile= is of no use without CertFile="},
	} {
		_, err := loadManager(t, c.text)
		if err == nil || !strings.Contains(err.Error()+"\n", c.want) {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestMistakesOfAgents(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[agent]\nControllerHost=a\n", `key ControllerHost= is not known in [agent]; here it is called ManagerHost=`},
		{"[agent]\nControllerHeartbeatThreshold=6000\n", "here it is called ManagerHeartbeatThreshold="},
		{"[agent]\nPort=1\n", "here it is called ManagerPort="},
		{"[agent]\nAllowUnits=*\n", "it belongs into [policy]"},
		{"[agent]\nManagerAddress=boss:842\n", "no D-Bus address"},
		{"[agent]\nManagerHost=boss:842\n", "that stands in ManagerPort="},
		{"[agent]\nManagerHost=tcp:host=boss\n", "that stands in ManagerAddress="},
		{"[agent]\nManagerHost=a host\n", "is no host name"},
		{"[agent]\nManagerPort=0\n", "from 1 to 65535"},
		{"[agent]\nNodeName=my node\n", "is no node name"},
		{"[agent]\nReconnectMax=1ms\n", "ReconnectMin=100ms (default) is more than ReconnectMax=1ms ("},
		{"[agent]\nOnDisconnectUnit=safe\n", "unit type"},
		{"[agent]\nOnDisconnectUnit=safe@.target\n", "is a template"},
		{"[agent]\nOnNodeLoss=panic\n", "none of keep, stop, stop-after=TIME"},
		{"[agent]\nOnNodeLoss=stop-after=\n", "no time span"},
		{"[agent]\nLabels=zone\n", "is no label"},
		{"[agent]\nLabels=zone=a b\n", "is no label"},
		{"[agent]\nHeartbeatInterval=0\n", "ManagerHeartbeatThreshold=6s (default) has no effect"},
		{"[policy]\nAllowUnits=web-[\n", "without its ]"},
		{"[policy]\nAllowUnits=a.service b.service\n", "have commas between them"},
		{"[policy]\nAllowFilePaths=srv\n", "no absolute path"},
		{"[node a]\nAllowed=yes\n", "section [node a] belongs into manager.conf; here stand [agent] and [policy]"},
	} {
		if _, err := loadAgent(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
	if _, err := LoadAgent(Options{Root: t.TempDir(), Hostname: "-bad"}); err == nil || !strings.Contains(err.Error(), "set NodeName= in [agent]") {
		t.Errorf("bad host name: %v", err)
	}
	opt := Options{Hostname: "h", Root: tree(t, map[string]string{"etc/ctrl/agent.conf": "[agent]\nManagerAddress=unix:path=/a;tcp:port=x\n"}),
		CheckAddress: func(address string) error {
			if address == "tcp:port=x" {
				return os.ErrInvalid
			}
			return nil
		}}
	if _, err := LoadAgent(opt); err == nil || !strings.HasSuffix(err.Error(), "agent.conf:2: ManagerAddress=: invalid argument") {
		t.Errorf("the transport refuses an address: %v", err)
	}
}

func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	root := tree(t, map[string]string{
		"etc/ctrl/manager.conf":          "[manager]\nPort=x\nColour=blue\nUseTCP=y\n[node a]\nAllowed=perhaps\n",
		"etc/ctrl/manager.conf.d/1.conf": "nonsense\n[manager\n",
	})
	_, err := LoadManager(Options{Root: root, Getenv: environment("CTRL_LOG_LEVEL=loud"), Flags: []Flag{{"--port", "Port", "y"}, {"--colour", "Colour", "y"}, {"--level", "LogLevel", ""}}})
	if err == nil {
		t.Fatal("no error")
	}
	// The option hides what the file says about the port; the rest is there.
	for _, want := range []string{
		"manager.conf:3: key Colour=", "1.conf:1: ", "1.conf:2: ", "--colour: there is no key Colour", "--level: needs a value", "--port: Port=: \"y\"", "manager.conf:6: Allowed=:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if _, err := loadManager(t, "[manager]\n"+strings.Repeat("x\n", 10000)); err == nil || strings.Count(err.Error(), "\n") > maxFaults {
		t.Errorf("10000 mistakes give %d lines", strings.Count(err.Error(), "\n"))
	}
	if _, err := loadManager(t, "[manager]\n"+strings.Repeat("x=1\n", 10000)); err == nil || strings.Count(err.Error(), "\n") > maxFaults+1 || !strings.HasSuffix(err.Error(), "and 9980 more") {
		t.Errorf("10000 unknown keys give %d lines", strings.Count(err.Error(), "\n"))
	}
	if _, err := LoadManager(Options{Root: t.TempDir(), Getenv: environment("CTRL_LOG_LEVEL=loud")}); err == nil || !strings.HasPrefix(err.Error(), "CTRL_LOG_LEVEL: LogLevel=: ") {
		t.Errorf("environment: %v", err)
	}
}

func TestManagerAddressAndHost(t *testing.T) {
	flag := func(option, key, value string) Flag { return Flag{option, key, value} }
	for _, c := range []struct {
		text  string
		flags []Flag
		want  []string // addresses
		note  string
		err   string
	}{
		{text: "", want: []string{"tcp:host=127.0.0.1,port=842"}},
		{text: "ManagerHost=fe80::1%eth0\nManagerPort=7", want: []string{"tcp:host=fe80%3a%3a1%25eth0,port=7"}},
		{text: "ManagerHost=[::1]", want: []string{"tcp:host=%3a%3a1,port=842"}},
		{text: "ManagerAddress=tcp:host=a,port=842; tcp:host=b,port=842;", want: []string{"tcp:host=a,port=842", "tcp:host=b,port=842"}},
		{text: "ManagerHost=h\nManagerAddress=tcp:host=a,port=1", want: []string{"tcp:host=a,port=1"}, note: "ManagerHost ("},
		{text: "ManagerAddress=tcp:host=a,port=1", flags: []Flag{flag("--address", "ManagerAddress", "tcp:host=b,port=2")}, want: []string{"tcp:host=b,port=2"}},
		{text: "ManagerAddress=tcp:host=a,port=1", flags: []Flag{flag("--manager-host", "ManagerHost", "h")}, want: []string{"tcp:host=h,port=842"}, note: "ManagerAddress= ("},
		{text: "ManagerAddress=tcp:host=a,port=1", flags: []Flag{flag("--port", "ManagerPort", "2")}, err: "--port: ManagerPort= has no effect, since ManagerAddress= ("},
		{text: "", flags: []Flag{flag("--address", "ManagerAddress", "tcp:host=b,port=2"), flag("--manager-host", "ManagerHost", "h")}, err: "--manager-host: has no effect beside --address"},
	} {
		a, err := loadAgent(t, "[agent]\n"+c.text+"\n", c.flags...)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q with %v: %v, want %s", c.text, c.flags, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(a.Addresses(), c.want) || c.note == "" && len(a.Notes) > 0 || !strings.Contains(strings.Join(a.Notes, "\n"), c.note) {
			t.Errorf("%q with %v: %v, %v", c.text, c.flags, a, err)
		}
	}
}
