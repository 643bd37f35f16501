package managerbus

import (
	"testing"
	"testing/synctest"
)

func TestValve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v valve
		passed := 0
		wait := func() {
			go func() { v.wait(); passed++ }()
			synctest.Wait()
		}
		v.in()
		wait()
		for range maxEvents - 1 {
			v.in()
		}
		wait()
		if passed != 1 {
			t.Fatalf("%d passed", passed)
		}
		for range maxEvents/2 - 1 {
			v.out()
		}
		synctest.Wait()
		if passed != 1 {
			t.Error("one passed that must wait")
		}
		v.out()
		synctest.Wait()
		if passed != 2 {
			t.Error("one waits that may pass")
		}
		for range maxEvents {
			v.in()
		}
		wait()
		v.end()
		synctest.Wait()
		if passed != 3 {
			t.Error("one waits at the end")
		}
		wait() // for ever, if it does
		if passed != 4 {
			t.Error("one waits after the end")
		}
	})
}
