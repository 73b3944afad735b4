package demo

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/deepteams/webp"
)

// pictures are the shapes and formats that the origin serves, by turns.
var pictures = []struct {
	format        string
	width, height int
}{{"jpg", 1280, 720}, {"png", 640, 480}, {"gif", 320, 240}, {"webp", 800, 450}, {"jpg", 333, 777}, {"png", 120, 90}, {"webp", 1000, 1000}}

// picturePath is where the origin serves a video's picture.
func picturePath(v *video) string {
	return fmt.Sprintf("/pictures/%d.%s", v.number, pictures[v.number%len(pictures)].format)
}

// origin serves the pictures of the demo, with their faults.
type origin struct {
	bodies [][]byte // by index of pictures

	mu     sync.Mutex
	misses map[int]int // how often a flaky picture was refused
}

func newOrigin() (*origin, error) {
	o := &origin{misses: map[int]int{}}
	for _, p := range pictures {
		var b bytes.Buffer
		if err := encode(&b, p.format, gradient(p.width, p.height)); err != nil {
			return nil, fmt.Errorf("make a %s picture: %w", p.format, err)
		}
		o.bodies = append(o.bodies, b.Bytes())
	}
	return o, nil
}

func gradient(w, h int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetNRGBA(x, y, color.NRGBA{uint8(255 * x / w), uint8(255 * y / h), uint8(x ^ y), 255})
		}
	}
	return img
}

func encode(b *bytes.Buffer, format string, img image.Image) error {
	switch format {
	case "jpg":
		return jpeg.Encode(b, img, nil)
	case "png":
		return png.Encode(b, img)
	case "gif":
		return gif.Encode(b, img, nil)
	}
	return webp.Encode(b, img, webp.DefaultOptions())
}

// ServeHTTP serves /pictures/<video's number>.<format>.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/pictures/"), ".")
	number, err := strconv.Atoi(name)
	if err != nil || number < 0 {
		http.NotFound(w, r)
		return
	}
	body := o.bodies[number%len(pictures)]
	switch faultOf(number) {
	case notFound:
		http.NotFound(w, r)
	case gone:
		http.Error(w, "gone", http.StatusGone)
	case htmlPage: // a missing picture that is answered with a page and status 200
		w.Header().Set("Content-Type", "image/jpeg")
		fmt.Fprint(w, "<!DOCTYPE html><html><body>Not here any more.</body></html>")
	case broken:
		w.Write(body[:len(body)/3])
	case flaky:
		if o.refuse(number) {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		w.Write(body)
	default:
		w.Write(body)
	}
}

// refuse reports whether a flaky picture is still away.
func (o *origin) refuse(number int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.misses[number]++
	return o.misses[number] <= 2
}
