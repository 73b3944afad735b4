package sdk

import "context"

// Target is one picture to make. A side of 0 follows the other; a picture is
// never enlarged.
type Target struct {
	Width, Height int
	Format        string // webp (when empty), jpeg or png
	Quality       int    // 1 to 100; 0 for the host's default
}

// Rendered is what became of a picture.
type Rendered struct {
	Format        string // of the source
	Width, Height int    // of the source, upright
	Pictures      []Picture
}

// Picture is one picture that was made.
type Picture struct {
	Width, Height int
	Body          Buffer
}

// Render decodes a picture (JPEG, PNG, GIF or WebP), turns it upright and makes
// every target of it, on the host. [ErrUnsupported] means that the bytes are
// not a picture or a broken one, [ErrTooLarge] that it has too many pixels.
func Render(ctx context.Context, source Buffer, targets ...Target) (*Rendered, error) {
	return render(ctx, source, targets)
}
