package systemd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Systemd knows instances and no templates, so the files of foo@.service are looked up on
// disk, in systemd's own search path and by the rules of systemd.unit(5).

// templateFiles are the paths of a template's fragment and drop-ins.
func templateFiles(searchPath []string, name string) ([]string, error) {
	fragment, id := templateFragment(searchPath, name)
	if fragment == "" {
		return nil, wire.ErrSystemdNoSuchUnit.With("Unit %s not found.", name)
	}
	if target, err := os.Readlink(fragment); err == nil && target == os.DevNull {
		return []string{fragment}, nil
	}
	return append([]string{fragment}, dropIns(searchPath, templateNames(searchPath, id))...), nil
}

// templateFragment finds a template's file and its primary name: a link to another template
// of the search path is an alias, one to elsewhere is the file.
func templateFragment(searchPath []string, name string) (path, id string) {
	for range maxAliases {
		path = firstIn(searchPath, name)
		target, err := os.Readlink(path)
		if err != nil {
			return path, name
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		if !slices.Contains(searchPath, filepath.Dir(target)) || !unit.IsTemplate(filepath.Base(target)) {
			return path, name
		}
		name = filepath.Base(target)
	}
	return "", name
}

// maxAliases bounds how many aliases may lead from one to the next.
const maxAliases = 16

// firstIn is the path of the first file of that name, "" where there is none.
func firstIn(searchPath []string, name string) string {
	for _, dir := range searchPath {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}

// templateNames are all names of a template: its own and its aliases.
func templateNames(searchPath []string, id string) []string {
	names := []string{id}
	for _, dir := range searchPath {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // most of the search path does not exist
		}
		for _, e := range entries {
			if e.Type()&os.ModeSymlink == 0 || !unit.IsTemplate(e.Name()) || slices.Contains(names, e.Name()) {
				continue
			}
			if _, target := templateFragment(searchPath, e.Name()); target == id {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// dropIns are the drop-ins for a unit of these names, by the names of the files. Of files of
// the same name the one in the directory that is searched first counts.
func dropIns(searchPath, names []string) []string {
	var dirs []string
	for _, name := range names {
		for _, dir := range searchPath {
			for _, d := range dropInDirs(name) {
				dirs = append(dirs, filepath.Join(dir, d))
			}
		}
	}
	for _, dir := range searchPath {
		dirs = append(dirs, filepath.Join(dir, unit.TypeOf(names[0])+".d"))
	}
	found := make(map[string]string)
	for _, dir := range dirs {
		paths, _ := filepath.Glob(filepath.Join(globQuote(dir), "*.conf")) // the pattern is good
		for _, path := range paths {
			if _, shadowed := found[filepath.Base(path)]; !shadowed {
				found[filepath.Base(path)] = path
			}
		}
	}
	var files []string
	for _, path := range found {
		if target, err := os.Readlink(path); err != nil || target != os.DevNull {
			files = append(files, path)
		}
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return files
}

// dropInDirs are the names of the directories with drop-ins for a template: its own, then
// those of its name cut at each dash, as systemctl cat looks for them.
func dropInDirs(name string) []string {
	prefix, _, kind := unit.Split(name)
	dirs := []string{name + ".d"}
	for {
		prefix = strings.TrimSuffix(prefix, "-")
		dash := strings.LastIndexByte(prefix, '-')
		if dash <= 0 {
			return dirs
		}
		prefix = prefix[:dash+1]
		dirs = append(dirs, prefix+"."+kind+".d")
	}
}

// globQuote makes a directory's name stand for itself in a pattern.
func globQuote(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}
