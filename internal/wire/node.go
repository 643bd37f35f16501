package wire

// MaxNodeName is the longest node name, in bytes.
const MaxNodeName = 64

// NodeNameRule says in words what ValidNodeName checks, for error texts.
const NodeNameRule = "a node name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit"

// ValidNodeName reports whether s may name a node. Case counts.
func ValidNodeName(s string) bool {
	if s == "" || len(s) > MaxNodeName || !isAlpha(s[0]) && !isDigit(s[0]) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !isAlpha(c) && !isDigit(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
