package logging

// Keys of attributes that mean the same wherever they stand. In the journal each is a field
// named CTRL_ and the key in upper case.
const (
	KeyNode     = "node"
	KeyUnit     = "unit"
	KeyVerb     = "verb"
	KeyJob      = "job"
	KeySession  = "session"
	KeyResult   = "result"
	KeyReason   = "reason"
	KeyAddress  = "address"
	KeyFile     = "file"
	KeyConfig   = "key" // a key of the configuration
	KeyCaller   = "caller"
	KeyCallerID = "caller_uid"
	KeyErr      = "err"
	// KeyStack holds a goroutine's stack: the one value that is shown on several lines.
	KeyStack = "stack"
	// KeyMessageID holds the 128-bit id of a kind of message, in hexadecimal. In the journal
	// it is the field MESSAGE_ID, elsewhere it is left out.
	KeyMessageID = "message_id"
)
