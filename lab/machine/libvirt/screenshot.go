package libvirt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"

	rpc "github.com/digitalocean/go-libvirt"
)

// Screenshot is machine.Abuse's.
func (h *Hypervisor) Screenshot(ctx context.Context, name string) ([]byte, error) {
	var shot bytes.Buffer
	err := h.with(ctx, "take a screenshot of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		now, err := describe(c, d)
		if err != nil {
			return err
		}
		if s, err := specOf(now); err == nil && !s.Display {
			return errors.New("it has no display")
		}
		var raw bytes.Buffer
		// The package looks for the picture's type behind the stream, where there is
		// nothing, and fails after it has handed out a whole picture. One that is cut
		// short is found out below. On a busy machine the stream ends at times before
		// it has begun; then the daemon is asked again.
		for range screenshotTries {
			if _, err = c.DomainScreenshot(d, &raw, 0, 0); raw.Len() > 0 {
				break
			}
		}
		if raw.Len() == 0 {
			return errors.Join(errors.New("the daemon hands out nothing"), err)
		}
		picture, err := decodeScreen(&raw)
		if err != nil {
			return fmt.Errorf("read the screenshot: %w", err)
		}
		return png.Encode(&shot, picture)
	})
	if err != nil {
		return nil, err
	}
	return shot.Bytes(), nil
}

// decodeScreen reads either of QEMU's forms of a screenshot.
func decodeScreen(raw *bytes.Buffer) (image.Image, error) {
	if bytes.HasPrefix(raw.Bytes(), []byte("\x89PNG")) {
		return png.Decode(raw)
	}
	return decodePPM(raw)
}

// screenshotTries is how often a screenshot is asked for that does not come.
const screenshotTries = 5

// maxSide bounds the width and height of a screenshot.
const maxSide = 8 << 10

// decodePPM reads a portable pixmap with three bytes a point, ppm(5), without
// comments.
func decodePPM(r io.Reader) (image.Image, error) {
	in := bufio.NewReader(r)
	var width, height, depth int
	if _, err := fmt.Fscanf(in, "P6\n%d %d\n%d\n", &width, &height, &depth); err != nil {
		return nil, fmt.Errorf("it is no portable pixmap: %w", err)
	}
	if width < 1 || height < 1 || width > maxSide || height > maxSide || depth != 255 {
		return nil, fmt.Errorf("a pixmap of %d by %d points of %d shades", width, height, depth)
	}
	row := make([]byte, 3*width)
	var points []byte // grows with what is there, not with what is said to be
	for range height {
		if _, err := io.ReadFull(in, row); err != nil {
			return nil, fmt.Errorf("it is cut short: %w", err)
		}
		points = append(points, row...)
	}
	picture := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		p := points[3*i:]
		picture.SetRGBA(i%width, i/width, color.RGBA{p[0], p[1], p[2], 0xff})
	}
	return picture, nil
}
