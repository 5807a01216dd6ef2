package store

// Frame writes one record as it is on disk.
func Frame(kind, index uint16, seq uint64, payload string) string {
	return string(appendFrame(nil, frame{kind: kind, index: index, seq: seq, payload: []byte(payload)}))
}

// Scanned counts what reading b gives: good frames, damaged stretches, bytes of
// an end that was never finished, and all bytes of them.
func Scanned(b []byte) (good, bad, torn, total int) {
	s := scan(b)
	for _, f := range s.frames {
		total += f.size()
	}
	for _, d := range s.bad {
		total += d.length
	}
	return len(s.frames), len(s.bad), s.torn, total + s.torn
}

// Await returns when a was read.
func Await(a *Ahead) {
	a.mu.Lock()
	defer a.mu.Unlock()
}
