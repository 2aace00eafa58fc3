package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// seconds are the times of a contestant, run by run. What makes its records
// first, and tools that start a JVM to measure something else, count their own
// time; all others the whole process.
func (t *Table) seconds(id string) []float64 {
	own := id == produceOnly || id == batchesOnly || id == consumerPerf || id == producerPerf
	return t.times(id, own)
}

func (t *Table) times(id string, own bool) []float64 {
	var out []float64
	for _, m := range t.Measurements {
		switch {
		case m.Contestant != id:
		case m.Failed != "":
			out = append(out, math.Inf(1)) // it never came to an end
		case own:
			out = append(out, m.Own)
		default:
			out = append(out, m.Seconds)
		}
	}
	return out
}

func (t *Table) failed(id string) int {
	n := 0
	for _, m := range t.Measurements {
		if m.Contestant == id && m.Failed != "" {
			n++
		}
	}
	return n
}

func (t *Table) peakMiB(id string) int64 {
	peak := int64(0)
	for _, m := range t.Measurements {
		if m.Contestant == id {
			peak = max(peak, m.PeakKiB)
		}
	}
	return peak >> 10
}

func (t *Table) runs() int {
	runs := 0
	for _, m := range t.Measurements {
		runs = max(runs, m.Run+1)
	}
	return runs
}

// ratio is the median of how many times as fast b was as a, run by run, since a
// machine's speed drifts. It is 0 if one of them took no part.
func ratio(a, b []float64) float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, a[i]/b[i])
	}
	return median(out)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// slower is the slower of two, run by run.
func slower(a, b []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, max(a[i], b[i]))
	}
	return out
}

func times(a []float64, factor float64) []float64 {
	out := slices.Clone(a)
	for i := range out {
		out[i] *= factor
	}
	return out
}

// share is how much of what the machine allows a phase makes use of, and of what:
// plan reads the source, verify reads both topics, and apply can be no faster than
// the slower of reading and writing.
func (t *Table) share(id string) (share float64, of string) {
	consume := t.seconds(consumeOnly)
	switch id {
	case rekeyPlan:
		return ratio(consume, t.seconds(id)), "consume only"
	case rekeyApply:
		return ratio(slower(consume, t.seconds(produceOnly)), t.seconds(id)), "the floor"
	case rekeyVerify:
		return ratio(times(consume, 2), t.seconds(id)), "consume only, both topics"
	}
	return 0, ""
}

func (t *Table) title() string {
	skew := "all keys alike"
	if t.Skew > 0 {
		skew = fmt.Sprintf("Zipf %g", t.Skew)
	}
	return fmt.Sprintf("%s, %s records of %d bytes, %s, %s, %s; %s",
		t.Broker, thousands(t.Records), t.MeanSize, count(t.Partitions, "partition"), t.Codec, skew, count(t.runs(), "run"))
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// thousands writes a number with commas.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	var out strings.Builder
	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	return out.String()
}

// printComparison writes the table of one topic.
func printComparison(out io.Writer, t *Table) {
	fmt.Fprintln(out, "| | records/s, median | min | max | ratio | share | peak memory |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---|---:|")
	for _, id := range contestantIDs {
		printRow(out, t, id, contestantNames[id], t.seconds(id))
		if id == mirrorMaker {
			printRow(out, t, id, "the same from its first record on", t.times(id, true))
		}
	}
}

func printRow(out io.Writer, t *Table, id, name string, seconds []float64) {
	if len(seconds) == 0 {
		return
	}
	if n := t.failed(id); n > 0 {
		name += fmt.Sprintf(", failed in %d of %s", n, count(len(seconds), "run"))
	}
	var rates []float64
	for _, s := range seconds {
		rates = append(rates, float64(t.Records)/s)
	}
	share := ""
	if value, of := t.share(id); value > 0 {
		share = fmt.Sprintf("%.0f %% of %s", 100*value, of)
	}
	times := ""
	if r := ratio(t.seconds(handWritten), seconds); r > 0 {
		times = fmt.Sprintf("%.2f", r)
	}
	fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %d MiB |\n", name, thousands(int64(median(rates))),
		thousands(int64(slices.Min(rates))), thousands(int64(slices.Max(rates))), times, share, t.peakMiB(id))
}
