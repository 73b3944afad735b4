package image

import (
	"bytes"
	"encoding/binary"
	"image"
)

// turning is an EXIF orientation: 1 as stored, 2 to 8 as the TIFF 6.0
// specification numbers them (tag 0x0112).
type turning int

// size returns the sides after the turn; 5 to 8 exchange them.
func (t turning) size(w, h int) (int, int) {
	if t >= 5 {
		return h, w
	}
	return w, h
}

// apply returns the picture upright.
func (t turning) apply(src *image.RGBA) *image.RGBA {
	if t <= 1 {
		return src
	}
	sw, sh := src.Rect.Dx(), src.Rect.Dy()
	w, h := t.size(sw, sh)
	dst := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			sx, sy := t.source(x, y, sw, sh)
			copy(dst.Pix[y*dst.Stride+4*x:][:4], src.Pix[sy*src.Stride+4*sx:][:4])
		}
	}
	return dst
}

// source returns where the upright pixel (x, y) is stored.
func (t turning) source(x, y, sw, sh int) (int, int) {
	switch t {
	case 2:
		return sw - 1 - x, y
	case 3:
		return sw - 1 - x, sh - 1 - y
	case 4:
		return x, sh - 1 - y
	case 5:
		return y, x
	case 6:
		return y, sh - 1 - x
	case 7:
		return sw - 1 - y, sh - 1 - x
	case 8:
		return sw - 1 - y, x
	}
	return x, y
}

// orientation reads the EXIF orientation of a JPEG; 1 for anything else and
// for a value that is not one.
func orientation(format string, b []byte) turning {
	if format != "jpeg" {
		return 1
	}
	if tiff := exifBlock(b); tiff != nil {
		if n := orientationTag(tiff); n >= 1 && n <= 8 {
			return turning(n)
		}
	}
	return 1
}

// exifBlock walks the JPEG's segments to APP1 with EXIF (JEITA CP-3451 §4.5.4)
// and returns the TIFF structure in it.
func exifBlock(b []byte) []byte {
	for i := 2; i+4 <= len(b) && b[i] == 0xFF; {
		marker, length := b[i+1], int(binary.BigEndian.Uint16(b[i+2:]))
		if marker == 0xDA || length < 2 || i+2+length > len(b) {
			return nil // pixels begin, or the file is cut off
		}
		segment := b[i+4 : i+2+length]
		if tiff, ok := bytes.CutPrefix(segment, []byte("Exif\x00\x00")); ok && marker == 0xE1 {
			return tiff
		}
		i += 2 + length
	}
	return nil
}

// orientationTag finds tag 0x0112 in the first directory of a TIFF structure.
func orientationTag(tiff []byte) int {
	if len(tiff) < 8 {
		return 0
	}
	order := binary.ByteOrder(binary.BigEndian)
	if tiff[0] == 'I' {
		order = binary.LittleEndian
	}
	at := uint64(order.Uint32(tiff[4:]))
	if at+2 > uint64(len(tiff)) {
		return 0
	}
	count := uint64(order.Uint16(tiff[at:]))
	for i := range count {
		entry := at + 2 + 12*i
		if entry+12 > uint64(len(tiff)) {
			return 0
		}
		if order.Uint16(tiff[entry:]) == 0x0112 {
			return int(order.Uint16(tiff[entry+8:]))
		}
	}
	return 0
}
