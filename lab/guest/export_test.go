package guest

// Wrapper and MaxOutput are what the wrapper's test runs, here and without a machine.
var Wrapper = wrapper

const MaxOutput = maxOutput

// Settler is the program that settles a machine.
var Settler = settler

// ParseFacts reads what it prints.
var ParseFacts = parseFacts

// SubjectHash names a certificate as OpenSSL looks for it.
var SubjectHash = subjectHash
