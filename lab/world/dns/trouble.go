package dns

import (
	"slices"
	"sync/atomic"

	"github.com/miekg/dns"
)

// Failure is how questions for the names of a zone are answered instead of as
// they should be.
type Failure struct {
	Zone   string // empty: every name
	Rcode  int    // for example dns.RcodeServerFailure; not looked at where Silent is set
	Silent bool   // no answer at all
}

// Trouble is what is wrong with a server while it serves. The zero value is
// nothing. Safe for concurrent use.
type Trouble struct {
	failures atomic.Pointer[[]Failure]
}

// Set makes exactly these failures be. Where several are of one name, the first
// holds.
func (t *Trouble) Set(failures []Failure) {
	failures = slices.Clone(failures)
	t.failures.Store(&failures)
}

// answer is the answer to q out of trouble; nil where there is none.
func (t *Trouble) answer(q *dns.Msg) (a *dns.Msg, silent bool) {
	if t == nil || t.failures.Load() == nil || len(q.Question) != 1 {
		return nil, false
	}
	for _, f := range *t.failures.Load() {
		if !dns.IsSubDomain(dns.CanonicalName(f.Zone), dns.CanonicalName(q.Question[0].Name)) {
			continue
		}
		if f.Silent {
			return nil, true
		}
		a = new(dns.Msg).SetRcode(q, f.Rcode)
		a.RecursionAvailable = true
		if f.Rcode == dns.RcodeNameError {
			a.Authoritative, a.Ns = true, []dns.RR{authority()}
		}
		return a, false
	}
	return nil, false
}
