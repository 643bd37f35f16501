// Package wire is the vocabulary of ctrl's D-Bus interfaces: names, object paths, payload
// types and error kinds.
//
// It is the only package that spells a bus, interface or error name. It encodes nothing:
// package peer turns its types into bytes and back.
package wire

// Names on the local bus, and the interfaces of the public API.
const (
	BusName      = "org.example.ctrl1"
	AgentBusName = BusName + ".Agent"

	ManagerInterface = BusName + ".Manager"
	NodeInterface    = BusName + ".Node"
	JobInterface     = BusName + ".Job"
	MonitorInterface = BusName + ".Monitor"
	MetricsInterface = BusName + ".Metrics"
	AgentInterface   = BusName + ".Agent"

	EnrolmentInterface = BusName + ".Enrolment"
	WorkloadsInterface = BusName + ".Workloads"
)

// Interfaces between manager and agent. They are private: a feature list exchanged in
// Register says what both sides understand.
const (
	InternalManagerInterface = BusName + ".internal.Manager"
	InternalAgentInterface   = BusName + ".internal.Agent"
	InternalJoinInterface    = BusName + ".internal.Join"
	InternalProxyInterface   = BusName + ".internal.Proxy"
)

// Names of the D-Bus daemon and the standard interfaces
// (D-Bus specification, "Standard Interfaces" and "Message Bus").
const (
	DBusName                = "org.freedesktop.DBus"
	DBusPath                = ObjectPath("/org/freedesktop/DBus")
	DBusInterface           = "org.freedesktop.DBus"
	PeerInterface           = "org.freedesktop.DBus.Peer"
	IntrospectableInterface = "org.freedesktop.DBus.Introspectable"
	PropertiesInterface     = "org.freedesktop.DBus.Properties"
	ObjectManagerInterface  = "org.freedesktop.DBus.ObjectManager"
)

// Names of systemd's API (org.freedesktop.systemd1(5)).
const (
	SystemdName             = "org.freedesktop.systemd1"
	SystemdPath             = ObjectPath("/org/freedesktop/systemd1")
	SystemdManagerInterface = SystemdName + ".Manager"
	SystemdUnitInterface    = SystemdName + ".Unit"
	SystemdJobInterface     = SystemdName + ".Job"
	SystemdUnitPrefix       = "/org/freedesktop/systemd1/unit/"
	SystemdJobPrefix        = "/org/freedesktop/systemd1/job/"
)

// ObjectPath is a D-Bus object path, type code "o".
type ObjectPath string

// Signature is a D-Bus type signature, type code "g".
type Signature string

// Raw is a complete message body that has been checked against its signature: every
// length, string, path, boolean and padding byte in Data is valid for Sig, and Data is
// little-endian. It may therefore be sent on as it is, opened or not.
// Only package peer makes one from bytes that came from outside.
type Raw struct {
	Sig  Signature
	Data []byte
}

// Value is the content of one variant, type code "v": a single complete type and its
// checked bytes, little-endian, aligned as if Data began at an offset that is a multiple
// of 8. Cores pass values on unopened; peer converts them to and from Go values.
type Value struct {
	Sig  Signature
	Data []byte
}
