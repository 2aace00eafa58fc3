package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"

	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

// memory measures the peak memory of plan, apply and verify on topics of every
// combination of record counts, business keys and partitions.
func memory(ctx context.Context, args []string) error {
	var s settings
	records, keys, partitions := numbers{1_000_000}, numbers{}, numbers{64}
	o := seed.Options{Codec: wire.LZ4, RecordBytes: 500}
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	s.register(flags, 1)
	flags.Var(&records, "records", "record counts")
	flags.Var(&keys, "keys", "numbers of business keys to choose from; default: one for every 20 records")
	flags.Var(&partitions, "partitions", "partition counts")
	flags.IntVar(&o.RecordBytes, "size", 500, "bytes of a record")
	flags.Float64Var(&o.Skew, "skew", 0, "Zipf exponent of the business keys, above 1; 0: all alike")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(keys) == 0 {
		keys = numbers{0}
	}
	results := newResults(ctx, "memory", append([]string{"memory"}, args...))
	for _, o.Records = range records {
		for _, o.Keys = range keys {
			for _, n := range partitions {
				o.Partitions = int32(n)
				if s.kafka {
					if err := enoughDisk(os.TempDir(), o); err != nil {
						return err
					}
				}
				table, err := s.phases(ctx, o, "none")
				if err != nil {
					return err
				}
				results.Tables = append(results.Tables, table)
				if err := results.save(s.json); err != nil {
					return err
				}
				fmt.Fprintln(os.Stderr, "measured:", table.title())
			}
		}
	}
	printMemory(os.Stdout, results.Tables)
	return nil
}

// phases runs plan, apply and verify on a topic, on a broker of its own.
func (s *settings) phases(ctx context.Context, o seed.Options, align string) (table Table, err error) {
	l, err := newLab(ctx, s.kafka)
	if err != nil {
		return table, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	source, err := l.seed(ctx, "action-state", o)
	if err != nil {
		return table, err
	}
	table = newTable(l, source)
	for run := range s.runs {
		phases := l.rekey(source, run, align, false)
		for _, id := range []string{rekeyPlan, rekeyApply, rekeyVerify} {
			m, err := l.take(ctx, phases[id], source, run)
			if err != nil {
				return table, err
			}
			table.Measurements = append(table.Measurements, m)
		}
	}
	return table, nil
}

// enoughDisk refuses a topic that does not fit twice on the disk, at 0.6 of its
// size each, with some room to spare. What was written is removed in the end.
func enoughDisk(dir string, o seed.Options) error {
	const room = 5 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return err
	}
	need := int64(float64(o.Records)*float64(o.RecordBytes)*2*0.6) + room
	if free := int64(fs.Bavail) * fs.Bsize; free < need {
		return fmt.Errorf("%d records of %d bytes need %d GiB in %s, and %d GiB are free; set TMPDIR", o.Records, o.RecordBytes, need>>30, dir, free>>30)
	}
	return nil
}

func printMemory(out io.Writer, tables []Table) {
	fmt.Fprintln(out, "| broker | records | business keys | state keys | partitions | plan | apply | verify |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|---:|")
	for i := range tables {
		t := &tables[i]
		fmt.Fprintf(out, "| %s | %s | %s | %s | %d |", t.Broker, thousands(t.Records), thousands(int64(t.BusinessKeys)), thousands(int64(t.StateKeys)), t.Partitions)
		for _, id := range []string{rekeyPlan, rekeyApply, rekeyVerify} {
			fmt.Fprintf(out, " %d MiB, %.1f s |", t.peakMiB(id), median(t.seconds(id)))
		}
		fmt.Fprintln(out)
	}
}
