package wire

import "slices"

// Annotations of a method in the introspection XML. AnnotationAction says which right a
// caller needs (IsAction); AnnotationVerb is ctl's word for what the method does, the
// detail "verb" of the right.
const (
	AnnotationAction       = BusName + ".Action"
	AnnotationVerb         = BusName + ".Verb"
	AnnotationEmitsChanged = "org.freedesktop.DBus.Property.EmitsChangedSignal"
)

// Rights that a caller on the bus may have; the names of polkit actions.
const (
	ActionInspect         = BusName + ".inspect"
	ActionManageUnits     = BusName + ".manage-units"
	ActionManageUnitFiles = BusName + ".manage-unit-files"
	ActionRun             = BusName + ".run"
	ActionReadLogs        = BusName + ".read-logs"
	ActionManageWorkloads = BusName + ".manage-workloads"
	ActionManageNodes     = BusName + ".manage-nodes"
	// ActionRoot is no polkit action: it stands for methods that are for uid 0 alone.
	ActionRoot = BusName + ".root"
)

var actions = []string{
	ActionInspect, ActionManageUnits, ActionManageUnitFiles, ActionRun, ActionReadLogs, ActionManageWorkloads,
	ActionManageNodes, ActionRoot,
}

// IsAction reports whether s is one of the actions above.
func IsAction(s string) bool { return slices.Contains(actions, s) }
