package bundle

import (
	"slices"

	"example.org/ctrl/internal/wire"
)

// uploads are packages on their way to the node, the one touched last at the end.
type uploads []*upload

type upload struct {
	digest string
	size   uint64
	data   []byte
}

// Upload takes a chunk of an encoded package; reply says how much is there.
// Errors are of kind *Refusal.
func (e *Engine) Upload(digest string, size, offset uint64, data []byte, reply func(uint64, error)) {
	e.post(func() { reply(e.uploads.add(digest, size, offset, data)) }, func(err error) { reply(0, err) })
}

// ForgetUploads drops all packages that no operation has taken: the session has ended.
func (e *Engine) ForgetUploads() { e.post(func() { e.uploads = nil }, func(error) {}) }

func (u *uploads) add(digest string, size, offset uint64, data []byte) (uint64, error) {
	if len(digest) != 64 || size == 0 || size > MaxPackage || len(data) > wire.MaxBundleChunk {
		return 0, refuse(CodeInvalid, "a package of %d bytes in a chunk of %d: at most %d and %d are allowed, named by a SHA-256", size, len(data), MaxPackage, wire.MaxBundleChunk)
	}
	i := slices.IndexFunc(*u, func(up *upload) bool { return up.digest == digest })
	if i >= 0 && (offset == 0 || (*u)[i].size != size) {
		*u = slices.Delete(*u, i, i+1)
		i = -1
	}
	if i < 0 && offset != 0 {
		return 0, refuse(CodeUnknown, "this node has no beginning of the package %s; send it again from the start", digest)
	}
	if i < 0 {
		if len(*u) >= wire.MaxUploads {
			*u = slices.Delete(*u, 0, 1)
		}
		*u = append(*u, &upload{digest: digest, size: size})
		i = len(*u) - 1
	}
	up := (*u)[i]
	if offset != uint64(len(up.data)) || offset+uint64(len(data)) > size {
		return uint64(len(up.data)), refuse(CodeInvalid, "a chunk at %d of %d bytes does not follow the %d bytes that are there", offset, len(data), len(up.data))
	}
	up.data = append(up.data, data...)
	return uint64(len(up.data)), nil
}

// get decodes the package that a request names; it stays.
func (u *uploads) get(req Request) (Package, error) {
	i := slices.IndexFunc(*u, func(up *upload) bool { return up.digest == req.Package })
	if i < 0 || uint64(len((*u)[i].data)) != (*u)[i].size {
		return Package{}, refuse(CodeUnknown, "the package %.64s was not uploaded whole; upload it again", req.Package)
	}
	data := (*u)[i].data
	if Sum(data) != req.Package {
		return Package{}, refuse(CodeInvalid, "the package does not have the digest under which it was uploaded")
	}
	p, err := DecodePackage(data)
	if err == nil && p.Bundle.Workload != req.Workload {
		err = refuse(CodeInvalid, "the package is of workload %s, and the request is about %s", p.Bundle.Workload, req.Workload)
	}
	p.Bundle = p.Bundle.Canonical()
	return p, err
}

// take is get, after which the upload is gone.
func (u *uploads) take(req Request) (Package, error) {
	p, err := u.get(req)
	if err == nil {
		*u = slices.DeleteFunc(*u, func(up *upload) bool { return up.digest == req.Package })
	}
	return p, err
}
