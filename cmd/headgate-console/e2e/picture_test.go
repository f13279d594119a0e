package e2e

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/draw"
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
	if *screenshots != "" {
		b.write(name, b.shot(), 256)
	}
}

// The pictures of all pages are as high as the page on a desk, and at most mostHigh. What is on a
// phone is cut at usualHigh if it does not fit. There are gap pixels between the windows.
const usualHigh, mostHigh, gap = 800, 1400, 24

// bodyHigh is the height of the page.
const bodyHigh = `Math.ceil(document.body.getBoundingClientRect().height)`

// portray writes a picture of the page if it has a name and -screenshots is set: on a desk and on
// a phone, in the light and below in the dark.
func (b *tab) portray(name string) {
	b.t.Helper()
	if name == "" || *screenshots == "" {
		return
	}

	// A page on a phone counts up to usualHigh only, as it is cut there.
	b.resize(phoneWidth, phoneHeight)
	high := min(eval[int](b, bodyHigh), usualHigh)
	b.resize(width, height)
	high = min(max(high, eval[int](b, bodyHigh)), mostHigh)

	whole := image.NewNRGBA(image.Rect(0, 0, width+gap+phoneWidth, 2*high+gap))

	// The light ones are above, the dark ones below, and the desk is left of the phone.
	for _, v := range []struct {
		scheme     string
		wide, x, y int
	}{{"light", width, 0, 0}, {"dark", width, 0, high + gap}, {"dark", phoneWidth, width + gap, high + gap}, {"light", phoneWidth, width + gap, 0}} {
		b.prefer(v.scheme)
		b.resize(int64(v.wide), int64(high))
		at := image.Rect(v.x, v.y, v.x+v.wide, v.y+high)
		draw.Draw(whole, at, image.NewUniform(edge), image.Point{}, draw.Src)
		draw.Draw(whole, at.Inset(1), b.shot(), image.Pt(1, 1), draw.Src)
	}

	b.resize(width, height)
	b.write(filepath.Join("pages", name), whole, 96)
}

// edge is the colour of the line around a window, which shows on a light and on a dark page.
var edge = color.NRGBA{0x8a, 0x94, 0xa3, 0xff}

// shot returns a picture of the window.
func (b *tab) shot() image.Image {
	b.t.Helper()

	var shot []byte
	err := b.try(func(ctx context.Context) (err error) {
		shot, err = chromedp.Run(ctx, chromedp.CaptureScreenshot())
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}

	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	return picture
}

// write writes a picture of the documentation, in so many colours at most.
func (b *tab) write(name string, picture image.Image, colours int) {
	b.t.Helper()
	file, err := os.Create(filepath.Join(*screenshots, name+".png"))
	if err != nil {
		b.t.Fatal(err)
	}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(file, reduced(picture, colours)); err != nil {
		b.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// reduced reduces a picture to its most frequent colours that can be told apart, which are enough
// for text and areas.
func reduced(full image.Image, colours int) *image.Paletted {
	palette := paletteOf(full, colours)

	small, known := image.NewPaletted(full.Bounds(), palette), map[color.Color]uint8{}

	// A page has few colours and many pixels, so the nearest colour of each is kept.
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
	return small
}

func paletteOf(full image.Image, colours int) color.Palette {
	count := map[color.Color]int{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			count[full.At(x, y)]++
		}
	}

	var palette color.Palette

	// The most frequent colours are taken first, so that a gradient does not crowd out the text.
	for _, c := range slices.SortedFunc(maps.Keys(count),
		func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) }) {
		if len(palette) == 0 || len(palette) < colours && far(c, palette.Convert(c)) {
			palette = append(palette, c)
		}
	}
	return palette
}

// far reports whether two colours can be told apart.
func far(a, b color.Color) bool {
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	apart := func(x, y uint32) int { return (int(x>>8) - int(y>>8)) * (int(x>>8) - int(y>>8)) }
	return apart(ar, br)+apart(ag, bg)+apart(ab, bb) > 60
}
