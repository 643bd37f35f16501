package managerd

import (
	"slices"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/internal/workload"
	"example.org/ctrl/internal/workloadstore"
)

// Time limits of what nodes are asked about workloads: a piece of a package on a slow link, a
// plan, which looks at every file, and answers that a node has ready.
const (
	uploadTime = time.Minute
	planTime   = 2 * time.Minute
	answerTime = 30 * time.Second
)

// openWorkloads reads what is remembered of workloads.
func (s *service) openWorkloads() error {
	store, specs, err := workloadstore.Open(s.cfg.Places.StateDir, s.log)
	if err != nil {
		return err
	}
	s.workloadStore = store
	s.workloads = workload.New(specs, deliveries{s}, store, deliveries{s}, s.log)
	return nil
}

// deliveries carries the workload core's questions to nodes, and its news to the bus.
type deliveries struct{ s *service }

var (
	_ workload.Fleet  = deliveries{}
	_ workload.Events = deliveries{}
)

// ask encodes a call, and decodes its answer into out.
func (d deliveries) ask(node, method string, limit time.Duration, done func(error), out any, args ...any) {
	body, err := peer.Encode(args...)
	if err != nil {
		go done(err)
		return
	}
	d.s.core.CallBundle(node, method, body, limit, func(answer wire.Raw, err error) {
		if err == nil && out != nil {
			err = peer.Decode(answer, out)
		}
		done(err)
	})
}

// Upload implements workload.Fleet.
func (d deliveries) Upload(node, digest string, size, offset uint64, chunk []byte, done func(uint64, error)) {
	var received uint64
	d.ask(node, wire.MemberUploadBundle, uploadTime, func(err error) { done(received, err) }, &received, digest, size, offset, chunk)
}

// Ask implements workload.Fleet.
func (d deliveries) Ask(node, method, request string, done func(string, error)) {
	found, ok := wire.BundleMethodByName(method)
	if !ok {
		go done("", wire.ErrUnknownMethod.With("%s is no method for workloads", method))
		return
	}
	var answer string
	var out any
	if found.Out == "s" {
		out = &answer
	}
	var args []any
	if found.In == "s" {
		args = []any{request}
	}
	limit := answerTime
	if method == wire.MemberPlanBundle {
		limit = planTime
	}
	d.ask(node, method, limit, func(err error) { done(answer, err) }, out, args...)
}

// Revision implements workload.Fleet.
func (d deliveries) Revision(node, name string, number uint64, done func(string, error)) {
	var answer string
	d.ask(node, wire.MemberGetRevision, answerTime, func(err error) { done(answer, err) }, &answer, name, number)
}

// Collect implements workload.Fleet.
func (d deliveries) Collect(node string, dryRun bool, done func(string, error)) {
	var answer string
	d.ask(node, wire.MemberCollectGarbage, planTime, func(err error) { done(answer, err) }, &answer, dryRun)
}

// OperationNew implements workload.Events.
func (d deliveries) OperationNew(o workload.OperationInfo) { d.s.bus.OperationNew(o) }

// NodeProgress implements workload.Events.
func (d deliveries) NodeProgress(operation uint32, node string, e bundle.Event) {
	d.s.bus.NodeProgress(operation, node, e)
}

// NodeResult implements workload.Events.
func (d deliveries) NodeResult(o workload.OperationInfo, r workload.NodeResult) {
	d.s.bus.NodeResult(o, r)
}

// OperationRemoved implements workload.Events.
func (d deliveries) OperationRemoved(o workload.OperationInfo, result string) {
	d.s.bus.OperationRemoved(o, result)
}

// tellWorkloads passes a change of a node on to the workload core.
func (s *service) tellWorkloads(n manager.NodeInfo) {
	if n.Status != wire.NodeOnline {
		s.workloads.NodeOffline(n.Name)
		return
	}
	var features []string
	if peer.DecodeValue(n.Facts[wire.FactFeatures], &features) != nil {
		features = nil // an agent that says it in another way has none that we know
	}
	labels := map[string]string{}
	if peer.DecodeValue(n.Facts[wire.FactLabels], &labels) != nil {
		labels = nil
	}
	s.workloads.NodeOnline(n.Name, slices.Contains(features, wire.FeatureWorkloads), labels)
}

// tellFleet says which nodes there are when the manager begins.
func (s *service) tellFleet() {
	s.core.Nodes(func(nodes []manager.NodeInfo) { s.workloads.ChangeFleet(nodeNames(nodes), nil) })
}

func nodeNames(nodes []manager.NodeInfo) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}
