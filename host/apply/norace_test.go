//go:build !race

package apply_test

// stride is how far apart the calls are at which something goes wrong.
const stride = 1
