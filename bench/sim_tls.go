package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"example.org/ctrl/internal/pki/pkitest"
)

// simTLS is where the certificates of a simulated fleet are: ca.crt, manager.crt and
// manager.key, and NAME.pem with certificate and key of each node.
type simTLS struct{ Dir string }

const simManagerName = "bench"

// issueFleet issues them all, which is not part of what is measured.
func issueFleet(dir string, count int) (*simTLS, error) {
	ca, err := pkitest.New("bench")
	if err != nil {
		return nil, err
	}
	leaf := pkitest.ManagerLeaf()
	leaf.DNS = []string{simManagerName}
	if _, err := ca.Write(dir, "manager", leaf); err != nil {
		return nil, err
	}
	var workers sync.WaitGroup
	failed := make(chan error, runtime.NumCPU())
	for w := range runtime.NumCPU() {
		workers.Go(func() {
			for i := w; i < count; i += runtime.NumCPU() {
				if err := issueNode(ca, dir, simName(i)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(failed)
	return &simTLS{dir}, <-failed
}

func issueNode(ca *pkitest.CA, dir, name string) error {
	cert, key, err := ca.Issue(pkitest.NodeLeaf(name))
	if err != nil {
		return fmt.Errorf("cannot issue a certificate for %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(dir, name+".pem"), append(cert, key...), 0o600)
}

// lines are those of the manager's configuration.
func (t *simTLS) lines() string {
	if t == nil {
		return "TLS=no\n"
	}
	file := func(name string) string { return filepath.Join(t.Dir, name) }
	return "CertFile=" + file("manager.crt") + "\nKeyFile=" + file("manager.key") + "\nCAFile=" + file("ca.crt") + "\n"
}

// roots is what the agents trust.
func (t *simTLS) roots() (*x509.CertPool, error) {
	pem, err := os.ReadFile(filepath.Join(t.Dir, "ca.crt"))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool, err
}

func (t *simTLS) config(name string, roots *x509.CertPool) (*tls.Config, error) {
	file := filepath.Join(t.Dir, name+".pem")
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: simManagerName, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}
