package authority

import (
	"fmt"
	"testing"
	"time"

	"example.org/ctrl/internal/pki"
)

// BenchmarkRenew is one renewal in a fleet of a size, with all that it costs the disk.
func BenchmarkRenew(b *testing.B) {
	for _, size := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint(size, "-nodes"), func(b *testing.B) {
			a, err := Open(b.TempDir(), func(Change) {}, quiet)
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			next := a.view.Load().clone()
			for i := range size {
				next.Nodes[fmt.Sprint("node", i)] = entry{
					Added: true, Generation: 1, Joined: time.Now().UTC(), NotAfter: time.Now().UTC(), Authority: 1, Trust: 1, Key: hash{1}, Token: hash{2},
				}
			}
			if err := a.commit(next); err != nil {
				b.Fatal(err)
			}
			_, csr, err := pki.NewKeyAndCSR("")
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N {
				if _, err := a.Renew("node1", 1, csr); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
