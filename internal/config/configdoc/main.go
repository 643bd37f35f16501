// Command configdoc writes the sample files, docs/configuration.md and the man pages from the
// table of keys; with -check it only compares.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/ctrl/internal/config"
)

//go:embed intro.md
var intro string

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("configdoc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	check := flags.Bool("check", false, "compare the files with what would be written, change nothing")
	root := flags.String("root", ".", "the `folder` of the repository")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	code, all := 0, files()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := write(filepath.Join(*root, name), all[name], *check); err != nil {
			fmt.Fprintf(stderr, "error: %v\n", err)
			code = 1
		}
	}
	return code
}

// files are the generated files by their names in the repository.
func files() map[string]string {
	return map[string]string{
		"config/manager.conf":          sample("manager.conf"),
		"config/agent.conf":            sample("agent.conf"),
		"docs/configuration.md":        intro + reference(),
		"docs/man/ctrl-manager.conf.5": man("manager"),
		"docs/man/ctrl-agent.conf.5":   man("agent"),
	}
}

var errStale = errors.New("is not what the table of keys in internal/config says; run: go generate ./internal/config")

func write(file, text string, check bool) error {
	if !check {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		return os.WriteFile(file, []byte(text), 0o644)
	}
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if string(have) != text {
		return fmt.Errorf("%s %w", file, errStale)
	}
	return nil
}

func sectionsOf(file string) []config.Section {
	return slices.DeleteFunc(config.Sections(), func(s config.Section) bool { return s.File != file })
}

// sample is a file that changes nothing, in which every key can be switched on.
func sample(file string) string {
	daemon := strings.TrimSuffix(file, ".conf")
	var b strings.Builder
	fmt.Fprintf(&b, "# Configuration of ctrl-%s: all keys, each with its default or, behind \"for example\", with an example.\n", daemon)
	fmt.Fprintf(&b, "# The file is /etc/ctrl/%s; files in /etc/ctrl/%s.d/*.conf are read after it. See ctrl-%s.conf(5).\n", file, file, daemon)
	for _, s := range sectionsOf(file) {
		comment := ""
		if s.Title != daemon {
			comment = "#"
		}
		fmt.Fprintf(&b, "\n%s[%s]\n", comment, s.Title)
		for _, k := range s.Keys {
			doc := k.Doc + later(k)
			if k.Example != "" {
				doc += " For example:"
			}
			b.WriteByte('\n')
			for _, line := range wrap(doc, 98) {
				fmt.Fprintf(&b, "# %s\n", line)
			}
			fmt.Fprintf(&b, "#%s=%s\n", k.Name, k.Default+k.Example)
		}
	}
	return b.String()
}

func later(k config.Key) string {
	if k.Later {
		return " (Not in this version.)"
	}
	return ""
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

func reference() string {
	var b strings.Builder
	for _, s := range config.Sections() {
		fmt.Fprintf(&b, "\n## %s, section [%s]\n\n| key | value | default | changes | meaning |\n|---|---|---|---|---|\n", s.File, s.Title)
		for _, k := range s.Keys {
			def, reload := "–", "at a restart"
			if k.Default != "" {
				def = "`" + k.Default + "`"
			}
			if k.Reload {
				reload = "at a reload"
			}
			doc := k.Doc
			if k.Example != "" {
				doc += " Example: `" + k.Example + "`."
			}
			fmt.Fprintf(&b, "| `%s=` | %s | %s | %s | %s%s |\n", k.Name, k.Type, def, reload, strings.ReplaceAll(doc, "|", `\|`), later(k))
		}
	}
	return b.String()
}
