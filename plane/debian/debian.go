// Package debian reads what a Debian package says of itself, and tells which of
// two versions is the higher one.
//
// It is pure: bytes in, values out. Of a package it reads the control file alone,
// within bounds, and it refuses what it does not know; it neither unpacks nor
// checks what the package would install.
package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// Package is what a Debian package says of itself.
type Package struct {
	Name         string
	Version      string
	Architecture string // as Debian calls it: "amd64", "armhf", "all"
}

const (
	magic       = "!<arch>\n"
	headerBytes = 60
	// maxControl bounds what is unpacked to find the control file.
	maxControl = 4 << 20
)

// Read reads a package, deb(5). The error is one clause about the bytes.
func Read(deb []byte) (Package, error) {
	rest, ok := bytes.CutPrefix(deb, []byte(magic))
	if !ok {
		return Package{}, errors.New("it is not a Debian package")
	}
	for member := 0; len(rest) > 0; member++ {
		name, data, after, err := nextMember(rest)
		switch {
		case err != nil:
			return Package{}, err
		case member == 0 && (name != "debian-binary" || !bytes.HasPrefix(data, []byte("2."))):
			return Package{}, errors.New("it is not a Debian package of format 2")
		case strings.HasPrefix(name, "control.tar"):
			return readControl(name, data)
		}
		rest = after
	}
	return Package{}, errors.New("it is cut short: it ends before its control file")
}

// nextMember takes the first member off an archive, ar(5).
func nextMember(archive []byte) (name string, data, rest []byte, err error) {
	if len(archive) < headerBytes {
		return "", nil, nil, errors.New("it is cut short")
	}
	header, rest := string(archive[:headerBytes]), archive[headerBytes:]
	size, err := strconv.ParseUint(strings.TrimRight(header[48:58], " "), 10, 40)
	if err != nil || header[58:] != "`\n" {
		return "", nil, nil, errors.New("it is damaged: a member has no header")
	}
	if size > uint64(len(rest)) {
		return "", nil, nil, errors.New("it is cut short")
	}
	name = strings.TrimSuffix(strings.TrimRight(header[:16], " "), "/")
	data, rest = rest[:size], rest[size:]
	if size%2 == 1 && len(rest) > 0 {
		rest = rest[1:]
	}
	return name, data, rest, nil
}

// readControl finds the control file in the archive of that name.
func readControl(name string, data []byte) (Package, error) {
	var unpacked io.Reader = bytes.NewReader(data)
	var err error
	switch path.Ext(name) {
	case ".tar":
	case ".gz":
		unpacked, err = gzip.NewReader(unpacked)
	default:
		return Package{}, fmt.Errorf("its %s is packed in a way that is not read here: wanted gzip, as by `dpkg-deb -Zgzip`", name)
	}
	if err != nil {
		return Package{}, fmt.Errorf("its %s is damaged: %v", name, err)
	}
	archive := tar.NewReader(io.LimitReader(unpacked, maxControl))
	for {
		h, err := archive.Next()
		if err != nil {
			return Package{}, fmt.Errorf("its %s has no control file: %v", name, err)
		}
		if path.Clean(h.Name) != "control" {
			continue
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			return Package{}, fmt.Errorf("its control file cannot be read: %v", err)
		}
		return parseControl(string(text))
	}
}

// parseControl reads a control file, deb-control(5).
func parseControl(text string) (Package, error) {
	var p Package
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.ToLower(key) {
		case "package":
			p.Name = value
		case "version":
			p.Version = value
		case "architecture":
			p.Architecture = value
		}
	}
	if p.Name == "" || p.Version == "" || p.Architecture == "" {
		return Package{}, errors.New("its control file names no package, no version or no architecture")
	}
	return p, nil
}
