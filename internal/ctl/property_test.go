package ctl

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/client"
)

// asJSON writes properties as [[name, type, value]], structs as arrays.
func asJSON(t *testing.T, props []client.Property) string {
	t.Helper()
	rows := [][]any{}
	for _, p := range props {
		rows = append(rows, []any{p.Name, dbus.SignatureOf(p.Value).String(), arrays(reflect.ValueOf(p.Value))})
	}
	text, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func arrays(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Struct:
		out := []any{}
		for i := range v.NumField() {
			out = append(out, arrays(v.Field(i)))
		}
		return out
	case reflect.Slice:
		out := []any{}
		for i := range v.Len() {
			out = append(out, arrays(v.Index(i)))
		}
		return out
	}
	return v.Interface()
}

// TestAssignmentsAsSystemctl holds assignments against what systemctl sends for them.
func TestAssignmentsAsSystemctl(t *testing.T) {
	golden, err := os.ReadFile("testdata/properties.tsv")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for line := range strings.Lines(string(golden)) {
		text, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			continue
		}
		tested++
		props, err := assignment(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := asJSON(t, props); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
	if tested < 70 {
		t.Errorf("only %d assignments were tested", tested)
	}
}

func TestMoreAssignments(t *testing.T) {
	for text, want := range map[string]string{
		`Environment=A=1 "B=2 3" C=a\ b`:                   `[["Environment","as",["A=1","B=2 3","C=a b"]]]`,
		"IPAddressAllow=localhost ::1":                     `[["IPAddressAllow","a(iayu)",[[2,[127,0,0,0],8],[10,[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1],128],[10,[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1],128]]]]`,
		"BindReadOnlyPaths=-/a /b:/c:norbind":              `[["BindReadOnlyPaths","a(ssbt)",[["/a","/a",true,16384],["/b","/c",false,0]]]]`,
		"RestartPreventExitStatus=NOPERMISSION SIGHUP 200": `[["RestartPreventExitStatus","(aiai)",[[4,200],[1]]]]`,
		"ExecStart=-!:/bin/x":                              `[["ExecStartEx","a(sasas)",[["/bin/x",["/bin/x"],["ignore-failure","no-setuid","no-env-expand"]]]]]`,
	} {
		props, err := assignment(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := asJSON(t, props); got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestWrongAssignments(t *testing.T) {
	for text, want := range map[string]string{
		"MemoryMax":                "no NAME=VALUE",
		"=x":                       "no NAME=VALUE",
		"MemroyMax=1G":             "property MemroyMax is not known",
		"MemoryMax=lots":           "is no size",
		"MemoryMax=-1":             "is no size",
		"MemoryMax=16E":            "too large",
		"MemoryMax=101%":           "more than 100%",
		"CPUWeight=0":              "no weight",
		"CPUQuota=0%":              "no percentage above 0",
		"CPUQuota=half":            "no percentage above 0",
		"Nice=x":                   "no number",
		"UMask=9":                  "no octal mode",
		"TimeoutSec=soon":          "no time span",
		"KillSignal=SIGNOPE":       "not known",
		"LimitNOFILE=20:10":        "above hard limit",
		"RemainAfterExit=maybe":    "neither yes nor no",
		"ExecStart=-":              "has no command",
		"ExecStart=@/bin/x":        "has no command",
		`Environment="A`:           "quote without its end",
		`Environment=A\`:           "ends with a backslash",
		"AllowedCPUs=3-1":          "no CPU number",
		"AllowedCPUs=99999":        "no CPU number",
		"IPAddressAllow=10.0.0/8":  "no IP address",
		"CapabilityBoundingSet=x":  "capability",
		"RestrictNamespaces=x":     "namespace",
		"CPUSchedulingPolicy=fast": "use other, fifo",
		"IODeviceWeight=/dev/sda":  "no device with a value",
		"SuccessExitStatus=WHAT":   "neither an exit status nor a signal",
		"BindPaths=/a:/b:x":        "neither rbind nor norbind",
	} {
		if _, err := assignment(text); err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != exitUsage {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestPropertyText(t *testing.T) {
	tests := []struct {
		name string
		data any
		want []string
	}{
		{"Id", "foo.service", []string{"foo.service"}},
		{"Id", "", nil},
		{"CanStart", true, []string{"yes"}},
		{"Names", []string{"a.service", "b.service"}, []string{"a.service b.service"}},
		{"Environment", []string{"A=1", "B=x y", `C="$`}, []string{`A=1 "B=x y" "C=\"\$"`}},
		{"ActiveEnterTimestamp", uint64(1700000000000000), []string{"Tue 2023-11-14 22:13:20 UTC"}},
		{"ActiveEnterTimestamp", uint64(0), nil},
		{"ActiveEnterTimestampMonotonic", uint64(12345), []string{"12345"}},
		{"TimeoutStartUSec", uint64(90_000_000), []string{"1min 30s"}},
		{"TimeoutStopUSec", ^uint64(0), []string{"infinity"}},
		{"MemoryCurrent", ^uint64(0), []string{"[not set]"}},
		{"MemoryMax", ^uint64(0), []string{"infinity"}},
		{"TasksMax", uint64(5), []string{"5"}},
		{"CPUWeight", ^uint64(0), []string{"[not set]"}},
		{"CPUUsageNSec", ^uint64(0), []string{"[not set]"}},
		{"IPIngressBytes", ^uint64(0), []string{"[no data]"}},
		{"LimitNOFILE", ^uint64(0), []string{"infinity"}},
		{"CapabilityBoundingSet", uint64(4128), []string{"cap_kill cap_net_admin"}},
		{"RestrictNamespaces", uint64(0x7e020000), []string{"no"}},
		{"RestrictNamespaces", uint64(0x04000000), []string{"uts"}},
		{"UMask", uint32(18), []string{"0022"}},
		{"UID", ^uint32(0), []string{"[not set]"}},
		{"MainPID", uint32(7), []string{"7"}},
		{"Nice", int32(-5), []string{"-5"}},
		{"InvocationID", []byte{1, 0xab}, []string{"01ab"}},
		{"AllowedCPUs", []byte{15, 2}, []string{"0-3 9"}},
		{"Job", []any{uint32(0), "/"}, nil},
		{"Job", []any{uint32(12), "/x"}, []string{"12"}},
		{"LoadError", []any{"", ""}, nil},
		{"LoadError", []any{"org.x.NoSuchUnit", "not found"}, []string{`org.x.NoSuchUnit "not found"`}},
		{"SystemCallFilter", []any{false, []string{"reboot"}}, []string{"~reboot"}},
		{"SystemCallFilter", []any{false, []string{}}, nil},
		{"RestrictAddressFamilies", []any{true, []string{"AF_UNIX", "AF_INET"}}, []string{"AF_UNIX AF_INET"}},
		{"SuccessExitStatus", []any{[]int32{5}, []int32{15}}, []string{"5 15"}},
		{"SuccessExitStatus", []any{[]int32{}, []int32{}}, nil},
		{"SuccessActionExitStatus", int32(-1), nil},
		{"NUMAPolicy", int32(-1), []string{"n/a"}},
		{"NUMAPolicy", int32(2), []string{"bind"}},
		{"TTYRows", uint16(65535), nil},
		{"CoredumpFilter", uint64(0x33), []string{"0x33"}},
		{"MountFlags", uint64(0), nil},
		{"MountFlags", uint64(1 << 19), []string{"slave"}},
		{"IOReadBytes", ^uint64(0), []string{"18446744073709551615"}},
		{"SELinuxContext", []any{true, "x"}, []string{"-x"}},
		{"EnvironmentFiles", [][]any{{"/etc/x", true}}, []string{"/etc/x (ignore_errors=yes)"}},
		{"Listen", [][]any{{"Stream", "/run/x"}, {"Datagram", "/run/y"}}, []string{"/run/x (Stream)", "/run/y (Datagram)"}},
		{"TimersMonotonic", [][]any{{"OnBootUSec", uint64(900_000_000), uint64(0)}}, []string{"{ OnBootUSec=15min ; next_elapse=0 }"}},
		{"TimersCalendar", [][]any{{"OnCalendar", "daily", uint64(1700000000000000)}}, []string{"{ OnCalendar=daily ; next_elapse=Tue 2023-11-14 22:13:20 UTC }"}},
		{"Conditions", [][]any{{"ConditionPathExists", false, true, "/x", int32(-1)}}, []string{"ConditionPathExists=!/x (failed)"}},
		{"IPAddressAllow", [][]any{{int32(2), []byte{10, 0, 0, 0}, uint32(8)}}, []string{"10.0.0.0/8"}},
		{"IODeviceLatencyTargetUSec", [][]any{{"/dev/sda", uint64(25000)}}, []string{"/dev/sda 25ms"}},
		{"IOReadBandwidthMax", [][]any{{"/dev/sda", uint64(5)}}, []string{"/dev/sda 5"}},
		{"ExecStart", [][]any{{"/bin/x", []string{"/bin/x", "-y"}, false, uint64(0), uint64(0), uint64(0), uint64(0), uint32(0), int32(0), int32(0)}},
			[]string{"{ path=/bin/x ; argv[]=/bin/x -y ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"}},
		{"ExecStartEx", [][]any{{"/bin/x", []string{"/bin/x"}, []string{"privileged"}, uint64(0), uint64(0), uint64(0), uint64(0), uint32(9), int32(2), int32(15)}},
			[]string{"{ path=/bin/x ; argv[]=/bin/x ; flags=privileged ; start_time=[n/a] ; stop_time=[n/a] ; pid=9 ; code=killed ; status=15/TERM }"}},
		{"Whatever", client.Value{Data: []any{"a", uint64(3)}}, []string{"a 3"}},
	}
	for _, test := range tests {
		if got := propertyText(test.name, client.Value{Data: test.data}); !slices.Equal(got, test.want) {
			t.Errorf("%s of %s: got %q, want %q", test.name, fmt.Sprint(test.data), got, test.want)
		}
	}
}
