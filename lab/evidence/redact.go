package evidence

import (
	"bytes"
	"io"
	"regexp"
)

// What is left out, and what stands in its place.
var (
	keyBegin = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	keyEnd   = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
	token    = regexp.MustCompile(`\bmesh1[A-Za-z0-9]{8,}`)
	// named is a value whose name says that it is secret: key: value, "key": "value", key=value.
	named = regexp.MustCompile(`(?i)((?:private|preshared|secret)[-_ ]?key|secret|passw(?:or)?d|passphrase|token)("?\s*[:=]\s*"?)[A-Za-z0-9+/=_.-]{12,}`)
)

// maxLine is how much of a line is looked at together, in bytes.
const maxLine = 64 << 10

// redactor passes text on, line by line, without what looks secret.
type redactor struct {
	out     io.Writer
	secrets [][]byte
	line    []byte
	inKey   bool
}

func newRedactor(out io.Writer, secrets []string) *redactor {
	r := &redactor{out: out}
	for _, s := range secrets {
		if s := bytes.TrimSpace([]byte(s)); len(s) > 0 {
			r.secrets = append(r.secrets, s)
		}
	}
	return r
}

// Write takes text of any length. What is not a whole line waits for its rest.
func (r *redactor) Write(text []byte) (int, error) {
	for rest := text; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		r.line, rest = append(r.line, rest[:end]...), rest[end:]
		if r.line[len(r.line)-1] != '\n' && len(r.line) < maxLine {
			break
		}
		if err := r.flush(); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// Close passes on what waits.
func (r *redactor) Close() error { return r.flush() }

func (r *redactor) flush() error {
	line := r.line
	r.line = r.line[:0]
	switch {
	case r.inKey:
		r.inKey = !keyEnd.Match(line)
		return nil
	case keyBegin.Match(line):
		r.inKey = !keyEnd.Match(line)
		line = append(keyBegin.ReplaceAll(line[:keyBegin.FindIndex(line)[1]], []byte("(private key, left out)")), '\n')
	}
	for _, s := range r.secrets {
		line = bytes.ReplaceAll(line, s, []byte("(left out)"))
	}
	line = token.ReplaceAll(line, []byte("(token, left out)"))
	line = named.ReplaceAll(line, []byte("${1}${2}(left out)"))
	_, err := r.out.Write(line)
	return err
}
