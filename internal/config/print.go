package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Print writes the effective configuration as a file that would give it again, each value
// with the place it comes from.
func (c *Manager) Print(w io.Writer) error {
	if err := c.print(w, managerSection, c); err != nil {
		return err
	}
	for _, n := range c.sections {
		if _, err := fmt.Fprintf(w, "\n[%s %s]\n", nodeSection, n.Name); err != nil {
			return err
		}
		for i := range keys {
			if k := &keys[i]; k.section == nodeSection {
				if err := c.printKey(w, nodeSection+" "+n.Name, k, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Print writes the effective configuration as a file that would give it again, each value
// with the place it comes from.
func (c *Agent) Print(w io.Writer) error { return c.print(w, agentSection, c) }

func (c *Common) print(w io.Writer, section string, target any) error {
	if _, err := fmt.Fprintf(w, "[%s]\n", section); err != nil {
		return err
	}
	for i := range keys {
		if k := &keys[i]; k.section == section {
			if err := c.printKey(w, section, k, target); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Common) printKey(w io.Writer, section string, k *key, target any) error {
	_, err := fmt.Fprintf(w, "# %s\n%s=%s\n", c.origins[section+" "+k.name], k.name, k.format(k.field(target)))
	return err
}

func (k *key) format(field any) string {
	switch f := field.(type) {
	case *bool:
		if *f {
			return "yes"
		}
		return "no"
	case *int:
		return strconv.Itoa(*f)
	case *time.Duration:
		return formatSpan(*f)
	case *[]string:
		if k.split != "" {
			return strings.Join(*f, k.split)
		}
		return strings.Join(*f, ",")
	case *string:
		return *f
	}
	return ""
}

// Changed compares two configurations of the manager: which keys a reload applies, and
// which need a restart.
func (c *Manager) Changed(to *Manager) (applied, restart []string) {
	applied, restart = changed(managerSection, c, to)
	if fmt.Sprint(c.Nodes) != fmt.Sprint(to.Nodes) && len(applied) == 0 {
		applied = append(applied, "[node]")
	}
	return applied, restart
}

// Changed compares two configurations of an agent.
func (c *Agent) Changed(to *Agent) (applied, restart []string) { return changed(agentSection, c, to) }

func changed(section string, from, to any) (applied, restart []string) {
	for i := range keys {
		k := &keys[i]
		if k.section != section || k.format(k.field(from)) == k.format(k.field(to)) {
			continue
		}
		if k.reload {
			applied = append(applied, k.name)
		} else {
			restart = append(restart, k.name)
		}
	}
	return applied, restart
}
