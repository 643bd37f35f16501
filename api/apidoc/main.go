// Command apidoc writes docs/api.md from the introspection XML; with -check it only
// compares.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/wire"
)

//go:embed intro.md
var intro string

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("apidoc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	check := flags.Bool("check", false, "compare the file with what would be written, change nothing")
	file := flags.String("file", "docs/api.md", "the `file` to write or to compare")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := write(*file, *check); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 1
	}
	return 0
}

var errStale = errors.New("is not what the XML in api/dbus-xml says; run: go run ./api/apidoc")

func write(file string, check bool) error {
	text := document()
	if !check {
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

func document() string {
	var b strings.Builder
	b.WriteString(intro)
	for _, name := range api.Names() {
		i := api.Load(name)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, prose(i.Doc))
		methods(&b, i)
		signals(&b, i)
		properties(&b, i)
	}
	return b.String()
}

func methods(b *strings.Builder, i api.Interface) {
	if len(i.Methods) == 0 {
		return
	}
	rights := i.Methods[0].Action != ""
	columns := []string{"method", "arguments", "answer"}
	if rights {
		columns = append(columns, "right")
	}
	header(b, append(columns, "meaning"))
	for _, m := range i.Methods {
		cells := []string{code(m.Name), arguments(m.In), arguments(m.Out)}
		if rights {
			cells = append(cells, code(strings.TrimPrefix(m.Action, wire.BusName+".")))
		}
		row(b, append(cells, prose(m.Doc)))
	}
}

func signals(b *strings.Builder, i api.Interface) {
	if len(i.Signals) == 0 {
		return
	}
	header(b, []string{"signal", "arguments", "meaning"})
	for _, s := range i.Signals {
		row(b, []string{code(s.Name), arguments(s.Args), prose(s.Doc)})
	}
}

// changes says in words what EmitsChangedSignal means for a reader.
var changes = map[string]string{
	"true": "told, with the value", "invalidates": "told, without the value", "false": "not told", "const": "never",
}

func properties(b *strings.Builder, i api.Interface) {
	if len(i.Properties) == 0 {
		return
	}
	header(b, []string{"property", "type", "change", "meaning"})
	for _, p := range i.Properties {
		row(b, []string{code(p.Name), code(string(p.Type)), changes[p.Emits], prose(p.Doc)})
	}
}

func header(b *strings.Builder, cells []string) {
	b.WriteString("\n")
	row(b, cells)
	b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

func row(b *strings.Builder, cells []string) {
	for i, cell := range cells {
		if cell == "" {
			cells[i] = "–"
		}
	}
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func arguments(args []api.Arg) string {
	var out []string
	for _, a := range args {
		out = append(out, code(string(a.Type))+" "+prose(a.Name))
	}
	return strings.Join(out, ", ")
}

func code(s string) string { return "`" + s + "`" }

// prose keeps characters of a text from being taken for Markdown.
func prose(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", `\<`).Replace(s)
}
