package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Disk is a path of the node's disk as this machine sees it: what a node that is switched
// off finds at that place when it boots. Not for reading what a layer below provides.
func (n *Node) Disk(path string) string { return filepath.Join(n.dir, "upper", path) }

// WriteFile writes a file of a running node, with its folders.
func (n *Node) WriteFile(path string, data []byte, mode os.FileMode) error {
	if err := n.makeFolders(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := n.open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// ReadFile reads a file of a running node.
func (n *Node) ReadFile(path string) ([]byte, error) {
	f, err := n.open(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func (n *Node) makeFolders(path string) error {
	var at string
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		parent := at
		at += "/" + part
		if f, err := n.open(at, unix.O_PATH|unix.O_DIRECTORY, 0); err == nil {
			f.Close()
			continue
		}
		dir, err := n.open(parent+"/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		err = unix.Mkdirat(int(dir.Fd()), part, 0o755)
		dir.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("cannot make %s on node %s: %w", at, n.Name, err)
		}
	}
	return nil
}

// open opens a file of the node as the node itself would: a symbolic link of it must not
// lead to this machine's files.
func (n *Node) open(path string, flags int, mode os.FileMode) (*os.File, error) {
	if n.PID() == 0 {
		return nil, fmt.Errorf("cannot open %s: node %s is switched off", path, n.Name)
	}
	top, err := os.Open("/proc/" + strconv.Itoa(n.PID()) + "/root")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm())
	}
	fd, err := unix.Openat2(int(top.Fd()), path, how)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s on node %s: %w", path, n.Name, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// SmallDisk puts a disk of the given size in bytes over a folder of the running node, with
// what the folder holds, its owner and its mode. It is gone when the power is.
func (n *Node) SmallDisk(ctx context.Context, path string, bytes int) error {
	const script = `set -e
mkdir -p "$1" /run/host/disk
mount -t tmpfs -o "size=$2,$(stat -c mode=%a,uid=%u,gid=%g "$1")" tmpfs /run/host/disk
cp -a "$1/." /run/host/disk/
mount --bind /run/host/disk "$1"
umount /run/host/disk`
	_, err := n.Run(ctx, "sh", "-c", script, "sh", path, strconv.Itoa(bytes))
	return err
}

// filler is the file with which FillDisk takes all space.
const filler = ".lab-filler"

// FillDisk takes all the space that is left on the disk of that folder, which should be one
// of SmallDisk: the others are this machine's memory.
func (n *Node) FillDisk(ctx context.Context, path string) error {
	const script = `test "$(stat -f -c %b "$1")" -lt 262144 || { echo "$1 is on no small disk"; exit 1; }
cat /dev/zero >"$1/$2" 2>/dev/null
test "$(stat -f -c %a "$1")" = 0`
	_, err := n.Run(ctx, "sh", "-c", script, "sh", path, filler)
	return err
}

// DrainDisk undoes FillDisk.
func (n *Node) DrainDisk(ctx context.Context, path string) error {
	_, err := n.Run(ctx, "rm", "-f", filepath.Join(path, filler))
	return err
}
