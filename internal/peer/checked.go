//go:build race

package peer

// checkedBuild makes builds with the race detector look for misuse that costs too much to
// look for always: bodies kept beyond their callback, and bodies that do not match their
// signature.
const checkedBuild = true
