package bundle

import (
	"path"
	"slices"
	"strings"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/unitfile"
	"example.org/ctrl/internal/wire"
)

// Section is the section that ctrl adds to what it writes. Systemd leaves sections whose
// name begins with "X-" to whoever they are for (systemd.unit(5)).
const Section = "X-Ctrl"

// filesDropIn is the drop-in that binds a service's files. Its name is ours alone.
const filesDropIn = "50-ctrl-files.conf"

// CheckWorkload refuses what is no name of a workload: a DNS label, so that no name is part
// of another and none can leave a directory. Errors are of kind *Refusal.
func CheckWorkload(name string) error {
	bad := name == "" || len(name) > MaxWorkload || name[0] == '-' || name[len(name)-1] == '-'
	for i := range len(name) {
		c := name[i]
		bad = bad || c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	}
	if bad {
		return refuse(CodeInvalid, "workload name %.80q is not 1 to %d of a-z, 0-9 and -, beginning and ending with a letter or digit", name, MaxWorkload)
	}
	return nil
}

// Check refuses what cannot be applied anywhere: names, texts and references that are
// wrong in themselves. Errors are of kind *Refusal.
func (b Bundle) Check() error {
	if b.Format != Format {
		return refuse(CodeInvalid, "the bundle has format %d, and this version knows format %d: update ctrl-agent on this node", b.Format, Format)
	}
	if err := CheckWorkload(b.Workload); err != nil {
		return err
	}
	if len(b.Units) > MaxUnits || len(b.Files) > MaxFiles || len(b.Enable)+len(b.Start) > 2*MaxUnits {
		return refuse(CodeInvalid, "workload %s has %d units and %d files; at most %d and %d are allowed", b.Workload, len(b.Units), len(b.Files), MaxUnits, MaxFiles)
	}
	names := make(map[string]bool)
	for _, u := range b.Units {
		if names[u.Name] {
			return refuse(CodeInvalid, "unit %s is in the bundle twice", u.Name)
		}
		names[u.Name] = true
		if err := checkUnit(u); err != nil {
			return err
		}
	}
	if err := b.checkFiles(); err != nil {
		return err
	}
	return b.checkLists()
}

// own are the units of ctrl itself, which no bundle may replace or change.
var own = []string{wire.AgentUnit, "ctrl-manager.service", "ctrl-manager.socket"}

func checkUnit(u Unit) error {
	if err := unit.CheckName(u.Name); err != nil {
		return refuse(CodeInvalid, "%v", err)
	}
	switch kind := unit.TypeOf(u.Name); {
	case kind == "device" || kind == "scope":
		return refuse(CodeInvalid, "%s: a %s unit is not made from a file", u.Name, kind)
	case slices.Contains(own, u.Name):
		return refuse(CodeInvalid, "%s belongs to ctrl itself and is not delivered by it", u.Name)
	case u.Foreign && u.Text != "":
		return refuse(CodeInvalid, "%s is said to be somebody else's, so it may have drop-ins only", u.Name)
	case u.Foreign && len(u.DropIns) == 0:
		return refuse(CodeInvalid, "%s is said to be somebody else's and has no drop-ins", u.Name)
	case !u.Foreign && strings.TrimSpace(u.Text) == "":
		return refuse(CodeInvalid, "%s is empty; systemd would take that for a masked unit", u.Name)
	case len(u.DropIns) > MaxUnits:
		return refuse(CodeInvalid, "%s has %d drop-ins; at most %d are allowed", u.Name, len(u.DropIns), MaxUnits)
	}
	if !u.Foreign {
		if err := checkText(u.Name, u.Text); err != nil {
			return err
		}
	}
	seen := make(map[string]bool)
	for _, d := range u.DropIns {
		if seen[d.Name] {
			return refuse(CodeInvalid, "%s has the drop-in %s twice", u.Name, d.Name)
		}
		seen[d.Name] = true
		if err := checkDropIn(u.Name, d); err != nil {
			return err
		}
	}
	return nil
}

func checkDropIn(name string, d DropIn) error {
	stem, ok := strings.CutSuffix(d.Name, ".conf")
	switch {
	case !ok || stem == "" || stem[0] == '.' || len(d.Name) > 255 || strings.ContainsFunc(stem, notPlain):
		return refuse(CodeInvalid, "%s.d/%.80q is no name of a drop-in: letters, digits, one of :-_.@ and then .conf", name, d.Name)
	case d.Name == filesDropIn:
		return refuse(CodeInvalid, "%s.d/%s is the name of a file that ctrl makes itself; take another", name, d.Name)
	}
	return checkText(name+".d/"+d.Name, d.Text)
}

// checkText reads a unit file strictly. The error has its file and line.
func checkText(name, text string) error {
	f, err := unitfile.Parse(name, []byte(text))
	switch {
	case err != nil:
		return refuse(CodeInvalid, "%v", err)
	case len(f.Sections) == 0:
		return refuse(CodeInvalid, "%s has no [Section]", name)
	}
	for _, s := range f.Sections {
		if s.Name == Section {
			return refuse(CodeInvalid, "%s:%d: the section [%s] is added by ctrl and may not be there before", name, s.Line, Section)
		}
	}
	return nil
}

func notPlain(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(":-_.@", r)
}

func (b Bundle) checkFiles() error {
	paths := make(map[string]bool)
	for _, f := range b.Files {
		if paths[f.Path] {
			return refuse(CodeInvalid, "file %s is in the bundle twice", f.Path)
		}
		paths[f.Path] = true
		if err := b.checkFile(f); err != nil {
			return err
		}
	}
	for p := range paths {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if paths[dir] {
				return refuse(CodeInvalid, "%s is a file in this bundle and a directory for %s", dir, p)
			}
		}
	}
	return nil
}

func (b Bundle) checkFile(f File) error {
	switch {
	case !CleanPath(f.Path):
		return refuse(CodeInvalid, "%.200q is no path for a file: it is absolute, without . and .., of letters, digits and /_.+@=,-", f.Path)
	case len(f.SHA256) != 64 || strings.Trim(f.SHA256, "0123456789abcdef") != "":
		return refuse(CodeInvalid, "%s: %.80q is no SHA-256", f.Path, f.SHA256)
	case f.Mode&^0o777 != 0:
		return refuse(CodeInvalid, "%s: mode %#o has bits beyond 0777", f.Path, f.Mode)
	case !accountName(f.Owner) || !accountName(f.Group):
		return refuse(CodeInvalid, "%s: owner %.40q and group %.40q are not both names of accounts", f.Path, f.Owner, f.Group)
	}
	switch f.OnChange {
	case "", ChangeRestart:
	case ChangeReload, ChangeNone:
		if !f.Write {
			return refuse(CodeInvalid, "%s: a file that is bound is seen by its units after a restart only; onChange: %s needs write: true", f.Path, f.OnChange)
		}
	default:
		return refuse(CodeInvalid, "%s: onChange is one of restart, reload, none, not %.40q", f.Path, f.OnChange)
	}
	for _, name := range f.Units {
		i := slices.IndexFunc(b.Units, func(u Unit) bool { return u.Name == name })
		if i < 0 || unit.TypeOf(name) != "service" {
			return refuse(CodeInvalid, "%s is for %s, which is no service of this bundle", f.Path, name)
		}
	}
	return nil
}

// CleanPath reports whether p is an absolute path that a file of a bundle may have. The
// characters are those that mean nothing in BindReadOnlyPaths=.
func CleanPath(p string) bool {
	return len(p) > 1 && len(p) <= 1024 && p[0] == '/' && path.Clean(p) == p && !strings.ContainsFunc(p, func(r rune) bool {
		return notPlain(r) && !strings.ContainsRune("/+=,", r) || r == ':'
	})
}

// accountName is a user or group by name or number; "" is root.
func accountName(s string) bool {
	return len(s) <= 32 && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, func(r rune) bool { return notPlain(r) || r == ':' || r == '@' })
}

func (b Bundle) checkLists() error {
	for _, name := range b.Start {
		if err := unit.CheckInstance(name); err != nil {
			return refuse(CodeInvalid, "start: %v", err)
		}
		if _, ok := b.definition(name); !ok {
			return refuse(CodeInvalid, "start: %s is no unit of this bundle, nor an instance of one of its templates", name)
		}
	}
	for _, name := range b.Enable {
		if err := b.checkEnable(name); err != nil {
			return err
		}
	}
	return nil
}

func (b Bundle) checkEnable(name string) error {
	if err := unit.CheckName(name); err != nil {
		return refuse(CodeInvalid, "enable: %v", err)
	}
	u, ok := b.definition(name)
	if !ok || u.Foreign {
		return refuse(CodeInvalid, "enable: %s is no unit of this bundle, nor an instance of one of its templates", name)
	}
	install := u.installs()
	if !install.any {
		return refuse(CodeInvalid, "enable: %s has no [Install] section with WantedBy=, RequiredBy=, Alias= or Also=, so there is nothing to enable", u.Name)
	}
	if unit.IsTemplate(name) && !install.instance {
		return refuse(CodeInvalid, "enable: %v", unit.CheckInstance(name))
	}
	return nil
}

// definition is the unit of the bundle that a name is made from: itself, or its template.
func (b Bundle) definition(name string) (Unit, bool) {
	for _, want := range []string{name, Template(name)} {
		for _, u := range b.Units {
			if u.Name == want {
				return u, true
			}
		}
	}
	return Unit{}, false
}

// Template is the template of an instance, or the name itself.
func Template(name string) string {
	prefix, instance, kind := unit.Split(name)
	if instance == "" {
		return name
	}
	return prefix + "@." + kind
}

// install is what a unit's [Install] sections say.
type install struct {
	any      bool
	instance bool   // there is a DefaultInstance=
	text     string // all of it, to compare
}

func (u Unit) installs() install {
	var in install
	texts := []string{u.Text}
	for _, d := range u.DropIns {
		texts = append(texts, d.Text)
	}
	for _, text := range texts {
		f, err := unitfile.Parse(u.Name, []byte(text))
		if err != nil {
			continue // Check has refused it
		}
		for _, s := range f.Sections {
			if s.Name != "Install" {
				continue
			}
			for _, e := range s.Entries {
				in.any = in.any || slices.Contains([]string{"WantedBy", "RequiredBy", "Alias", "Also"}, e.Key) && e.Value != ""
				in.instance = in.instance || e.Key == "DefaultInstance" && e.Value != ""
				in.text += e.Key + "=" + e.Value + "\n"
			}
		}
	}
	return in
}

// Enables reports whether the unit can be enabled by its own name.
func (u Unit) Enables() bool {
	in := u.installs()
	return !u.Foreign && in.any && (in.instance || !unit.IsTemplate(u.Name))
}

// Names are all units that the bundle makes, changes, starts or enables, and the other names
// that it gives them (Alias=), which lead to the unit as its own name does.
func (b Bundle) Names() []string {
	names := append(slices.Clone(b.Start), b.Enable...)
	for _, u := range b.Units {
		names = append(names, u.Name)
		names = append(names, u.aliases()...)
	}
	return set(names)
}

// aliases are the valid names among the Alias= of a unit.
func (u Unit) aliases() []string {
	f, err := unitfile.Parse(u.Name, []byte(u.Text))
	if err != nil {
		return nil // Check has refused it
	}
	var names []string
	for _, value := range f.Values("Install", "Alias") {
		for name := range strings.FieldsSeq(value) {
			if unit.Valid(name) {
				names = append(names, name)
			}
		}
	}
	return names
}
