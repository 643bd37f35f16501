package wire

import "encoding/binary"

// Members of the internal Proxy interface, all of them signals, and Ordered of the Agent one: what agents say of
// the proxies and targets on their node, and what the manager makes of it.
const (
	// From the agent.
	MemberProxies       = "Proxies"       // (a(ssss) proxies, as deps): all there are, the first report of a session
	MemberProxyNew      = "ProxyNew"      // (s proxy, s node, s unit, s phase)
	MemberProxyRemoved  = "ProxyRemoved"  // (s proxy)
	MemberTargetState   = "TargetState"   // (s unit, s state)
	MemberTargetLeaving = "TargetLeaving" // (s unit, b restart)
	MemberDepState      = "DepState"      // (s unit, b active)

	// From the manager.
	MemberTargets       = "Targets"       // (as units): all of this node that others need
	MemberProxyState    = "ProxyState"    // (s proxy, s state, s text)
	MemberReleaseTarget = "ReleaseTarget" // (s unit)
	MemberOrdered       = "Ordered"       // (s proxy, as units → as): which of the units start only after the proxy
)

// Phases of a proxy, as its agent reports it.
const (
	ProxyStarting = "starting" // its unit waits for the target
	ProxyUp       = "up"
)

// What the manager tells an agent about a proxy.
const (
	ProxyWaits        = "waiting"      // the target's node is not there
	ProxyBegun        = "starting"     // the target is being started
	ProxyTargetUp     = "up"           // it has started
	ProxyRefused      = "refused"      // it has not, or may not be
	ProxyStop         = "stop"         // the target is being stopped by a job
	ProxyRestart      = "restart"      // the target is being restarted by a job
	ProxyTargetFailed = "failed"       // the target has failed
	ProxyTargetExited = "exited"       // the target has ended by itself, and not failed
	ProxyAutoRestart  = "auto-restart" // the target's node restarts it by itself
	ProxyNodeLost     = "lost"         // the target's node is lost
	ProxyNodeBack     = "back"
)

// States of a target, as its agent reports it.
const (
	TargetUnknown      = "unknown" // not active, and this agent has not seen how it came to be
	TargetActivating   = "activating"
	TargetActive       = "active"
	TargetDeactivating = "deactivating"
	TargetAutoRestart  = "auto-restart"
	TargetStopped      = "stopped" // by a job
	TargetExited       = "exited"
	TargetFailed       = "failed"
)

// ProxyRow is one proxy of MemberProxies, "(ssss)".
type ProxyRow struct {
	Proxy string // the local unit
	Node  string
	Unit  string
	Phase string
}

// KillArguments is the body of KillUnit.
func KillArguments(unit, who string, signal int32) Raw {
	r := Strings(unit, who)
	for len(r.Data)%4 != 0 {
		r.Data = append(r.Data, 0)
	}
	r.Data = binary.LittleEndian.AppendUint32(r.Data, uint32(signal))
	r.Sig += "i"
	return r
}

// JobID is the job in a value of systemd's type "(uo)", the property Job of a unit; 0 is none.
func (v Value) JobID() (uint32, bool) {
	if v.Sig != "(uo)" {
		return 0, false
	}
	return binary.LittleEndian.Uint32(v.Data), true
}

// VariantStrings is the list in a body of one variant of type "as".
func (r Raw) VariantStrings() ([]string, bool) {
	// One byte of length, the signature, its NUL: the list follows at 4.
	if r.Sig != "v" || len(r.Data) < 8 || r.Data[0] != 2 || r.Data[1] != 'a' || r.Data[2] != 's' {
		return nil, false
	}
	return Raw{Sig: "as", Data: r.Data[4:]}.strings(), true
}

// VariantString is the text in a body of one variant of type "s".
func (r Raw) VariantString() (string, bool) {
	if r.Sig != "v" || len(r.Data) < 8 || r.Data[0] != 1 || r.Data[1] != 's' {
		return "", false
	}
	s, _ := readString(r.Data, 4)
	return s, true
}

func (r Raw) strings() []string {
	end := 4 + int(binary.LittleEndian.Uint32(r.Data))
	var list []string
	for at := 4; at < end; {
		var s string
		s, at = readString(r.Data, (at+3)&^3)
		list = append(list, s)
	}
	return list
}
