package scenario

// Suggest ends a message about an unknown word: the nearest known one where one
// is near, and all that are known.
func Suggest(word string, known []string) string { return suggest(word, known) }
