package e2e

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/chromedp/chromedp"
)

// take writes a picture of the window if -screenshots is set.
func (j *journey) take(b *tab, name string) {
	j.t.Helper()
	if *screenshots == "" {
		return
	}
	var shot []byte
	err := b.try(func(ctx context.Context) (err error) {
		shot, err = chromedp.Run(ctx, chromedp.CaptureScreenshot())
		return err
	})
	if err == nil {
		shot, err = shrunk(shot)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), shot, 0o644)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// shrunk reduces a picture to its 256 most frequent colours, which are enough for
// text and areas.
func shrunk(shot []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	palette := paletteOf(full)
	small, known := image.NewPaletted(full.Bounds(), palette), map[color.Color]uint8{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			c := full.At(x, y)
			place, ok := known[c]
			if !ok {
				place = uint8(palette.Index(c))
				known[c] = place
			}
			small.SetColorIndex(x, y, place)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small)
	return b.Bytes(), err
}

func paletteOf(full image.Image) color.Palette {
	count := map[color.Color]int{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			count[full.At(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	return most[:min(len(most), 256)]
}
