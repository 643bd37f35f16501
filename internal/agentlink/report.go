package agentlink

import (
	"fmt"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// maxMetric bounds a time that an agent claims: a year, in microseconds.
const maxMetric = 365 * 24 * 3600 * 1_000_000

// reports are the signals of an agent that has registered. An error is a breach of the
// protocol.
var reports = map[string]func(*link, *peer.Message) error{
	wire.MemberJobState: func(l *link, m *peer.Message) error {
		var job uint32
		var state string
		if err := peer.Decode(m.Body, &job, &state); err != nil {
			return err
		}
		l.core.JobState(l.session, job, state)
		return nil
	},
	wire.MemberJobDone: func(l *link, m *peer.Message) error {
		var job uint32
		var result string
		if err := peer.Decode(m.Body, &job, &result); err != nil {
			return err
		}
		l.core.JobDone(l.session, job, result)
		return nil
	},
	wire.MemberUnitNew: func(l *link, m *peer.Message) error {
		e := manager.UnitEvent{Kind: manager.UnitNew}
		return l.unitEvent(&e, peer.Decode(m.Body, &e.Unit, &e.Reason))
	},
	wire.MemberUnitRemoved: func(l *link, m *peer.Message) error {
		e := manager.UnitEvent{Kind: manager.UnitRemoved}
		return l.unitEvent(&e, peer.Decode(m.Body, &e.Unit, &e.Reason))
	},
	wire.MemberUnitStateChanged: func(l *link, m *peer.Message) error {
		e := manager.UnitEvent{Kind: manager.UnitStateChanged}
		return l.unitEvent(&e, peer.Decode(m.Body, &e.Unit, &e.Active, &e.Sub, &e.Reason))
	},
	wire.MemberUnitPropertiesChanged: propertiesChanged,
	wire.MemberUnitAlias: func(l *link, m *peer.Message) error {
		var row manager.UnitRow
		if err := peer.Decode(m.Body, &row.Asked, &row.ID, &row.Active, &row.Sub); err != nil {
			return err
		}
		l.core.UnitAlias(l.session, row)
		return nil
	},
	wire.MemberJobMetrics: func(l *link, m *peer.Message) error {
		var unit, method string
		var us uint64
		if err := peer.Decode(m.Body, &unit, &method, &us); err != nil {
			return err
		}
		l.core.JobMetrics(l.session, unit, method, time.Duration(min(us, maxMetric))*time.Microsecond)
		return nil
	},
	wire.MemberBundleProgress:  bundleSignal,
	wire.MemberWorkloadChanged: bundleSignal,
	wire.MemberClosing: func(l *link, m *peer.Message) error {
		var reason string
		if err := peer.Decode(m.Body, &reason); err != nil {
			return err
		}
		l.conn.Close(fmt.Errorf("the agent ended the session: %s", reason))
		return nil
	},
}

func bundleSignal(l *link, m *peer.Message) error {
	var text string
	if err := peer.Decode(m.Body, &text); err != nil {
		return err
	}
	switch heard := l.pending.settings.Workloads; {
	case heard == nil:
	case m.Member == wire.MemberBundleProgress:
		heard.Progress(l.node, text)
	default:
		heard.Changed(l.node, text)
	}
	return nil
}

func (l *link) unitEvent(e *manager.UnitEvent, err error) error {
	if err == nil {
		l.core.UnitEvent(l.session, *e)
	}
	return err
}

func propertiesChanged(l *link, m *peer.Message) error {
	head, properties, err := peer.SplitBody(m.Body, 2)
	if err != nil {
		return err
	}
	if properties.Sig != "a{sv}" {
		return fmt.Errorf("its properties are of type %q", string(properties.Sig))
	}
	e := manager.UnitEvent{Kind: manager.UnitPropertiesChanged, Properties: peer.CloneRaw(properties)}
	return l.unitEvent(&e, peer.Decode(head, &e.Unit, &e.Interface))
}
