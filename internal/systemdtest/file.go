package systemdtest

import (
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// change is one row of what systemd says it has done to unit files.
type change struct{ Type, File, Source string }

const (
	unitDir   = "/etc/systemd/system/"
	wantsDir  = unitDir + "multi-user.target.wants/"
	vendorDir = "/usr/lib/systemd/system/"
)

// files finds the units whose files a method names, under their primary names only.
func (s *Systemd) files(args wire.Raw) ([]*unitState, error) {
	names, _ := args.FirstStrings()
	var found []*unitState
	for _, name := range names {
		u := s.units[name]
		switch {
		case u == nil && s.names[name] != nil:
			return nil, systemdError("UnitLinked", "Refusing to operate on alias name or linked unit file: %s", name)
		case u == nil || u.transient:
			return nil, wire.ErrSystemdNoSuchUnit.With("Unit file %s does not exist.", name)
		}
		found = append(found, u)
	}
	return found, nil
}

// enable enables or disables unit files. Only the former says whether they have an
// [Install] section.
func (s *Systemd) enable(args wire.Raw, enabled bool) (wire.Raw, error) {
	units, err := s.files(args)
	if err != nil {
		return wire.Raw{}, err
	}
	changes := []change{}
	for _, u := range units {
		switch {
		case enabled && u.spec.Load == "masked":
			return wire.Raw{}, systemdError("UnitMasked", "Unit file %s is masked.", unitDir+u.name)
		case enabled && !u.spec.Enabled:
			changes = append(changes, change{"symlink", wantsDir + u.name, vendorDir + u.name})
		case !enabled && u.spec.Enabled:
			changes = append(changes, change{"unlink", wantsDir + u.name, ""})
		}
		u.spec.Enabled = enabled
	}
	if enabled {
		return peer.Encode(true, changes)
	}
	return peer.Encode(changes)
}

func (s *Systemd) mask(args wire.Raw, masked bool) (wire.Raw, error) {
	names, _ := args.FirstStrings()
	changes := []change{}
	for _, name := range names {
		u := s.units[name]
		if u == nil {
			if !masked {
				continue
			}
			u = &unitState{systemd: s, name: name, active: "inactive", sub: "dead"}
			s.units[name], s.names[name] = u, u
		}
		was := u.spec.Load == "masked"
		switch {
		case masked && !was:
			u.spec.Load = "masked"
			changes = append(changes, change{"symlink", unitDir + name, "/dev/null"})
		case !masked && was:
			u.spec.Load = ""
			changes = append(changes, change{"unlink", unitDir + name, ""})
		}
	}
	return peer.Encode(changes)
}

func (s *Systemd) unitFileState(args wire.Raw) (wire.Raw, error) {
	first, _ := args.FirstStrings()
	if u := s.names[first[0]]; u != nil {
		return peer.Encode(u.fileState())
	}
	return wire.Raw{}, &wire.Error{Name: wire.DBusName + ".Error.FileNotFound", Text: "No such file or directory"}
}

func (s *Systemd) listFiles(wire.Raw) (wire.Raw, error) {
	type row struct{ Path, State string }
	rows := []row{}
	for _, name := range s.sorted() {
		if u := s.units[name]; !u.transient && u.spec.Load != "not-found" {
			rows = append(rows, row{vendorDir + name, u.fileState()})
		}
	}
	return peer.Encode(rows)
}

func (s *Systemd) readUnitFiles(args wire.Raw) (wire.Raw, error) {
	type file struct{ Path, Text string }
	first, _ := args.FirstStrings()
	u := s.names[first[0]]
	if u == nil || u.spec.Load == "not-found" {
		return wire.Raw{}, wire.ErrSystemdNoSuchUnit.With("Unit %s not found.", first[0])
	}
	return peer.Encode([]file{{vendorDir + u.name, u.spec.Text}})
}

func (s *Systemd) setDefaultTarget(args wire.Raw) (wire.Raw, error) {
	var target string
	var force bool
	if err := peer.Decode(args, &target, &force); err != nil {
		return wire.Raw{}, err
	}
	if _, err := s.files(args); err != nil {
		return wire.Raw{}, err
	}
	s.target = target
	return peer.Encode([]change{{"symlink", unitDir + "default.target", vendorDir + target}})
}
