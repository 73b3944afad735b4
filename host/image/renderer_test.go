package image

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	webpenc "github.com/deepteams/webp"
	"golang.org/x/image/webp"

	"github.com/pelton-run/pelton/host"
)

const maxPixels = 50_000_000

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func render(t *testing.T, source []byte, targets ...host.Target) (*host.Rendered, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return New(NewGate(), maxPixels).Render(ctx, source, targets)
}

func decodeWebP(t *testing.T, b []byte) image.Image {
	t.Helper()
	if !bytes.HasPrefix(b, []byte("RIFF")) || string(b[8:12]) != "WEBP" {
		t.Fatalf("output begins with % x, not with RIFF....WEBP", b[:min(12, len(b))])
	}
	img, err := webp.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// nearest names the corner colour that a pixel is closest to.
func nearest(c color.Color) string {
	r, g, b, _ := c.RGBA()
	switch hi := func(v uint32) bool { return v > 0x7fff }; {
	case hi(r) && hi(g) && hi(b):
		return "white"
	case hi(r):
		return "red"
	case hi(g):
		return "green"
	case hi(b):
		return "blue"
	}
	return "black"
}

// IMG-1: pictures come out upright.
func TestOrientation(t *testing.T) {
	tests := []struct {
		file    string
		w, h    int
		corners string // TL TR BL BR
	}{
		{"exif_6.jpg", 40, 80, "blue red white green"},
		{"exif_3.jpg", 40, 20, "white blue green red"},
		{"exif_8.jpg", 40, 80, "green white red blue"},
		{"exif_99.jpg", 40, 20, "red green blue white"},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			r, err := render(t, fixture(t, tt.file), host.Target{Width: 40, Format: "webp"})
			if err != nil {
				t.Fatal(err)
			}
			img := decodeWebP(t, r.Pictures[0].Data)
			if w, h := img.Bounds().Dx(), img.Bounds().Dy(); w != tt.w || h != tt.h {
				t.Fatalf("size = %d×%d, want %d×%d", w, h, tt.w, tt.h)
			}
			var got []string
			for _, p := range []image.Point{{4, 4}, {tt.w - 5, 4}, {4, tt.h - 5}, {tt.w - 5, tt.h - 5}} {
				got = append(got, nearest(img.At(p.X, p.Y)))
			}
			if s := strings.Join(got, " "); s != tt.corners {
				t.Errorf("corners = %s, want %s", s, tt.corners)
			}
			if bytes.Contains(r.Pictures[0].Data, []byte("EXIF")) {
				t.Error("the output has EXIF")
			}
		})
	}
}

// All eight orientations turn as the specification says: the pixel that was
// stored first ends where the table puts it.
func TestTurnings(t *testing.T) {
	src := image.NewRGBA(image.Rect(0, 0, 3, 2))
	src.Set(0, 0, color.White)
	want := map[turning]image.Point{1: {0, 0}, 2: {2, 0}, 3: {2, 1}, 4: {0, 1}, 5: {0, 0}, 6: {1, 0}, 7: {1, 2}, 8: {0, 2}}
	for n, p := range want {
		if got := n.apply(src).RGBAAt(p.X, p.Y); got.R != 255 {
			t.Errorf("orientation %d: the first pixel is not at %v", n, p)
		}
	}
}

// IMG-2: dimensions are read first; a bomb costs nothing.
func TestBombs(t *testing.T) {
	tests := []struct {
		file, says string
		errno      host.Errno
	}{
		{"bomb_30000x30000_1bit.png", "30000×30000", host.TooLarge},
		{"zero_dim.png", "", host.Unsupported},
		{"zero.jpg", "empty body", host.Unsupported},
		{"html_page.jpg", "HTML page", host.Unsupported},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			source := fixture(t, tt.file)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := render(t, source, host.Target{Width: 160})
			runtime.ReadMemStats(&after)
			if host.ErrnoOf(err) != tt.errno || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v (%v), want %v with %q", err, host.ErrnoOf(err), tt.errno, tt.says)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 10<<20 {
				t.Errorf("%d bytes were allocated", grown)
			}
		})
	}
}

// IMG-3: the bytes decide, whatever the file is called.
func TestContentDecides(t *testing.T) {
	r, err := render(t, fixture(t, "really_png.jpg"), host.Target{Width: 160}, host.Target{Width: 320}, host.Target{Width: 640})
	if err != nil {
		t.Fatal(err)
	}
	if r.Format != "png" || len(r.Pictures) != 3 {
		t.Errorf("format = %s with %d pictures, want png with 3", r.Format, len(r.Pictures))
	}
}

// IMG-7: extreme shapes keep every side between 1 and what WebP holds.
func TestExtremeShapes(t *testing.T) {
	tests := []struct {
		file string
		w, h int
	}{{"tall_1x10000.png", 1, 10000}, {"wide_1920x3.png", 160, 1}, {"tall_100x20000.png", 82, 16383}}
	for _, tt := range tests {
		r, err := render(t, fixture(t, tt.file), host.Target{Width: 160})
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		p := r.Pictures[0]
		if img := decodeWebP(t, p.Data); p.Width != tt.w || p.Height != tt.h || img.Bounds().Dx() != tt.w || img.Bounds().Dy() != tt.h {
			t.Errorf("%s: %d×%d (decoded %v), want %d×%d", tt.file, p.Width, p.Height, img.Bounds(), tt.w, tt.h)
		}
	}
}

func TestFormatsAndAlpha(t *testing.T) {
	src := image.NewNRGBA(image.Rect(0, 0, 64, 32))
	for i := range src.Pix {
		src.Pix[i] = uint8(i * 7)
	}
	var pngBytes, webpBytes bytes.Buffer
	if err := png.Encode(&pngBytes, src); err != nil {
		t.Fatal(err)
	}
	options := webpenc.DefaultOptions()
	options.AlphaCompression = 0 // see encode
	if err := webpenc.Encode(&webpBytes, src, options); err != nil {
		t.Fatal(err)
	}
	for _, source := range [][]byte{pngBytes.Bytes(), webpBytes.Bytes()} {
		r, err := render(t, source, host.Target{Width: 32, Format: "webp"}, host.Target{Width: 32, Format: "jpeg"}, host.Target{Height: 8, Format: "png"})
		if err != nil {
			t.Fatal(err)
		}
		if got := decodeWebP(t, r.Pictures[0].Data).Bounds(); got.Dx() != 32 || got.Dy() != 16 {
			t.Errorf("webp is %v, want 32×16", got)
		}
		if !bytes.HasPrefix(r.Pictures[1].Data, []byte("\xff\xd8")) || !bytes.HasPrefix(r.Pictures[2].Data, []byte("\x89PNG")) {
			t.Error("jpeg or png has another format")
		}
		if r.Pictures[2].Width != 16 {
			t.Errorf("width for height 8 = %d, want 16", r.Pictures[2].Width)
		}
	}
	if _, err := render(t, pngBytes.Bytes(), host.Target{Width: 8, Format: "bmp"}); host.ErrnoOf(err) != host.Invalid {
		t.Errorf("bmp = %v, want invalid", err)
	}
}

func FuzzOrientation(f *testing.F) {
	for _, name := range []string{"exif_3.jpg", "exif_99.jpg"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := orientation("jpeg", b); n < 1 || n > 8 {
			t.Errorf("orientation = %d", n)
		}
	})
}
