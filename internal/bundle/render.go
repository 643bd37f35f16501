package bundle

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"example.org/ctrl/internal/unit"
)

// Layout says where things are on a node.
type Layout struct {
	Units   string // unit files that persist
	Runtime string // unit files that are gone after a reboot
	Store   string // contents of files, by ContentID
}

// SystemLayout is that of the system's service manager, with the agent's state below
// /var/lib/ctrl.
var SystemLayout = Layout{
	Units: "/etc/systemd/system", Runtime: "/run/systemd/system", Store: "/var/lib/ctrl/config",
}

// units is the directory of the bundle's unit files.
func (l Layout) units(b Bundle) string {
	if b.Runtime {
		return l.Runtime
	}
	return l.Units
}

// Text is a file of a unit as it is to be on the node.
type Text struct {
	Path string
	Unit string // that it belongs to
	Text string
}

// Render gives all texts of the bundle for a node, in the order of their paths: each as it
// came, with the section [X-Ctrl] at its end, which says whose it is; and for a service with
// bound files a drop-in that binds them. Nothing in them depends on time, revision or node.
func (b Bundle) Render(l Layout) []Text {
	var out []Text
	dir := l.units(b)
	for _, u := range b.Units {
		if !u.Foreign {
			out = append(out, Text{path.Join(dir, u.Name), u.Name, b.marked(u.Text, b.writtenSum(u))})
		}
		for _, d := range u.DropIns {
			out = append(out, Text{path.Join(dir, u.Name+".d", d.Name), u.Name, b.marked(d.Text, "")})
		}
		if text := b.binds(u, l); text != "" {
			out = append(out, Text{path.Join(dir, u.Name+".d", filesDropIn), u.Name, b.marked(text, "")})
		}
	}
	slices.SortFunc(out, func(x, y Text) int { return cmp.Compare(x.Path, y.Path) })
	return out
}

// marked is a text with the mark of this workload. Spec is the text's digest as it came, by
// which an edit is told from another version; files that are written beside the unit are in
// it by theirs, so that the text changes exactly when the configuration does.
func (b Bundle) marked(text, files string) string {
	end := "\n"
	if strings.Contains(text, "\r\n") {
		end = "\r\n"
	}
	var s strings.Builder
	s.WriteString(text)
	if !strings.HasSuffix(text, "\n") {
		s.WriteString(end)
	}
	fmt.Fprintf(&s, "[%s]%sWorkload=%s%sSpec=%s%s", Section, end, b.Workload, end, Sum([]byte(text)), end)
	if files != "" {
		fmt.Fprintf(&s, "Files=%s%s", files, end)
	}
	return s.String()
}

// Mark is the workload that a text says it belongs to, "" where it has no mark. It reads
// any text, also one that somebody has broken.
func Mark(text string) string {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.Trim(line, " \t\r\n")
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		if name, ok := strings.CutPrefix(line, "Workload="); ok && section == "["+Section+"]" && CheckWorkload(name) == nil {
			return name
		}
	}
	return ""
}

// reads reports whether a unit reads a file.
func (f File) reads(u Unit) bool {
	if len(f.Units) == 0 {
		return !u.Foreign && unit.TypeOf(u.Name) == "service"
	}
	return slices.Contains(f.Units, u.Name)
}

// binds is the drop-in that shows a service its bound files.
func (b Bundle) binds(u Unit, l Layout) string {
	var s strings.Builder
	for _, f := range b.Files {
		if !f.Write && f.reads(u) {
			fmt.Fprintf(&s, "BindReadOnlyPaths=%s:%s\n", path.Join(l.Store, f.ContentID()), f.Path)
		}
	}
	if s.Len() == 0 {
		return ""
	}
	return "[Service]\n" + s.String()
}

// writtenSum stands for the files whose change restarts the unit without being bound.
func (b Bundle) writtenSum(u Unit) string {
	var s strings.Builder
	for _, f := range b.Files {
		if f.Write && cmp.Or(f.OnChange, ChangeRestart) == ChangeRestart && f.reads(u) {
			fmt.Fprintf(&s, "%s %s\n", f.Path, f.ContentID())
		}
	}
	if s.Len() == 0 {
		return ""
	}
	return Sum([]byte(s.String()))
}

// ContentID names a content with its mode and owner: what differs in any of them has
// another name.
func (f File) ContentID() string {
	return Sum([]byte(fmt.Sprintf("%s %04o %s %s", f.SHA256, f.Mode, cmp.Or(f.Owner, "root"), cmp.Or(f.Group, "root"))))
}

// contents are the names of all contents of the bundle.
func (b Bundle) contents() map[string]File {
	m := make(map[string]File)
	for _, f := range b.Files {
		m[f.ContentID()] = f
	}
	return m
}

// paths are all paths that the bundle puts something at.
func (b Bundle) paths(l Layout) []string {
	var out []string
	for _, t := range b.Render(l) {
		out = append(out, t.Path)
	}
	for _, f := range b.Files {
		if f.Write {
			out = append(out, f.Path)
		}
	}
	return out
}
