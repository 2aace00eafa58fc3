package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// contestant is a way to copy a topic, or a part of one.
type contestant struct {
	id     string
	args   []string
	before func(context.Context) error // what it needs and cannot do itself
	// until returns when the work is done, for what does not end by itself: it is
	// stopped then. It gives the time since the first record was there.
	until func(context.Context) (time.Duration, error)
	// check gives what it dealt with, by what it printed or left behind.
	check func(ctx context.Context, output []byte) (told, error)
	after []string // topics that nobody needs after its turn
}

// told is what a contestant says about itself. The rivals that are part of this
// program print it.
type told struct {
	Records int64   `json:"records"`
	Seconds float64 `json:"seconds,omitempty"` // of the work itself, without start-up and preparations
}

func parseTold(_ context.Context, output []byte) (t told, err error) {
	err = json.Unmarshal(output, &t)
	return t, err
}

// take lets a contestant have its turn on a topic. It fails if the contestant
// did not deal with every record.
func (l *lab) take(ctx context.Context, c contestant, source *seeded, run int) (m Measurement, err error) {
	failed := func(err error, output []byte) error {
		return fmt.Errorf("%s: %w\n%s", contestantNames[c.id], err, output[max(0, len(output)-4000):])
	}
	if c.before != nil {
		if err := c.before(ctx); err != nil {
			return m, failed(err, nil)
		}
	}
	command := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	var output, complaints bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaints
	began := time.Now()
	var took, own time.Duration
	if c.until == nil {
		err = command.Run()
		took = time.Since(began)
	} else {
		if err := command.Start(); err != nil {
			return m, failed(err, nil)
		}
		own, err = c.until(ctx)
		took = time.Since(began)
		halt(command)
	}
	if err != nil {
		return m, failed(err, append(complaints.Bytes(), output.Bytes()...))
	}
	said, err := c.check(ctx, output.Bytes())
	if err != nil {
		return m, failed(err, append(complaints.Bytes(), output.Bytes()...))
	}
	if said.Records != int64(source.Records) {
		return m, failed(fmt.Errorf("it dealt with %d records instead of %d", said.Records, source.Records), append(complaints.Bytes(), output.Bytes()...))
	}
	m = Measurement{Contestant: c.id, Run: run, Seconds: took.Seconds(), Own: max(said.Seconds, own.Seconds())}
	state := command.ProcessState
	m.CPU = (state.UserTime() + state.SystemTime()).Seconds()
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		m.PeakKiB = usage.Maxrss
	}
	if len(c.after) > 0 {
		err = l.deleteTopics(ctx, c.after...)
	}
	return m, err
}

// halt ends a process that has no end of its own. How it exits says nothing: its
// work is counted by then.
func halt(command *exec.Cmd) {
	_ = command.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
	defer kill.Stop()
	_ = command.Wait()
}
