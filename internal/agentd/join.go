package agentd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/managerlink"
	"example.org/ctrl/internal/pki"
)

// Time limits of joining: for the way to the manager and its answer, and for the agent to be
// online afterwards.
const (
	joinTime   = 20 * time.Second
	onlineTime = 30 * time.Second
)

// joining is one run of ctrl-agent join.
type joining struct {
	opt     joinOptions
	token   pki.Token
	host    string
	port    string
	cfg     *config.Agent
	load    func() (*config.Agent, error)
	out     io.Writer
	notices io.Writer
}

// joinOptions are what was typed.
type joinOptions struct {
	manager   string
	token     string
	tokenFile string
	name      string
	allow     []string
	noStart   bool
	user      bool
}

const joinUsage = `ctrl-agent join: makes this machine a node of a manager's fleet.

Usage:
  ctrl-agent join --manager HOST[:PORT] --token TOKEN [options]

` + "`ctl node add NAME`" + ` on the manager's machine prints this line with a token, which is good for one node
and a limited time. The node's key is made here and stays here.

Options:
%s
Example:
  ctrl-agent join --manager boss --token-file /run/token --allow run
`

func runJoin(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	o, help, err := parseJoin(args)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "ctrl-agent join: %v\ntry 'ctrl-agent join --help'\n", err)
		return daemon.ExitUsage
	case help != "":
		fmt.Fprintf(stdout, joinUsage, help)
		return daemon.ExitOK
	}
	j := &joining{opt: *o, out: stdout, notices: stderr, load: func() (*config.Agent, error) {
		opt := config.Options{User: o.user, Getenv: func(key string) string { return daemon.Lookup(env, key) }}
		opt.Hostname, _ = os.Hostname() // --name is asked for where there is none
		if o.name != "" {
			opt.Flags = []config.Flag{{Option: "--name", Key: "NodeName", Value: o.name}}
		}
		return config.LoadAgent(opt)
	}}
	if err := j.run(ctx, os.Stdin); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		var usage *usageError
		if errors.As(err, &usage) {
			return daemon.ExitUsage
		}
		return daemon.ExitFailed
	}
	return daemon.ExitOK
}

// usageError is a mistake of who typed the command.
type usageError struct{ error }

func parseJoin(args []string) (o *joinOptions, help string, err error) {
	o = &joinOptions{}
	set := pflag.NewFlagSet("join", pflag.ContinueOnError)
	set.SortFlags = false
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.StringVar(&o.manager, "manager", "", "the manager's `HOST[:PORT]`")
	set.StringVar(&o.token, "token", "", "the `TOKEN`; - or none: it is read from standard input")
	set.StringVar(&o.tokenFile, "token-file", "", "read the token from this `FILE`")
	set.StringVarP(&o.name, "name", "n", "", "join as the node `NAME` instead of NodeName= or the host name")
	set.StringSliceVar(&o.allow, "allow", nil, "let the manager run commands (`run`), deliver units (apply), or both (run,apply)")
	set.BoolVar(&o.noStart, "no-start", false, "do not enable and start ctrl-agent.service")
	set.BoolVar(&o.user, "user", false, "join with the user's systemd instead of the system's")
	wantHelp := set.BoolP("help", "h", false, "print this help, and exit")
	if err := set.Parse(args); err != nil {
		return nil, "", err
	}
	if *wantHelp {
		return o, set.FlagUsages(), nil
	}
	for _, what := range o.allow {
		if _, ok := allowKeys[what]; !ok {
			return nil, "", fmt.Errorf("--allow=%s: what can be allowed is run and apply", what)
		}
	}
	switch {
	case set.NArg() > 0:
		return nil, "", errors.New("what stands behind the options is not understood")
	case o.manager == "":
		return nil, "", errors.New("--manager is missing: the manager's host, as `ctl node add` prints it")
	case o.token != "" && o.tokenFile != "":
		return nil, "", errors.New("--token and --token-file exclude each other")
	}
	return o, "", nil
}

// run joins: it does everything that can fail without harm first, and changes the machine
// only when the certificate is here.
func (j *joining) run(ctx context.Context, stdin io.Reader) error {
	if !j.opt.user && os.Geteuid() != 0 {
		return errors.New("joining writes to /etc/ctrl and /var/lib/ctrl: run it as root, or with --user")
	}
	var err error
	if j.host, j.port, err = splitManager(j.opt.manager); err != nil {
		return &usageError{err}
	}
	if j.cfg, err = j.load(); err != nil {
		return fmt.Errorf("the configuration of this node cannot be used: %w", err)
	}
	if hasFiles(j.cfg) {
		return errors.New("this node uses certificates of its own (CertFile=, KeyFile=, CAFile= in agent.conf); remove these keys to join with a token")
	}
	if j.token, err = j.readToken(stdin); err != nil {
		return &usageError{err}
	}
	state := nodeState(j.cfg)
	unlock, err := state.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	issued, key, err := j.enrol(ctx, state)
	if err != nil {
		return fmt.Errorf("cannot join as %s at %s: %w", j.cfg.NodeName, j.endpoint(), err)
	}
	if err := state.Write(key, issued); err != nil {
		return err
	}
	if err := j.configure(); err != nil {
		return err
	}
	fmt.Fprintf(j.out, "%s has joined; its certificate is renewed by itself, and good until %s\n", issued.Node, issued.NotAfter.UTC().Format(time.RFC3339))
	unlock()
	return j.start(ctx)
}

func (j *joining) endpoint() string { return net.JoinHostPort(j.host, j.port) }

// enrol gets the certificate.
func (j *joining) enrol(ctx context.Context, state pki.NodeState) (pki.Issued, []byte, error) {
	key, request, err := state.NewRequest(j.cfg.NodeName)
	if err != nil {
		return pki.Issued{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", j.endpoint())
	if err != nil {
		return pki.Issued{}, nil, fmt.Errorf("the manager is not reached: %w", err)
	}
	defer nc.Close()
	secure, err := pki.ConnectToJoin(ctx, nc, j.token)
	if err != nil {
		return pki.Issued{}, nil, err
	}
	certificate, authorities, err := managerlink.Join(ctx, secure, j.cfg.NodeName, j.token.String(), request)
	if err != nil {
		return pki.Issued{}, nil, err
	}
	issued, err := j.token.CheckJoined(j.cfg.NodeName, key, certificate, authorities)
	return issued, key, err
}

// maxToken bounds what is read in search of one.
const maxToken = 4096

func (j *joining) readToken(stdin io.Reader) (pki.Token, error) {
	word := j.opt.token
	switch {
	case j.opt.tokenFile != "":
		f, err := os.Open(j.opt.tokenFile)
		if err != nil {
			return pki.Token{}, fmt.Errorf("the token cannot be read: %w", err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxToken))
		if err != nil {
			return pki.Token{}, fmt.Errorf("the token cannot be read: %w", err)
		}
		word = string(b)
	case word == "" || word == "-":
		fmt.Fprintln(j.notices, "the token, on standard input:")
		line, err := bufio.NewReader(io.LimitReader(stdin, maxToken)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return pki.Token{}, fmt.Errorf("the token cannot be read: %w", err)
		}
		word = line
	}
	return pki.ParseToken(word)
}

// splitManager takes HOST, HOST:PORT, an IPv6 address, or one in brackets with a port.
func splitManager(s string) (host, port string, err error) {
	const standard = "842"
	bad := fmt.Errorf("--manager=%s: write it like boss, boss:842, 192.0.2.1 or [2001:db8::1]:842", s)
	switch {
	case net.ParseIP(s) != nil:
		return s, standard, nil
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
		host, port = s[1:len(s)-1], standard
	case strings.Contains(s, ":"):
		if host, port, err = net.SplitHostPort(s); err != nil {
			return "", "", bad
		}
	default:
		host, port = s, standard
	}
	if host == "" || strings.ContainsAny(host, " \t/[]") {
		return "", "", bad
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 || strings.Trim(port, "0123456789") != "" {
		return "", "", bad
	}
	return host, port, nil
}
