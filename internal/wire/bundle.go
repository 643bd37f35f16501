package wire

// BundleMethod is one method of the internal Agent interface that is about workloads.
// Requests and answers of type "s" are the JSON of types of package bundle.
type BundleMethod struct {
	Name    string
	In, Out Signature
	// Changes is true where the node's AllowApply= is needed.
	Changes bool
}

// Members of the internal Agent interface for workloads. A node that has them says
// FeatureWorkloads among its features in Register.
const (
	MemberUploadBundle     = "UploadBundle"
	MemberPlanBundle       = "PlanBundle"
	MemberApplyBundle      = "ApplyBundle"
	MemberRollbackWorkload = "RollbackWorkload"
	MemberDeleteWorkload   = "DeleteWorkload"
	MemberControlWorkload  = "ControlWorkload"
	MemberListWorkloads    = "ListWorkloads"
	MemberGetHistory       = "GetHistory"
	MemberGetRevision      = "GetRevision"
	MemberCollectGarbage   = "CollectGarbage"

	MemberBundleProgress  = "BundleProgress"  // signal (s event): bundle.Event
	MemberWorkloadChanged = "WorkloadChanged" // signal (s status): bundle.Status
)

// FeatureWorkloads is the word in FactFeatures of an agent that takes bundles.
const FeatureWorkloads = "workloads"

// MaxBundleChunk is how many bytes of a package one UploadBundle carries at most.
const MaxBundleChunk = 1 << 20

// BundleMethods are the calls for workloads.
var BundleMethods = []BundleMethod{
	// (s digest, t size, t offset, ay chunk → t received). digest is the SHA-256 of the whole
	// package, size its length. Chunks come in order; offset 0 begins anew, and received is
	// how much is there now. The node forgets a package with the session, or when another has
	// been begun MaxUploads times since.
	{MemberUploadBundle, "sttay", "t", true},
	{MemberPlanBundle, "s", "s", true},      // bundle.Request → bundle.PlanResult
	{MemberApplyBundle, "s", "", true},      // bundle.Request; then BundleProgress
	{MemberRollbackWorkload, "s", "", true}, // the same
	{MemberDeleteWorkload, "s", "", true},   // the same
	{MemberControlWorkload, "s", "", true},  // the same
	{MemberListWorkloads, "", "s", false},   // → bundle.Listing
	{MemberGetHistory, "s", "s", false},     // workload → bundle.History
	{MemberGetRevision, "st", "s", false},   // workload, number (0: present) → bundle.Bundle
	{MemberCollectGarbage, "b", "s", true},  // dry run → bundle.Garbage
}

// MaxUploads is how many packages a node keeps for one session.
const MaxUploads = 4

// BundleMethodByName finds a method for workloads.
func BundleMethodByName(name string) (*BundleMethod, bool) {
	for i := range BundleMethods {
		if BundleMethods[i].Name == name {
			return &BundleMethods[i], true
		}
	}
	return nil, false
}
