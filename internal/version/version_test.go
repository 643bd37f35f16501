package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestShort(t *testing.T) {
	vcs := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main:     debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: modified}},
		}
	}
	for _, c := range []struct {
		stamp string
		info  *debug.BuildInfo
		want  string
	}{
		{"1.2.3", vcs("true"), "1.2.3"},
		{"", nil, "unknown"},
		{"", &debug.BuildInfo{}, "devel"},
		{"", &debug.BuildInfo{Main: debug.Module{Version: "v0.4.1"}}, "0.4.1"},
		{"", vcs("false"), "devel-0123456789ab"},
		{"", vcs("true"), "devel-0123456789ab-dirty"},
	} {
		if got := short(c.stamp, c.info); got != c.want {
			t.Errorf("short(%q, %v) = %q, want %q", c.stamp, c.info, got, c.want)
		}
	}
}

func TestStringIsOneLine(t *testing.T) {
	s := String()
	if !strings.HasPrefix(s, Short()+" (go") || strings.ContainsAny(s, "\r\n") {
		t.Errorf("String() = %q", s)
	}
}
