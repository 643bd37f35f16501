package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is all tables of a run.
type report struct {
	out    io.Writer
	Tables []table
}

// table answers one question. In JSON each row has its figures by the column's name.
type table struct {
	Title   string
	Columns []string
	Rows    []row
	Note    string `json:",omitempty"`
}

type row struct {
	Name    string
	Figures map[string]float64
}

func newTable(title string, columns ...string) *table { return &table{Title: title, Columns: columns} }

// add adds a row; a value that is negative is not known.
func (t *table) add(name string, values ...float64) {
	figures := make(map[string]float64)
	for i, v := range values {
		if v >= 0 {
			figures[t.Columns[i]] = v
		}
	}
	t.Rows = append(t.Rows, row{name, figures})
}

// unknown stands for a figure that there is none of.
const unknown = -1

func (r *report) print(t *table) {
	r.Tables = append(r.Tables, *t)
	fmt.Fprintf(r.out, "\n%s\n", t.Title)
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\t\n", strings.Join(t.Columns, "\t"))
	width := 0
	for _, row := range t.Rows {
		width = max(width, len(row.Name))
	}
	for _, row := range t.Rows {
		fmt.Fprintf(w, "  %-*s", width, row.Name)
		for _, column := range t.Columns {
			text := "-"
			if v, ok := row.Figures[column]; ok {
				text = format(v)
			}
			fmt.Fprintf(w, "\t%s", text)
		}
		fmt.Fprint(w, "\t\n")
	}
	w.Flush()
	if t.Note != "" {
		fmt.Fprintf(r.out, "  %s\n", t.Note)
	}
}

// format keeps three figures or so.
func format(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// sample is what one kind of measurement gave, in nanoseconds.
type sample []int64

// at is a percentile, in milliseconds.
func (s sample) at(percent int) float64 {
	if len(s) == 0 {
		return unknown
	}
	sorted := slices.Sorted(slices.Values(s))
	return ms(sorted[min(len(sorted)*percent/100, len(sorted)-1)])
}

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

func ratio(a, b float64) float64 {
	if a < 0 || b <= 0 {
		return unknown
	}
	return a / b
}
