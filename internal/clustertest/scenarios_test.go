package clustertest

import (
	"regexp"
	"testing"
)

func TestScenarioNames(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[string]bool{}
	for _, s := range Scenarios {
		if !word.MatchString(s.Name) || s.What == "" || seen[s.Name] {
			t.Errorf("scenario %q: a name is lower-case words, has a meaning and stands once", s.Name)
		}
		seen[s.Name] = true
	}
}
