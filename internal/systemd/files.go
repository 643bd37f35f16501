package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// maxUnitFiles bounds what ReadUnitFiles reads of one unit, in bytes.
const maxUnitFiles = 1 << 20

// maxReaders bounds how many units' files are read at a time: a disk that hangs holds its
// readers for as long as it does.
const maxReaders = 16

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
	s.connected(timeout, func(c *connection) {
		if c == nil {
			done(wire.Raw{}, notConnected())
			return
		}
		// The disk may be slow, which must not hold up the connection's other answers.
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			done(s.unitTexts(ctx, c, name))
		}()
	})
}

// unitTexts asks systemd for the paths and reads them.
func (s *Systemd) unitTexts(ctx context.Context, c *connection, name string) (wire.Raw, error) {
	find, err := c.unitFiles(ctx, name)
	if err != nil {
		return wire.Raw{}, err
	}
	late := wire.ErrTimeout.With("the unit files of %s could not be read in time", name)
	select {
	case s.readers <- struct{}{}:
	case <-ctx.Done():
		return wire.Raw{}, late
	}
	type result struct {
		body wire.Raw
		err  error
	}
	read := make(chan result, 1)
	go func() {
		defer func() { <-s.readers }()
		body, err := readFound(find)
		read <- result{body, err}
	}()
	select {
	case r := <-read:
		return r.body, r.err
	case <-ctx.Done():
		return wire.Raw{}, late
	}
}

// readFound finds files and reads them.
func readFound(find func() ([]string, error)) (wire.Raw, error) {
	paths, err := find()
	if err != nil {
		return wire.Raw{}, err
	}
	files, err := readAll(paths)
	if err != nil {
		return wire.Raw{}, wire.ErrFailed.With("%v", err)
	}
	return peer.Encode(files)
}

// unitFiles finds a unit's files; what it returns may look for them on disk.
func (c *connection) unitFiles(ctx context.Context, name string) (func() ([]string, error), error) {
	if !unit.IsTemplate(name) {
		paths, err := c.loadedFiles(ctx, name)
		return func() ([]string, error) { return paths, nil }, err
	}
	var searchPath []string
	v, err := c.property(ctx, wire.SystemdPath, wire.SystemdManagerInterface, "UnitPath")
	if err == nil {
		err = peer.DecodeValue(v, &searchPath)
	}
	return func() ([]string, error) { return templateFiles(searchPath, name) }, err
}

// loadedFiles are the paths of a unit's fragment and drop-ins by systemd's word. Some units
// have none: a device, a scope, a mount that the kernel has.
func (c *connection) loadedFiles(ctx context.Context, name string) ([]string, error) {
	var load, fragment string
	var dropIns []string
	for _, p := range []struct {
		name string
		into any
	}{{"LoadState", &load}, {"FragmentPath", &fragment}, {"DropInPaths", &dropIns}} {
		v, err := c.property(ctx, wire.UnitPath(name), wire.SystemdUnitInterface, p.name)
		if err == nil {
			err = peer.DecodeValue(v, p.into)
		}
		if err != nil {
			return nil, err
		}
	}
	if load == "not-found" {
		return nil, wire.ErrSystemdNoSuchUnit.With("Unit %s not found.", name)
	}
	if fragment == "" {
		return dropIns, nil
	}
	return append([]string{fragment}, dropIns...), nil
}

func readAll(paths []string) ([]unitFile, error) {
	files := []unitFile{}
	room := int64(maxUnitFiles)
	for _, path := range paths {
		text, err := readPublic(path, room)
		if err != nil {
			return nil, err
		}
		room -= int64(len(text))
		files = append(files, unitFile{path, text})
	}
	return files, nil
}

// readPublic reads a regular file that everyone on the node may read, by its own mode and
// by those of the directories above it.
func readPublic(path string, room int64) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("cannot read unit file: %w", err)
	}
	if real == os.DevNull {
		return "", nil // masked
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o001 == 0 {
			return "", fmt.Errorf("unit file %s is not shown: not everyone on the node may enter the directory %s; read it there", path, dir)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	// A link that was put in place meanwhile is not followed, a FIFO not waited for.
	f, err := os.OpenFile(real, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", fmt.Errorf("cannot read unit file: %w", err)
	}
	defer f.Close()
	return readOpen(f, path, room)
}

func readOpen(f *os.File, path string, room int64) (string, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read unit file: %w", err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("cannot read unit file %s: it is no regular file", path)
	case info.Mode().Perm()&0o004 == 0:
		return "", fmt.Errorf("unit file %s is not shown: not everyone on the node may read it (mode %04o); read it there", path, info.Mode().Perm())
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
