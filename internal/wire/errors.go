package wire

import (
	"errors"
	"fmt"
)

// Error is a D-Bus error: a stable name that programs act on and a text for people.
// An error that systemd gave on a node travels as one, name and text unchanged.
type Error struct {
	Name string
	Text string
}

func (e *Error) Error() string {
	if e.Text == "" {
		return e.Name
	}
	return e.Text
}

// Is makes errors.Is compare by name: errors.Is(err, wire.ErrNodeOffline).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Name == e.Name && (t.Text == "" || t.Text == e.Text)
}

const errorPrefix = BusName + ".Error."

// The error kinds of the public API. Compare with errors.Is; make one with With.
var (
	ErrNoSuchNode         = &Error{Name: errorPrefix + "NoSuchNode"}
	ErrNodeOffline        = &Error{Name: errorPrefix + "NodeOffline"}
	ErrNoSuchJob          = &Error{Name: errorPrefix + "NoSuchJob"}
	ErrNoSuchMonitor      = &Error{Name: errorPrefix + "NoSuchMonitor"}
	ErrNoSuchSubscription = &Error{Name: errorPrefix + "NoSuchSubscription"}
	ErrNoSuchWorkload     = &Error{Name: errorPrefix + "NoSuchWorkload"}
	ErrNoSuchOperation    = &Error{Name: errorPrefix + "NoSuchOperation"}
	ErrWorkloadBusy       = &Error{Name: errorPrefix + "WorkloadBusy"}
	ErrUnitBusy           = &Error{Name: errorPrefix + "UnitBusy"}
	ErrNodeNotAllowed     = &Error{Name: errorPrefix + "NodeNotAllowed"}
	ErrNodeExists         = &Error{Name: errorPrefix + "NodeExists"}
	ErrDependencyDenied   = &Error{Name: errorPrefix + "DependencyDenied"}
	ErrTimeout            = &Error{Name: errorPrefix + "Timeout"}
	ErrShuttingDown       = &Error{Name: errorPrefix + "ShuttingDown"}
)

// Standard error names (D-Bus specification and sd-bus-errors(3)).
var (
	ErrFailed                   = &Error{Name: "org.freedesktop.DBus.Error.Failed"}
	ErrInvalidArgs              = &Error{Name: "org.freedesktop.DBus.Error.InvalidArgs"}
	ErrAccessDenied             = &Error{Name: "org.freedesktop.DBus.Error.AccessDenied"}
	ErrUnknownMethod            = &Error{Name: "org.freedesktop.DBus.Error.UnknownMethod"}
	ErrUnknownObject            = &Error{Name: "org.freedesktop.DBus.Error.UnknownObject"}
	ErrUnknownInterface         = &Error{Name: "org.freedesktop.DBus.Error.UnknownInterface"}
	ErrUnknownProperty          = &Error{Name: "org.freedesktop.DBus.Error.UnknownProperty"}
	ErrPropertyReadOnly         = &Error{Name: "org.freedesktop.DBus.Error.PropertyReadOnly"}
	ErrLimitsExceeded           = &Error{Name: "org.freedesktop.DBus.Error.LimitsExceeded"}
	ErrNoReply                  = &Error{Name: "org.freedesktop.DBus.Error.NoReply"}
	ErrDisconnected             = &Error{Name: "org.freedesktop.DBus.Error.Disconnected"}
	ErrServiceUnknown           = &Error{Name: "org.freedesktop.DBus.Error.ServiceUnknown"}
	ErrNameHasNoOwner           = &Error{Name: "org.freedesktop.DBus.Error.NameHasNoOwner"}
	ErrInteractiveAuth          = &Error{Name: "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"}
	ErrSystemdNoSuchUnit        = &Error{Name: SystemdName + ".NoSuchUnit"}
	ErrSystemdNoSuchJob         = &Error{Name: SystemdName + ".NoSuchJob"}
	ErrSystemdAlreadySubscribed = &Error{Name: SystemdName + ".AlreadySubscribed"}
	ErrSystemdUnitMasked        = &Error{Name: SystemdName + ".UnitMasked"}
)

// With returns an error of this kind with a text for people.
func (e *Error) With(format string, args ...any) *Error {
	return &Error{Name: e.Name, Text: fmt.Sprintf(format, args...)}
}

// AsError finds the D-Bus error in err, or wraps err as ErrFailed. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Name: ErrFailed.Name, Text: err.Error()}
}
