//go:build !race

package peer

// checkedBuild is true under the race detector, see checked.go.
const checkedBuild = false
