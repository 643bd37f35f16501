package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"example.org/ctrl/internal/wire"
)

// protectedFrom are the changes that would cut the manager off from the node, now or at the
// next boot: a preset may disable, a property may take away memory or the network. To start
// the agent, to let it go on and to restart it, for a new version, does not.
var protectedFrom = map[string]string{
	"StopUnit": "stop", "KillUnit": "kill", "FreezeUnit": "freeze", "SetUnitProperties": "set properties of",
	"MaskUnitFiles": "mask", "DisableUnitFiles": "disable", "PresetUnitFiles": "preset",
	"StartTransientUnit": "replace",
}

// own refuses to let the manager cut off its own hand. A slice takes with it what runs in it.
func (p *Policy) own(act Act, name string) error {
	verb := protectedFrom[act.Method]
	own := p.set.Own
	if len(own) == 0 {
		own = []string{wire.AgentUnit, "system.slice", "-.slice"}
	}
	if verb == "" || !slices.Contains(own, name) && name != wire.AgentUnit {
		return nil
	}
	what := name
	if strings.HasSuffix(name, ".slice") {
		if act.Method == "SetUnitProperties" {
			return nil // limits of a slice are for all that is in it
		}
		what = name + ", in which " + wire.AgentUnit + " runs"
	}
	return wire.ErrAccessDenied.With("%s%s%s %s, which would cut the manager off from the node; to end the agent: ctl shutdown %s, or systemctl on the node",
		p.name(), wire.NodeRefuses, verb, what, p.name())
}

// words are ctl's for the methods that are no job verbs.
var words = map[string]string{
	"StartTransientUnit": "run", "KillUnit": "kill", "FreezeUnit": "freeze", "ThawUnit": "thaw",
	"ResetFailedUnit": "reset-failed", "ResetFailed": "reset-failed", "Reload": "daemon-reload",
	"SetUnitProperties": "set-property", "EnableUnitFiles": "enable", "DisableUnitFiles": "disable",
	"MaskUnitFiles": "mask", "UnmaskUnitFiles": "unmask", "PresetUnitFiles": "preset",
	"SetDefaultTarget": "set-default", "SetLogLevel": "log-level", "SwitchManager": "switch-manager",
	"Shutdown": "shutdown", CancelJob: "cancel",
}

// Verb is ctl's word for an act.
func (a Act) Verb() string {
	if word := words[a.Method]; word != "" {
		return word
	}
	if v, ok := wire.VerbOfMethod(a.Method); ok {
		return v.String()
	}
	return a.Method
}

func (p *Policy) refuse(act Act, key, set string) error {
	what := act.Verb()
	if len(act.Units) > 0 {
		what += " " + path.Base(act.Units[0])
	}
	return p.denied(what, key, set)
}

func (p *Policy) refuseUnit(act Act, u Unit, key, set string) error {
	what := act.Verb() + " " + path.Base(u.Asked)
	if len(u.Names) > 0 && u.Names[0] != path.Base(u.Asked) {
		what += ", which is " + u.Names[0]
	}
	return p.denied(what, key, set)
}

// denied is the text of every refusal: whose word it is, which key, and what to change.
func (p *Policy) denied(what, key, set string) error {
	return wire.ErrAccessDenied.With("%s%s%s: %s ([policy] in its agent.conf); to allow it, %s on %s and run there: systemctl reload %s",
		p.name(), wire.NodeRefuses, what, key, set, p.name(), strings.TrimSuffix(wire.AgentUnit, ".service"))
}

func (p *Policy) name() string {
	if p.set.Node == "" {
		return "the node"
	}
	return p.set.Node
}

// Apply judges the delivery of unit files and their configuration.
func (p *Policy) Apply() error {
	switch {
	case p.set.ReadOnly:
		return p.denied("deliver workloads", "ReadOnly=yes", "set ReadOnly=no")
	case !p.set.AllowApply:
		return p.denied("deliver workloads", "AllowApply=no", "set AllowApply=yes")
	}
	return nil
}

// Logs judges reading the journal.
func (p *Policy) Logs() error {
	if !p.set.AllowLogs {
		return p.denied("read the journal", "AllowLogs=no", "set AllowLogs=yes")
	}
	return nil
}

// CreateUsers judges making system users for a workload. It is asked beside Apply.
func (p *Policy) CreateUsers() error {
	if !p.set.AllowCreateUsers {
		return p.denied("create users", "AllowCreateUsers=no", "set AllowCreateUsers=yes")
	}
	return nil
}

// HostPath judges the use of an absolute path of the node by a workload. It compares texts:
// that no symbolic link leads elsewhere is for whoever opens it.
func (p *Policy) HostPath(name string) error {
	return p.below("use "+name, name, "AllowHostPaths=", p.set.AllowHostPaths)
}

// FilePath judges the delivery of a file to an absolute path, as HostPath does.
func (p *Policy) FilePath(name string) error {
	return p.below("write "+name, name, "AllowFilePaths=", p.set.AllowFilePaths)
}

func (p *Policy) below(what, name, key string, roots []string) error {
	clean := path.Clean(name)
	for _, root := range roots {
		root = path.Clean(root)
		if path.IsAbs(name) && (clean == root || root == "/" || strings.HasPrefix(clean, root+"/")) {
			return nil
		}
	}
	return p.denied(what, key+" does not hold it", fmt.Sprintf("add %s to %s", clean, key))
}
