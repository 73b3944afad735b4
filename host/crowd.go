package host

// Crowded says that an invocation was taken down while others shared its
// instance, so that nobody knows whose fault it was. It runs again, with fewer
// beside it, and is not charged. Whoever runs guests returns it.
type Crowded struct {
	Err     error
	Company int // how many may share an instance with it next, itself counted
}

// Error says what took the instance down.
func (e *Crowded) Error() string { return e.Err.Error() }

// Unwrap returns what took the instance down.
func (e *Crowded) Unwrap() error { return e.Err }
