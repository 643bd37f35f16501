package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki/pkitest"
	"example.org/ctrl/internal/wire"
)

// transport answers: how many calls a second does one connection carry, both of its ends in
// this process?
func transport(ctx context.Context, s scale, r *report) error {
	t := newTable(fmt.Sprintf("The transport alone: calls a second over one loopback TCP connection, in turns, %v each", s.Transport),
		"512 under way", "1 under way")
	secure, err := transportTLS()
	if err != nil {
		return err
	}
	const turns = 3
	ways := []struct {
		name string
		tls  *tls.Config
	}{{"TLS=no", nil}, {"TLS=yes", secure}}
	rates := make(map[string][2][]float64)
	for range turns {
		for _, w := range ways {
			for i, window := range []int{512, 1} {
				rate, err := callRate(ctx, w.tls, window, s.Transport/turns)
				if err != nil {
					return fmt.Errorf("transport with %s: %w", w.name, err)
				}
				all := rates[w.name]
				all[i] = append(all[i], rate)
				rates[w.name] = all
			}
		}
	}
	for _, w := range ways {
		t.add(w.name, middle(rates[w.name][0]), middle(rates[w.name][1]))
	}
	r.print(t)
	return nil
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// transportTLS is both ends' configuration: one certificate is enough where nobody is named.
func transportTLS() (*tls.Config, error) {
	ca, err := pkitest.New("bench")
	if err != nil {
		return nil, err
	}
	leaf := pkitest.ManagerLeaf()
	leaf.DNS = []string{"bench"}
	leaf.Usage = append(leaf.Usage, x509.ExtKeyUsageClientAuth)
	cert, key, err := ca.Issue(leaf)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "bench", Certificates: []tls.Certificate{pair},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}

func callRate(ctx context.Context, secure *tls.Config, window int, d time.Duration) (float64, error) {
	server, client, err := pair(ctx, secure)
	if err != nil {
		return 0, err
	}
	defer func() {
		client.Close(errors.New("done"))
		<-client.Done()
		<-server.Done()
	}()
	call := peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalAgentInterface, Member: "StartUnit",
		Body: peer.MustEncode(uint32(7), "nginx.service", "replace"),
	}
	slots := make(chan struct{}, window)
	var failed atomic.Pointer[error]
	done := func(_ *peer.Message, err error) {
		if err != nil {
			failed.Store(&err)
		}
		<-slots
	}
	calls := 0
	began := time.Now()
	for ; calls%64 != 0 || time.Since(began) < d; calls++ {
		slots <- struct{}{}
		client.Go(call, taskLimit, done)
	}
	for range window { // the last ones
		slots <- struct{}{}
	}
	took := time.Since(began)
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(calls) / took.Seconds(), nil
}

func pair(ctx context.Context, secure *tls.Config) (server, client *peer.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err == nil && secure != nil {
			nc = tls.Server(nc, secure)
		}
		if err == nil {
			server, err = peer.Server(ctx, nc, peer.Options{Handler: func(c *peer.Conn, m *peer.Message) { c.Reply(m, m.Body) }})
		}
		accepted <- err
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	if secure != nil {
		nc = tls.Client(nc, secure)
	}
	client, err = peer.Client(ctx, nc, peer.Options{})
	return server, client, errors.Join(err, <-accepted)
}
