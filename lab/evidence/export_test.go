package evidence

import "bytes"

// Redact passes parts of a text on, one after the other.
func Redact(secrets []string, parts ...string) string {
	var b bytes.Buffer
	r := newRedactor(&b, secrets)
	for _, p := range parts {
		if _, err := r.Write([]byte(p)); err != nil {
			panic(err)
		}
	}
	if err := r.Close(); err != nil {
		panic(err)
	}
	return b.String()
}
