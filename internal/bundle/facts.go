package bundle

import "slices"

// Facts are what was found on the node: all that a plan is made from besides the bundles.
type Facts struct {
	Paths     map[string]PathFact
	Elsewhere map[string]string // unit → the file by which somebody else ships it
	Contents  map[string]bool   // that are in the store, by ContentID
	Units     map[string]UnitFact
}

// Kinds of PathFact; the zero value is nothing there.
const (
	KindFile  = "file"
	KindLink  = "link"
	KindOther = "other" // a directory, a device …
)

// PathFact is what is at one path.
type PathFact struct {
	Kind string
	// Text is the content of a unit file or drop-in; files that are too large to be one of
	// ours have none.
	Text string
	// ID is the ContentID of a file, SHA256 of a content with mode and owner.
	ID string
	// Target is where a link points.
	Target string
}

// UnitFact is one unit as systemd has it.
type UnitFact struct {
	Load, Active, Sub string
	FileState         string // of its unit file: enabled, disabled, static, masked …
	Invocation        string // hexadecimal, changes with every start
	Result            string // of a service: success, exit-code …
	// Done is an inactive unit for which a start would be no repair: a oneshot that ran and
	// succeeded, or a unit whose condition did not hold.
	Done bool
	// Triggers are the units that a socket, timer or path starts.
	Triggers []string
}

// running reports whether the unit is up or on its way.
func (u UnitFact) running() bool {
	return slices.Contains([]string{"active", "activating", "reloading", "refreshing"}, u.Active)
}

// stopping units run until their stop is through.
func (u UnitFact) gone() bool {
	return u.Active == "" || u.Active == "inactive" || u.Active == "failed"
}
