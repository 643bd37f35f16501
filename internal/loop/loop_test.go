package loop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestOrder(t *testing.T) {
	l := New(4)
	var got []int
	go func() {
		for i := range 1000 {
			l.Post(func() { got = append(got, i) })
		}
		l.Stop()
	}()
	l.Run(context.Background())
	if len(got) != 1000 || !slices.IsSorted(got) {
		t.Fatalf("got %d functions, sorted %v", len(got), slices.IsSorted(got))
	}
}

func TestPostBlocksWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(2)
		var posted int
		go func() {
			for range 3 {
				l.Post(func() {})
				posted++
			}
		}()
		synctest.Wait()
		if posted != 2 {
			t.Fatalf("%d posts went through a full inbox of 2", posted)
		}
		go l.Run(context.Background())
		synctest.Wait()
		if posted != 3 {
			t.Fatalf("%d posts after the loop ran, want 3", posted)
		}
		l.Stop()
		<-l.Done()
	})
}

func TestPostToStoppedLoopIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1)
		l.Post(func() {})
		refused := make(chan bool, 1)
		go func() { refused <- !l.Post(func() {}) }()
		synctest.Wait()
		l.Stop()
		if !<-refused {
			t.Error("a post that waited for room was accepted by a stopped loop")
		}
		if l.Defer(func() {}) {
			t.Error("a stopped loop accepted work")
		}
	})
}

func TestAfterStopIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(8)
		ctx, cancel := context.WithCancel(context.Background())
		go l.Run(ctx)
		var fired []string
		l.Post(func() {
			l.After(time.Second, func() { fired = append(fired, "a") })
			b := l.After(2*time.Second, func() { fired = append(fired, "b") })
			// The time of b is up while this handler runs, and it is stopped all the same.
			l.After(time.Second, func() {
				time.Sleep(2 * time.Second)
				b.Stop()
			})
			l.After(time.Hour, func() { fired = append(fired, "never") })
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		cancel()
		<-l.Done()
		if !slices.Equal(fired, []string{"a"}) {
			t.Fatalf("fired %v, want [a]", fired)
		}
	})
}

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(8)
		go l.Run(context.Background())
		if v, err := Call(context.Background(), l, func() int { return 7 }); v != 7 || err != nil {
			t.Fatalf("got %d, %v", v, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		release := make(chan struct{})
		l.Post(func() { <-release })
		if _, err := Call(ctx, l, func() int { return 0 }); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a call to a busy loop gave %v", err)
		}
		close(release)
		l.Stop()
		<-l.Done()
		if _, err := Call(context.Background(), l, func() int { return 0 }); !errors.Is(err, ErrStopped) {
			t.Fatalf("a call to a stopped loop gave %v", err)
		}
	})
}
