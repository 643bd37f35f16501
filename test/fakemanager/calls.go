package fakemanager

import (
	"context"
	"slices"
	"strings"
)

// Calls are the calls of Node methods so far, each as "NODE METHOD ARGUMENTS".
func (m *Manager) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.calls...)
}

// ForgetCalls lets Calls and AwaitCall begin anew.
func (m *Manager) ForgetCalls() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = nil
}

// AwaitCall waits until there was a call that begins so, as Calls words it.
func (m *Manager) AwaitCall(ctx context.Context, begins string) bool {
	defer context.AfterFunc(ctx, func() {
		m.mu.Lock() // whoever has looked at ctx waits by now
		defer m.mu.Unlock()
		m.changed.Broadcast()
	})()
	m.mu.Lock()
	defer m.mu.Unlock()
	for !slices.ContainsFunc(m.calls, func(c string) bool { return strings.HasPrefix(c, begins) }) {
		if ctx.Err() != nil {
			return false
		}
		m.changed.Wait()
	}
	return true
}
