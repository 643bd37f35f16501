package peer

import "runtime"

// allocated is how many bytes have been allocated so far, freed or not.
func allocated() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.TotalAlloc
}
