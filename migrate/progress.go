package migrate

import "sync/atomic"

// Progress is told how far a phase is. Implementations are called often and
// from many goroutines at once.
type Progress interface {
	// Phase starts a part of the work; total is the number of log positions
	// to pass, which is at least the number of records.
	Phase(name string, total int64)
	// Add reports positions passed since the last call.
	Add(positions int64)
	// Wait says what the phase is waiting for, "" when it goes on.
	Wait(reason string)
	// Done ends the current part.
	Done()
}

// NoProgress ignores everything.
type NoProgress struct{}

func (NoProgress) Phase(string, int64) {}
func (NoProgress) Add(int64)           {}
func (NoProgress) Wait(string)         {}
func (NoProgress) Done()               {}

// counter counts from many goroutines and keeps the progress informed.
type counter struct {
	n        atomic.Int64
	progress Progress
}

func (c *counter) add(n int64) {
	c.n.Add(n)
	c.progress.Add(n)
}
