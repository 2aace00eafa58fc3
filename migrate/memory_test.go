package migrate

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/rewrite"
)

// TestBudgetKeepsToItsMemory adds up what a phase may hold at once, for every
// size of --memory that is likely and some that are not.
func TestBudgetKeepsToItsMemory(t *testing.T) {
	var before budget
	for memory := int64(SmallestMemory); memory <= 1<<40; memory += memory / 8 {
		b := newBudget(memory)
		inFlight := 3 * int64(b.readers) * b.expanded
		reading := inFlight + b.batches + int64(b.senders)*min(largestBatch, b.batches/2)*2
		for what, held := range map[string]int64{
			"a scan and its writer":       reading,
			"a scan and large responses":  inFlight + b.largeAtOnce + b.batches,
			"a scan and large records":    inFlight + b.largeAtOnce + b.batches + b.hugeAtOnce,
			"a comparison key by key":     inFlight + b.reconcile,
			"a rehearsal":                 inFlight + b.keysReplayed*replayedBytes,
			"a large batch, decompressed": inFlight + 3*b.largestBatch,
		} {
			if held > memory*9/10 {
				t.Errorf("%s: %s: %d MiB", memoryText(memory), what, held>>20)
			}
		}
		if b.readers < 1 || b.senders < 1 || b.expanded < 512<<10 || b.largestBatch < 8<<20 || b.largestBatch > math.MaxInt32-responseOverhead || b.keysReplayed < 1 {
			t.Errorf("%s: %+v", memoryText(memory), b)
		}
		if b.readers < before.readers || b.senders < before.senders || b.expanded < before.expanded || b.batches < before.batches || b.largestBatch < before.largestBatch {
			t.Errorf("%s: %+v is less than with less memory: %+v", memoryText(memory), b, before)
		}
		before = b
	}
}

// TestBudgetByDefault holds what the tool takes without --memory to what
// docs/performance.md was measured with.
func TestBudgetByDefault(t *testing.T) {
	b := newBudget(0)
	want := budget{total: 256 << 20, readers: 4, expanded: 2 << 20, largestBatch: 32 << 20, largeAtOnce: 64 << 20,
		batches: 32 << 20, senders: 16, hugeAtOnce: 32 << 20, reconcile: 64 << 20, keysReplayed: 12 << 20}
	if b != want {
		t.Errorf("%+v, want %+v", b, want)
	}
	given := newBudget(DefaultMemory)
	want.firm, want.keysReplayed = true, 128<<20/replayedBytes
	if given != want {
		t.Errorf("--memory %s: %+v, want %+v", memoryText(DefaultMemory), given, want)
	}
}

func TestBatchesShareTheirMemory(t *testing.T) {
	for _, memory := range []int64{SmallestMemory, DefaultMemory, 8 << 30} {
		b := newBudget(memory)
		for _, partitions := range []int{1, 2, 8, 64, 200, 256} {
			size := batchSize(partitions, 1<<20, b.batches)
			if all := int64(2 * partitions * size); all > b.batches {
				t.Errorf("%s, %d partitions: batches of %d bytes take %d", memoryText(memory), partitions, size, all)
			}
			if size < smallestBatch {
				t.Errorf("%s, %d partitions: batches of %d bytes", memoryText(memory), partitions, size)
			}
		}
	}
}

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"256MiB": 256 << 20, "1GiB": 1 << 30, "512Mi": 512 << 20, "2Gi": 2 << 30, "1048576KiB": 1 << 30,
		"268435456": 256 << 20, "268435456B": 256 << 20, "1TiB": 1 << 40,
	} {
		got, err := parseMemory(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
		again, err := parseMemory(memoryText(got))
		if err != nil || again != want {
			t.Errorf("%s is written as %s: %d, %v", text, memoryText(got), again, err)
		}
	}
	for _, text := range []string{"lots", "256MB", "1G", "-1GiB", "1.5GiB", "+1GiB", "1 GiB", "GiB", " 1GiB", "9223372036854775807GiB", "8388608TiB", "0x10"} {
		if got, err := parseMemory(text); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %d, %v; want a usage error", text, got, err)
		}
	}
}

// TestLimitMemory checks who says how much: the flag, GOMEMLIMIT, or both if they
// agree. The runtime reads GOMEMLIMIT at its start, so the test sets what it read.
func TestLimitMemory(t *testing.T) {
	const none = math.MaxInt64
	before := debug.SetMemoryLimit(-1)
	defer func() {
		debug.SetMemoryLimit(before)
		limitLibrary(newBudget(0))
	}()
	for _, c := range []struct {
		flag    string
		runtime int64
		want    int64 // -1: refused
		limit   int64
	}{
		{"", none, 0, DefaultMemory},
		{"1GiB", none, 1 << 30, 1 << 30},
		{"", 1 << 30, 1 << 30, 1 << 30},
		{"1GiB", 1 << 30, 1 << 30, 1 << 30},
		{"1GiB", 2 << 30, -1, 2 << 30},
		{"2GiB", 1 << 30, -1, 1 << 30},
		{"64MiB", none, SmallestMemory, SmallestMemory},
		{"63MiB", none, -1, none},
		{"", 32 << 20, -1, 32 << 20},
		{"much", none, -1, none},
	} {
		debug.SetMemoryLimit(c.runtime)
		got, err := LimitMemory(c.flag)
		if c.want < 0 {
			if !errors.Is(err, ErrUsage) || Advice(err) == "" {
				t.Errorf("%+v: %d, %v; want a usage error with advice", c, got, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		} else if largest := newBudget(c.want).largestBatch; int64(sarama.MaxDecompressedBatchSize) != largest || int64(sarama.MaxResponseSize) <= largest {
			t.Errorf("%+v: the library takes batches of %d and responses of %d", c, sarama.MaxDecompressedBatchSize, sarama.MaxResponseSize)
		}
		if limit := debug.SetMemoryLimit(-1); limit != c.limit {
			t.Errorf("%+v: the runtime's limit is %d", c, limit)
		}
	}
}

// What must be kept and does not fit ends the phase, if a limit was given; if
// none was, the runtime's limit moves out of the way.
func TestWhatMustBeKeptIsWatched(t *testing.T) {
	kept := make([]byte, 32<<20)
	before := debug.SetMemoryLimit(16 << 20)
	defer debug.SetMemoryLimit(before)
	var failure *Failure
	if err := (budget{total: 16 << 20, firm: true}).check(); !errors.As(err, &failure) || !errors.Is(err, ErrPreflight) || !strings.Contains(failure.Do, "--memory 32MiB") {
		t.Errorf("%v", err)
	}
	if limit := debug.SetMemoryLimit(-1); limit != 16<<20 {
		t.Errorf("the runtime's limit was moved to %d", limit)
	}
	if err := (budget{total: 16 << 20}).check(); err != nil {
		t.Error(err)
	}
	if limit := debug.SetMemoryLimit(-1); limit < 64<<20 {
		t.Errorf("the runtime's limit is still %d", limit)
	}
	if err := (budget{total: 1 << 40, firm: true}).check(); err != nil {
		t.Error(err)
	}
	clear(kept)

	log := &readerLog{end: 3, batches: []readerBatch{readerData(t, 0, 3)}}
	r := log.serve(t, readerImpatient)
	r.cluster.env.Memory = 1 << 20
	if _, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 3}); !errors.As(err, &failure) || !errors.Is(err, ErrPreflight) {
		t.Errorf("a read says %v", err)
	}
	clear(kept)
}

// Large batches in several partitions at once are let through one after the
// other, in any order and also where a read ends early, and none is lost.
func TestLargeBatchesTakeTurns(t *testing.T) {
	var batches []readerBatch
	for first := range int64(12) {
		batches = append(batches, readerEncode(t, first, wire.Batch{Records: []wire.Record{{Value: make([]byte, 9<<20)}}, Codec: wire.Zstd}))
	}
	log := &readerLog{end: 12, batches: batches}
	r := log.serve(t, readerPatient)
	r.cluster.reading = newGate(10 << 20)
	spans := []Span{{0, 0, 12}, {0, 1, 12}, {0, 2, 12}, {0, 3, 4}, {0, 0, 9}, {0, 4, 12}}
	counts := make([]int64, len(spans))
	err := eachSpan(testcluster.Context(t), len(spans), spans, func(ctx context.Context, span Span) error {
		for i := range spans {
			if spans[i] != span {
				continue
			}
			_, err := r.Read(ctx, span, func(records []rewrite.Record) error {
				counts[i] += int64(len(records))
				if span.To == 9 && records[0].Offset == 5 {
					return errEnough
				}
				return nil
			})
			if err != nil && !errors.Is(err, errEnough) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, span := range spans {
		want := span.To - span.From
		if span.To == 9 {
			want = 6
		}
		if counts[i] != want {
			t.Errorf("%v: %d records, want %d", span, counts[i], want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := r.cluster.reading.enter(ctx, 10<<20); err != nil {
		t.Errorf("somebody is still in the gate: %v", err)
	}
}

// Huge records to several partitions take turns, too.
func TestWriterLetsHugeRecordsTakeTurns(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 4, map[string]string{"max.message.bytes": "8388608"})
	w.readTimeout(testcluster.Deadline)
	to := w.open(w.lock(), sarama.CompressionLZ4, 8<<20)
	to.huge = newGate(3 << 20)
	for i := range 24 {
		r := writerRecord(i)
		if i%3 > 0 {
			r.Value = make([]byte, i%3*(2<<20))
		}
		w.mustWrite(to, int32(i%4), r)
	}
	w.mustFlush(to)
	w.checkExact()
	if !to.huge.weight.TryAcquire(3 << 20) {
		t.Error("somebody is still in the gate")
	}
	// Whoever gives up before the gate leaves nothing behind that would be sent.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	huge := writerRecord(99)
	huge.Value = make([]byte, 2<<20)
	if err := to.Write(ctx, 0, &huge); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	w.mustFlush(to)
	w.checkExact()
}
