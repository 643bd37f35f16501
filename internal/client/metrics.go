package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// JobMetric says how long a job took.
type JobMetric struct {
	Node string
	Unit string
	// Method is what the node's agent was asked for, such as StartUnit, where the agent
	// measured; "" where the manager did.
	Method string
	Job    uint32        // the manager measured this job
	Total  time.Duration // from the call to the job's end: the manager's, or systemd's on the node
	Start  time.Duration // what the unit itself took to become active; the manager's only, 0 is not known
}

// Metrics receives metrics.
type Metrics struct {
	c    *Client
	list chan JobMetric
	over chan struct{}
	once sync.Once
	err  error
}

// Metrics begins to listen to metrics, which come while they are switched on. It ends with
// the connection, or with the manager.
func (c *Client) Metrics(ctx context.Context) (*Metrics, error) {
	if err := c.listen(ctx); err != nil {
		return nil, err
	}
	rule := "type='signal',sender='" + wire.BusName + "',interface='" + wire.MetricsInterface + "'"
	if _, err := c.read(ctx, busDaemon(), "AddMatch", rule); err != nil {
		return nil, err
	}
	m := &Metrics{c: c, list: make(chan JobMetric, eventQueue), over: make(chan struct{})}
	return m, c.jobs.addMetrics(m)
}

// MetricsOn reports whether metrics are switched on.
func (c *Client) MetricsOn(ctx context.Context) (bool, error) {
	t := target{wire.BusName, dbus.ObjectPath(wire.MetricsPath), wire.IntrospectableInterface}
	_, err := c.read(ctx, t, "Introspect")
	if errors.Is(err, wire.ErrUnknownObject) {
		return false, nil
	}
	return err == nil, err
}

// List is what comes, in its order.
func (m *Metrics) List() <-chan JobMetric { return m.list }

// Over is closed when nothing comes any more; Err says why.
func (m *Metrics) Over() <-chan struct{} { return m.over }

// Err is why nothing comes any more, after Over.
func (m *Metrics) Err() error { return m.err }

func (m *Metrics) end(err error) {
	m.once.Do(func() {
		m.err = err
		close(m.over)
	})
}

// deliver hands a metric over, on the connection's reading goroutine. It blocks while the
// reader is slow, as a monitor does.
func (m *Metrics) deliver(member string, body []any) {
	metric, ok := metricOf(member, body)
	if !ok {
		return
	}
	select {
	case m.list <- metric:
	case <-m.c.conn.Context().Done():
	}
}

func metricOf(member string, body []any) (JobMetric, bool) {
	var metric JobMetric
	var path string
	var total, start uint64
	switch {
	case member == "StartUnitJobMetrics" && len(body) == 5:
		if !take(body[0], &metric.Node) || !take(body[1], &path) || !take(body[2], &metric.Unit) || !take(body[3], &total) || !take(body[4], &start) {
			return metric, false
		}
		metric.Job, _ = wire.ParseJobPath(wire.ObjectPath(path))
	case member == "AgentJobMetrics" && len(body) == 4:
		if !take(body[0], &metric.Node) || !take(body[1], &metric.Unit) || !take(body[2], &metric.Method) || !take(body[3], &total) {
			return metric, false
		}
	default:
		return metric, false
	}
	metric.Total, metric.Start = span(total), span(start)
	return metric, true
}

// span is a duration in microseconds; what no duration can hold is the longest one.
func span(us uint64) time.Duration {
	return time.Duration(min(us, 1<<53)) * time.Microsecond
}

func (f *follower) addMetrics(m *Metrics) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.manager == "" { // it left since it was asked for
		return f.dead
	}
	f.metrics = append(f.metrics, m)
	return nil
}

// listeners are those that want the metrics of a signal.
func (f *follower) listeners(s *dbus.Signal) []*Metrics {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.manager == "" || s.Sender != f.manager {
		return nil
	}
	return f.metrics
}
