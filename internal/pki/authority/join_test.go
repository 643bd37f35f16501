package authority

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/wire"
)

func TestJoin(t *testing.T) {
	w := newWorld(t)
	token := w.add("node1")
	if got := w.Members(); !slices.Equal(got, []string{"node1"}) {
		t.Errorf("the fleet is %v", got)
	}
	for name, text := range w.files() {
		if strings.Contains(text, token.String()) || strings.Contains(text, token.String()[5:31]) {
			t.Errorf("%s holds the token", name)
		}
	}
	g := w.join(w.machine("node1"), "node1", token)
	c := parse(t, g.Certificate)
	if len(c.URIs) != 1 || c.URIs[0].String() != "ctrl://node/node1" || len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses) != 0 ||
		c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) ||
		c.Subject.SerialNumber != "1" {
		t.Errorf("the certificate is %+v", c)
	}
	if life := time.Until(c.NotAfter); life > Life || life < Life-time.Minute || time.Until(c.NotBefore) > -time.Hour {
		t.Errorf("it is valid from %v to %v", c.NotBefore, c.NotAfter)
	}
	if err := w.Check("node1", 1); err != nil || w.Outdated("node1") {
		t.Errorf("%v, outdated %v", err, w.Outdated("node1"))
	}
	if want := []Change{{Fleet: true}, {}}; !slices.Equal(w.changes, want) {
		t.Errorf("told %+v", w.changes)
	}
	w.restart()
	if err := w.Check("node1", 1); err != nil || !slices.Equal(w.Members(), []string{"node1"}) {
		t.Errorf("after a restart: %v, %v", err, w.Members())
	}
}

// TestOnlyTheKeyCounts: whatever a request asks for, the certificate is for the token's name.
func TestOnlyTheKeyCounts(t *testing.T) {
	w := newWorld(t)
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	manager, _ := url.Parse("ctrl://manager")
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "node2", SerialNumber: "77"}, URIs: []*url.URL{manager}, DNSNames: []string{"node2"},
		ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}}, // CA:TRUE
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	g, err := w.Join("", w.add("node1").String(), encodePEM("CERTIFICATE REQUEST", der))
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, g.Certificate)
	if c.IsCA || len(c.URIs) != 1 || c.URIs[0].String() != "ctrl://node/node1" || len(c.DNSNames) > 0 || c.Subject.CommonName != "node1" || c.Subject.SerialNumber != "1" {
		t.Errorf("the certificate is %+v", c)
	}
}

func TestBadRequests(t *testing.T) {
	w := newWorld(t)
	token := w.add("node1").String()
	m := w.machine("node1")
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	small, _ := rsa.GenerateKey(rand.Reader, 1024)
	request := func(key any) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		return encodePEM("CERTIFICATE REQUEST", der)
	}
	der, _ := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, ec)
	der[len(der)-1] ^= 1
	for name, csr := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "a key": m.key, "two": append(slices.Clone(m.csr), m.csr...), "half": m.csr[:len(m.csr)/2],
		"huge": []byte(strings.Repeat("x", 1<<20)), "another's signature": encodePEM("CERTIFICATE REQUEST", der),
		"damaged": encodePEM("CERTIFICATE REQUEST", []byte("xyz")), "small RSA": request(small),
	} {
		_, err := w.Join("node1", token, csr)
		if !errors.Is(err, wire.ErrInvalidArgs) || !strings.Contains(err.Error(), "the certificate request cannot be used") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.join(m, "node1", mustParse(t, token)) // none of these has used it up
}

func mustParse(t *testing.T, word string) pki.Token {
	t.Helper()
	token, err := pki.ParseToken(word)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokensThatLetNobodyIn(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir}
		w.open()
		defer w.Close()
		m, other := w.machine(""), w.machine("")
		refuse := func(node string, token pki.Token, words ...string) {
			t.Helper()
			_, err := w.Join(node, token.String(), other.csr)
			refused(t, err, words...)
			if err != nil && strings.Contains(err.Error(), token.String()[5:31]) {
				t.Errorf("the error holds the token: %v", err)
			}
		}
		token := w.add("node1")
		refuse("node2", token, `the token is for node "node1", not for "node2"`)
		w.join(m, "node1", token)
		refuse("node1", token, "the token was used already, at 2000-01-01T00:00:00Z", "`ctl node add node1`")

		expired := w.add("node2")
		time.Sleep(time.Hour)
		refuse("node2", expired, "the token expired at 2000-01-01T01:00:00Z", "`ctl node add NAME`")

		replaced := w.add("node3")
		w.add("node3")
		refuse("node3", replaced, "the token was withdrawn at")

		removed := w.add("node4")
		if err := w.RemoveNode("node4"); err != nil {
			t.Fatal(err)
		}
		refuse("node4", removed, "the token was withdrawn at")

		withdrawn := w.add("node5")
		if err := w.Withdraw(w.Tokens()[len(w.Tokens())-1].ID); err != nil {
			t.Fatal(err)
		}
		refuse("node5", withdrawn, "the token was withdrawn at")

		another := &world{t: t, dir: t.TempDir()}
		another.open()
		defer another.Close()
		refuse("node1", another.add("node1"), "the manager knows no such token")
		for _, word := range []string{"", "x", token.String()[1:]} {
			_, err := w.Join("node1", word, m.csr)
			refused(t, err)
		}
		// What is over long since is forgotten, and then a token like any wrong one.
		time.Sleep(31 * 24 * time.Hour)
		w.add("node6")
		refuse("node1", token, "the manager knows no such token")
	})
}

// TestLostAnswer: who does not hear the answer may ask again, and nobody else may.
func TestLostAnswer(t *testing.T) {
	w := newWorld(t)
	token, m := w.add("node1"), w.machine("node1")
	first := w.join(m, "node1", token)
	w.restart()
	second := w.join(m, "node1", token)
	if first.Generation != 1 || second.Generation != 1 || string(first.Certificate) == string(second.Certificate) {
		t.Errorf("generations %d and %d", first.Generation, second.Generation)
	}
	if err := w.Check("node1", 1); err != nil {
		t.Error(err)
	}
	_, err := w.Join("node1", token.String(), w.machine("node1").csr)
	refused(t, err, "used already")
	// Once it has joined anew, or was removed, the old token is worth nothing to anybody.
	again := w.machine("node1")
	w.join(again, "node1", w.add("node1"))
	_, err = w.Join("node1", token.String(), m.csr)
	refused(t, err, "used already")
	if err := w.RemoveNode("node1"); err != nil {
		t.Fatal(err)
	}
	_, err = w.Join("node1", token.String(), m.csr)
	refused(t, err)
	if err := w.Check("node1", 2); err == nil {
		t.Error("not revoked")
	}
}

// TestGenerations is case 103: a machine that joins anew makes its old certificate worthless.
func TestGenerations(t *testing.T) {
	w := newWorld(t)
	w.join(w.machine("node1"), "node1", w.add("node1"))
	w.changes = nil
	token := w.add("node1")
	if err := w.Check("node1", 1); err != nil {
		t.Errorf("before the token is used: %v", err)
	}
	if g := w.join(w.machine("node1"), "node1", token); g.Generation != 2 {
		t.Errorf("generation %d", g.Generation)
	}
	if want := []Change{{Fleet: true}, {Revoked: true}}; !slices.Equal(w.changes, want) {
		t.Errorf("told %+v", w.changes)
	}
	refused(t, w.Check("node1", 1), `the certificate of node "node1" was revoked: it is of generation 1`, "`ctl node add node1`")
	if err := w.Check("node1", 2); err != nil {
		t.Error(err)
	}
	if err := w.RemoveNode("node1"); err != nil {
		t.Fatal(err)
	}
	refused(t, w.Check("node1", 2), "was removed from the fleet at")
	refused(t, w.Check("node1", 3), "was removed from the fleet at")
	w.add("node1")
	refused(t, w.Check("node1", 2), "was revoked")
	refused(t, w.Check("node1", 3), "was revoked") // promised to nobody yet
	if g := w.join(w.machine("node1"), "", w.add("node1")); g.Generation != 4 {
		t.Errorf("generation %d", g.Generation)
	}
	w.restart()
	for generation, ok := range map[uint64]bool{0: false, 1: false, 2: false, 3: false, 4: true, 5: false} {
		if err := w.Check("node1", generation); (err == nil) != ok {
			t.Errorf("generation %d: %v", generation, err)
		}
	}
	refused(t, w.Check("node2", 1), `node "node2" is not known`)
	if err := w.RemoveNode("node2"); !errors.Is(err, wire.ErrNoSuchNode) {
		t.Errorf("got %v", err)
	}
}

func TestReusable(t *testing.T) {
	w := newWorld(t)
	for _, bad := range []struct {
		pattern string
		count   int
		life    time.Duration
	}{{"web-[", 1, 0}, {"", 1, 0}, {"web-*", 0, 0}, {"web-*", MaxCount + 1, 0}, {"web-*", 1, -time.Hour}, {"web-*", 1, 400 * 24 * time.Hour}} {
		if _, err := w.AddReusable(bad.pattern, bad.count, bad.life); !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("%+v gave %v", bad, err)
		}
	}
	w.join(w.machine("web-0"), "web-0", w.add("web-0"))
	if err := w.RemoveNode("web-0"); err != nil {
		t.Fatal(err)
	}
	w.join(w.machine("web-9"), "web-9", w.add("web-9"))
	token, err := w.AddReusable("web-*", 2, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	m := w.machine("")
	_, err = w.Join("", token.String(), m.csr)
	if !errors.Is(err, wire.ErrInvalidArgs) {
		t.Errorf("without a name: %v", err)
	}
	for name, want := range map[string]string{
		"db-1": `the token is for nodes like "web-*"`, "web-0": "was removed from the fleet", "web-9": "whose place a token for many nodes cannot take",
	} {
		_, err := w.Join(name, token.String(), m.csr)
		refused(t, err, want)
	}
	if _, err := w.Join("web-*", token.String(), m.csr); !errors.Is(err, wire.ErrInvalidArgs) {
		t.Errorf("the pattern as a name: %v", err)
	}
	w.join(m, "web-1", token)
	w.join(m, "web-1", token) // the answer was lost
	_, err = w.Join("web-1", token.String(), w.machine("").csr)
	refused(t, err, "cannot take")
	w.join(w.machine(""), "web-2", token)
	_, err = w.Join("web-3", token.String(), m.csr)
	refused(t, err, "for all of its 2 nodes")
	if got := w.Members(); !slices.Equal(got, []string{"web-1", "web-2", "web-9"}) {
		t.Errorf("the fleet is %v", got)
	}
}

func TestRenew(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir}
		w.open()
		defer w.Close()
		first := w.join(w.machine("node1"), "node1", w.add("node1"))
		time.Sleep(60 * 24 * time.Hour)
		m := w.machine("node2") // the name in the request counts for nothing
		var both sync.WaitGroup
		grants := make([]Granted, 2)
		for i := range grants {
			both.Go(func() {
				g, err := w.Renew("node1", 1, m.csr)
				if err != nil {
					t.Error(err)
				}
				grants[i] = g
			})
		}
		both.Wait()
		for _, g := range grants {
			if _, err := pki.CheckIssued("node1", m.key, g.Certificate, g.CA); err != nil || g.Generation != 1 || !g.NotAfter.After(first.NotAfter.Add(59*24*time.Hour)) {
				t.Errorf("%v, %+v", err, g)
			}
		}
		for generation, node := range map[uint64]string{0: "node1", 2: "node1", 1: "node2"} {
			_, err := w.Renew(node, generation, m.csr)
			refused(t, err, node)
		}
		if _, err := w.Renew("node1", 1, []byte("x")); !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("got %v", err)
		}
		if err := w.RemoveNode("node1"); err != nil {
			t.Fatal(err)
		}
		_, err := w.Renew("node1", 1, m.csr)
		refused(t, err, "removed")
	})
}

// TestRenewalsAreWrittenTogether: a renewal is answered at once, and on the disk a second later.
func TestRenewalsAreWrittenTogether(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir}
		w.open()
		defer w.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() { w.Run(ctx); close(done) }()
		w.join(w.machine("node1"), "node1", w.add("node1"))
		before := w.files()["fleet"]
		time.Sleep(24*time.Hour + lookEvery/2) // not at the moment of a look, which writes too
		m := w.machine("")
		for range 10 {
			if _, err := w.Renew("node1", 1, m.csr); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if w.files()["fleet"] != before {
			t.Error("it was written at once")
		}
		time.Sleep(saveAfter)
		synctest.Wait()
		saved := w.files()["fleet"]
		if saved == before {
			t.Error("it was not written")
		}
		time.Sleep(24 * time.Hour)
		if _, err := w.Renew("node1", 1, m.csr); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
		w.restart()
		if now := w.files()["fleet"]; now == saved {
			t.Error("the last one was not written at the end")
		}
	})
}

// TestDiskFull: nothing is half done, whatever could not be written.
func TestDiskFull(t *testing.T) {
	// In a process of its own: what it does to itself would also hit what package testing writes.
	const child = "CTRL_TEST_DISK_FULL"
	if os.Getenv(child) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestDiskFull$")
		c.Env = append(os.Environ(), child+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	w := newWorld(t)
	w.join(w.machine("node1"), "node1", w.add("node1"))
	token, m := w.add("node2"), w.machine("node2")
	before, members := w.files(), w.Members()
	w.changes = nil
	var limit syscall.Rlimit
	full := func(size uint64, do func()) {
		// A file that must not grow past a size fails as a full disk does, for root too.
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		small := limit
		small.Cur = size
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
			t.Fatal(err)
		}
		defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
		do()
	}
	for _, size := range []uint64{0, 10, 300} {
		full(size, func() {
			_, join := w.Join("node2", token.String(), m.csr)
			if _, err := w.Renew("node1", 1, m.csr); err != nil { // which is noted later
				t.Error(err)
			}
			_, add := w.AddNode("node3", 0)
			_, reusable := w.AddReusable("*", 1, 0)
			for what, err := range map[string]error{
				"join": join, "note": w.flush(), "add": add, "reusable": reusable, "rotate": w.Rotate(), "remove": w.RemoveNode("node1"),
			} {
				if err == nil || errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "cannot write "+w.path("")) {
					t.Errorf("%s with %d bytes free: %v", what, size, err)
				}
			}
		})
		for name, text := range w.files() {
			if before[name] != text && name != "authority-2.pem" { // which is nothing until the ledger names it
				t.Errorf("%s was changed, or is new", name)
			}
		}
		if len(w.changes) > 0 || !slices.Equal(w.Members(), members) || w.Check("node1", 1) != nil {
			t.Errorf("told %v, the fleet is %v, %v", w.changes, w.Members(), w.Check("node1", 1))
		}
	}
	w.join(m, "node2", token) // nothing was used up
	if err := os.Remove(w.path("authority-2.pem")); err == nil {
		t.Error("an authority was written")
	}
}
