package bundle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// pack makes a package of unit texts by name and files by path ("w " before it: written).
func pack(units map[string]string, files map[string]string, lists ...[]string) Package {
	p := Package{Bundle: Bundle{Format: Format, Workload: "web"}, Blobs: make(map[string][]byte)}
	for name, text := range units {
		p.Bundle.Units = append(p.Bundle.Units, Unit{Name: name, Text: text})
	}
	for at, content := range files {
		at, write := strings.CutPrefix(at, "w ")
		p.Blobs[Sum([]byte(content))] = []byte(content)
		p.Bundle.Files = append(p.Bundle.Files, File{Path: at, SHA256: Sum([]byte(content)), Mode: 0o644, Write: write})
	}
	if len(lists) > 0 {
		p.Bundle.Enable, p.Bundle.Start = lists[0], lists[0]
	}
	if len(lists) > 1 {
		p.Bundle.Start = lists[1]
	}
	p.Bundle = p.Bundle.Canonical()
	return p
}

func service(exec string) string {
	return "[Service]\nExecStart=/bin/" + exec + "\n[Install]\nWantedBy=multi-user.target\n"
}

// oldAndNew differ in everything that a bundle can differ in.
func oldAndNew() (before, after Package) {
	before = pack(map[string]string{
		"a.service": service("a1"), "b.service": service("b"), "gone.service": service("gone"), "t@.service": service("t1"),
	}, map[string]string{"/etc/ctrl-files/a.conf": "1", "w /etc/ctrl-files/gone.conf": "x", "w /etc/ctrl-files/w.conf": "1"},
		[]string{"a.service", "b.service", "gone.service", "t@1.service"})
	before.Bundle.Units[slices.IndexFunc(before.Bundle.Units, func(u Unit) bool { return u.Name == "b.service" })].DropIns = []DropIn{{"x.conf", "[Unit]\n"}}
	after = pack(map[string]string{
		"a.service": service("a2"), "b.service": service("b"), "c.service": service("c"), "t@.service": service("t2"),
	}, map[string]string{"/etc/ctrl-files/a.conf": "2", "w /etc/ctrl-files/w.conf": "2"},
		[]string{"a.service", "b.service", "c.service", "t@1.service", "t@2.service"})
	return before, after
}

// crashAt counts steps, before and after each, and ends the node's life at the one chosen.
type crashAt struct {
	n    *node
	left int
	seen int
	last string
}

func (c *crashAt) fault(before bool, s Step) {
	c.seen++
	c.last = fmt.Sprintf("%s %v %s", s.Kind, before, s.Path)
	if c.left--; c.left == 0 {
		c.n.dead = true
	}
}

// settled checks a node after all recovery: it has one of the bundles, whole, and what runs
// runs with it.
func settled(n *node, bundles ...Bundle) error {
	var errs []error
	found := -1
	for i, b := range bundles {
		err := n.is(b)
		if err == nil {
			found = i
		}
		errs = append(errs, err)
	}
	if found < 0 {
		return fmt.Errorf("the node has none of the bundles: %v", errs)
	}
	want, s := bundles[found], n.states["web"]
	if s.Pending != nil {
		return fmt.Errorf("the journal is still there: %+v", *s.Pending)
	}
	if (s.Current == 0) != (len(want.Units) == 0) || s.Current != 0 && n.revisions["web"][s.Current].Digest() != want.Digest() {
		return fmt.Errorf("bundle %d is on the node, and the state says revision %d", found, s.Current)
	}
	for name, p := range n.units {
		if n.loaded == nil || p.text != n.text(name) {
			return fmt.Errorf("%s runs with %q, and the node has %q", name, p.text, n.text(name))
		}
	}
	for _, name := range want.Start {
		if n.units[name] == nil || n.units[name].active != "active" {
			return fmt.Errorf("%s does not run", name)
		}
	}
	for name := range n.units {
		if !slices.Contains(want.Start, name) {
			return fmt.Errorf("%s runs", name)
		}
	}
	for _, name := range want.Enable {
		if !n.enabled[name] {
			return fmt.Errorf("%s is not enabled", name)
		}
	}
	for name := range n.enabled {
		if !slices.Contains(want.Enable, name) {
			return fmt.Errorf("%s is enabled", name)
		}
	}
	for number := range n.revisions["web"] {
		if _, ok := s.revision(number); !ok {
			return fmt.Errorf("revision %d is on the disk, and the state does not know it", number)
		}
	}
	return nil
}

// TestCrashAtEveryStep ends the agent, or the whole machine, before and after each step of
// an apply, of a first apply, of a delete, of a rollback on failure, and at each step of the
// recovery from that.
func TestCrashAtEveryStep(t *testing.T) {
	before, after := oldAndNew()
	failing := after
	failing.Bundle.Units = slices.Clone(after.Bundle.Units)
	for i := range failing.Bundle.Units {
		if failing.Bundle.Units[i].Name == "c.service" {
			failing.Bundle.Units[i].Text = service("c FAILS")
		}
	}
	none := Bundle{}
	scenarios := map[string]struct {
		had  bool
		act  func(*life)
		ends []Bundle
	}{
		"apply":          {true, func(l *life) { l.ask(l.upload(after, Options{}), l.e.Apply) }, []Bundle{before.Bundle, after.Bundle}},
		"first apply":    {false, func(l *life) { l.ask(l.upload(after, Options{}), l.e.Apply) }, []Bundle{none, after.Bundle}},
		"delete":         {true, func(l *life) { l.ask(l.request("web"), l.e.Delete) }, []Bundle{before.Bundle, none}},
		"rollback":       {true, func(l *life) { l.ask(l.upload(failing, Options{RollbackOnFailure: true}), l.e.Apply) }, []Bundle{before.Bundle}},
		"first rollback": {false, func(l *life) { l.ask(l.upload(failing, Options{RollbackOnFailure: true}), l.e.Apply) }, []Bundle{none}},
	}
	for name, sc := range scenarios {
		for _, reboot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reboot %v", name, reboot), func(t *testing.T) {
				for first := 1; ; first++ {
					if !crashTwice(t, sc.had, before, sc.act, sc.ends, reboot, first) {
						if first < 5 {
							t.Errorf("only %d fault points", first)
						}
						return
					}
				}
			})
		}
	}
}

// crashTwice crashes at one point, and in the recovery from that at every point in turn. It
// reports whether there was such a point.
func crashTwice(t *testing.T, had bool, before Package, act func(*life), ends []Bundle, reboot bool, first int) bool {
	for second := 1; ; second++ {
		hit, again := false, false
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			if had {
				l := live(t, n, nil)
				l.apply(before, Options{})
				l.end()
				synctest.Wait()
			}
			c := &crashAt{n: n}
			l := live(t, n, c.fault)
			c.left, c.seen = first, 0
			act(l)
			hit = n.dead
			where := c.last
			l.end()
			synctest.Wait()
			if hit && reboot {
				n.reboot()
			}
			r := &crashAt{n: n, left: second}
			l = live(t, n, r.fault)
			again = n.dead
			where += " and then " + r.last
			l.end()
			synctest.Wait()
			if again && reboot {
				n.reboot()
			}
			l = live(t, n, nil)
			l.end()
			synctest.Wait()
			err := settled(n, ends...)
			if err != nil && !(len(n.units) == 0 && name(err) && stoppedFirst(n, ends)) {
				t.Errorf("crash at %d (%s), second at %d: %v", first, where, second, err)
			}
		})
		if !hit || t.Failed() {
			return false
		}
		if !again {
			return true
		}
	}
}

// name reports whether an error is about a unit that does not run.
func name(err error) bool { return strings.HasSuffix(err.Error(), "does not run") }

// stoppedFirst is the one state in between that a delete may leave: the units are stopped,
// nothing is removed yet, and the delete was never begun on the disk.
func stoppedFirst(n *node, ends []Bundle) bool {
	return len(ends) == 2 && len(ends[1].Units) == 0 && n.is(ends[0]) == nil
}

// TestCrashInsideAStep: a step that has parts may be done in part.
func TestCrashInsideAStep(t *testing.T) {
	before, after := oldAndNew()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			l := live(t, n, nil)
			l.apply(before, Options{})
			left := random.IntN(14)
			n.inside = func(Step, int) bool { left--; return left == -1 }
			l.ask(l.upload(after, Options{}), l.e.Apply)
			l.end()
			synctest.Wait()
			if random.IntN(2) == 0 && n.dead {
				n.reboot()
			}
			n.inside = nil
			l = live(t, n, nil)
			l.end()
			synctest.Wait()
			if err := settled(n, before.Bundle, after.Bundle); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEveryStepFails: a disk that is full, or a systemd that refuses, at each step.
func TestEveryStepFails(t *testing.T) {
	before, after := oldAndNew()
	for at := 0; ; at++ {
		tried := false
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			l := live(t, n, nil)
			l.apply(before, Options{})
			left := at
			var failed Step
			n.fail = func(s Step) error {
				if left--; left == -1 {
					tried, failed = true, s
					return fmt.Errorf("no space left on device")
				}
				return nil
			}
			r := l.apply(after, Options{})
			sweeping := failed.Kind == StepDropContent || failed.Kind == StepDropRevision
			if tried && !sweeping && (r.OK() || r.Code != CodeIO || !strings.Contains(r.Error, "no space")) {
				t.Errorf("%s failed, and the result is %+v", failed.Kind, r)
			}
			n.fail = nil
			l.end()
			synctest.Wait()
			l = live(t, n, nil)
			l.end()
			synctest.Wait()
			if err := settled(n, before.Bundle, after.Bundle); err != nil {
				t.Errorf("after a failed %s: %v", failed.Kind, err)
			}
		})
		if !tried || t.Failed() {
			return
		}
	}
}

// TestRandomLives applies, deletes, rolls back and crashes in no order.
func TestRandomLives(t *testing.T) {
	before, after := oldAndNew()
	small := pack(map[string]string{"b.service": service("b9")}, nil, []string{"b.service"})
	packages := []Package{before, after, small}
	random := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			for range 12 {
				c := &crashAt{n: n, left: 1 + random.IntN(60)}
				l := live(t, n, c.fault)
				if !n.dead {
					switch random.IntN(5) {
					case 0:
						l.ask(l.request("web"), l.e.Delete)
					case 1:
						l.ask(l.request("web"), l.e.Rollback)
					default:
						l.ask(l.upload(packages[random.IntN(len(packages))], Options{}), l.e.Apply)
					}
				}
				l.end()
				synctest.Wait()
				if n.dead && random.IntN(3) == 0 {
					n.reboot()
				}
			}
			l := live(t, n, nil)
			l.apply(after, Options{})
			l.end()
			synctest.Wait()
			if err := settled(n, after.Bundle); err != nil {
				t.Error(err)
			}
		})
	}
}
