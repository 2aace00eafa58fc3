package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

type comparisonSettings struct {
	settings
	records, keys     int
	maxBytes          int64
	skew              float64
	partitions, sizes numbers
	codecs, chosen    words
}

// compare lets rekey and its rivals copy topics, one table each.
func compare(ctx context.Context, args []string) error {
	s := comparisonSettings{
		partitions: numbers{8, 64}, sizes: numbers{500},
		codecs: words{chosen: []string{"lz4"}, known: []string{"none", "gzip", "snappy", "lz4", "zstd"}},
		chosen: words{known: contestantIDs},
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	s.register(flags, 5)
	flags.IntVar(&s.records, "records", 1_000_000, "records of the source topic")
	flags.Int64Var(&s.maxBytes, "max-bytes", 4_000_000_000, "uncompressed `BYTES` of the source: fewer records where they would take more")
	flags.IntVar(&s.keys, "keys", 0, "business keys to choose from; 0: one for every 20 records")
	flags.Float64Var(&s.skew, "skew", 1.1, "Zipf exponent of the business keys, above 1; 0: all alike")
	flags.Var(&s.partitions, "partitions", "partition counts, one table each")
	flags.Var(&s.sizes, "sizes", "bytes of a record, one table each; the smallest possible is about 110")
	flags.Var(&s.codecs, "codecs", "compressions of source and target, one table each")
	flags.Var(&s.chosen, "contestants", "which take part; default: all that can")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown command %q", flags.Arg(0))
	}
	ids, err := available(s.chosen.chosen, s.kafka)
	if err != nil {
		return err
	}
	results := newResults(ctx, "comparison", args)
	for _, size := range s.sizes {
		for _, codec := range s.codecs.chosen {
			for _, partitions := range s.partitions {
				table, err := s.table(ctx, ids, size, codec, partitions)
				if err != nil {
					return err
				}
				results.Tables = append(results.Tables, table)
				if err := results.save(s.json); err != nil {
					return err
				}
				fmt.Printf("\n%s\n\n", table.title())
				printComparison(os.Stdout, &table)
			}
		}
	}
	return nil
}

// table measures everything on one topic, on a broker that has no other.
func (s *comparisonSettings) table(ctx context.Context, ids []string, size int, codec string, partitions int) (table Table, err error) {
	l, err := newLab(ctx, s.kafka)
	if err != nil {
		return table, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	compression, err := wire.ParseCodec(codec)
	if err != nil {
		return table, err
	}
	records := min(s.records, int(s.maxBytes/int64(size)))
	source, err := l.seed(ctx, "action-state", seed.Options{Records: records, Keys: s.keys, Skew: s.skew, RecordBytes: size, Partitions: int32(partitions), Codec: compression})
	if err != nil {
		return table, err
	}
	table = newTable(l, source)
	for run := range s.runs {
		contestants, err := l.contestants(ctx, ids, source, run)
		if err != nil {
			return table, err
		}
		for _, c := range contestants {
			m, err := l.take(ctx, c, source, run)
			if err != nil && ctx.Err() == nil && c.id == mirrorMaker {
				// It stalls at times. That is no failure of the bench, but part of the result.
				reason, _, _ := strings.Cut(err.Error(), "\n")
				fmt.Fprintln(os.Stderr, reason)
				m, err = Measurement{Contestant: c.id, Run: run, Failed: reason}, l.deleteTopics(ctx, c.after...)
			}
			if err != nil {
				return table, err
			}
			table.Measurements = append(table.Measurements, m)
		}
	}
	return table, nil
}
