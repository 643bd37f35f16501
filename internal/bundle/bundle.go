package bundle

// Format is the version of the encoding that this package writes. A node refuses a bundle
// whose format it does not know, and says so.
const Format = 1

// Limits of one bundle. Check refuses what is over them.
const (
	MaxPackage  = 16 << 20 // bytes of an encoded package
	MaxUnits    = 1000     // units, and drop-ins of one unit
	MaxFiles    = 1000
	MaxFile     = 8 << 20 // bytes of one file
	MaxWorkload = 63      // bytes of a workload's name
)

// Bundle is what one workload wants of one node: a value without pointers, of which Canonical
// has exactly one form.
type Bundle struct {
	Format   int    `json:"format"`
	Workload string `json:"workload"`
	// Runtime puts the units below /run/systemd/system instead of /etc/systemd/system: they
	// are gone after a reboot.
	Runtime bool   `json:"runtime,omitempty"`
	Units   []Unit `json:"units"`
	Files   []File `json:"files,omitempty"`
	// Enable and Start name units of the bundle or instances of its templates.
	Enable []string `json:"enable,omitempty"`
	Start  []string `json:"start,omitempty"`
}

// Unit is a unit file with its drop-ins, or only drop-ins for a unit that somebody else
// ships (Foreign).
type Unit struct {
	Name    string   `json:"name"`
	Text    string   `json:"text,omitempty"`
	Foreign bool     `json:"foreign,omitempty"`
	DropIns []DropIn `json:"dropIns,omitempty"`
}

// DropIn is one file of a unit's .d directory. Name ends in ".conf".
type DropIn struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// File is configuration that units of the bundle read.
type File struct {
	// Path is where the units see it: absolute, clean, below one of the node's
	// AllowFilePaths=.
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // of the content, hexadecimal
	Mode   uint32 `json:"mode"`   // permission bits, without setuid, setgid and sticky
	Owner  string `json:"owner,omitempty"`
	Group  string `json:"group,omitempty"`
	// Units are those that read it; empty means all services of the bundle.
	Units []string `json:"units,omitempty"`
	// Write puts the file at its path for everyone to see. Otherwise it is bound read-only
	// into its units alone (BindReadOnlyPaths=), under a name that is made of its content.
	Write bool `json:"write,omitempty"`
	// OnChange is what happens to the file's units when only the file has changed:
	// ChangeRestart, also for "", or, with Write, ChangeReload or ChangeNone.
	OnChange string `json:"onChange,omitempty"`
}

// Words of File.OnChange.
const (
	ChangeRestart = "restart"
	ChangeReload  = "reload"
	ChangeNone    = "none"
)

// Package is a bundle with the contents of its files, by their SHA-256.
type Package struct {
	Bundle Bundle            `json:"bundle"`
	Blobs  map[string][]byte `json:"blobs,omitempty"`
}
