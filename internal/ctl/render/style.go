package render

// Style is how a text looks on a terminal that has colours.
type Style uint8

// The styles, with systemctl's meanings.
const (
	Plain     Style = iota
	Underline       // heads
	Good            // active
	Bad             // failed, not found
	Changing        // activating, deactivating, reloading
	Faint           // inactive
	Bold
)

var escapes = [...]string{Plain: "", Underline: "\x1b[4m", Good: "\x1b[0;32m", Bad: "\x1b[1;31m", Changing: "\x1b[0;33m", Faint: "\x1b[0;90m", Bold: "\x1b[1m"}

func (s Style) wrap(text string, color bool) string {
	if !color || s == Plain || text == "" {
		return text
	}
	return escapes[s] + text + "\x1b[0m"
}

// Paint puts a text into a style where o has colours.
func (o Options) Paint(s Style, text string) string { return s.wrap(text, o.Color) }
