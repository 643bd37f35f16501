package managerbus

import (
	"errors"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

const jobsPath = wire.RootPath + "/job"

func (b *Bus) jobClass() *busobject.Class {
	b.jobIface = busobject.NewInterface(wire.JobInterface, map[string]busobject.Method{
		"Cancel": {Serve: b.cancelThis, Find: b.findThis},
	}, map[string]busobject.Getter{
		"Id":      busobject.Property(func(j manager.JobInfo) any { return j.ID }),
		"Node":    busobject.Property(func(j manager.JobInfo) any { return j.Node }),
		"Unit":    busobject.Property(func(j manager.JobInfo) any { return j.Unit }),
		"JobType": busobject.Property(func(j manager.JobInfo) any { return j.Type }),
		"State":   busobject.Property(func(j manager.JobInfo) any { return j.State }),
	})
	return &busobject.Class{
		At: func(p wire.ObjectPath) bool {
			_, ok := wire.ParseJobPath(p)
			return ok
		},
		Below: jobsPath,
		Load: func(p wire.ObjectPath, reply func(any, error)) {
			id, _ := wire.ParseJobPath(p)
			b.core.Job(id, func(j manager.JobInfo, err error) { reply(j, err) })
		},
		Interfaces: []*busobject.Interface{b.jobIface},
	}
}

func (b *Bus) cancelThis(c *busobject.Call) {
	id, _ := wire.ParseJobPath(c.Path)
	b.cancel(c, id, func(err error) { answer(c)(gone(c, err, wire.ErrNoSuchJob)) })
}

func (b *Bus) findThis(c *busobject.Call, done func(busobject.About, error)) {
	id, _ := wire.ParseJobPath(c.Path)
	b.aboutJob(id, func(about busobject.About, err error) { done(about, gone(c, err, wire.ErrNoSuchJob)) })
}

// gone makes the core's word that it does not know an object what D-Bus says of a call to
// an object that is not there.
func gone(c *busobject.Call, err error, kind *wire.Error) error {
	if errors.Is(err, kind) {
		return busobject.NoObject(c.Path, err)
	}
	return err
}
