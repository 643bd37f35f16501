package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Token lets its bearer join a fleet: 128 bits of secret, and the SHA-256 of the authority
// that the manager's certificate must come from. Printing or logging one shows neither;
// only String gives the word itself.
//
// The content is behind a pointer so that package fmt does not reach it by reflection
// either, where a token is a field of something that is printed.
type Token struct{ content *tokenContent }

type tokenContent struct {
	secret    [16]byte
	authority [sha256.Size]byte
}

// The word is the prefix, then secret, authority and four bytes of checksum in base32, in
// lower case: one double click selects it, and no shell changes it.
const (
	tokenPrefix   = "ctrl1"
	tokenBytes    = 16 + sha256.Size + checksumBytes
	checksumBytes = 4
	// TokenLength is the length of the word in characters.
	TokenLength = len(tokenPrefix) + (tokenBytes*8+4)/5
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewToken makes a token with a fresh secret, for the fleet of an authority.
func NewToken(authority *x509.Certificate) Token {
	t := Token{&tokenContent{authority: sha256.Sum256(authority.Raw)}}
	rand.Read(t.content.secret[:]) // never fails (crypto/rand)
	return t
}

// What a word is that is no token. No text shows any of it: it may be a good token with one
// wrong letter.
var (
	errNoToken      = errors.New("the token is empty; `ctl node add NAME` on the manager prints one")
	errNotToken     = fmt.Errorf("this is not a token of ctrl: one begins with %q and has %d characters; `ctl node add NAME` on the manager prints one", tokenPrefix, TokenLength)
	errTokenDamaged = errors.New("the token was changed on its way: its checksum does not fit; copy it again")
)

// ParseToken reads the word, with white space around it. The errors say what is wrong and
// hold nothing of the word.
func ParseToken(word string) (Token, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	if word == "" {
		return Token{}, errNoToken
	}
	body, ok := strings.CutPrefix(word, tokenPrefix)
	if !ok {
		return Token{}, errNotToken
	}
	if len(word) != TokenLength {
		return Token{}, fmt.Errorf("the token has %d characters instead of %d; copy it again, all of it", len(word), TokenLength)
	}
	b, err := tokenEncoding.DecodeString(body)
	if err != nil {
		return Token{}, fmt.Errorf("the token holds a character that no token has; copy it again")
	}
	var c tokenContent
	copy(c.secret[:], b)
	copy(c.authority[:], b[len(c.secret):])
	t := Token{&c}
	if t.String() != word { // also bits of the last letter that stand for nothing
		return Token{}, errTokenDamaged
	}
	return t, nil
}

// String is the word that ParseToken reads. It is the only way to the secret.
func (t Token) String() string {
	if t.content == nil {
		return ""
	}
	b := append(t.content.secret[:], t.content.authority[:]...)
	sum := sha256.Sum256(append([]byte("ctrl token 1\x00"), b...))
	return tokenPrefix + tokenEncoding.EncodeToString(append(b, sum[:checksumBytes]...))
}

// TokenHash is what an authority keeps of a token.
type TokenHash [sha256.Size]byte

// Hash is what may be stored: nobody finds 128 random bits by trying.
func (t Token) Hash() TokenHash {
	if t.content == nil {
		return TokenHash{}
	}
	return sha256.Sum256(append([]byte("ctrl token secret\x00"), t.content.secret[:]...))
}

// isOf reports whether c is the authority that the token is for.
func (t Token) isOf(c *x509.Certificate) bool {
	return t.content != nil && t.content.authority == sha256.Sum256(c.Raw)
}

// maskedToken stands for a token wherever one is printed.
const maskedToken = "[token]"

// Format implements fmt.Formatter: no verb shows a token.
func (t Token) Format(f fmt.State, _ rune) { io.WriteString(f, maskedToken) }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(maskedToken) }

// MarshalText implements encoding.TextMarshaler, for loggers and encoders.
func (t Token) MarshalText() ([]byte, error) { return []byte(maskedToken), nil }
