package migrate

import (
	"context"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"rekey/rewrite"
)

// manyKeys is a Source of distinct keys that are made up while they are read.
type manyKeys struct{}

func (manyKeys) Read(_ context.Context, span Span, fn func([]rewrite.Record) error) (ReadStats, error) {
	const batch = 1000
	records := make([]rewrite.Record, 0, batch)
	text, value := make([]byte, 0, batch*120), []byte("v")
	for offset := span.From; offset < span.To; offset++ {
		start := len(text)
		text = append(text, "user_"...)
		text = strconv.AppendInt(text, int64(span.Partition), 10)
		text = append(text, '_')
		text = strconv.AppendInt(text, offset, 10)
		text = append(text, "_0_"+historyIDs...)
		records = append(records, rewrite.Record{Partition: span.Partition, Offset: offset, Key: text[start:len(text):len(text)], Value: value})
		if len(records) == batch || offset+1 == span.To {
			if err := fn(records); err != nil {
				return ReadStats{}, err
			}
			records, text = records[:0], text[:0]
		}
	}
	return ReadStats{Records: span.To - span.From}, nil
}

// Decisions that look ahead take memory for the keys of the partitions that are
// read at the same time, and for no others: 20 million keys over 64 partitions.
func BenchmarkTwoPasses(b *testing.B) {
	const keys, partitions = 20_000_000, 64
	o := DefaultPlanOptions()
	o.History = rewrite.HistoryLatest
	rules, err := o.rules(partitions)
	if err != nil {
		b.Fatal(err)
	}
	rules.Prunes = map[string]int64{"user_1_1": 0}
	var spans []Span
	for partition := range int32(partitions) {
		spans = append(spans, Span{partition, 0, keys / partitions})
	}
	ask := demand{source: manyKeys{}, rules: rules, prints: newFingerprinter(), count: &counter{progress: NoProgress{}}}
	for b.Loop() {
		runtime.GC()
		before := heapBytes()
		var peak atomic.Uint64
		ctx, stop := context.WithCancel(b.Context())
		go func() {
			for ctx.Err() == nil {
				peak.Store(max(peak.Load(), heapBytes()))
				time.Sleep(5 * time.Millisecond)
			}
		}()
		var decided atomic.Int64
		err := eachSpan(ctx, newBudget(0).readers, spans, func(ctx context.Context, span Span) error {
			n := int64(0)
			_, err := ask.each(ctx, span, 0, func(*rewrite.Record, rewrite.Decision) error {
				n++
				return nil
			})
			decided.Add(n)
			return err
		})
		stop()
		if err != nil || decided.Load() != keys/partitions*partitions {
			b.Fatal(decided.Load(), err)
		}
		inFlight := float64(keys / partitions * newBudget(0).readers)
		b.ReportMetric(float64(peak.Load()-before)/(1<<20), "peak-MiB")
		b.ReportMetric(float64(peak.Load()-before)/inFlight, "bytes/key-in-flight")
	}
}

// heapBytes is what objects take on the heap, garbage that was not collected yet
// included.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
