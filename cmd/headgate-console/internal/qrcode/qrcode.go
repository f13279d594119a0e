// Package qrcode makes the paths of QR codes.
package qrcode

import (
	"fmt"
	"image/color"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// Code is a QR code as the data of one path.
type Code struct {
	Size int    // of the code with its quiet zone, in modules
	Path string // of the dark modules
}

// quiet is how many modules around a QR code stay light.
const quiet = 4

// New returns the QR code of a text. It corrects the loss of 15 % of its modules.
func New(text string) (Code, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return Code{}, err
	}

	var b strings.Builder
	side := code.Bounds().Dx()
	for y := range side {
		for x := 0; x < side; x++ {
			// Dark modules side by side are one rectangle, which makes the path a few times
			// shorter.
			from := x
			for x < side && code.At(x, y) == color.Black {
				x++
			}
			if x > from {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", from+quiet, y+quiet, x-from, x-from)
			}
		}
	}

	return Code{Size: side + 2*quiet, Path: b.String()}, nil
}
