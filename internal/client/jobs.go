package client

import (
	"context"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// Job is a job that somebody waits for.
type Job struct {
	ID   uint32
	Node string

	done   chan struct{}
	result string
	err    error
}

// Done is closed when the job has ended, or when nobody can say any more how it ends.
func (j *Job) Done() <-chan struct{} { return j.done }

// Result is how the job ended, after Done: one of systemd's words (wire.ResultDone …), or an
// error of kind wire.ErrNodeOffline where its node was lost, ErrManagerGone where the manager was.
func (j *Job) Result() (string, error) { return j.result, j.err }

// Wait waits until the job has ended or ctx has; then the job goes on.
func (j *Job) Wait(ctx context.Context) (string, error) {
	select {
	case <-j.done:
		return j.result, j.err
	default:
	}
	select {
	case <-j.done:
		return j.result, j.err
	case <-ctx.Done():
		return "", ended(ctx)
	}
}

// StartJob asks for a job and follows it: it listens before it asks, so that the end of a job
// that is over before its answer was read is not missed.
// Errors: those of NodeAPI; wire.ErrUnitBusy, ErrInvalidArgs; ErrNotRunning.
func (c *Client) StartJob(ctx context.Context, node string, verb wire.Verb, unit, mode string) (*Job, error) {
	return c.follow(ctx, node, verb.Method(), unit, mode)
}

// StartTransient makes a unit of properties, starts it and follows its job.
func (c *Client) StartTransient(ctx context.Context, node, unit, mode string, props []Property) (*Job, error) {
	return c.follow(ctx, node, "StartTransientUnit", unit, mode, wireProperties(props), noAux())
}

// QueueJob asks for a job that nobody follows. It returns the job's id.
func (c *Client) QueueJob(ctx context.Context, node string, verb wire.Verb, unit, mode string) (uint32, error) {
	return jobID(c.Node(node).change(ctx, verb.Method(), unit, mode))
}

// QueueTransient makes a unit of properties and starts it with a job that nobody follows.
func (c *Client) QueueTransient(ctx context.Context, node, unit, mode string, props []Property) (uint32, error) {
	return jobID(c.Node(node).change(ctx, "StartTransientUnit", unit, mode, wireProperties(props), noAux()))
}

// auxUnit is systemd's "(sa(sv))".
type auxUnit struct {
	Name       string
	Properties []wireProperty
}

func noAux() []auxUnit { return []auxUnit{} }

func jobID(body []any, err error) (uint32, error) {
	path, err := only[dbus.ObjectPath](body, err)
	if err != nil {
		return 0, err
	}
	id, ok := wire.ParseJobPath(wire.ObjectPath(path))
	if !ok {
		return 0, badAnswer("job path " + string(path))
	}
	return id, nil
}

func (c *Client) follow(ctx context.Context, node, method string, args ...any) (*Job, error) {
	if err := c.listen(ctx); err != nil {
		return nil, err
	}
	reign := c.jobs.asking()
	defer c.jobs.asked()
	id, err := jobID(c.Node(node).change(ctx, method, args...))
	if err != nil {
		return nil, err
	}
	return c.jobs.claim(id, node, reign), nil
}

// listen subscribes to what ends jobs and learns who the manager is.
func (c *Client) listen(ctx context.Context) error {
	c.jobs.listening.Lock()
	defer c.jobs.listening.Unlock()
	if err := c.subscribe(ctx); err != nil || c.jobs.known() {
		return err
	}
	owner, err := only[string](c.read(ctx, busDaemon(), "GetNameOwner", wire.BusName))
	if err != nil {
		return err
	}
	c.jobs.setManager(owner)
	return nil
}

// subscribe asks the bus for the signals, once.
func (c *Client) subscribe(ctx context.Context) error {
	if c.jobs.subscribed {
		return nil
	}
	from := "type='signal',sender='" + wire.BusName + "',"
	for _, rule := range []string{
		"type='signal',sender='" + wire.DBusName + "',interface='" + wire.DBusInterface + "',member='NameOwnerChanged',arg0='" + wire.BusName + "'",
		from + "interface='" + wire.ManagerInterface + "',member='JobRemoved'",
		from + "interface='" + wire.PropertiesInterface + "',member='PropertiesChanged',arg0='" + wire.NodeInterface + "'",
	} {
		if _, err := c.read(ctx, busDaemon(), "AddMatch", rule); err != nil {
			return err
		}
	}
	c.jobs.subscribed = true
	return nil
}
