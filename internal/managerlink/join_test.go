package managerlink

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// join asks a manager that answers as answer does.
func join(t *testing.T, answer func(*peer.Conn, *peer.Message)) (string, string, error) {
	t.Helper()
	b := newBoss(t, listen(t, "127.0.0.1:0"), answer)
	nc, err := net.Dial("tcp", b.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	certificate, authorities, err := Join(ctx, nc, "node1", "secret", []byte("request"))
	<-(<-b.conns).Done() // Join has ended it
	return string(certificate), string(authorities), err
}

func TestJoin(t *testing.T) {
	certificate, authorities, err := join(t, func(c *peer.Conn, m *peer.Message) {
		var node, token string
		var request []byte
		if m.Interface != wire.InternalJoinInterface || m.Member != wire.MemberJoin || m.Path != wire.InternalPath ||
			peer.Decode(m.Body, &node, &token, &request) != nil || node+token+string(request) != "node1secretrequest" {
			t.Errorf("the manager was asked %+v", m)
		}
		c.Reply(m, peer.MustEncode([]byte("certificate"), []byte("authorities")))
	})
	if err != nil || certificate != "certificate" || authorities != "authorities" {
		t.Errorf("%q, %q, %v", certificate, authorities, err)
	}
	_, _, err = join(t, func(c *peer.Conn, m *peer.Message) {
		c.ReplyError(m, wire.ErrAccessDenied.With("the token is used up"))
	})
	if !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "the token is used up") {
		t.Errorf("refused: %v", err)
	}
	if _, _, err = join(t, func(c *peer.Conn, m *peer.Message) { c.Reply(m, peer.MustEncode("nonsense")) }); err == nil || !strings.Contains(err.Error(), "answer to Join") {
		t.Errorf("nonsense: %v", err)
	}
}

func TestRenewal(t *testing.T) {
	core := newFakeCore()
	b := newBoss(t, listen(t, "127.0.0.1:0"), func(c *peer.Conn, m *peer.Message) {
		if m.Member == wire.MemberRenew {
			c.Reply(m, peer.MustEncode([]byte("new"), []byte("all")))
			return
		}
		c.Reply(m, welcome(7))
	})
	l, err := dialled(t, newDialer(core, Settings{}), addressOf(b.l))
	if err != nil {
		t.Fatal(err)
	}
	c := <-b.conns
	c.Signal(wire.InternalPath, wire.InternalManagerInterface, wire.MemberRenewNow, wire.Raw{}) // too early: it is dropped
	if _, err := registered(l, 5, time.Minute); err != nil {
		t.Fatal(err)
	}
	c.Signal(wire.InternalPath, wire.InternalManagerInterface, wire.MemberRenewNow, wire.Raw{})
	core.want(t, "renew now 5")
	answers := make(chan string, 1)
	l.Renew([]byte("request"), time.Minute, func(certificate, authorities []byte, err error) {
		answers <- string(certificate) + " " + string(authorities)
	})
	if got := <-answers; got != "new all" {
		t.Errorf("the answer is %q", got)
	}
}
