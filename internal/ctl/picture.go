package ctl

import (
	"bytes"
	"fmt"
	"strings"

	"example.org/ctrl/internal/ctl/render"
)

// picture is what status shows at one moment.
type picture struct {
	rows  []pictureRow
	state string       // what else there is to see
	errs  []error      // what could not be shown, and what the exit code is made of
	write func() error // writes all of it
}

// pictureRow is one row of a picture.
type pictureRow struct {
	name  string
	state string // equal where nothing has changed that anybody would call a change
	row   any
}

// add adds a row; same is the row without what changes all the time.
func (p *picture) add(name string, same, row any) {
	var b bytes.Buffer
	if err := render.Line(&b, same); err != nil {
		fmt.Fprint(&b, err)
	}
	p.rows = append(p.rows, pictureRow{name, b.String(), row})
}

// whole is equal for pictures of the same state.
func (p *picture) whole() string {
	var b strings.Builder
	for _, r := range p.rows {
		b.WriteString(r.state)
	}
	b.WriteString(p.state)
	for _, err := range p.errs {
		if err != nil {
			b.WriteString(err.Error() + "\n")
		}
	}
	return b.String()
}
