package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// maxUnitFiles bounds what ReadUnitFiles reads of one unit, in bytes.
const maxUnitFiles = 1 << 20

type unitFile struct{ Path, Text string }

// readUnitFiles answers with the texts of a unit's fragment and drop-ins. It reads files
// that anyone on the node may read, and no others: whoever may ask the manager for a unit's
// text may not thereby read what only root can.
func (s *Systemd) readUnitFiles(args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
	var name string
	if err := peer.Decode(args, &name); err != nil {
		done(wire.Raw{}, err)
		return
	}
	c := s.conn.Load()
	if c == nil {
		done(wire.Raw{}, notConnected())
		return
	}
	// The disk may be slow, which must not hold up the connection's other answers.
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		files, err := c.unitFiles(ctx, name)
		if err != nil {
			done(wire.Raw{}, err)
			return
		}
		done(peer.Encode(files))
	}()
}

func (c *connection) unitFiles(ctx context.Context, name string) ([]unitFile, error) {
	path := wire.UnitPath(name)
	var load, fragment string
	var dropIns []string
	for _, p := range []struct {
		name string
		into any
	}{{"LoadState", &load}, {"FragmentPath", &fragment}, {"DropInPaths", &dropIns}} {
		m, err := c.Call(ctx, c.property(path, wire.SystemdUnitInterface, p.name))
		if err != nil {
			return nil, err
		}
		var v wire.Value
		if err := peer.Decode(m.Body, &v); err != nil {
			return nil, err
		}
		if err := peer.DecodeValue(v, p.into); err != nil {
			return nil, err
		}
	}
	if load == "not-found" {
		return nil, wire.ErrSystemdNoSuchUnit.With("Unit %s not found.", name)
	}
	files := []unitFile{}
	room := int64(maxUnitFiles)
	for _, file := range append([]string{fragment}, dropIns...) {
		if file == "" {
			continue // a unit without a file: a device, a scope, a mount seen by the kernel
		}
		text, err := readPublic(file, room)
		if err != nil {
			return nil, wire.ErrFailed.With("%v", err)
		}
		room -= int64(len(text))
		files = append(files, unitFile{file, text})
	}
	return files, nil
}

func readPublic(path string, room int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for a writer
	if err != nil {
		return "", fmt.Errorf("cannot read unit file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read unit file: %w", err)
	case info.Mode().IsDir():
		return "", fmt.Errorf("cannot read unit file %s: it is a directory", path)
	case info.Mode()&os.ModeDevice != 0:
		return "", nil // masked: a link to /dev/null
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("cannot read unit file %s: it is no regular file", path)
	case info.Mode().Perm()&0o004 == 0:
		return "", fmt.Errorf("unit file %s is not readable by everyone (mode %04o), so it is not shown; read it on the node", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, room+1))
	if err == nil && int64(len(text)) > room {
		err = errors.New("the unit's files are larger than 1 MiB together")
	}
	if err != nil {
		return "", fmt.Errorf("cannot read unit file %s: %w", path, err)
	}
	return string(text), nil
}
