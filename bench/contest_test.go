package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func counting(figures ...float64) func() ([]float64, error) {
	i := -1
	return func() ([]float64, error) {
		i++
		return []float64{figures[i]}, nil
	}
}

func TestContestGoesOnWithoutAContenderThatFails(t *testing.T) {
	turns := 0
	list := []contender{
		{"good", counting(3, 1, 2)},
		{"broken", func() ([]float64, error) { turns++; return nil, errors.New("no\nserver") }},
		{"rash", func() ([]float64, error) { panic("oops") }},
		{"late", func() ([]float64, error) { turns++; return nil, errRefused }},
	}

	out := contest(list, 3)

	// One that fails drops out after its first turn, and the good one has all three.
	if out[0].failed != nil || out[0].median[0] != 2 || !slices.Equal(out[0].first, []float64{3, 1, 2}) || turns != 2 {
		t.Errorf("%+v after %d turns of the others", out[0], turns)
	}

	// The table names the fault of each and goes on.
	table := newTable("x", "X", "", []string{"a", "b"}, []string{"good", "broken"})
	table.enter(1, out)
	var b bytes.Buffer
	if err := writeMarkdown(&b, []Table{*table}); err != nil {
		t.Fatal(err)
	}

	for _, line := range []string{"| good | – | 2 |", "| broken | – | failed |",
		"| rash | – | failed |", "| late | – | failed |",
		`broken failed at "b": no server`, `rash failed at "b": panic: oops`} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no %q in\n%s", line, &b)
		}
	}

	if v := table.figure("broken", "b"); !math.IsNaN(v) {
		t.Errorf("a failed contender has the figure %v", v)
	}
}

func TestAnswerForFailsOnAnotherStatus(t *testing.T) {
	for status, want := range map[int]bool{http.StatusOK: true, http.StatusTooManyRequests: false} {
		_, err := answerFor(func(int) int { return status }, http.StatusOK, time.Millisecond)
		if (err == nil) != want {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestHTTPContendersAnswerAsExpected(t *testing.T) {
	for _, c := range httpContests {
		for _, list := range [][]contender{
			c.contenders(wide, http.StatusOK, pace{round: time.Millisecond}),
			c.contenders(narrow, http.StatusTooManyRequests, pace{round: time.Millisecond}),
		} {
			for _, o := range contest(list, 1) {
				if o.failed != nil {
					t.Errorf("%s, %s: %v", c.title, o.name, o.failed)
				}
			}
		}
	}
}

// Where the answers to other requests are not alike, no row has figures of them.
func TestContestWithoutTheFrameworkComparesRefusals(t *testing.T) {
	table := contestOf("Fiber, short refusals").measure(pace{rounds: 1, round: time.Millisecond})
	for _, row := range table.Rows {
		for i, column := range table.Columns {
			if has := !math.IsNaN(float64(row.Cells[i])); has != strings.Contains(column, refused) {
				t.Errorf("%s, %s: %v", row.Name, column, row.Cells[i])
			}
		}
	}
}

func TestChartIsXMLAndShowsOnlyFigures(t *testing.T) {
	table := newTable("memory", "", "", []string{"refused"}, []string{`<b> & "x"`, ours, "failed"})
	table.Rows[0].Cells[0], table.Rows[1].Cells[0] = 20, 10
	c := chart{"x.svg", "A & B", false, []chartColumn{{"<head>", "memory", "refused"}}}

	svg := c.draw([]Table{*table})

	// Names are escaped, or the drawing would not be XML.
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}

	// The smaller figure is the better one. The row that failed has none, and so no bar.
	first, second := strings.Index(svg, ">"+ours+"<"), strings.Index(svg, "&lt;b&gt;")
	if strings.Contains(svg, "failed") || first < 0 || second < first {
		t.Errorf("the best is not first, or there is more than figures:\n%s", svg)
	}

	if c.draw(nil) != "" {
		t.Error("a chart of nothing")
	}
}

func TestBoundIsARatioAboveWhatIsCommon(t *testing.T) {
	for _, c := range []struct {
		name                string
		ours, rival, common []float64
		want                float64
	}{
		{"of the least", []float64{6, 20, 20}, []float64{20, 7, 8}, []float64{5, 5, 5}, 0.5},
		{"of each round", []float64{9, 17, 8}, []float64{9, 21, 6}, []float64{5, 9, 5}, 1},
		{"of a rival that adds nothing", []float64{9, 9, 9}, []float64{6, 5, 6}, []float64{5, 6, 7}, math.Inf(1)},
	} {
		// What the measurement itself takes is taken from both.
		list := []contender{{"ours", counting(c.ours...)},
			{"rival", counting(c.rival...)}, {"common", counting(c.common...)}}
		b := bound{open: func(pace) ([]contender, func(), error) { return list, func() {}, nil }}
		if ratio, _, err := b.measure(pace{rounds: 3}, math.Inf(1)); err != nil || ratio != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, ratio, err, c.want)
		}
	}

	// A contender that fails is an error, and not a bound that holds.
	failing := bound{open: func(pace) ([]contender, func(), error) {
		return []contender{{"ours", func() ([]float64, error) { return nil, errRefused }}}, func() {}, nil
	}}
	if _, _, err := failing.measure(pace{rounds: 1}, 1); !errors.Is(err, errRefused) {
		t.Errorf("%v", err)
	}
}
