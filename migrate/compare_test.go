package migrate

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rekey/fixtures/reader"
	"rekey/fixtures/testcluster"
	"rekey/report"
	"rekey/rewrite"
)

// memorySource is a topic in memory: the records of each partition by offset.
// It hands them out in small pieces and in a buffer that is used again.
type memorySource map[int32][]rewrite.Record

func (m memorySource) Read(ctx context.Context, span Span, fn func([]rewrite.Record) error) (ReadStats, error) {
	var stats ReadStats
	var buffer []rewrite.Record
	flush := func() error {
		if len(buffer) == 0 {
			return nil
		}
		err := fn(buffer)
		for i := range buffer {
			buffer[i] = rewrite.Record{Key: []byte("used again"), Offset: -7}
		}
		buffer = buffer[:0]
		return err
	}
	for _, r := range m[span.Partition] {
		if r.Offset < span.From || r.Offset >= span.To {
			continue
		}
		stats.Records++
		if buffer = append(buffer, r); len(buffer) == 3 {
			if err := flush(); err != nil {
				return stats, err
			}
		}
	}
	return stats, flush()
}

// inMemory turns records as the fixtures read them into a memorySource.
func inMemory(records []reader.Record) memorySource {
	out := memorySource{}
	for _, r := range records {
		to := rewrite.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			to.Headers = append(to.Headers, rewrite.Header{Key: []byte(h.Key), Value: h.Value})
		}
		out[r.Partition] = append(out[r.Partition], to)
	}
	return out
}

// sideBySide is a comparison of two topics in memory.
type sideBySide struct {
	plan           *plan
	source, target []reader.Record
	sourceEnds     []int64 // now; nil: the captured ones
	targetEnds     []int64 // nil: one past the last record
	prefix         bool
	tombstonesGone bool
	memory         int64
}

func (s sideBySide) compare(t testing.TB) (*comparison, outcome) {
	t.Helper()
	rules, err := s.plan.rules(runDir{})
	if err != nil {
		t.Fatal(err)
	}
	ends := s.sourceEnds
	if ends == nil {
		ends = s.plan.ends()
	}
	memory := s.memory
	if memory == 0 {
		memory = newBudget(0).reconcile
	}
	c := &comparison{
		plan: s.plan, hasher: newHasher(), captures: s.plan.Captures, memory: memory, readers: 4,
		sourceEnds: func(context.Context) ([]int64, error) { return ends, nil },
		demand:     demand{source: inMemory(s.source), rules: rules, prints: newFingerprinter(), count: &counter{progress: NoProgress{}}},
		target:     inMemory(s.target),
	}
	next := s.targetEnds
	if next == nil {
		next = make([]int64, s.plan.Target.Partitions)
		for _, r := range s.target {
			next[r.Partition] = max(next[r.Partition], r.Offset+1)
		}
	}
	scan := c.newTargetScan(make([]int64, s.plan.Target.Partitions))
	if err := c.advance(t.Context(), scan, next); err != nil {
		t.Fatal(err)
	}
	_, out, err := c.compare(t.Context(), scan, s.prefix, s.tombstonesGone)
	if err != nil {
		t.Fatal(err)
	}
	return c, out
}

func (c *comparison) kinds() string {
	var kinds []string
	for _, d := range c.sorted() {
		kinds = append(kinds, d.Kind)
	}
	slices.Sort(kinds)
	return strings.Join(kinds, " ")
}

// The records of the rules below are written as "partition:offset key value",
// on the target with the source position in between. A key is a business key,
// a value of ~ a tombstone, and a key that begins with ! cannot be parsed.
const ruleIDs = "_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13"

func ruleRecords(t testing.TB, onTarget bool, lines []string) []reader.Record {
	t.Helper()
	var out []reader.Record
	for _, line := range lines {
		fields := strings.Fields(line)
		r, ok := readPosition(fields[0])
		if !ok {
			t.Fatalf("%q", line)
		}
		fields = fields[1:]
		if onTarget {
			r.Headers = []reader.Header{{Key: "rekey-source", Value: []byte(fields[0])}}
			fields = fields[1:]
		}
		if len(fields) != 2 {
			t.Fatalf("%q", line)
		}
		r.Key = []byte(fields[0] + ruleIDs)
		if strings.HasPrefix(fields[0], "!") {
			r.Key = []byte(fields[0])
		}
		if fields[1] != "~" {
			r.Value = []byte(fields[1])
		}
		out = append(out, r)
	}
	return out
}

// rulePlan is a plan of one capture, offsets 0 to 100 of each source partition.
func rulePlan(sources, targets int32, partitioner string) *plan {
	p := &plan{
		Source: planSource{Topic: "source", Partitions: sources}, Target: planTarget{Topic: "target", Partitions: targets},
		From: "legacy", To: "escaped", Partitioner: partitioner, OnUnparseable: rewrite.PolicyQuarantine, History: rewrite.HistoryAll,
	}
	c := capture{Starts: make([]int64, sources), Ends: make([]int64, sources)}
	for s := range sources {
		c.Ends[s] = 100
		for target := range targets {
			c.Flows = append(c.Flows, flow{Source: s, Target: target, Records: 100, Last: 99})
		}
	}
	p.Captures = []capture{c}
	return p
}

// What the log cleaner may do to either side is no difference; what looks like
// it and is not, is one.
func TestReconcileRules(t *testing.T) {
	flows := func(records, last int64) func(*sideBySide) {
		return func(s *sideBySide) { s.plan.Captures[0].Flows = []flow{{Records: records, Last: last}} }
	}
	// The key "!bad" is m since the first replay.
	replayed := func(s *sideBySide) {
		business, sequence, key := "m", int64(0), base64.StdEncoding.EncodeToString([]byte("!bad"))
		s.plan.Replays = []replay{{Repairs: []report.Repair{{Decision: "rewrite", KeyBase64: &key, Key: `"!bad"`, BusinessKey: &business, Sequence: &sequence,
			EventUUID: ruleIDs[3:39], ActionUUID: ruleIDs[40:]}}}}
		s.plan.Captures[0].Flows = append(s.plan.Captures[0].Flows, flow{Round: 1, Records: 100, Last: 99})
	}
	for _, c := range []struct {
		name        string
		sources     int32 // 1 unless given
		targets     int32 // 1 unless given
		partitioner string
		source      []string
		target      []string
		ends        []int64 // of the target
		change      func(*sideBySide)
		gone        bool
		prefix      bool
		superseded  int64
		exact       bool
		want        string // kinds
	}{
		{name: "nothing at all", exact: true},
		{name: "equal", source: []string{"0:1 a x", "0:3 b y"}, target: []string{"0:0 0:1 a x", "0:1 0:3 b y"}, exact: true},
		{name: "equal, with what is quarantined", source: []string{"0:1 a x", "0:2 !bad y"}, target: []string{"0:0 0:1 a x"}, exact: true},

		{name: "replayed", change: replayed, source: []string{"0:1 a x", "0:2 !bad y", "0:3 b z"}, target: []string{"0:0 0:1 a x", "0:1 0:3 b z", "0:2 0:2:1 m y"}, exact: true},
		{name: "replayed and compacted", change: replayed, source: []string{"0:1 a x", "0:2 !bad y", "0:3 !bad z"}, target: []string{"0:0 0:1 a x", "0:2 0:3:1 m z"}, superseded: 1},
		{name: "not replayed yet", change: replayed, prefix: true, source: []string{"0:1 a x", "0:2 !bad y"}, target: []string{"0:0 0:1 a x"}, exact: true},
		{name: "not replayed", change: replayed, source: []string{"0:1 a x", "0:2 !bad y"}, target: []string{"0:0 0:1 a x"}, want: "missing"},
		{name: "half replayed", change: replayed, source: []string{"0:2 !bad y", "0:3 !bad z"}, target: []string{"0:0 0:2:1 m y"}, want: "missing"},
		{name: "replayed twice", change: replayed, source: []string{"0:2 !bad y"}, target: []string{"0:0 0:2:1 m y", "0:1 0:2:1 m y"}, want: "duplicate"},
		{name: "replayed in disorder", change: replayed, source: []string{"0:2 !bad y", "0:3 !bad z"}, target: []string{"0:0 0:3:1 m z", "0:1 0:2:1 m y"}, want: "order"},
		{name: "replayed, another value", change: replayed, source: []string{"0:2 !bad y"}, target: []string{"0:0 0:2:1 m z"}, want: "value"},
		{name: "a round that the plan does not have", change: replayed, source: []string{"0:1 a x"}, target: []string{"0:0 0:1 a x", "0:1 0:2:2 m y"}, want: "extra"},
		{name: "a good key that claims to be replayed", change: replayed, source: []string{"0:1 a x"}, target: []string{"0:0 0:1:1 a x"}, want: "provenance"},

		{name: "superseded on the source", source: []string{"0:5 a y"}, target: []string{"0:0 0:1 a x", "0:1 0:5 a y"}, superseded: 1},
		{name: "superseded on the target", source: []string{"0:1 a x", "0:5 a y"}, target: []string{"0:1 0:5 a y"}, superseded: 1},
		{name: "superseded on both sides", source: []string{"0:2 a x", "0:5 a y", "0:6 b z"}, target: []string{"0:0 0:1 a w", "0:2 0:5 a y", "0:3 0:6 b z"}, superseded: 2},
		{name: "different ones on either side", source: []string{"0:1 a x", "0:3 b x", "0:5 a y", "0:6 b y"},
			target: []string{"0:0 0:0 c z", "0:3 0:5 a y", "0:4 0:6 b y", "0:5 0:9 c w"}, superseded: 2, want: "extra"},
		{name: "superseded on the target without a hole", source: []string{"0:1 a x", "0:5 a y"}, target: []string{"0:0 0:5 a y"}, superseded: 1, want: "missing"},
		{name: "two superseded, one hole", source: []string{"0:1 a x", "0:2 a x", "0:5 a y"}, target: []string{"0:1 0:5 a y"}, superseded: 2, want: "missing"},
		{name: "the last one is missing", source: []string{"0:1 a x", "0:5 a y"}, target: []string{"0:0 0:1 a x"}, ends: []int64{2}, want: "missing"},
		{name: "the only one is missing", source: []string{"0:1 a x"}, ends: []int64{1}, want: "missing"},
		{name: "extra and last", target: []string{"0:0 0:1 a x"}, want: "extra"},
		{name: "extra behind the source's last", source: []string{"0:1 a x"}, target: []string{"0:0 0:1 a x", "0:1 0:5 a y"}, want: "extra"},
		{name: "another key's later record explains nothing", source: []string{"0:5 b y"}, target: []string{"0:0 0:1 a x", "0:1 0:5 b y"}, want: "extra"},

		{name: "the source's tombstone aged", target: []string{"0:0 0:1 a x", "0:1 0:5 a ~"}, superseded: 2},
		{name: "the target's tombstone aged", source: []string{"0:1 a x", "0:5 a ~"}, ends: []int64{2}, gone: true, superseded: 2},
		{name: "the target's tombstone cannot have aged", source: []string{"0:1 a x", "0:5 a ~"}, ends: []int64{2}, want: "missing missing"},
		{name: "a value does not age", source: []string{"0:1 a x"}, ends: []int64{1}, gone: true, want: "missing"},
		{name: "a tombstone before a value did not delete it", source: []string{"0:1 a ~", "0:5 a x"}, ends: []int64{2}, gone: true, want: "missing missing"},
		{name: "a tombstone ages after what it deleted", source: []string{"0:1 a x", "0:5 a ~"}, target: []string{"0:0 0:1 a x"}, ends: []int64{2}, gone: true, want: "missing"},
		{name: "deleted and written again", source: []string{"0:1 a x", "0:5 a ~", "0:9 a y"}, target: []string{"0:2 0:9 a y"}, superseded: 2},
		{name: "aged on both sides"},

		{name: "superseded from another source partition", sources: 2, source: []string{"0:1 a x", "1:3 a y"}, target: []string{"0:1 1:3 a y"}, superseded: 1},
		{name: "the other source partition's record lies before it", sources: 2, source: []string{"0:1 a x", "0:2 a z", "1:3 a y"},
			target: []string{"0:0 1:3 a y", "0:1 0:1 a x"}, ends: []int64{3}, want: "missing"},
		{name: "the other source partition's record lies in another partition", sources: 2, targets: 2, partitioner: "source",
			source: []string{"0:1 a x", "1:3 a y"}, target: []string{"1:0 1:3 a y"}, ends: []int64{1, 1}, want: "missing"},
		{name: "deleted from another source partition, aged", sources: 2, source: []string{"0:1 a x", "1:3 a ~"}, ends: []int64{2}, gone: true, superseded: 2},
		{name: "deleted in another partition", sources: 2, targets: 2, partitioner: "source",
			source: []string{"0:1 a x", "1:3 a ~"}, ends: []int64{1, 1}, gone: true, superseded: 1, want: "missing"},

		{name: "keys exchanged between superseded records, on a compacted target", source: []string{"0:1 a v", "0:2 b w", "0:3 c u", "0:4 c t", "0:9 a z", "0:10 b y"},
			target: []string{"0:0 0:1 b v", "0:1 0:2 a w", "0:5 0:4 c t", "0:6 0:9 a z", "0:7 0:10 b y"}, superseded: 3, want: "extra extra"},
		{name: "a tombstone in the place of another record", source: []string{"0:1 a x", "0:2 !bad y"}, target: []string{"0:0 0:1 a x", "0:1 0:2 new ~"}, want: "extra"},
		{name: "a forged tombstone in a hole", source: []string{"0:1 a x"}, target: []string{"0:0 0:1 a x", "0:1 0:3 new ~"}, change: flows(1, 9), superseded: 1, want: "extra"},
		{name: "a forged record in a hole, as if superseded", source: []string{"0:1 a x", "0:9 b y"}, target: []string{"0:0 0:1 a x", "0:1 0:3 b z", "0:2 0:9 b y"}, change: flows(2, 9), superseded: 1, want: "extra"},
		{name: "a tombstone behind all that flowed", source: []string{"0:1 a x"}, target: []string{"0:0 0:1 a x", "0:1 0:30 new ~"}, change: flows(5, 9), superseded: 1, want: "extra"},
		{name: "a record twice, in two partitions", targets: 2, partitioner: "flink-agents", source: []string{"0:1 a x"},
			target: []string{"1:0 0:1 a x", "0:0 0:1 a x"}, want: "partition"},
		{name: "a tombstone in two partitions", targets: 2, partitioner: "flink-agents", source: []string{"0:1 a ~"},
			target: []string{"0:0 0:1 a ~", "1:0 0:1 a ~"}, want: "partition"},
		{name: "a tombstone that the source lost, in two partitions", targets: 2, partitioner: "flink-agents",
			target: []string{"0:0 0:1 a ~", "1:0 0:1 a ~"}, want: "duplicate"},
		{name: "a tombstone that the source lost, in the wrong partition", targets: 2, partitioner: "flink-agents",
			target: []string{"0:0 0:1 a ~"}, want: "partition"},

		{name: "superseded behind the captured end", source: []string{"0:1 a x", "0:120 b z"}, target: []string{"0:0 0:1 a x", "0:1 0:5 b y"},
			change: func(s *sideBySide) { s.sourceEnds = []int64{121} }, superseded: 1},
		{name: "deleted behind the captured end", source: []string{"0:120 b ~"}, target: []string{"0:1 0:5 b y"},
			change: func(s *sideBySide) { s.sourceEnds = []int64{121} }, superseded: 1},
		{name: "another key behind the captured end", source: []string{"0:120 c z"}, target: []string{"0:1 0:5 b y"},
			change: func(s *sideBySide) { s.sourceEnds = []int64{121} }, want: "extra"},
		{name: "behind the captured end in another source partition", sources: 2, source: []string{"1:120 b z"}, target: []string{"0:1 0:5 b y"},
			change: func(s *sideBySide) { s.sourceEnds = []int64{100, 121} }, want: "extra"},
		{name: "superseded behind the captured end, history latest", source: []string{"0:120 b y", "0:121 b z"}, target: []string{"0:1 0:5 b y"},
			change: func(s *sideBySide) { s.sourceEnds, s.plan.History = []int64{122}, rewrite.HistoryLatest }, superseded: 1},

		{name: "prefix: nothing yet", prefix: true, source: []string{"0:1 a x"}, exact: true},
		{name: "prefix: the first", prefix: true, source: []string{"0:1 a x", "0:5 b y"}, target: []string{"0:0 0:1 a x"}, exact: true},
		{name: "prefix: all", prefix: true, source: []string{"0:1 a x", "0:5 b y"}, target: []string{"0:0 0:1 a x", "0:1 0:5 b y"}, exact: true},
		{name: "prefix: different lengths", prefix: true, sources: 2, source: []string{"0:1 a x", "0:5 b y", "1:1 c z", "1:2 d w"}, target: []string{"0:0 1:1 c z"}, exact: true},
		{name: "prefix: a hole", prefix: true, source: []string{"0:1 a x", "0:3 c w", "0:5 b y"}, target: []string{"0:0 0:1 a x", "0:1 0:5 b y"}, want: "missing"},
		{name: "prefix: the first is missing", prefix: true, source: []string{"0:1 a x", "0:5 b y"}, target: []string{"0:0 0:5 b y"}, want: "missing"},
		{name: "prefix: superseded on the target without a hole", prefix: true, source: []string{"0:1 a x", "0:5 a y", "0:6 b z"}, target: []string{"0:0 0:5 a y"}, superseded: 1, want: "missing"},
		{name: "prefix: superseded on the source by what is not copied yet", prefix: true, source: []string{"0:1 b w", "0:9 a y"}, target: []string{"0:0 0:1 b w", "0:1 0:5 a x"}, superseded: 1},
		{name: "prefix: superseded by nothing", prefix: true, source: []string{"0:1 b w", "0:9 c y"}, target: []string{"0:0 0:1 b w", "0:1 0:5 a x"}, want: "extra"},
		{name: "prefix: changed", prefix: true, source: []string{"0:1 b w", "0:9 a y"}, target: []string{"0:0 0:1 b W"}, want: "value"},
	} {
		for _, memory := range []int64{0, entryBytes} { // all at once, and one key or so at a time
			t.Run(fmt.Sprintf("%s/memory=%d", c.name, memory), func(t *testing.T) {
				partitioner := c.partitioner
				if partitioner == "" {
					partitioner = "flink-agents"
				}
				s := sideBySide{plan: rulePlan(max(1, c.sources), max(1, c.targets), partitioner), source: ruleRecords(t, false, c.source), target: ruleRecords(t, true, c.target),
					targetEnds: c.ends, prefix: c.prefix, tombstonesGone: c.gone, memory: memory}
				if c.change != nil {
					c.change(&s)
				}
				got, out := s.compare(t)
				if got.kinds() != c.want {
					t.Errorf("differences %q, want %q: %+v", got.kinds(), c.want, got.kept)
				}
				if int64(len(got.kept)) != got.total {
					t.Errorf("%d differences, %d kept", got.total, len(got.kept))
				}
				if c.want == "" && (out.superseded != c.superseded || out.exact != (c.superseded == 0)) {
					t.Errorf("superseded %d, exact %t; want %d", out.superseded, out.exact, c.superseded)
				}
				for _, d := range got.kept {
					if d.Text == "" || d.Source == nil && d.Target == nil {
						t.Errorf("incomplete: %+v", d)
					}
				}
			})
		}
	}
}

// world is a random source, its true copy, and both after a random cleaning as
// Kafka's log cleaner does it.
type world struct {
	sideBySide
	target []reader.Record // as cleaned
}

func randomWorld(r *rand.Rand) world {
	partitions := 1 + r.Int32N(3)
	w := world{sideBySide: sideBySide{plan: rulePlan(partitions, partitions, "flink-agents"), tombstonesGone: r.IntN(2) == 0}}
	p := w.plan
	p.To = []string{"escaped", "length-prefixed"}[r.IntN(2)]
	p.History = []rewrite.History{rewrite.HistoryAll, rewrite.HistoryLatest}[r.IntN(2)]
	p.OnUnparseable = []rewrite.Policy{rewrite.PolicyQuarantine, rewrite.PolicyCopy}[r.IntN(2)]
	m := model{to: p.To, history: string(p.History), policy: string(p.OnUnparseable)}
	keys := 1 + r.IntN(20)
	record := func(partition int32, offset int64) reader.Record {
		// Most keys have one home. Those that wander are never deleted: with
		// both tombstones aged, nobody could tell which record came last.
		k := r.IntN(keys)
		wanders := k%5 == 0
		if !wanders {
			k = 5*k + 1 + 5*int(partition)*keys // another one in each partition
		}
		key := fmt.Sprintf("key_%d%s", k, ruleIDs)
		if k%7 == 6 {
			key = fmt.Sprintf("bad_%d", k)
		}
		out := reader.Record{Partition: partition, Offset: offset, Timestamp: int64(r.IntN(5)), Key: []byte(key)}
		if wanders || r.IntN(4) > 0 {
			out.Value = []byte(strconv.Itoa(r.IntN(3)))
		}
		return out
	}
	var captured, all []reader.Record
	w.sourceEnds = make([]int64, partitions)
	for partition := range partitions {
		offset := int64(0)
		for range r.IntN(60) {
			offset += 1 + r.Int64N(3)/2 // holes here and there
			captured = append(captured, record(partition, offset-1))
		}
		p.Captures[0].Ends[partition] = offset
		all = append(all, captured[len(captured)-len(slices.DeleteFunc(slices.Clone(captured), func(x reader.Record) bool { return x.Partition != partition })):]...)
		for range r.IntN(10) { // the job still writes
			all = append(all, record(partition, offset))
			offset++
		}
		w.sourceEnds[partition] = offset
	}
	copied := copyOf(r, m, captured, partitions)
	p.Captures[0].Flows = flowsOf(copied)
	w.targetEnds = make([]int64, partitions)
	for _, x := range copied {
		w.targetEnds[x.Partition] = x.Offset + 1
	}
	w.source = all
	if r.IntN(4) > 0 {
		// A tombstone behind the captured end cannot have aged: then the plan
		// would be past its horizon.
		w.source = cleaned(r, all, w.sourceEnds, p.ends())
	}
	w.target = copied
	if r.IntN(4) > 0 {
		aged := w.targetEnds
		if !w.tombstonesGone {
			aged = nil
		}
		w.target = cleaned(r, copied, w.targetEnds, aged)
	}
	w.memory = []int64{0, 10 * entryBytes}[r.IntN(2)]
	return w
}

// copyOf is what apply would write: each source partition in order, the
// partitions mingled.
func copyOf(r *rand.Rand, m model, source []reader.Record, partitions int32) []reader.Record {
	var out []reader.Record
	for partition := range partitions {
		for range r.IntN(5) {
			out = append(out, reader.Record{Partition: partition, Key: []byte(m.paddingKey()), Headers: []reader.Header{{Key: "rekey-source", Value: []byte("padding")}}})
		}
	}
	queues := map[int32][]modelRecord{}
	for _, d := range m.demanded(source, partitions) {
		queues[d.source.Partition] = append(queues[d.source.Partition], d)
	}
	for len(queues) > 0 {
		partition := r.Int32N(partitions)
		queue := queues[partition]
		if len(queue) == 0 {
			delete(queues, partition)
			continue
		}
		d := queue[0]
		queues[partition] = queue[1:]
		x := d.source
		x.Partition, x.Key = d.partition, []byte(d.key)
		x.Headers = []reader.Header{{Key: "rekey-source", Value: fmt.Appendf(nil, "%d:%d", d.source.Partition, d.source.Offset)}}
		out = append(out, x)
	}
	return asWritten(out)
}

// flowsOf counts what a copy holds.
func flowsOf(copied []reader.Record) []flow {
	by := map[[2]int32]*flow{}
	var flows []flow
	for _, x := range copied {
		p, ok := readPosition(provenanceOf(x))
		if !ok {
			continue
		}
		pair := [2]int32{p.Partition, x.Partition}
		if by[pair] == nil {
			by[pair] = &flow{Source: p.Partition, Target: x.Partition, First: p.Offset}
		}
		by[pair].Records++
		by[pair].Last = p.Offset
	}
	for _, f := range by {
		flows = append(flows, *f)
	}
	return flows
}

// cleaned is a topic after the log cleaner: up to a random offset of each
// partition, what a later record of its key supersedes up to there is gone, and
// so are tombstones up to an offset before aged; nil if none is old enough.
func cleaned(r *rand.Rand, records []reader.Record, ends, aged []int64) []reader.Record {
	type identity struct {
		partition int32
		key       string
	}
	point, horizon := map[int32]int64{}, map[int32]int64{}
	for partition, end := range ends {
		point[int32(partition)] = r.Int64N(end + 1)
		if aged != nil {
			horizon[int32(partition)] = r.Int64N(min(point[int32(partition)], aged[partition]) + 1)
		}
	}
	last := map[identity]int64{}
	for _, x := range records {
		if x.Offset < point[x.Partition] {
			last[identity{x.Partition, string(x.Key)}] = x.Offset
		}
	}
	var out []reader.Record
	for _, x := range records {
		if x.Offset < point[x.Partition] && x.Offset < last[identity{x.Partition, string(x.Key)}] ||
			x.Offset < horizon[x.Partition] && x.Value == nil {
			continue
		}
		out = append(out, x)
	}
	return out
}

// Whatever the cleaner does to either side, and wherever the job goes on
// writing, a true copy is accepted; and where the source still has a record, no
// damage to its copy passes.
func TestReconcileRandomWorlds(t *testing.T) {
	t.Parallel()
	rounds := 3000
	if os.Getenv("REKEY_TORTURE") != "" {
		rounds = 100_000
	}
	r := rand.New(rand.NewPCG(randomSeed(t), 2))
	compacted, damaged := 0, map[string]int{}
	for n := range rounds {
		w := randomWorld(r)
		w.sideBySide.target = w.target
		got, out := w.compare(t)
		if got.total != 0 {
			t.Fatalf("round %d: false alarm: %+v\n%s", n, got.kept, w)
		}
		if !out.exact {
			compacted++
		}
		name, target := w.damage(r)
		if name == "" {
			continue
		}
		w.sideBySide.target = target
		if got, _ = w.compare(t); got.total == 0 {
			w.target = target
			t.Fatalf("round %d, %s: not found\n%s", n, name, w)
		}
		damaged[name]++
	}
	t.Logf("%d worlds, %d of them compacted; damaged: %v", rounds, compacted, damaged)
	if compacted < rounds/2 || len(damaged) < 8 {
		t.Error("the worlds are not varied enough to mean anything")
	}
}

func (w world) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%+v memory %d gone %t source ends %v target ends %v\n", *w.plan, w.memory, w.tombstonesGone, w.sourceEnds, w.targetEnds)
	for _, side := range [][]reader.Record{w.source, w.target} {
		for _, r := range side {
			fmt.Fprintf(&out, "  %d:%d %.8s %s %s\n", r.Partition, r.Offset, r.Key, show(r.Value), provenanceOf(r))
		}
	}
	return out.String()
}

// damage spoils the copy of a record that the source still has, or adds one.
func (w world) damage(r *rand.Rand) (string, []reader.Record) {
	there := map[string]bool{}
	for _, x := range w.source {
		there[fmt.Sprintf("%d:%d", x.Partition, x.Offset)] = true
	}
	var known, final []int // copies of what the source has; those that are the last of their key
	last := map[string]int{}
	for i, x := range w.target {
		last[fmt.Sprintf("%d %s", x.Partition, x.Key)] = i
	}
	for i, x := range w.target {
		if there[provenanceOf(x)] {
			known = append(known, i)
			// Where tombstones age, one that is gone is no damage. And where a
			// key came from two source partitions, nothing tells any more in
			// which order they were written.
			if last[fmt.Sprintf("%d %s", x.Partition, x.Key)] == i && (x.Value != nil || !w.tombstonesGone) && !w.fromTwo(x) {
				final = append(final, i)
			}
		}
	}
	if len(known) == 0 || len(final) == 0 {
		return "", nil
	}
	out := cloneRecords(w.target)
	i := known[r.IntN(len(known))]
	x := &out[i]
	switch r.IntN(10) {
	case 0:
		x.Value = append(slices.Clone(x.Value), '!')
		return "value", out
	case 1:
		if x.Value == nil {
			x.Value = []byte{}
			return "empty for null", out
		}
		x.Value = nil
		return "tombstone", out
	case 2:
		x.Timestamp++
		return "timestamp", out
	case 3:
		x.Headers = slices.Insert(x.Headers, 0, reader.Header{Key: "new"})
		return "header", out
	case 4:
		i = final[r.IntN(len(final))]
		return "last record of a key dropped", slices.Delete(out, i, i+1)
	case 5:
		j := known[r.IntN(len(known))]
		if string(out[j].Key) == string(x.Key) {
			return "", nil
		}
		x.Key, out[j].Key = out[j].Key, x.Key
		return "keys exchanged", out
	case 6:
		x.Key = []byte("new" + ruleIDs)
		return "new key", out
	case 7:
		j := known[r.IntN(len(known))]
		a, b := provenanceOf(*x), provenanceOf(out[j])
		if a == b || string(out[j].Key) == string(x.Key) && show(out[j].Value) == show(x.Value) && out[j].Timestamp == x.Timestamp {
			return "", nil // alike: it is as if they had been written the other way round
		}
		setProvenance(x, b)
		setProvenance(&out[j], a)
		return "provenances exchanged", out
	case 8:
		again := *x
		again.Offset = w.targetEnds[x.Partition]
		w.targetEnds[x.Partition]++
		return "duplicate", append(out, again)
	default:
		if w.plan.Target.Partitions == 1 {
			return "", nil
		}
		again := *x
		again.Partition = (x.Partition + 1) % w.plan.Target.Partitions
		again.Offset = w.targetEnds[again.Partition]
		w.targetEnds[again.Partition]++
		return "duplicate in another partition", append(out, again)
	}
}

// fromTwo says whether a key has, on either side, records of more than one
// source partition.
func (w world) fromTwo(x reader.Record) bool {
	from, _ := readPosition(provenanceOf(x))
	i := slices.IndexFunc(w.source, func(y reader.Record) bool { return y.Partition == from.Partition && y.Offset == from.Offset })
	return slices.ContainsFunc(w.source, func(y reader.Record) bool {
		return y.Partition != from.Partition && string(y.Key) == string(w.source[i].Key)
	}) || slices.ContainsFunc(w.target, func(y reader.Record) bool {
		p, _ := readPosition(provenanceOf(y))
		return p.Partition != from.Partition && string(y.Key) == string(x.Key)
	})
}

// The same damages as TestVerifyFindsDamage, without a broker: many more of
// them, and with little memory.
func TestCompareFindsDamage(t *testing.T) {
	t.Parallel()
	rounds := 600
	if os.Getenv("REKEY_TORTURE") != "" {
		rounds = 20_000
	}
	r := rand.New(rand.NewPCG(randomSeed(t), 3))
	cluster := testcluster.Start(t)
	m := newMigration(t, cluster, smallTopic(), nil).planAndApply(t)
	p, err := m.env.runDir(m.run.RunDir).readPlan()
	if err != nil {
		t.Fatal(err)
	}
	model, source, good := m.model(t), cluster.Read(t, m.source), cluster.Read(t, m.target)
	for n := range rounds {
		names, target, problems := spoiled(r, n, good, func(rs []reader.Record) []string { return model.problems(source, rs, 3) })
		s := sideBySide{plan: p, source: source, target: target, memory: []int64{0, 20 * entryBytes}[n%2]}
		if got, _ := s.compare(t); (got.total == 0) != (len(problems) == 0) {
			t.Fatalf("round %d, %v: %d differences: %+v; the model says %v", n, names, got.total, got.kept, problems)
		}
	}
}

// However little memory there is, the parts together say the same.
func TestReconcileInParts(t *testing.T) {
	r := rand.New(rand.NewPCG(randomSeed(t), 4))
	for range 200 {
		w := randomWorld(r)
		w.sideBySide.target = w.target
		if r.IntN(2) == 0 {
			if _, target := w.damage(r); target != nil {
				w.sideBySide.target = target
			}
		}
		var texts []string
		for _, memory := range []int64{1 << 20, 40 * entryBytes, 3 * entryBytes} {
			w.memory = memory
			got, out := w.compare(t)
			texts = append(texts, fmt.Sprintf("%d %v %s", got.total, out, got.kinds()))
		}
		if texts[0] != texts[1] || texts[0] != texts[2] {
			t.Fatalf("%q\n%s", texts, w)
		}
	}
}
