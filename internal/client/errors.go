package client

import "example.org/ctrl/internal/wire"

// Error kinds that no daemon sends: there is none.
var (
	// ErrNoBus: there is no bus to connect to.
	ErrNoBus = &wire.Error{Name: wire.BusName + ".Client.NoBus"}
	// ErrNotRunning: there is a bus, but no daemon on it.
	ErrNotRunning = &wire.Error{Name: wire.BusName + ".Client.NotRunning"}
	// ErrManagerGone: the manager, or the bus, went away while an answer was due.
	ErrManagerGone = &wire.Error{Name: wire.BusName + ".Client.ManagerGone"}
)
