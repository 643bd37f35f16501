// Package bundle is the core that decides what the units and files of a workload on one node
// become: plan, apply, roll back, delete. It does no I/O of its own.
//
// # What manager and node say to each other
//
// A front end (package raw) makes a Package: a Bundle, which names units and files, and the
// contents of those files by their SHA-256. Encode turns it into bytes, the same bytes for
// the same input. The manager uploads those to the node in chunks (wire.MemberUploadBundle),
// as the encoding may be larger than a message, and then refers to them by their digest.
//
// The calls of the internal Agent interface are in wire.BundleMethods. Requests and answers
// are the JSON of the types in request.go; unknown keys in a request are refused, unknown
// keys in an answer are to be ignored. What changes something (Apply, Rollback, Delete,
// Control) is queued on the node and answered at once, when it is queued; its course comes as
// wire.MemberBundleProgress signals with an Event, the last of which has Done set and holds
// the Result. The manager chooses the ID that those signals carry. A link that ends meanwhile
// ends nothing on the node: after the next registration ListWorkloads says for every workload
// which revision, digest and generation it has, what the result was and whether an operation
// is under way, and the manager compares.
//
// Generation: the manager numbers what it wants of a workload, upwards. A node refuses an
// Apply or Delete with a number below the one that it saw last (wire.ErrFailed, code
// CodeStale), so that a message from before a restart of the manager changes nothing. Deleting a
// workload keeps that number. 0 is for who has none, and is accepted only where the node has
// none either.
//
// # What the node promises
//
// It keeps what it was given: no unit stops and no file goes because a manager is away, is
// empty or asks for a list. Only Apply, Rollback, Delete and Control change anything, and only
// what carries the workload's own mark. After a crash at any step the node ends with
// the old bundle or with the new one, whole. The same bundle again writes nothing.
package bundle
