package agent

import "example.org/ctrl/internal/wire"

// Renew passes a request for a certificate to the manager; request and answer are PEM, and
// to judge the answer is up to the caller. reply is called once.
// Errors: ErrDisconnected without a session, the manager's, ErrTimeout, ErrShuttingDown.
func (a *Agent) Renew(request []byte, reply func(certificate, authorities []byte, err error)) {
	refuse := func(err error) { reply(nil, nil, err) }
	a.post(func() {
		if a.conn.state.Is != sessionOnline {
			refuse(wire.ErrDisconnected.With("there is no session with a manager"))
			return
		}
		a.conn.link.Renew(request, a.cfg.CallTimeout, reply)
	}, refuse)
}

// RenewNow is the manager's wish of session s that the certificate be renewed.
func (a *Agent) RenewNow(s Session) {
	a.post(func() {
		if a.current(s) == nil && a.cfg.RenewNow != nil {
			a.cfg.RenewNow()
		}
	}, ignore)
}
