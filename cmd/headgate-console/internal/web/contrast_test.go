package web

import (
	"math"
	"regexp"
	"strconv"
)

var colour = regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`)

// palette returns the colours of a style sheet by name. Of repeated names it returns
// the first colour.
func palette(css string) map[string]uint32 {
	list := map[string]uint32{}
	for _, m := range colour.FindAllStringSubmatch(css, -1) {
		v, err := strconv.ParseUint(m[2], 16, 32)
		if _, there := list[m[1]]; err == nil && !there {
			list[m[1]] = uint32(v)
		}
	}
	return list
}

// contrast returns the contrast ratio of WCAG 2.
func contrast(a, b uint32) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(c uint32) float64 {
	channel := func(v uint32) float64 {
		s := float64(v&0xff) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(c>>16) + 0.7152*channel(c>>8) + 0.0722*channel(c)
}
