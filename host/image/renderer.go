// Package image is the image capability: pictures are decoded, turned upright,
// resized and encoded by the host, natively, and never enter a guest.
package image

import (
	"bytes"
	"context"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
	"runtime"
	"strings"
	"sync"

	webpenc "github.com/deepteams/webp"
	"golang.org/x/image/draw"
	"golang.org/x/image/webp"
	"golang.org/x/sync/semaphore"

	"github.com/pelton-run/pelton/host"
)

// Limits of pictures that no manifest changes.
const (
	MaxSide        = 16_383      // of a WebP picture, by its format
	MaxTargets     = 16          // pictures of one call
	DefaultQuality = 80          // of WebP and JPEG
	Effort         = 2           // of the WebP encoder, 0 to 6
	PixelsInFlight = 200_000_000 // decoded at one time on the whole host
)

// Gate bounds the pictures that are worked on at one time on a host. It is
// shared by all renderers.
type Gate struct {
	pixels *semaphore.Weighted
	cores  *semaphore.Weighted
}

// warmUp has the WebP encoder (v1.1.0) fill its tables, which it does at its
// first use without a lock, before any two pictures are encoded at once.
var warmUp = sync.OnceFunc(func() {
	for _, alpha := range []uint8{255, 100} {
		img := image.NewRGBA(image.Rect(0, 0, 4, 4))
		for i := range img.Pix {
			img.Pix[i] = min(alpha, uint8(i))
			if i%4 == 3 {
				img.Pix[i] = alpha
			}
		}
		encode(img, host.Target{Format: "webp"}) // for its side effect
	}
})

// NewGate makes the gate of a host.
func NewGate() *Gate {
	warmUp()
	return &Gate{pixels: semaphore.NewWeighted(PixelsInFlight), cores: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
}

// Renderer renders the pictures of one function. It is safe for concurrent use.
type Renderer struct {
	gate      *Gate
	maxPixels int64
}

var _ host.Images = (*Renderer)(nil)

// New makes a renderer that refuses pictures of more than maxPixels pixels.
func New(gate *Gate, maxPixels int64) *Renderer { return &Renderer{gate: gate, maxPixels: maxPixels} }

// Render decodes a picture once and makes every target of it, several beside
// each other. Sizes are read and checked before any pixel is decoded.
func (r *Renderer) Render(ctx context.Context, source []byte, targets []host.Target) (*host.Rendered, error) {
	if len(targets) == 0 || len(targets) > MaxTargets {
		return nil, host.Errorf(host.Invalid, "image: %d targets, 1 to %d are possible", len(targets), MaxTargets)
	}
	format, config, err := r.inspect(source)
	if err != nil {
		return nil, err
	}
	pixels := min(int64(config.Width)*int64(config.Height), PixelsInFlight)
	if err := r.gate.pixels.Acquire(ctx, pixels); err != nil {
		return nil, host.Errorf(host.Cancelled, "image: %v", context.Cause(ctx))
	}
	defer r.gate.pixels.Release(pixels)
	img, err := r.decode(ctx, format, source)
	if err != nil {
		return nil, err
	}
	turn := orientation(format, source)
	width, height := turn.size(config.Width, config.Height)
	answer := &host.Rendered{Format: format, Width: width, Height: height, Pictures: make([]host.Picture, len(targets))}
	errs := make([]error, len(targets))
	var group sync.WaitGroup
	for i, t := range targets {
		group.Go(func() { answer.Pictures[i], errs[i] = r.make(ctx, img, turn, width, height, t) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// inspect reads the format and the size. The bytes decide, not a name.
func (r *Renderer) inspect(source []byte) (string, image.Config, error) {
	format := sniff(source)
	decodeConfig := map[string]func([]byte) (image.Config, error){
		"jpeg": func(b []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(b)) },
		"png":  func(b []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(b)) },
		"gif":  func(b []byte) (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(b)) },
		"webp": func(b []byte) (image.Config, error) { return webp.DecodeConfig(bytes.NewReader(b)) },
	}[format]
	if decodeConfig == nil {
		return "", image.Config{}, host.Errorf(host.Unsupported, "image: %s is not a picture that can be read (JPEG, PNG, GIF or WebP)", describe(source))
	}
	config, err := decodeConfig(source)
	if err != nil {
		return "", config, host.Errorf(host.Unsupported, "image: broken %s: %v", format, err)
	}
	if config.Width < 1 || config.Height < 1 {
		return "", config, host.Errorf(host.Unsupported, "image: a %s of %d×%d pixels has no content", format, config.Width, config.Height)
	}
	if n := int64(config.Width) * int64(config.Height); n > r.maxPixels {
		return "", config, host.Errorf(host.TooLarge, "image: %d×%d = %d pixels are above max_pixels %d", config.Width, config.Height, n, r.maxPixels)
	}
	return format, config, nil
}

// sniff recognises the formats by their first bytes.
func sniff(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		return "jpeg"
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return "png"
	case bytes.HasPrefix(b, []byte("GIF87a")), bytes.HasPrefix(b, []byte("GIF89a")):
		return "gif"
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return "webp"
	}
	return ""
}

// describe names content that is not a picture, for a reader of the dead letter.
func describe(b []byte) string {
	if len(b) == 0 {
		return "an empty body"
	}
	kind, _, _ := strings.Cut(http.DetectContentType(b), ";")
	if kind == "text/html" {
		return "an HTML page"
	}
	return "content of type " + kind
}

func (r *Renderer) decode(ctx context.Context, format string, source []byte) (image.Image, error) {
	if err := r.gate.cores.Acquire(ctx, 1); err != nil {
		return nil, host.Errorf(host.Cancelled, "image: %v", context.Cause(ctx))
	}
	defer r.gate.cores.Release(1)
	in := bytes.NewReader(source)
	var img image.Image
	var err error
	switch format {
	case "jpeg":
		img, err = jpeg.Decode(in)
	case "png":
		img, err = png.Decode(in)
	case "gif":
		img, err = gif.Decode(in)
	case "webp":
		img, err = webp.Decode(in)
	}
	if err != nil {
		return nil, host.Errorf(host.Unsupported, "image: broken %s: %v", format, err)
	}
	return img, nil
}

// make resizes in the stored orientation, which has the fast path, and turns
// the small result.
func (r *Renderer) make(ctx context.Context, img image.Image, turn turning, width, height int, t host.Target) (host.Picture, error) {
	if err := r.gate.cores.Acquire(ctx, 1); err != nil {
		return host.Picture{}, host.Errorf(host.Cancelled, "image: %v", context.Cause(ctx))
	}
	defer r.gate.cores.Release(1)
	if ctx.Err() != nil {
		return host.Picture{}, host.Errorf(host.Cancelled, "image: %v", context.Cause(ctx))
	}
	w, h := fit(width, height, t.Width, t.Height)
	sw, sh := turn.size(w, h)
	small := image.NewRGBA(image.Rect(0, 0, sw, sh))
	scaler(img.Bounds(), sw, sh).Scale(small, small.Bounds(), img, img.Bounds(), draw.Src, nil)
	data, err := encode(turn.apply(small), t)
	return host.Picture{Width: w, Height: h, Data: data}, err
}

// maxScratch bounds the pixels between the two passes of the good filter, which
// take 32 bytes each: 256 MB.
const maxScratch = 8_000_000

// scaler chooses the filter: the good one, unless its scratch memory would be
// out of proportion, which is so only for targets that are huge themselves.
func scaler(source image.Rectangle, w, h int) draw.Scaler {
	switch {
	case source.Dx() == w && source.Dy() == h:
		return draw.NearestNeighbor // nothing to scale
	case int64(w)*int64(source.Dy()) > maxScratch:
		return draw.ApproxBiLinear
	}
	return draw.CatmullRom
}

// fit returns the size of a picture that keeps its shape, lies within the
// wanted sides (0 = free) and within what WebP can hold, is never larger than
// its source, and has no side of 0.
func fit(width, height, wantW, wantH int) (int, int) {
	scale := 1.0
	limit := func(side, want int) {
		if want > 0 {
			scale = min(scale, float64(want)/float64(side))
		}
	}
	limit(width, wantW)
	limit(height, wantH)
	limit(width, MaxSide)
	limit(height, MaxSide)
	side := func(n int) int { return min(MaxSide, max(1, int(float64(n)*scale+0.5))) }
	return side(width), side(height)
}

func encode(img *image.RGBA, t host.Target) ([]byte, error) {
	quality := t.Quality
	if quality == 0 {
		quality = DefaultQuality
	}
	if quality < 1 || quality > 100 {
		return nil, host.Errorf(host.Invalid, "image: quality %d is not between 1 and 100", quality)
	}
	var out bytes.Buffer
	var err error
	switch t.Format {
	case "webp", "":
		options := webpenc.DefaultOptions()
		options.Quality, options.Method = float32(quality), Effort
		// The encoder's compressed alpha (v1.1.0) is a bitstream error to other
		// decoders, libwebp among them; stored as it is, it is read by all.
		options.AlphaCompression = 0
		err = webpenc.Encode(&out, straight(img), options)
	case "jpeg":
		err = jpeg.Encode(&out, img, &jpeg.Options{Quality: quality})
	case "png":
		err = png.Encode(&out, img)
	default:
		return nil, host.Errorf(host.Invalid, "image: format %q is not webp, jpeg or png", t.Format)
	}
	if err != nil {
		return nil, host.Errorf(host.Unsupported, "image: encode %s: %v", t.Format, err)
	}
	return out.Bytes(), nil
}

// straight returns the picture without premultiplied alpha, which is what the
// encoder reads fastest. An opaque one has the same bytes either way.
func straight(img *image.RGBA) *image.NRGBA {
	if img.Opaque() {
		return &image.NRGBA{Pix: img.Pix, Stride: img.Stride, Rect: img.Rect}
	}
	out := image.NewNRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), img, img.Bounds().Min, draw.Src)
	return out
}
