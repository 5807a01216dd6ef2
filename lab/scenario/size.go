package scenario

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	mebibyte = int64(1) << 20
	sizeRule = `^[1-9][0-9]{0,5}(MiB|GiB)$`
)

var sizeForm = regexp.MustCompile(sizeRule)

// ParseSize reads an amount of memory as a document has it, in bytes.
func ParseSize(written string) (int64, error) {
	if !sizeForm.MatchString(written) {
		return 0, fmt.Errorf("%q is not a size; write a whole number followed by MiB or GiB, for example %s", written, likelySize(written))
	}
	count, unit := written[:len(written)-3], mebibyte
	if strings.HasSuffix(written, "GiB") {
		unit <<= 10
	}
	amount, err := strconv.ParseInt(count, 10, 64)
	if err != nil { // sizeForm admits nothing that ParseInt does not
		return 0, err
	}
	return amount * unit, nil
}
