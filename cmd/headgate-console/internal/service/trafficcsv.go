package service

import (
	"context"
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/observe/events"
)

// TrafficCSV writes the counts in a range as CSV, with a line for each step that has counts. Of an
// application these are the requests, and then the decisions of each policy in turn; without
// q.App the requests of each application in which the actor has a role. With q.Policy they are
// the decisions of that policy alone. The actor needs a role in the application. The audit log
// gets a row before anything is written to w, and TrafficCSV returns an error of that kind alone
// before; what it returns later cuts the file short.
func (s *Service) TrafficCSV(ctx context.Context, a Actor, q TrafficQuery, w io.Writer) error {
	if err := s.auditExport(ctx, a, q); err != nil {
		return err
	}

	var apps, names []string
	err := s.readTraffic(ctx, a, q, func(r *reading) error {
		// All series have the same end, though each is read in a transaction of its own.
		if q.To.IsZero() {
			q.To = r.now
		}

		apps, names = r.apps, []string{q.Policy}
		if q.App == "" || q.Policy != "" {
			return nil
		}

		// The requests come first, also where there are none.
		sums, err := r.sums(q.App)
		delete(sums, store.RequestSeries)
		names = append([]string{store.RequestSeries}, slices.Sorted(maps.Keys(sums))...)
		return err
	})
	if err != nil {
		return err
	}

	out := csv.NewWriter(w)
	if err := out.Write(csvHead()); err != nil {
		return err
	}

	// Each series is written before the next one is read, so that the size of the file does not
	// matter.
	for _, app := range apps {
		for _, name := range names {
			one := TrafficQuery{App: app, From: q.From, To: q.To, Last: q.Last, Step: q.Step}
			err := s.readTraffic(ctx, a, one, func(r *reading) error {
				t, err := r.chart(name)
				if err != nil {
					return err
				}
				return writeCSV(out, app, name, t)
			})
			if err != nil {
				return err
			}
		}
	}

	out.Flush()
	return out.Error()
}

// auditExport writes the row of the audit log, if the query is valid and permitted.
func (s *Service) auditExport(ctx context.Context, a Actor, q TrafficQuery) error {
	if q.Policy != "" && !isRuleName(q.Policy) {
		return ErrNotFound
	}

	span, err := q.span(s.clock())
	if err != nil {
		return err
	}

	object := "apps"
	if q.App != "" {
		object = appObject(q.App)
	}

	return s.act(ctx, a, store.CounterUsers, "traffic.export", object, func(d *action) error {
		if err := d.seesApp(q.App); err != nil {
			return err
		}
		return d.done("", text(struct {
			Policy string    `json:"policy,omitempty"`
			From   time.Time `json:"from"`
			To     time.Time `json:"to"`
			Step   string    `json:"step"`
		}{q.Policy, atMinute(span.from), atMinute(span.to), (time.Duration(span.step) * time.Minute).String()}))
	})
}

// csvHead returns the names of the columns.
func csvHead() []string {
	head := []string{"time", "minutes", "application", "counted", "policy"}
	for v := range events.Verdict(events.Verdicts) {
		head = append(head, v.String())
	}
	return append(head, "lost")
}

// writeCSV writes the points of a series that have counts.
func writeCSV(out *csv.Writer, app, name string, t Traffic) error {
	counted := "decisions"
	if name == store.RequestSeries {
		counted = "requests"
	}

	for _, p := range t.Points {
		if p.Counts.Total() == 0 && p.Lost == 0 {
			continue
		}

		row := []string{
			p.At.Format(time.RFC3339), strconv.Itoa(int(t.Step / time.Minute)), inert(app), counted, inert(name),
		}
		for _, n := range p.Counts {
			row = append(row, strconv.FormatInt(n, 10))
		}
		if err := out.Write(append(row, strconv.FormatInt(p.Lost, 10))); err != nil {
			return err
		}
	}

	// If the reader has gone, no further series is read.
	out.Flush()
	return out.Error()
}

// formulas are the characters by which spreadsheets know a formula, those of full width too, and
// dividers those at which some of them begin another cell: in many countries a semicolon, also
// inside of what a comma would have to be quoted in.
const (
	formulas = "=+-@|%\t\r\n＝＋－＠"
	dividers = ";\t\r\n"
)

// inert keeps a spreadsheet from taking a text, or a part of it, for a formula: a quotation mark
// comes before what begins like one.
func inert(s string) string {
	var b strings.Builder
	begins, from := true, 0
	for i, c := range s {
		if begins && strings.ContainsRune(formulas, c) {
			b.WriteString(s[from:i] + "'")
			from = i
		}
		begins = strings.ContainsRune(dividers, c) || begins && (c == ' ' || c == '"')
	}
	return b.String() + s[from:]
}
