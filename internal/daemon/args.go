package daemon

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/version"
)

// request is what the command line asks for.
type request struct {
	options       config.Options
	check, print  bool
	help, version bool
}

// commonFlags are those of both daemons that set a key.
var commonFlags = []Flag{
	{Short: "l", Long: "log-level", Key: "LogLevel", Value: "LEVEL", Help: "least important level to log: debug, info, warn or error"},
}

// parse reads the command line. An error is a mistake of who typed it.
func (s *Spec[C]) parse(args, env []string) (*request, *pflag.FlagSet, error) {
	r := &request{}
	set := pflag.NewFlagSet(s.Name, pflag.ContinueOnError)
	set.SortFlags = false
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.StringVarP(&r.options.File, "config", "c", "", "read this `FILE` after all others")
	set.BoolVar(&r.options.User, "user", false, "serve the user's bus and systemd instead of the system's")
	for _, f := range append(s.Flags, commonFlags...) {
		set.VarP(&setting{flag: f, into: &r.options.Flags}, f.Long, f.Short, f.Help)
	}
	set.BoolVar(&r.check, "check-config", false, "only check the configuration and what it names, and exit")
	set.BoolVar(&r.print, "print-config", false, "print the effective configuration with the origin of each value, and exit")
	set.BoolVarP(&r.version, "version", "v", false, "print the version, and exit")
	set.BoolVarP(&r.help, "help", "h", false, "print this help, and exit")
	if err := set.Parse(args); err != nil {
		return nil, set, err
	}
	if set.NArg() > 0 {
		return nil, set, fmt.Errorf("argument %q is not understood", set.Arg(0))
	}
	r.options.Getenv = func(key string) string { return Lookup(env, key) }
	var err error
	if r.options.Hostname, err = os.Hostname(); err != nil {
		r.options.Hostname = "" // NodeName= is asked for then, where it is needed
	}
	return r, set, nil
}

// Lookup finds a variable in an environment as os.Environ gives it: the last one counts.
func Lookup(env []string, key string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], key+"="); ok {
			return value
		}
	}
	return ""
}

// setting is a flag that becomes a setting of the configuration.
type setting struct {
	flag Flag
	into *[]config.Flag
}

func (s *setting) String() string { return "" }
func (s *setting) Type() string   { return s.flag.Value }
func (s *setting) Set(value string) error {
	*s.into = append(*s.into, config.Flag{Option: "--" + s.flag.Long, Key: s.flag.Key, Value: value})
	return nil
}

func (s *Spec[C]) usage(w io.Writer, set *pflag.FlagSet) {
	fmt.Fprintf(w, "%s: %s\n\nUsage:\n  %s [options]\n", s.Name, s.Summary, s.Name)
	for _, c := range s.Commands {
		fmt.Fprintf(w, "  %s %-*s %s\n", s.Name, 27-len(s.Name), c.Name, c.Help)
	}
	fmt.Fprintf(w, "\nOptions:\n")
	set.VisitAll(func(f *pflag.Flag) {
		value, help := pflag.UnquoteUsage(f)
		option := "    --" + f.Name
		if f.Shorthand != "" {
			option = "-" + f.Shorthand + ", --" + f.Name
		}
		if f.Value.Type() != "bool" {
			option += " " + value
		}
		fmt.Fprintf(w, "  %-28s %s\n", option, help)
	})
	fmt.Fprintf(w, "\nExample:\n  %s\n", s.Example)
}

func (s *Spec[C]) printVersion(w io.Writer) { fmt.Fprintf(w, "%s %s\n", s.Name, version.String()) }
