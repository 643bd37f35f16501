package config

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Print writes the effective configuration as a file that would give it again, each value
// with the place it comes from.
func (c *Manager) Print(w io.Writer) error {
	var b bytes.Buffer
	c.settings.print(&b, managerSection, managerSection, c)
	for _, n := range c.sections {
		b.WriteByte('\n')
		c.settings.print(&b, nodeSection+" "+n.Name, nodeSection, n)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Print writes the effective configuration as a file that would give it again, each value
// with the place it comes from.
func (c *Agent) Print(w io.Writer) error {
	var b bytes.Buffer
	c.settings.print(&b, agentSection, agentSection, c)
	b.WriteByte('\n')
	c.settings.print(&b, policySection, policySection, &c.Policy)
	_, err := w.Write(b.Bytes())
	return err
}

// print writes one section. Of a list each line that adds to it stands alone.
func (s *settings) print(b *bytes.Buffer, section, kind string, target any) {
	fmt.Fprintf(b, "[%s]\n", section)
	for _, k := range in(kind) {
		list := s.entries[place(section, k.name)]
		if k.adds() && len(list) > 0 {
			for _, e := range list {
				var words []string
				_ = k.set(&words, e.text) // it was set before
				fmt.Fprintf(b, "# %s\n%s=%s\n", e.origin, k.name, k.format(&words))
			}
			continue
		}
		var o origin
		if len(list) > 0 {
			o = list[0].origin
		}
		fmt.Fprintf(b, "# %s\n%s=%s\n", o, k.name, k.format(k.field(target)))
	}
}

func sortedByName(nodes []*Node) []*Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
}
