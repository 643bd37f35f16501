package wire

// MemberRow is one row of Enrolment.ListMembers, "(sssttt)". Times are in microseconds since
// 1970, 0 for none.
type MemberRow struct {
	Name       string
	Origin     string // a place in a file, MemberAdded, or "" for what is no member
	State      string // one of the words below, "" where the manager issues no certificates
	Generation uint64
	Joined     uint64
	Expires    uint64
}

// MemberAdded is the origin of those that are members by AddNode or by a token for many.
const MemberAdded = "added"

// States of a member's certificate.
const (
	MemberNone     = "none"     // no machine has joined under that name
	MemberJoined   = "joined"   // the certificate is good
	MemberRenewing = "renewing" // the node is to renew it now
	MemberExpired  = "expired"  // the machine must join again
)

// TokenRow is one row of Enrolment.ListTokens, "(ssbuutt)".
type TokenRow struct {
	ID       string
	Name     string // of the node; a glob where Reusable
	Reusable bool
	Count    uint32 // machines that it was made for
	Left     uint32
	Created  uint64 // microseconds since 1970
	Expires  uint64
}

// CertificateRow is one certificate in the answer of Enrolment.ShowAuthority, "(ssstt)".
type CertificateRow struct {
	Role        string // one of the words below
	Subject     string
	Fingerprint string // SHA-256, hexadecimal
	NotBefore   uint64 // microseconds since 1970
	NotAfter    uint64
}

// Roles of certificates.
const (
	RoleAuthority = "authority"
	RoleSuccessor = "successor" // of the authority, while it is being replaced
	RoleManager   = "manager"
)
