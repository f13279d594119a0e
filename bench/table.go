package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Table is the result of a section.
type Table struct {
	ID      string
	Title   string
	Note    string
	After   string   `json:",omitempty"` // a note below the rows
	Columns []string // of figures; the name of the row comes before them
	Rows    []Row
}

// Row holds the figures of a contender, NaN where there is none.
type Row struct {
	Name   string
	Cells  []Figure
	Failed map[string]string `json:",omitempty"` // why, by column
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

// String returns about three digits.
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

// newTable returns a table with an empty row for each name.
func newTable(id, title, note string, columns, names []string) *Table {
	t := &Table{ID: id, Title: title, Note: note, Columns: columns}
	for _, name := range names {
		t.row(name)
	}
	return t
}

// enter writes the figures of a contest into the columns from at on.
func (t *Table) enter(at int, list []outcome) {
	for _, o := range list {
		row := t.row(o.name)
		if o.failed != nil {
			row.fail(t.Columns[at], o.failed)
			continue
		}
		for i, v := range o.median {
			row.Cells[at+i] = Figure(v)
		}
	}
}

// fail notes why the column has no figure.
func (r *Row) fail(column string, err error) {
	if r.Failed == nil {
		r.Failed = map[string]string{}
	}
	r.Failed[column] = strings.Join(strings.Fields(err.Error()), " ")
}

// row returns the row of the name, and adds it if there is none.
func (t *Table) row(name string) *Row {
	for i := range t.Rows {
		if t.Rows[i].Name == name {
			return &t.Rows[i]
		}
	}
	t.Rows = append(t.Rows, Row{Name: name, Cells: slices.Repeat([]Figure{missing}, len(t.Columns))})
	return &t.Rows[len(t.Rows)-1]
}

// figure returns the cell of a row and a column, or NaN.
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

// markdownRow returns the cells of a row as Markdown.
func (t *Table) markdownRow(r *Row) string {
	var b strings.Builder
	for i, c := range r.Cells {
		text := c.String()
		if r.Failed[t.Columns[i]] != "" {
			text = "failed"
		}
		fmt.Fprintf(&b, " %s |", text)
	}
	return b.String()
}

func writeMarkdown(w io.Writer, tables []Table) error {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "### %s\n\n", t.Title)
		if t.Note != "" {
			fmt.Fprintf(&b, "%s\n\n", t.Note)
		}

		// What was not measured has a title and a note that says why.
		if len(t.Rows) == 0 {
			continue
		}

		fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(t.Columns, " | "), strings.Repeat("---:|", len(t.Columns)))
		for _, r := range t.Rows {
			fmt.Fprintf(&b, "| %s |%s\n", r.Name, t.markdownRow(&r))
		}

		// What has failed is below the table, as its cell is empty.
		for _, r := range t.Rows {
			for _, column := range slices.Sorted(maps.Keys(r.Failed)) {
				fmt.Fprintf(&b, "\n%s failed at %q: %s\n", r.Name, column, r.Failed[column])
			}
		}
		if t.After != "" {
			fmt.Fprintf(&b, "\n%s\n", t.After)
		}
		b.WriteByte('\n')
	}

	_, err := io.WriteString(w, b.String())
	return err
}
