// Package work is things that handlers compute, for the engine's benchmarks.
package work

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"regexp"
	"sort"
)

// Kinds names the kinds of work.
var Kinds = []string{"jpeg", "json", "sha256", "sort", "regexp"}

// Do does one piece of work and returns a number made of it.
func Do(kind string) int {
	switch kind {
	case "jpeg":
		return encode()
	case "json":
		return decode()
	case "sha256":
		return digest()
	case "sort":
		return order()
	case "regexp":
		return match()
	}
	return -1
}

var picture = draw(320, 180)

func draw(w, h int) image.Image {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetRGBA(x, y, color.RGBA{uint8(x), uint8(y), uint8(x ^ y), 255})
		}
	}
	return img
}

func encode() int {
	var out bytes.Buffer
	if err := jpeg.Encode(&out, picture, nil); err != nil {
		return -1
	}
	return out.Len()
}

type event struct {
	ID    int64
	Title string
	Tags  []string
	Views map[string]int
}

var events = func() []byte {
	var list []event
	for i := range 100 {
		list = append(list, event{int64(i), fmt.Sprintf("A video about thing %d", i), []string{"one", "two", "three"}, map[string]int{"eu": i, "us": 2 * i}})
	}
	b, _ := json.Marshal(list)
	return b
}()

func decode() int {
	var list []event
	if err := json.Unmarshal(events, &list); err != nil {
		return -1
	}
	return len(list)
}

var block = bytes.Repeat([]byte("0123456789abcdef"), 16<<10)

func digest() int {
	sum := sha256.Sum256(block)
	return int(sum[0])
}

func order() int {
	list, v := make([]int, 20_000), uint32(1)
	for i := range list {
		v = v*1664525 + 1013904223
		list[i] = int(v)
	}
	sort.Ints(list)
	return list[0]
}

var (
	pattern = regexp.MustCompile(`(\w+)@(\w+\.)+(com|org)\b`)
	prose   = bytes.Repeat([]byte("some words and somebody@mail.example.com and other words; "), 150)
)

func match() int { return len(pattern.FindAllIndex(prose, -1)) }
