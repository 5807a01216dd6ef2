//go:build race

package apply_test

// stride leaves out crashes where each is ten times slower, and shows no more.
const stride = 9
