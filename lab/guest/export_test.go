package guest

// Wrapper and MaxOutput are what the wrapper's test runs, here and without a machine.
var Wrapper = wrapper

const MaxOutput = maxOutput
