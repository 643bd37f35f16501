package agentlink

import (
	"fmt"
	"net"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// credentials are what the kernel says about the process that has connected to a unix
// socket, as they were at that moment.
type credentials struct {
	uid    int
	groups []int
}

// NoGroup stands for a unix socket that no group may use.
const NoGroup = -1

// admitted refuses a peer that the kernel says may not connect.
func (set *Settings) admitted(nc *net.UnixConn) error {
	c, err := peerCredentials(nc)
	if err != nil {
		return err
	}
	return checkPeer(c, set.User, set.Group)
}

// checkPeer refuses a peer of a unix socket that is neither root nor user nor in the group.
func checkPeer(c credentials, user, group int) error {
	if c.uid == 0 || c.uid == user || group != NoGroup && slices.Contains(c.groups, group) {
		return nil
	}
	if group == NoGroup {
		return fmt.Errorf("uid %d may not connect, only root; SocketGroup= could let a group in", c.uid)
	}
	return fmt.Errorf("uid %d may not connect, only root and the members of SocketGroup=, which it is not (group %d)", c.uid, group)
}

func peerCredentials(nc *net.UnixConn) (credentials, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return credentials{}, err
	}
	var c credentials
	var failed error
	err = raw.Control(func(fd uintptr) {
		ucred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			failed = fmt.Errorf("cannot read SO_PEERCRED: %w", err)
			return
		}
		c.uid = int(ucred.Uid)
		c.groups, failed = peerGroups(int(fd))
		c.groups = append(c.groups, int(ucred.Gid))
	})
	if err != nil {
		return credentials{}, err
	}
	return c, failed
}

// peerGroups reads the supplementary groups (SO_PEERGROUPS, for which golang.org/x/sys has
// no function).
func peerGroups(fd int) ([]int, error) {
	ids := make([]uint32, 64)
	for {
		size := uint32(len(ids) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(ids))), uintptr(unsafe.Pointer(&size)), 0)
		switch errno {
		case 0:
			var groups []int
			for _, id := range ids[:size/4] {
				groups = append(groups, int(id))
			}
			return groups, nil
		case syscall.ERANGE: // size is now what is needed, at most NGROUPS_MAX of 65536
			ids = make([]uint32, size/4)
		default:
			return nil, fmt.Errorf("cannot read SO_PEERGROUPS: %w", errno)
		}
	}
}
