package agentd

import (
	"example.org/ctrl/internal/journal"
)

// newJournal makes what reads this node's journal, a user's agent that user's.
func (s *service) newJournal(user bool) *journal.Journal {
	return journal.New(journal.Options{User: user, Log: s.log})
}
