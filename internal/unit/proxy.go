package unit

import (
	"fmt"
	"strings"
)

// Templates by which units depend on units of other nodes (docs/dependencies.md). The
// instance of a proxy names the node and the unit there; that of a dep unit its target.
const (
	proxyPrefix   = "ctrl-proxy"
	depPrefix     = "ctrl-dep"      // for services
	depUnitPrefix = "ctrl-dep-unit" // for units of other types
	serviceSuffix = ".service"
)

// Globs that match all proxies of a node, and all units that dependencies are made of.
const (
	ProxyGlob      = proxyPrefix + "@*" + serviceSuffix
	DependencyGlob = "ctrl-*@*" + serviceSuffix
)

// IsProxy and IsDep are quick looks at a name; ParseProxy and ParseDep check it.
func IsProxy(name string) bool { return strings.HasPrefix(name, proxyPrefix+"@") }

// IsDep is IsProxy for dep units.
func IsDep(name string) bool { return strings.HasPrefix(name, depPrefix) }

// underscore is how the character that ends the node's name is written within it.
const underscore = `\x5f`

// ProxyName is the unit to depend on for a unit of a node, which may lack its .service.
func ProxyName(node, target string) (string, error) {
	target = WithSuffix(target)
	if err := CheckInstance(target); err != nil {
		return "", err
	}
	// A service whose stem looks like another type keeps its suffix, to be read back as it is.
	if stem := strings.TrimSuffix(target, serviceSuffix); TypeOf(stem) == "" {
		target = stem
	}
	name := proxyPrefix + "@" + strings.ReplaceAll(node, "_", underscore) + "_" + target + serviceSuffix
	if len(name) > MaxName {
		return "", fmt.Errorf("the proxy of %s on %s would have a name of %d bytes, at most %d are allowed; give the unit a shorter alias",
			target, node, len(name), MaxName)
	}
	return name, nil
}

// ProxyForm is how the instance of a proxy is written, for error texts.
const ProxyForm = `it is NODE_UNIT, with \x5f for each _ of the node's name, for example ` + proxyPrefix + `@node2_db` + serviceSuffix

// ParseProxy finds the node and the unit there that the name of a proxy stands for.
func ParseProxy(name string) (node, target string, err error) {
	prefix, instance, kind := Split(name)
	if prefix != proxyPrefix || kind != "service" {
		return "", "", fmt.Errorf("%q is no proxy of a unit of another node", name)
	}
	return ParseProxyInstance(instance)
}

// ParseProxyInstance is ParseProxy for what stands behind the @.
func ParseProxyInstance(instance string) (node, target string, err error) {
	node, target, found := strings.Cut(instance, "_")
	switch {
	case !found:
		return "", "", fmt.Errorf("instance %q has no _ between node and unit: %s", instance, ProxyForm)
	case node == "":
		return "", "", fmt.Errorf("instance %q names no node: %s", instance, ProxyForm)
	case target == "":
		return "", "", fmt.Errorf("instance %q names no unit: %s", instance, ProxyForm)
	}
	node = strings.ReplaceAll(node, underscore, "_")
	if strings.Contains(node, `\`) {
		return "", "", fmt.Errorf(`instance %q: the node's name may hold no escape but \x5f: %s`, instance, ProxyForm)
	}
	target = WithSuffix(target)
	if err := CheckInstance(target); err != nil {
		return "", "", fmt.Errorf("instance %q: %w; %s", instance, err, ProxyForm)
	}
	return node, target, nil
}

// DepName is the unit that starts a target on its node because others depend on it.
func DepName(target string) (string, error) {
	if err := CheckInstance(target); err != nil {
		return "", err
	}
	name := depUnitPrefix + "@" + target + serviceSuffix
	if stem, ok := strings.CutSuffix(target, serviceSuffix); ok {
		name = depPrefix + "@" + stem + serviceSuffix
	}
	if len(name) > MaxName {
		return "", fmt.Errorf("%s would be a dependency named with %d bytes, at most %d are allowed; give the unit a shorter alias",
			target, len(name), MaxName)
	}
	return name, nil
}

// ParseDep is the inverse of DepName.
func ParseDep(name string) (target string, ok bool) {
	prefix, instance, kind := Split(name)
	switch {
	case kind != "service" || instance == "":
		return "", false
	case prefix == depPrefix:
		target = instance + serviceSuffix
	case prefix == depUnitPrefix && TypeOf(instance) != "" && TypeOf(instance) != "service":
		target = instance
	}
	return target, CheckInstance(target) == nil
}

// ProxyOf is the proxy with an instance.
func ProxyOf(instance string) string { return proxyPrefix + "@" + instance + serviceSuffix }
