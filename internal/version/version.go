// Package version tells which build this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// stamp is the version as the Makefile takes it from git, set by
// -ldflags "-X example.org/ctrl/internal/version.stamp=…".
var stamp string

// Short is the version in one word, for tables and for what an agent tells its manager.
func Short() string {
	info, _ := debug.ReadBuildInfo()
	return short(stamp, info)
}

// String is Short with what it was built with, in one line.
func String() string {
	return fmt.Sprintf("%s (%s, %s/%s)", Short(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// short prefers what was stamped in; a build without the Makefile knows its module's
// version or its commit.
func short(stamp string, info *debug.BuildInfo) string {
	if stamp != "" {
		return stamp
	}
	if info == nil {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + dirty
}
