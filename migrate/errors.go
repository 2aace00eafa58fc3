package migrate

import (
	"context"
	"errors"
)

// The kinds of failure. Each error that a phase returns wraps exactly one of
// them or none; ExitCode turns them into the process's exit code.
var (
	// ErrUsage: flags or configuration are wrong. Nothing was done.
	ErrUsage = errors.New("wrong flags or configuration")
	// ErrUnparseable: keys that cannot be parsed remain and the policy is to fail.
	ErrUnparseable = errors.New("keys that cannot be parsed")
	// ErrChanged: the world is not as the plan recorded it.
	ErrChanged = errors.New("the world changed since the plan")
	// ErrDifferent: source and target do not agree.
	ErrDifferent = errors.New("source and target differ")
	// ErrPreflight: a check before the first write refused.
	ErrPreflight = errors.New("preflight refused")
	// ErrStorage: a file of the run directory cannot be read or written.
	ErrStorage = errors.New("the run directory fails")
	// ErrInterrupted: a signal or the caller stopped the phase; it can be resumed.
	ErrInterrupted = errors.New("interrupted")
)

// ExitCode maps an error of this package to the exit code of the process:
//
//	0  done, clean
//	1  unexpected failure (broker, disk, bug)
//	2  wrong flags or configuration
//	3  keys that cannot be parsed remain, and the policy is to fail
//	4  the world changed: topic re-created, partitions added, log start passed
//	   what is needed, source still written to, plan edited
//	5  verify or rehearse found a difference
//	6  preflight refused: permissions, sizes, timestamps, replication,
//	   colliding keys, unreadable values, target not empty or wrongly configured
//	7  interrupted; the same command resumes
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return 7
	case errors.Is(err, ErrUsage):
		return 2
	case errors.Is(err, ErrUnparseable):
		return 3
	case errors.Is(err, ErrChanged):
		return 4
	case errors.Is(err, ErrDifferent):
		return 5
	case errors.Is(err, ErrPreflight):
		return 6
	}
	return 1
}

// Failure is an error of a known kind, with what a person should do about it.
type Failure struct {
	Kind  error  // one of the Err values of this package; nil for what is unexpected
	What  string // one sentence: what is wrong, naming topic, partition, offset, file
	Do    string // what to do next; may be empty
	Cause error  // may be nil
}

func (f *Failure) Error() string {
	text := f.What
	if f.Cause != nil {
		text += ": " + f.Cause.Error()
	}
	return text
}

// Unwrap makes errors.Is find both the kind and the cause.
func (f *Failure) Unwrap() []error {
	if f.Cause == nil {
		return []error{f.Kind}
	}
	return []error{f.Kind, f.Cause}
}

// Advice is what to do about err, or "".
func Advice(err error) string {
	if failure, ok := errors.AsType[*Failure](err); ok {
		return failure.Do
	}
	if errors.Is(err, context.Canceled) {
		return "run the same command again: it goes on, or starts anew where nothing was kept"
	}
	return ""
}
