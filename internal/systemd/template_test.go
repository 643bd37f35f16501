package systemd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
)

// The tree and the answers are those of systemctl cat of systemd 252, but for the files that
// hide others.
func TestTemplateFiles(t *testing.T) {
	top := openDir(t)
	etc, run, lib, away := top+"/etc", top+"/run", top+"/lib", top+"/root"
	path := []string{etc, run, top + "/none", lib}
	for _, f := range []string{
		lib + "/foo-bar-baz@.service", lib + "/odd*[x]@.service", away + "/li@.service",
		etc + "/foo-.service.d/1.conf", etc + "/foo-bar-.service.d/2.conf", etc + "/foo-bar-baz@.service.d/3.conf",
		run + "/foo-bar-baz@.service.d/4.conf", run + "/foo-bar-baz@.service.d/3.conf", lib + "/service.d/4.conf",
		etc + "/al@.service.d/5.conf", etc + "/foo-@.service.d/9.conf", etc + "/foo-bar-baz@.service.d/9.txt",
		lib + "/foo-bar-baz@.service.d/6.conf",
	} {
		write(t, f, "", 0o644)
	}
	for link, target := range map[string]string{
		etc + "/al@.service": lib + "/foo-bar-baz@.service", etc + "/mm@.service": os.DevNull,
		etc + "/li@.service": away + "/li@.service", etc + "/foo-bar-baz@.service.d/6.conf": os.DevNull,
		etc + "/lost@.service": "nowhere@.service", lib + "/other.service": "foo-bar-baz@.service",
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	common := []string{"lib/foo-bar-baz@.service", "etc/foo-.service.d/1.conf", "etc/foo-bar-.service.d/2.conf",
		"etc/foo-bar-baz@.service.d/3.conf", "run/foo-bar-baz@.service.d/4.conf", "etc/al@.service.d/5.conf"}
	for name, want := range map[string][]string{
		"foo-bar-baz@.service": common,
		"al@.service":          common,
		"mm@.service":          {"etc/mm@.service"},
		"li@.service":          {"etc/li@.service", "lib/service.d/4.conf"},
		"lost@.service":        nil,
		"odd*[x]@.service":     {"lib/odd*[x]@.service", "lib/service.d/4.conf"},
		"none@.service":        nil,
	} {
		paths, err := templateFiles(path, name)
		for i := range paths {
			paths[i], _ = filepath.Rel(top, paths[i])
		}
		if !slices.Equal(paths, want) || (want == nil) != errors.Is(err, wire.ErrSystemdNoSuchUnit) {
			t.Errorf("%s: %v, %v; want %s", name, paths, err, strings.Join(want, " "))
		}
	}
}
