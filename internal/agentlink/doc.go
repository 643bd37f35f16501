// Package agentlink lets agents in: it accepts their connections, bounds what those may cost
// that have not registered, and carries the manager's calls to those that have.
package agentlink
