package agent

import (
	"errors"
	"testing"

	"example.org/ctrl/internal/wire"
)

func TestRenew(t *testing.T) {
	cfg := plain
	var w *world
	cfg.RenewNow = func() { w.note("renew now") }
	in(t, cfg, func(made *world) {
		w = made
		answer := func(certificate, authorities []byte, err error) {
			w.note("%s %s %s", certificate, authorities, kind(err))
		}
		w.a.Renew([]byte("request"), answer)
		w.expect("  Disconnected")
		w.online()
		w.a.Renew([]byte("request"), answer)
		w.expect("Renew request", "certificate authorities ok")
		w.a.RenewNow(w.link.session)
		w.expect("renew now")
		old := w.link.session
		w.a.Closed(old, errors.New("cut"))
		w.take()
		w.a.RenewNow(old)
		w.a.Renew(nil, func(_, _ []byte, err error) {
			if !errors.Is(err, wire.ErrDisconnected) {
				t.Errorf("after the session the answer is %v", err)
			}
		})
		w.expect()
	})
}
