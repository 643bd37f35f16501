package config

import (
	"fmt"
	"strings"
	"time"
)

// Daemons for which Sample makes a file.
const (
	ManagerFile = managerSection + ".conf"
	AgentFile   = agentSection + ".conf"
)

// Sample is the commented sample file of a daemon.
func Sample(file string) string {
	section := strings.TrimSuffix(file, ".conf")
	var b strings.Builder
	fmt.Fprintf(&b, "# Sample configuration of ctrl-%s with all keys and their defaults.\n", section)
	fmt.Fprintf(&b, "# Goes to /etc/ctrl/%s; drop-ins go to /etc/ctrl/%s.d/*.conf.\n\n[%s]\n", file, file, section)
	sampleKeys(&b, section)
	if section == managerSection {
		b.WriteString("\n#[node NAME]\n")
		sampleKeys(&b, nodeSection)
	}
	return b.String()
}

func sampleKeys(b *strings.Builder, section string) {
	for i := range keys {
		if k := &keys[i]; k.section == section {
			b.WriteByte('\n')
			for _, line := range wrap(k.doc, 90) {
				fmt.Fprintf(b, "# %s\n", line)
			}
			fmt.Fprintf(b, "#%s=%s\n", k.name, k.def)
		}
	}
}

func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, w := range strings.Fields(s) {
		if line != "" && len(line)+1+len(w) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return append(lines, line)
}

// Reference is the part of docs/configuration.md that the table gives.
func Reference() string {
	var b strings.Builder
	for _, part := range []struct{ title, section string }{
		{"manager.conf, section [manager]", managerSection},
		{"manager.conf, sections [node NAME]", nodeSection},
		{"agent.conf, section [agent]", agentSection},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | reload | meaning |\n|---|---|---|---|---|\n", part.title)
		for i := range keys {
			k := &keys[i]
			if k.section != part.section {
				continue
			}
			def, reload := "–", "restart"
			if k.def != "" {
				def = "`" + k.def + "`"
			}
			if k.reload {
				reload = "yes"
			}
			fmt.Fprintf(&b, "| `%s=` | %s | %s | %s | %s |\n", k.name, k.typeName(), def, reload, strings.ReplaceAll(k.doc, "|", `\|`))
		}
	}
	return b.String()
}

func (k *key) typeName() string {
	switch k.kind {
	case boolean:
		return "yes or no"
	case number:
		return fmt.Sprintf("%d to %d", k.low, k.high)
	case span:
		if k.unit == time.Millisecond {
			return "time span, bare number: ms"
		}
		return "time span, bare number: s"
	case word:
		return strings.Join(k.words, ", ")
	case list:
		if k.split != "" {
			return "list, separator `" + k.split + "`"
		}
		return "list, separator `,`"
	case path:
		return "absolute path"
	}
	return "text"
}
