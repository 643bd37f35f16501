package pki

import (
	"io/fs"
	"testing"
)

func TestFileModes(t *testing.T) {
	const self, other = 990, 1000
	tests := []struct {
		mode   fs.FileMode
		owner  int
		secret bool
		ok     bool
	}{
		{0o600, self, true, true},
		{0o400, self, true, true},
		{0o600, 0, true, true},
		{0o640, 0, true, true}, // readable for a group because root said so
		{0o640, self, true, false},
		{0o660, 0, true, false},
		{0o604, 0, true, false},
		{0o602, self, true, false},
		{0o600, other, true, false},
		{0o644, 0, false, true},
		{0o664, self, false, true},
		{0o646, 0, false, false},
		{0o644, other, false, false},
	}
	for _, test := range tests {
		why := checkMode(test.mode, test.owner, self, test.secret)
		if (why == "") != test.ok {
			t.Errorf("mode %04o, owner %d, secret %v: %q, want accepted %v", test.mode, test.owner, test.secret, why, test.ok)
		}
	}
}
