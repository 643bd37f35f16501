package test

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"testing"
)

// busLiteral is a D-Bus name or path of the organisations that ctrl speaks to or is.
var busLiteral = regexp.MustCompile(`(^|[^A-Za-z])/?org[./](example[./]ctrl1|freedesktop)`)

// hasBusLiteral reports whether a string constant in the file spells a bus name. Comments
// and import paths may.
func hasBusLiteral(file *ast.File) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				s, err := strconv.Unquote(n.Value)
				found = found || err == nil && busLiteral.MatchString(s)
			}
		}
		return true
	})
	return found
}

func TestBusLiteral(t *testing.T) {
	for _, s := range []string{"org.example.ctrl1", "/org/example/ctrl1/job", "org.freedesktop.DBus", "see org.freedesktop.systemd1"} {
		if !busLiteral.MatchString(s) {
			t.Errorf("%q was not found", s)
		}
	}
	for _, s := range []string{"example.org/ctrl", "the organisation", "org.eclipse.bluechi"} {
		if busLiteral.MatchString(s) {
			t.Errorf("%q was taken for a bus name", s)
		}
	}
}
