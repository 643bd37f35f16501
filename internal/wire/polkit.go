package wire

// Names of polkit's API (polkit(8), org.freedesktop.PolicyKit1.Authority).
const (
	PolkitName               = "org.freedesktop.PolicyKit1"
	PolkitPath               = ObjectPath("/org/freedesktop/PolicyKit1/Authority")
	PolkitAuthorityInterface = PolkitName + ".Authority"
)

// ErrPolkitCancelled is what polkit answers to a check that was called off.
var ErrPolkitCancelled = &Error{Name: PolkitName + ".Error.Cancelled"}
