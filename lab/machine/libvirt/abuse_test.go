package libvirt_test

import (
	"bytes"
	"image/color"
	"strings"
	"testing"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine"
	"mesh/lab/machine/libvirt"
)

func TestLoadIsPickedOutOfTheStatistics(t *testing.T) {
	number := func(field string, v uint64) rpc.TypedParam {
		return rpc.TypedParam{Field: field, Value: *rpc.NewTypedParamValueUllong(v)}
	}
	got := libvirt.LoadOf([]rpc.TypedParam{
		number("cpu.time", 2_500_000_000), number("cpu.user", 1), number("balloon.rss", 1024),
		{Field: "block.0.name", Value: *rpc.NewTypedParamValueString("vda")},
		number("block.0.rd.bytes", 512), number("block.0.wr.bytes", 1024), number("block.1.wr.bytes", 7),
	})
	want := machine.Load{CPUSeconds: 2.5, ResidentBytes: 1 << 20, ReadBytes: 512, WrittenBytes: 1024}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := libvirt.LoadOf(nil); got != (machine.Load{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestDecodePPM(t *testing.T) {
	picture, err := libvirt.DecodePPM(strings.NewReader("P6\n2 1\n255\n\x01\x02\x03\xfe\xfd\xfc"))
	if err != nil {
		t.Fatal(err)
	}
	if got := picture.Bounds().Size(); got.X != 2 || got.Y != 1 {
		t.Fatalf("size %v", got)
	}
	if got := picture.At(1, 0); got != (color.RGBA{0xfe, 0xfd, 0xfc, 0xff}) {
		t.Errorf("second point is %v", got)
	}
	for what, text := range map[string]string{
		"nothing":       "",
		"grey":          "P5\n1 1\n255\n\x00",
		"too deep":      "P6\n1 1\n65535\n\x00\x00\x00\x00\x00\x00",
		"no points":     "P6\n0 1\n255\n",
		"too wide":      "P6\n8193 1\n255\n" + strings.Repeat("\x00", 3*8193),
		"too high":      "P6\n1 8193\n255\n" + strings.Repeat("\x00", 3*8193),
		"cut short":     "P6\n2 2\n255\n\x01\x02\x03",
		"negative size": "P6\n-1 1\n255\n",
	} {
		if _, err := libvirt.DecodePPM(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken for a picture", what)
		}
	}
}

func FuzzDecodePPM(f *testing.F) {
	f.Add([]byte("P6\n2 1\n255\n\x01\x02\x03\xfe\xfd\xfc"))
	f.Add([]byte("P6\n8192 8192\n255\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		picture, err := libvirt.DecodePPM(bytes.NewReader(b))
		if err == nil && picture.Bounds().Dx()*picture.Bounds().Dy()*3 > len(b) {
			t.Errorf("%v out of %d bytes", picture.Bounds(), len(b))
		}
	})
}
