package migrate

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"rekey/fixtures/kafka"
	java "rekey/fixtures/recovery"
	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

// TestBenchPadding measures what alignment costs on a real Kafka, broker and
// rekey on the same machine: how long padding takes, what it takes on disk before
// and after the log cleaner ran, and how long a job takes to read past it.
//
// It runs with REKEY_BENCH=1 (make bench-padding) and needs a few gigabytes and
// minutes. REKEY_BENCH_PARTITIONS (64) and REKEY_BENCH_OFFSET (1000000) say how
// many partitions are padded, and how far; REKEY_BENCH_COMPRESSION is apply's
// --compression.
func TestBenchPadding(t *testing.T) {
	if os.Getenv("REKEY_BENCH") == "" {
		t.Skip("a benchmark: REKEY_BENCH=1 runs it")
	}
	partitions, end := int32(benchNumber(t, "REKEY_BENCH_PARTITIONS", 64)), benchNumber(t, "REKEY_BENCH_OFFSET", 1_000_000)
	const states, perBatch = 100, 20_000 // states at the end of each partition; filler before them
	ctx, cancel := context.WithTimeout(t.Context(), 55*time.Minute)
	defer cancel()
	c, err := kafka.Start(ctx, kafka.Options{Optimize: true, Heap: "1g"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	cl, err := wire.Dial(c.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()

	const source, target = "action-state", "action-state-2"
	benchSource(t, ctx, cl, source, partitions, end, states, perBatch)
	o := DefaultPlanOptions()
	o.Connections.Source.Bootstrap = c.Addrs()
	o.Source, o.Target, o.RunDir = source, target, filepath.Join(t.TempDir(), "run")
	if codec := os.Getenv("REKEY_BENCH_COMPRESSION"); codec != "" {
		o.Compression = codec
	}
	watch := &stopwatch{}
	env := Environment{Version: "test", Now: time.Now, Progress: watch, Logf: t.Logf}
	planned, err := Plan(ctx, o, env)
	if err != nil {
		t.Fatal(err)
	}
	run := RunOptions{Connections: o.Connections, RunDir: o.RunDir}
	began := time.Now()
	evidence, err := Apply(ctx, run, env)
	if err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	if _, err := Verify(ctx, run, env); err != nil {
		t.Fatal(err)
	}
	padding := watch.took["pad "+target]

	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("partitions", "%d, padded to offset %d", partitions, end-states)
	row("compression", "%s", cmp.Or(o.Compression, "as the source: none; padding always"))
	row("padding records", "%d; the plan estimated %v", evidence.Padded, (time.Duration(planned.Padding.EstimateMS) * time.Millisecond).Round(time.Second))
	row("time to pad", "%.1f s, %.2f million records a second", padding.Seconds(), float64(evidence.Padded)/padding.Seconds()/1e6)
	row("time of apply", "%.1f s, %d states included", whole.Seconds(), evidence.Written)
	before := logBytes(t, c, target)
	row("log files before", "%.1f MB, %.2f bytes a padding record", float64(before)/1e6, float64(before)/float64(evidence.Padded))

	// A job with a marker from the beginning of the log, on a few partitions.
	few := min(partitions, 8)
	recoverFrom := func(partitions int32) java.Outcome {
		job := java.Job{Runtime: "0.4-strict", Topic: target, Markers: []map[int32]int64{{}}}
		for partition := range partitions {
			job.Markers[0][partition] = 0
		}
		if all := int32(len(planned.Target.Partitions)); partitions != all {
			job.Runtime = "0.3"
		}
		outcomes, err := java.Run(ctx, c, job)
		if err != nil {
			t.Fatal(err)
		}
		return outcomes[0]
	}
	read := recoverFrom(few)
	row("a job reads the padding", "%d records of %d partitions in %.1f s, %.2f million a second, unread: %v", read.Records, few, read.Took.Seconds(),
		float64(read.Records)/read.Took.Seconds()/1e6, read.Unread)

	after, took := compactPadding(t, ctx, c, cl, target, partitions)
	row("time to compact", "%.1f s, one cleaner thread", took.Seconds())
	row("log files after", "%.1f MB, %.3f %% of before", float64(after)/1e6, 100*float64(after)/float64(before))
	read = recoverFrom(partitions)
	row("a job reads all", "%d records of %d partitions in %.1f s, states %d, unread %v, refused %q", read.Records, partitions, read.Took.Seconds(), len(read.Entries)-1, read.Unread, read.Refused)
	out.Flush()
	t.Log("\n" + table.String())
	if want := int64(partitions) * states; int64(len(read.Entries)) != want+1 {
		t.Errorf("the job has %d entries, want %d and the padding", len(read.Entries), want)
	}
}

func benchNumber(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q", name, text)
	}
	return n
}

// benchSource makes a topic whose partitions all end at the same offset: filler
// that is deleted again, then some states.
func benchSource(t *testing.T, ctx context.Context, cl *kgo.Client, topic string, partitions int32, end, states, perBatch int64) {
	t.Helper()
	if err := seed.CreateTopic(ctx, cl, topic, partitions, 1, map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}); err != nil {
		t.Fatal(err)
	}
	encode := func(n int64) []byte {
		b := wire.Batch{Codec: wire.Zstd, Records: make([]wire.Record, n)}
		for i := range b.Records {
			b.Records[i] = wire.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("x")}
		}
		raw, err := wire.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	filler := end - states
	full, rest := encode(perBatch), encode(max(1, filler%perBatch))
	of := make([][]wire.Record, partitions)
	for i, left := 0, int(partitions); left > 0; i++ {
		key := fmt.Appendf(nil, "user_%d_7_%s", i, recoveryUUIDs)
		p := seed.Partition(fmt.Appendf(nil, "user%%5F%d_7_%s", i, recoveryUUIDs), partitions) // where it goes: so all targets get as many
		if int64(len(of[p])) == states {
			continue
		}
		of[p] = append(of[p], wire.Record{Timestamp: time.Now().UnixMilli(), Key: key, Value: []byte(`{"completed":true}`)})
		if int64(len(of[p])) == states {
			left--
		}
	}
	var group sync.WaitGroup
	for partition := range partitions {
		group.Go(func() {
			produce := func(raw []byte) {
				if _, err := wire.Produce(ctx, cl, topic, partition, raw); err != nil {
					t.Error(err)
				}
			}
			for range filler / perBatch {
				produce(full)
			}
			if filler%perBatch > 0 {
				produce(rest)
			}
			if err := seed.DeleteRecords(ctx, cl, topic, partition, filler); err != nil {
				t.Error(err)
			}
			if _, err := seed.ProduceBatch(ctx, cl, topic, partition, wire.Batch{Records: of[partition]}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	compact := "compact"
	if err := seed.AlterTopic(ctx, cl, topic, map[string]*string{"cleanup.policy": &compact, "retention.ms": nil, "retention.bytes": nil}); err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.FailNow()
	}
}

// compactPadding makes the cleaner work at once, waits until it is through, and
// gives what the log takes then and how long that took. One more padding record in each partition closes
// the segment before it, since the cleaner spares the last one.
func compactPadding(t *testing.T, ctx context.Context, c *kafka.Cluster, cl *kgo.Client, topic string, partitions int32) (int64, time.Duration) {
	t.Helper()
	zero, one := "0", "1"
	if err := seed.AlterTopic(ctx, cl, topic, map[string]*string{"segment.ms": &one, "min.cleanable.dirty.ratio": &zero, "min.compaction.lag.ms": &zero, "file.delete.delay.ms": &one}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // the broker takes over settings a moment later
	for partition := range partitions {
		record := wire.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(model{to: "escaped"}.paddingKey()), Headers: []wire.Header{{Key: "rekey-source", Value: []byte("padding")}}}
		if _, err := seed.ProduceBatch(ctx, cl, topic, partition, wire.Batch{Records: []wire.Record{record}}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	size, since := logBytes(t, c, topic), began
	for time.Since(since) < 20*time.Second {
		time.Sleep(200 * time.Millisecond)
		if now := logBytes(t, c, topic); now != size {
			size, since = now, time.Now()
		}
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
	return size, since.Sub(began)
}

// logBytes is the size of the log files of a topic, those to be deleted left out.
func logBytes(t *testing.T, c *kafka.Cluster, topic string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(c.DataDir(1), func(path string, entry fs.DirEntry, err error) error {
		dir := filepath.Base(filepath.Dir(path))
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".log") || dir[:max(0, strings.LastIndexByte(dir, '-'))] != topic {
			return nil // the cleaner renames files meanwhile
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// stopwatch is a Progress that takes the time of each phase.
type stopwatch struct {
	NoProgress
	phase string
	since time.Time
	took  map[string]time.Duration
}

func (s *stopwatch) Phase(name string, _ int64) { s.phase, s.since = name, time.Now() }

func (s *stopwatch) Done() {
	if s.took == nil {
		s.took = map[string]time.Duration{}
	}
	s.took[s.phase] += time.Since(s.since)
}
