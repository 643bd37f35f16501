package render

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// None is what a table shows for nothing.
const None = "-"

const (
	gap      = "  "
	minCut   = 10 // a column is never cut to less
	ellipsis = "…"
)

type cell struct {
	text  string
	width int
	style Style
}

func writeTable[T any](w io.Writer, rows []T, o Options) error {
	if len(rows) == 0 {
		return nil
	}
	columns := columnsOf(reflect.TypeFor[T]())
	if !o.Full {
		columns = withoutWide(columns)
	}
	grid := make([][]cell, 0, len(rows)+1)
	if o.Header {
		head := make([]cell, len(columns))
		for i, c := range columns {
			head[i] = cell{c.name, Width(c.name), Underline}
		}
		grid = append(grid, head)
	}
	for i := range rows {
		grid = append(grid, cellsOf(rows[i], columns))
	}
	widths := measure(grid, columns)
	lead := leadOf(rows, o)
	if o.Width > 0 && !o.Full {
		shrink(widths, columns, o.Width-Width(lead.blank))
	}
	var b strings.Builder
	for i, line := range grid {
		at := i
		if o.Header {
			at--
		}
		b.WriteString(lead.of(at, o))
		writeLine(&b, line, widths, columns, o)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func withoutWide(all []column) []column {
	var out []column
	for _, c := range all {
		if !c.wide {
			out = append(out, c)
		}
	}
	return out
}

func cellsOf(row any, columns []column) []cell {
	v := reflect.ValueOf(row)
	styled, _ := row.(Styled)
	cells := make([]cell, len(columns))
	for i, c := range columns {
		text := Clean(tableValue(v.Field(c.field).Interface()))
		cells[i] = cell{text: text, width: Width(text)}
		if styled != nil {
			cells[i].style = styled.Style(c.name)
		}
	}
	return cells
}

// tableValue is a field's value as people see it.
func tableValue(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return None
		}
		return v
	case time.Time:
		if v.IsZero() {
			return None
		}
		return v.Local().Format(time.DateTime)
	case uint32:
		if v == 0 {
			return None
		}
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case []string:
		if len(v) == 0 {
			return None
		}
		return strings.Join(v, ",")
	case fmt.Stringer:
		return tableValue(v.String())
	}
	return fmt.Sprint(v)
}

func measure(grid [][]cell, columns []column) []int {
	widths := make([]int, len(columns))
	for _, line := range grid {
		for i := range line {
			widths[i] = max(widths[i], line[i].width)
		}
	}
	return widths
}

// shrink narrows the columns that may be cut until the line fits, from the right.
func shrink(widths []int, columns []column, room int) {
	total := -len(gap)
	for _, w := range widths {
		total += w + len(gap)
	}
	for i := len(columns) - 1; i >= 0 && total > room; i-- {
		if spare := widths[i] - minCut; columns[i].cut && spare > 0 {
			cut := min(spare, total-room)
			widths[i] -= cut
			total -= cut
		}
	}
}

func writeLine(b *strings.Builder, line []cell, widths []int, columns []column, o Options) {
	for i, c := range line {
		if i > 0 {
			b.WriteString(gap)
		}
		text := c.text
		width := c.width
		if width > widths[i] {
			text, width = Cut(text, widths[i]), widths[i]
		}
		pad := strings.Repeat(" ", widths[i]-width)
		if columns[i].right {
			b.WriteString(pad)
		}
		b.WriteString(c.style.wrap(text, o.Color))
		if !columns[i].right && i < len(line)-1 {
			b.WriteString(pad)
		}
	}
	b.WriteByte('\n')
}

// lead is the column of marks.
type lead struct {
	marks []Mark
	blank string
}

func leadOf[T any](rows []T, o Options) lead {
	var l lead
	if !o.Marks {
		return l
	}
	marked := false
	for i := range rows {
		m, ok := any(rows[i]).(Marked)
		if !ok {
			return lead{}
		}
		mark := m.Mark()
		marked = marked || mark.UTF8 != ""
		l.marks = append(l.marks, mark)
	}
	if !marked {
		return lead{}
	}
	l.blank = "  "
	return l
}

func (l lead) of(row int, o Options) string {
	if row < 0 || row >= len(l.marks) || l.marks[row].UTF8 == "" {
		return l.blank
	}
	return l.marks[row].Text(o) + " "
}

// Text is the mark as the terminal can show it.
func (m Mark) Text(o Options) string {
	if o.UTF8 {
		return m.Style.wrap(m.UTF8, o.Color)
	}
	return m.Style.wrap(m.ASCII, o.Color)
}
