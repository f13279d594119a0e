package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// Table is what a section found out.
type Table struct {
	ID      string
	Title   string
	Note    string
	Columns []string // of figures; the name of the row comes before them
	Rows    []Row
}

// Row is a contender's figures, NaN where there is none.
type Row struct {
	Name   string
	Cells  []Figure
	Failed string `json:",omitempty"`
}

// Figure is a number that may be missing: NaN, and null in JSON.
type Figure float64

var missing = Figure(math.NaN())

// MarshalJSON implements [json.Marshaler].
func (f Figure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// String keeps three digits or so.
func (f Figure) String() string {
	v := float64(f)
	switch {
	case math.IsNaN(v):
		return "–"
	case v != math.Trunc(v) && math.Abs(v) < 10:
		return fmt.Sprintf("%.2f", v)
	case math.Abs(v) >= 10_000:
		return fmt.Sprintf("%.0fk", v/1000)
	}
	return fmt.Sprintf("%.0f", v)
}

// newTable has an empty row for each name.
func newTable(id, title, note string, columns, names []string) *Table {
	t := &Table{ID: id, Title: title, Note: note, Columns: columns}
	for _, name := range names {
		row := Row{Name: name, Cells: make([]Figure, len(columns))}
		for i := range row.Cells {
			row.Cells[i] = missing
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// enter puts the figures of a contest into the columns from at on.
func (t *Table) enter(at int, list []outcome) {
	for _, o := range list {
		row := t.row(o.name)
		if o.failed != nil {
			row.Failed = o.failed.Error()
			continue
		}
		for i, v := range o.median {
			row.Cells[at+i] = Figure(v)
		}
	}
}

func (t *Table) row(name string) *Row {
	for i := range t.Rows {
		if t.Rows[i].Name == name {
			return &t.Rows[i]
		}
	}
	t.Rows = append(t.Rows, Row{Name: name, Cells: make([]Figure, len(t.Columns))})
	return &t.Rows[len(t.Rows)-1]
}

// figure is the cell of a row and a column, or NaN.
func (t *Table) figure(name, column string) float64 {
	for _, r := range t.Rows {
		for i, c := range t.Columns {
			if r.Name == name && c == column {
				return float64(r.Cells[i])
			}
		}
	}
	return math.NaN()
}

func writeMarkdown(w io.Writer, tables []Table) error {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "### %s\n\n", t.Title)
		if t.Note != "" {
			fmt.Fprintf(&b, "%s\n\n", t.Note)
		}
		if len(t.Rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(t.Columns, " | "), strings.Repeat("---:|", len(t.Columns)))
		for _, r := range t.Rows {
			fmt.Fprintf(&b, "| %s |", r.Name)
			for _, c := range r.Cells {
				fmt.Fprintf(&b, " %s |", c)
			}
			b.WriteByte('\n')
		}
		for _, r := range t.Rows {
			if r.Failed != "" {
				fmt.Fprintf(&b, "\n%s failed: %s\n", r.Name, strings.ReplaceAll(r.Failed, "\n", " "))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
