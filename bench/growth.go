package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

// The series of growth: one thing varies, all else stays.
const (
	byRecords    = "records"
	byKeys       = "business keys"
	byPartitions = "partitions"
	byPadding    = "padding"
)

var seriesNames = []string{byRecords, byKeys, byPartitions, byPadding}

// growth measures time and peak memory of plan, apply and verify against what a
// topic can have more of, and draws them.
func growth(ctx context.Context, args []string) error {
	var s settings
	var base int
	chart := "../docs/growth.svg"
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	s.register(flags, 3)
	flags.IntVar(&base, "base", 1_000_000, "records where something else varies; the other numbers follow from it")
	flags.StringVar(&chart, "svg", chart, "`FILE` for the plot; empty for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if base < 1000 {
		return fmt.Errorf("-base %d: at least 1000", base)
	}
	results := newResults(ctx, "growth", append([]string{"growth"}, args...))
	for _, p := range growthPoints(base) {
		align := "none"
		if p.series == byPadding {
			align = "source-end"
		}
		table, err := s.phases(ctx, p.topic, align)
		if err != nil {
			return err
		}
		table.Series, table.X = p.series, p.x
		results.Tables = append(results.Tables, table)
		if err := results.save(s.json); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "measured: %s of %.0f\n", p.series, p.x)
	}
	printGrowth(os.Stdout, results.Tables)
	return draw(chart, results.Tables)
}

type point struct {
	series string
	x      float64
	topic  seed.Options
}

// growthPoints are the topics. Keys are all alike, so that as many occur as are
// asked for: with ten records each, all but 1 in 22,000.
func growthPoints(base int) []point {
	var out []point
	add := func(series string, x int, change func(*seed.Options)) {
		o := seed.Options{Records: base, Keys: base / 20, Partitions: 8, Codec: wire.LZ4, RecordBytes: 500}
		change(&o)
		out = append(out, point{series, float64(x), o})
	}
	for _, n := range []int{1, 2, 3, 4, 5} {
		records := base * n / 2
		add(byRecords, records, func(o *seed.Options) { o.Records = records })
		keys := base / 10 * n / 5
		add(byKeys, keys, func(o *seed.Options) { o.Keys = keys })
	}
	for _, partitions := range []int{8, 16, 32, 48, 64} {
		add(byPartitions, partitions, func(o *seed.Options) { o.Partitions = int32(partitions) })
	}
	for _, n := range []int{0, 2, 4, 6, 8} {
		padding := base * n
		add(byPadding, padding, func(o *seed.Options) {
			o.Records /= 5
			o.FirstOffset = int64(padding) / int64(o.Partitions)
		})
	}
	return out
}
