package pki_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"example.org/ctrl/internal/logging"
	"example.org/ctrl/internal/pki"
)

func TestTokenWord(t *testing.T) {
	ca := newCA(t)
	token := pki.NewToken(ca.Cert)
	word := token.String()
	if len(word) != pki.TokenLength || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz1234567") != "" {
		t.Errorf("the word is %q", word)
	}
	for name, copied := range map[string]string{
		"as it is": word, "as a line": "  " + word + "\r\n", "in capitals": strings.ToUpper(word),
	} {
		back, err := pki.ParseToken(copied)
		if err != nil || back.String() != word || back.Hash() != token.Hash() {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := pki.NewToken(ca.Cert)
	if other.Hash() == token.Hash() {
		t.Error("two tokens are equal")
	}
	changed := func(at int, c byte) string {
		b := []byte(word)
		if b[at] == c {
			c++
		}
		b[at] = c
		return string(b)
	}
	const notOne = "this is not a token of ctrl: one begins with \"ctrl1\" and has 89 characters; `ctl node add NAME` on the manager prints one"
	const damaged = "the token was changed on its way: its checksum does not fit; copy it again"
	for name, test := range map[string]struct{ word, want string }{
		"empty":            {" \n", "the token is empty; `ctl node add NAME` on the manager prints one"},
		"something else":   {"eyJhbGciOi", notOne},
		"cut":              {word[:50], "the token has 50 characters instead of 89; copy it again, all of it"},
		"twice":            {word + word, "the token has 178 characters instead of 89; copy it again, all of it"},
		"with a space":     {changed(40, ' '), "the token holds a character that no token has; copy it again"},
		"a control letter": {changed(40, 27), "the token holds a character that no token has; copy it again"},
		"first letter":     {changed(5, 'a'), damaged},
		"middle letter":    {changed(45, 'c'), damaged},
		"last letter":      {changed(88, 'b'), damaged},
		"of two":           {word[:40] + other.String()[40:], damaged},
	} {
		_, err := pki.ParseToken(test.word)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	// The last letter carries bits that stand for nothing; one word for one token.
	for c := byte('a'); c <= 'z'; c++ {
		if w := changed(88, c); w != word {
			if _, err := pki.ParseToken(w); err == nil {
				t.Errorf("also %c may be the last letter", c)
			}
		}
	}
}

// TestTokenIsNeverPrinted holds every way in which Go programs print things against the
// secret.
func TestTokenIsNeverPrinted(t *testing.T) {
	token := pki.NewToken(newCA(t).Cert)
	type inner struct{ t pki.Token } // package fmt cannot call methods of what it may not export
	things := []any{token, &token, []pki.Token{token}, map[string]pki.Token{"a": token}, struct{ T pki.Token }{token}, inner{token}, &inner{token}}
	var log bytes.Buffer
	for _, thing := range things {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%t"} {
			fmt.Fprintf(&log, verb+"\n", thing)
		}
		fmt.Fprintln(&log, thing, fmt.Errorf("cannot join: %w", fmt.Errorf("%v", thing)))
		json.NewEncoder(&log).Encode(thing)
		for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
			slog.New(h).Info("joining", "token", thing, slog.Group("g", "token", thing))
			slog.New(h).With("token", thing).Info("joining")
		}
	}
	for _, target := range []logging.Target{logging.StderrFull, logging.JSON} {
		l := logging.New(logging.Config{Target: target, Level: slog.LevelDebug}, logging.Output{Stderr: &log})
		l.Logger().Info("joining", "token", token)
		l.Close(t.Context())
	}
	word := strings.ToLower(log.String())
	secret := token.String()[5:31]
	for _, part := range []string{secret, secret[:8], secret[18:], fmt.Sprintf("%x", token.Hash())[:16]} {
		if strings.Contains(word, part) {
			t.Errorf("the secret was printed: %s", log.String())
			break
		}
	}
	if !strings.Contains(word, "[token]") {
		t.Error("nothing says that a token was there")
	}
}
