package delivery

import (
	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// answered gets what a call comes to: nil, a uint64, or what is told as JSON.
type answered func(answer any, err error)

type call func(e *bundle.Engine, args wire.Raw, done answered)

// calls are the methods of wire.BundleMethods.
var calls = map[string]call{
	wire.MemberUploadBundle:     upload,
	wire.MemberPlanBundle:       plan,
	wire.MemberApplyBundle:      operation((*bundle.Engine).Apply),
	wire.MemberRollbackWorkload: operation((*bundle.Engine).Rollback),
	wire.MemberDeleteWorkload:   operation((*bundle.Engine).Delete),
	wire.MemberControlWorkload:  operation((*bundle.Engine).Control),
	wire.MemberListWorkloads:    list,
	wire.MemberGetHistory:       history,
	wire.MemberGetRevision:      revision,
	wire.MemberCollectGarbage:   collect,
}

func upload(e *bundle.Engine, args wire.Raw, done answered) {
	var digest string
	var size, offset uint64
	var data []byte
	if err := peer.Decode(args, &digest, &size, &offset, &data); err != nil {
		done(nil, err)
		return
	}
	e.Upload(digest, size, offset, data, func(n uint64, err error) { done(n, err) })
}

// request reads the one argument of a call that is a request.
func request(args wire.Raw) (bundle.Request, error) {
	var text string
	if err := peer.Decode(args, &text); err != nil {
		return bundle.Request{}, err
	}
	return bundle.DecodeRequest(text)
}

func plan(e *bundle.Engine, args wire.Raw, done answered) {
	req, err := request(args)
	if err != nil {
		done(nil, err)
		return
	}
	e.Plan(req, func(p bundle.PlanResult, err error) { done(p, err) })
}

// operation is a call that queues something.
func operation(queue func(*bundle.Engine, bundle.Request, func(error))) call {
	return func(e *bundle.Engine, args wire.Raw, done answered) {
		req, err := request(args)
		if err != nil {
			done(nil, err)
			return
		}
		queue(e, req, func(err error) { done(nil, err) })
	}
}

func list(e *bundle.Engine, _ wire.Raw, done answered) {
	e.List(func(l bundle.Listing, err error) { done(l, err) })
}

func history(e *bundle.Engine, args wire.Raw, done answered) {
	var name string
	if err := peer.Decode(args, &name); err != nil {
		done(nil, err)
		return
	}
	e.History(name, func(h bundle.History, err error) { done(h, err) })
}

func revision(e *bundle.Engine, args wire.Raw, done answered) {
	var name string
	var number uint64
	if err := peer.Decode(args, &name, &number); err != nil {
		done(nil, err)
		return
	}
	e.Revision(name, number, func(b bundle.Bundle, err error) { done(b, err) })
}

func collect(e *bundle.Engine, args wire.Raw, done answered) {
	var dry bool
	if err := peer.Decode(args, &dry); err != nil {
		done(nil, err)
		return
	}
	e.Collect(dry, func(g bundle.Garbage, err error) { done(g, err) })
}
