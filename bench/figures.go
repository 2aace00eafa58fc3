package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// contestant is a command to be timed.
type contestant struct {
	name string
	args []string
}

// figures are the measurements of all contestants, in the order of their first
// turn.
type figures struct {
	records int
	names   []string
	seconds map[string][]float64
	rss     map[string]int64 // peak, in KiB, of the largest process
}

func newFigures(records int) *figures {
	return &figures{records: records, seconds: map[string][]float64{}, rss: map[string]int64{}}
}

// measure runs a contestant once.
func (f *figures) measure(ctx context.Context, c contestant) error {
	command := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	began := time.Now()
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c.name, err, output.Bytes())
	}
	took := time.Since(began).Seconds()
	if f.seconds[c.name] == nil {
		f.names = append(f.names, c.name)
	}
	f.seconds[c.name] = append(f.seconds[c.name], took)
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		f.rss[c.name] = max(f.rss[c.name], usage.Maxrss)
	}
	return nil
}

// print writes the table, with ratios to one of the contestants: the median of
// the ratios run by run, since a machine's speed drifts.
func (f *figures) print(base string) {
	fmt.Println("| | records/s, median | min | max | ratio | peak memory |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, name := range f.names {
		rates, ratios := make([]float64, 0), make([]float64, 0)
		for i, seconds := range f.seconds[name] {
			rates = append(rates, float64(f.records)/seconds)
			ratios = append(ratios, f.seconds[base][i]/seconds)
		}
		slices.Sort(rates)
		slices.Sort(ratios)
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.2f | %d MiB |\n",
			name, rates[len(rates)/2], rates[0], rates[len(rates)-1], ratios[len(ratios)/2], f.rss[name]>>10)
	}
}
