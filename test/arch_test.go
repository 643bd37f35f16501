// Package test holds checks over the whole source tree.
package test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "example.org/ctrl"

// listed is what `go list -json` says about one package.
type listed struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	Imports    []string // direct, without those of tests
	Deps       []string // direct and indirect
}

// rule forbids a kind of import. from and to are package paths below the module, or whole
// paths of other modules and the standard library; a final "/..." matches what is below too,
// and "*" is every package of ours.
type rule struct {
	from   []string
	except []string // packages the rule does not bind
	to     []string
	direct bool // bans the direct import only: fmt imports os, so a core has os among its Deps
	why    string
}

var cores = []string{"internal/manager", "internal/agent", "internal/workload"}

var adapters = []string{
	"internal/pki", "internal/agentlink", "internal/managerlink", "internal/systemd",
	"internal/managerbus", "internal/agentbus", "internal/authz", "internal/sdnotify", "internal/nodefiles", "internal/nodeunits", "internal/workloadstore", "internal/journal",
}

var testSupport = []string{"internal/systemdtest", "internal/clustertest", "internal/lab", "internal/machine/machinetest", "internal/pki/pkitest", "internal/bustest"}

var rules = []rule{
	{from: cores, to: []string{"net", "os", "os/exec", "syscall", "golang.org/x/sys/unix"}, direct: true,
		why: "a core decides and does no I/O; it must run inside a synctest bubble"},
	{from: cores, to: []string{"github.com/godbus/dbus/v5", "internal/peer", "internal/systemd"},
		why: "a core must not know how its messages travel"},
	{from: []string{"internal/bundle", "internal/unitfile"}, to: []string{"net", "os", "os/exec", "syscall", "golang.org/x/sys/unix"}, direct: true,
		why: "what a node should hold is decided without I/O, so that a crash can be tried at every step"},
	{from: []string{"internal/bundle"}, to: []string{"github.com/godbus/dbus/v5", "internal/peer", "internal/systemd", "internal/agent", "internal/manager"},
		why: "both daemons and ctl share the vocabulary of bundles, which knows none of them"},
	{from: []string{"internal/manager"}, to: []string{"internal/agent"}, why: "the two cores meet on the wire only"},
	{from: []string{"internal/agent"}, to: []string{"internal/manager"}, why: "the two cores meet on the wire only"},
	{from: []string{"internal/client", "internal/ctl/..."}, to: cores, why: "the CLI has no private road into a daemon"},
	{from: []string{"*"}, except: []string{"cmd/manager", "cmd/agent", "bench/profiled"}, to: []string{"internal/managerd", "internal/agentd"},
		why: "only the programs wire everything together"},
	{from: []string{"*"}, except: append([]string{"test/...", "bench/..."}, testSupport...), to: testSupport,
		why: "test support does not belong into a program"},
	{from: []string{"*"}, except: []string{"internal/client", "test/...", "bench/..."}, to: []string{"github.com/godbus/dbus/v5"}, direct: true,
		why: "daemons have one D-Bus stack, internal/peer"},
	{from: []string{"*"}, except: []string{"internal/lab", "internal/bustest", "test/...", "bench/...", "internal/journal", "internal/nodefiles", "internal/client", "internal/ctl/..."},
		to: []string{"os/exec"}, direct: true, why: "child processes are started in few known places: of ctl the pager, and journalctl, whose output is the action log"},
	{from: []string{"internal/unit", "internal/atomicfile", "internal/backoff", "internal/loop", "internal/version", "internal/wire"},
		to: []string{"*"}, why: "a leaf imports the standard library only"},
	{from: []string{"internal/peer"}, to: append(append([]string{"internal/config"}, cores...), adapters...),
		why: "the transport knows none of those that use it"},
	{from: []string{"internal/busobject"}, to: append(slices.Clone(cores), adapters...),
		why: "it serves objects and knows none of those whose objects they are"},
}

// siblings may not import each other: a program wires them through interfaces.
func siblingRules() []rule {
	var out []rule
	for _, a := range adapters {
		others := slices.DeleteFunc(slices.Clone(adapters), func(b string) bool { return a == b })
		out = append(out, rule{from: []string{a}, to: others, why: "adapters do not import each other; the program wires them"})
	}
	return out
}

func TestImports(t *testing.T) {
	packages := list(t)
	for _, r := range append(rules, siblingRules()...) {
		for _, p := range packages {
			if !matchAny(r.from, p.ImportPath) || matchAny(r.except, p.ImportPath) {
				continue
			}
			imports := p.Deps
			if r.direct {
				imports = p.Imports
			}
			for _, imported := range imports {
				if imported != p.ImportPath && matchAny(r.to, imported) {
					t.Errorf("%s must not import %s: %s", short(p.ImportPath), short(imported), r.why)
				}
			}
		}
	}
}

// TestRulesNameRealPackages keeps a rule from losing its object when a package is renamed.
func TestRulesNameRealPackages(t *testing.T) {
	var have []string
	for _, p := range list(t) {
		have = append(have, short(p.ImportPath))
	}
	for _, name := range append(append(slices.Clone(cores), adapters...), testSupport...) {
		if !slices.Contains(have, name) {
			t.Errorf("the rules name %s, which is no package", name)
		}
	}
}

// TestTokens holds what no import says: who may spell a bus name and who may print.
func TestTokens(t *testing.T) {
	for _, p := range list(t) {
		name := short(p.ImportPath)
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if name != "internal/wire" && spellsBusName(t, path, source) {
				t.Errorf("%s/%s spells a bus name: use package wire", name, file)
			}
			printer := strings.HasPrefix(name, "cmd/") || matchAny([]string{"internal/ctl/...", "test/...", "bench/..."}, p.ImportPath)
			if !printer && strings.Contains(string(source), "fmt.Print") {
				t.Errorf("%s/%s prints: only cmd and ctl write to standard output", name, file)
			}
		}
	}
}

func spellsBusName(t *testing.T, path string, source []byte) bool {
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return hasBusLiteral(file)
}

// TestPackagesSayWhatTheyAreFor: each package opens with one sentence.
func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	for _, p := range list(t) {
		documented := false
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || parsed.Doc.Text() != ""
		}
		if !documented && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", short(p.ImportPath))
		}
	}
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles,Imports,Deps", module+"/...")
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); err == io.EOF {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

func matchAny(patterns []string, path string) bool {
	for _, pattern := range patterns {
		if pattern == "*" && strings.HasPrefix(path, module+"/") || match(pattern, short(path)) {
			return true
		}
	}
	return false
}

func match(pattern, path string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == root || strings.HasPrefix(path, root+"/")
	}
	return path == pattern
}
