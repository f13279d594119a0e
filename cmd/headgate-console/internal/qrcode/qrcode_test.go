package qrcode

import (
	"fmt"
	"image/color"
	"strings"
	"testing"

	"github.com/boombuler/barcode/qr"
)

// The path has each dark module once, and no light one.
func TestCodeDrawsTheDarkModules(t *testing.T) {
	const text = "otpauth://totp/headgate:ada?secret=JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
	got, err := New(text)
	if err != nil {
		t.Fatal(err)
	}

	// Another reader of the standard's tables says which modules are dark.
	want, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		t.Fatal(err)
	}

	// Four light modules at each side are what a reader needs to find the code.
	side := want.Bounds().Dx()
	if got.Size != side+8 {
		t.Fatalf("the picture has %d modules, want %d and four at each side", got.Size, side)
	}

	drawn := modules(t, got.Path)
	for y := range got.Size {
		for x := range got.Size {
			dark := 0
			if x >= 4 && y >= 4 && x < side+4 && y < side+4 && want.At(x-4, y-4) == color.Black {
				dark = 1
			}
			if n := drawn[[2]int{x, y}]; n != dark {
				t.Errorf("the module %d, %d is drawn %d times, want %d", x, y, n, dark)
			}
		}
	}

	if _, err := New(strings.Repeat("x", 5000)); err == nil {
		t.Error("a text that is too long has a picture")
	}
}

// modules returns how often a path draws each module.
func modules(t *testing.T, path string) map[[2]int]int {
	t.Helper()
	drawn := map[[2]int]int{}
	for part := range strings.SplitSeq(strings.TrimSuffix(path, "z"), "z") {
		var x, y, length, back int
		if n, err := fmt.Sscanf(part, "M%d %dh%dv1h-%d", &x, &y, &length, &back); n != 4 ||
			err != nil || length != back {
			t.Fatalf("a part of the path is %q", part)
		}
		for i := range length {
			drawn[[2]int{x + i, y}]++
		}
	}
	return drawn
}
