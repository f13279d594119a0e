package main

import "strings"

// hunk is a part of two texts in which they differ, with lines around it. Each line begins with
// " ", "-" or "+".
type hunk struct {
	from, old int // the first line of the text before, and how many
	to, new   int
	lines     []string
}

// around is how many equal lines a hunk has on each side.
const around = 3

// maxTable bounds the memory of a comparison. Longer parts are shown as removed and added.
const maxTable = 16 << 20

// hunks returns the hunks of two texts in order.
func hunks(before, after string) []hunk {
	script := compare(splitLines(before), splitLines(after))
	var list []hunk
	a, b := 1, 1
	last := -1 // the last line of the script that is in a hunk

	for i, line := range script {
		if line[0] != ' ' {
			// A hunk that has not ended yet takes the lines in between.
			first := max(last+1, i-around)
			if len(list) == 0 || first > last+1 {
				back := i - first
				list = append(list, hunk{from: a - back, to: b - back})
			}
			h := &list[len(list)-1]
			h.lines = append(h.lines, script[first:i+1]...)
			last = i
		}

		if line[0] != '+' {
			a++
		}
		if line[0] != '-' {
			b++
		}

		// The lines behind a difference belong to it, up to the next.
		if h := len(list) - 1; h >= 0 && line[0] == ' ' && i > last && i <= last+1 && trailing(list[h].lines) < around {
			list[h].lines = append(list[h].lines, line)
			last = i
		}
	}

	for i := range list {
		list[i].count()
	}

	return list
}

// count counts the lines of the hunk in both texts.
func (h *hunk) count() {
	for _, line := range h.lines {
		if line[0] != '+' {
			h.old++
		}
		if line[0] != '-' {
			h.new++
		}
	}
}

// trailing returns how many equal lines the list ends with.
func trailing(lines []string) int {
	n := 0
	for n < len(lines) && lines[len(lines)-1-n][0] == ' ' {
		n++
	}
	return n
}

func splitLines(text string) []string {
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// compare returns all lines of both lists, each with what became of it before it.
func compare(a, b []string) (script []string) {
	// What is equal at both ends needs no search.
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		script = append(script, " "+a[head])
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}

	script = append(script, compareMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, line := range a[len(a)-tail:] {
		script = append(script, " "+line)
	}
	return script
}

// compareMiddle finds the longest list of lines that both have in common.
func compareMiddle(a, b []string) (script []string) {
	wide := len(b) + 1
	var common []int32 // of a[i:] and b[j:]
	if (len(a)+1)*wide <= maxTable {
		common = make([]int32, (len(a)+1)*wide)
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				n := max(common[(i+1)*wide+j], common[i*wide+j+1])
				if a[i] == b[j] {
					n = common[(i+1)*wide+j+1] + 1
				}
				common[i*wide+j] = n
			}
		}
	}

	// A line that both have is kept where that leads to the longest list.
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && common != nil && a[i] == b[j]:
			script = append(script, " "+a[i])
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common == nil || common[(i+1)*wide+j] >= common[i*wide+j+1]):
			script = append(script, "-"+a[i])
			i++
		default:
			script = append(script, "+"+b[j])
			j++
		}
	}
	return script
}
