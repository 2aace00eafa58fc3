package migrate

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/report"
	"rekey/rewrite"
)

// shardedTopic has seven source partitions, so that no number of shards fits.
func shardedTopic() seed.Options {
	return seed.Options{Seed: 11, Partitions: 7, Records: 700, Keys: 60, Tombstones: 60, Unparseable: 30,
		EmptyValues: 5, NullText: 5, Headers: 4, Jitter: 5000}
}

// shard runs one shard.
func (m *migration) shard(t testing.TB, shard string) (*report.Apply, error) {
	t.Helper()
	run := m.run
	run.Shard = shard
	return Apply(testcluster.Context(t), run, m.env)
}

func (m *migration) mustShard(t testing.TB, shard string) *report.Apply {
	t.Helper()
	evidence, err := m.shard(t, shard)
	if err != nil {
		t.Fatalf("shard %s: %v", shard, err)
	}
	return evidence
}

// shards runs all shards at once, each from a run directory of its own, as on so
// many machines. The target does not exist at first, so they race to create it.
func (m *migration) shards(t testing.TB, count int) []*report.Apply {
	t.Helper()
	out, errs := make([]*report.Apply, count), make([]error, count)
	var running sync.WaitGroup
	for i := range count {
		copied := *m
		copied.run.RunDir = filepath.Join(t.TempDir(), "run")
		if err := os.CopyFS(copied.run.RunDir, os.DirFS(m.run.RunDir)); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { out[i], errs[i] = copied.shard(t, fmt.Sprintf("%d/%d", i, count)) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}

// Shards at once copy everything together, whatever the plan. An apply without
// --shard finds it and puts the settings in force; before that verify says so.
func TestShardsCopyEverything(t *testing.T) {
	broker := testcluster.Start(t)
	for name, change := range map[string]func(*PlanOptions){
		"default":      nil,
		"latest, copy": func(o *PlanOptions) { o.History, o.OnUnparseable = rewrite.HistoryLatest, rewrite.PolicyCopy },
		"not aligned":  func(o *PlanOptions) { o.Align, o.TargetPartitions = AlignNone, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMigration(t, broker, shardedTopic(), change)
			m.plan(t)
			var sum report.Apply
			for i, e := range m.shards(t, 4) {
				if want := fmt.Sprintf("%d/4", i); e.Shard != want || e.Resumed || e.Nothing || e.Written == 0 {
					t.Errorf("shard %s: %+v", want, e)
				}
				if next := strings.Join(e.Next, "\n"); !strings.Contains(next, "all 4 shards") || !strings.Contains(next, "rekey apply") || strings.Contains(next, "--shard 4") {
					t.Errorf("next: %s", next)
				}
				sum.Written += e.Written
				sum.Skipped += e.Skipped
			}
			m.check(t)

			v, err := Verify(testcluster.Context(t), m.run, m.env)
			if !errors.Is(err, ErrDifferent) || v.Total == 0 || slices.ContainsFunc(v.Differences, func(d report.Difference) bool { return d.Kind != "config" }) {
				t.Errorf("verify before the settings are in force: %v, %+v", err, v.Differences)
			}
			if !strings.Contains(strings.Join(v.Next, "\n"), "rekey apply") {
				t.Errorf("verify does not name apply: %q", v.Next)
			}
			e := m.apply(t)
			if !e.Nothing || e.Written != 0 || e.Padded != 0 || e.Present != sum.Written || e.Skipped != sum.Skipped {
				t.Errorf("the shards wrote %d and left out %d; then %+v", sum.Written, sum.Skipped, e)
			}
			m.check(t)
			m.verify(t)
		})
	}
}

// A shard counts, resumes and reads its own source partitions only, and is done
// when they are.
func TestShardsOneAfterTheOther(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), shardedTopic(), nil)
	m.plan(t)
	first := m.mustShard(t, "1/3")
	for _, r := range m.cluster.Read(t, m.target) {
		p, err := rewrite.ParseProvenance(r.Headers[len(r.Headers)-1].Value)
		switch {
		case err != nil:
			t.Fatal(err)
		case p.Padding && p.Writer != rewrite.Division{Index: 1, Count: 3}:
			t.Fatalf("padding of %v", p.Writer)
		case !p.Padding && p.Partition%3 != 1:
			t.Fatalf("a record of source partition %d", p.Partition)
		}
	}
	before := m.targetEnds(t)
	again := m.mustShard(t, "1/3")
	if !again.Nothing || again.Present != first.Written || again.Skipped != first.Skipped || m.targetEnds(t) != before {
		t.Errorf("once more: %+v after %+v, ends %s after %s", again, first, m.targetEnds(t), before)
	}
	for _, file := range []string{"apply-1-of-3.json"} {
		if _, err := os.Stat(filepath.Join(m.run.RunDir, file)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(m.run.RunDir, applyFileName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a shard wrote the evidence of the whole: %v", err)
	}
	m.mustShard(t, "0/3")
	// The whole does what is left, without a word from shard 2.
	rest := m.apply(t)
	if !rest.Resumed || rest.Written == 0 {
		t.Errorf("the rest: %+v", rest)
	}
	m.check(t)
	m.verify(t)
}

func TestShardWithoutPartitions(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), tinyTopic(), nil)
	m.plan(t)
	e := m.mustShard(t, "2/3")
	if !e.Nothing || e.FinishedAt.IsZero() || len(e.Findings) != 1 || e.Findings[0].Code != "no-partitions" || len(e.Next) != 3 {
		t.Errorf("%+v", e)
	}
	if got := m.targetEnds(t); got != "no topic" {
		t.Errorf("the target: %s", got)
	}
	m.mustShard(t, "0/3")
	m.mustShard(t, "1/3")
	m.apply(t)
	m.check(t)
}

// An extension after the target was compacted: its shards find a target from which
// the cleaner took records of theirs in favour of others, and both want to exclude
// the whole that wrote it.
func TestShardsExtend(t *testing.T) {
	broker := testcluster.Start(t)
	m := migrationOf(t, broker, cleanableTopic(t, broker), func(o *PlanOptions) {
		if !broker.Real() {
			o.Align = AlignNone // see cleanableTopic: padding would go first
		}
	})
	m.run.AllowLiveSource = true // compaction is forced by appending
	m.plan(t)
	m.apply(t)
	m.cluster.Compact(t, m.target)
	records := m.cluster.Read(t, m.source)
	for i := range records {
		records[i].Value = append(slices.Clone(records[i].Value), '+')
	}
	m.write(t, m.source, slices.DeleteFunc(records, func(r reader.Record) bool { return len(r.Key) == 0 }))
	m.options.Extend = true
	m.plan(t)
	var written int64
	for _, e := range m.shards(t, 2) {
		if !e.Resumed {
			t.Errorf("shard %s found nothing: %+v", e.Shard, e)
		}
		written += e.Written
	}
	if written == 0 {
		t.Error("the extension has nothing")
	}
	if e := m.apply(t); !e.Nothing {
		t.Errorf("the shards left something: %+v", e)
	}
	m.verify(t)
}

// held lets a run come to a phase and waits there.
type held struct {
	NoProgress
	phase       string
	once        sync.Once
	there, goOn chan struct{}
}

func holdAt(phase string) *held {
	return &held{phase: phase, there: make(chan struct{}), goOn: make(chan struct{})}
}

func (h *held) Phase(name string, _ int64) {
	if strings.HasPrefix(name, h.phase) {
		h.once.Do(func() {
			close(h.there)
			<-h.goOn
		})
	}
}

// begin starts a run that stops where it is about to copy. The function lets it go
// on and gives its outcome.
func (m *migration) begin(t testing.TB, shard string) (end func() error) {
	t.Helper()
	h, slow := holdAt("copy to"), *m
	slow.env.Progress = h
	ended := make(chan error, 1)
	go func() {
		_, err := slow.shard(t, shard)
		ended <- err
	}()
	select {
	case <-h.there:
	case err := <-ended:
		t.Fatalf("shard %q ended before it copied: %v", shard, err)
	}
	return func() error {
		close(h.goOn)
		return <-ended
	}
}

// The newest of two runs that share a source partition shuts the other one out,
// which appends nothing any more. Runs that share none leave each other alone.
func TestOverlappingDivisions(t *testing.T) {
	t.Parallel()
	broker := testcluster.Start(t)
	for _, c := range []struct {
		older, newer string
		overlap      bool
	}{
		{"", "", true}, {"1/4", "", true}, {"", "1/4", true}, {"1/4", "1/4", true}, {"0/1", "", true}, {"", "0/1", true},
		{"0/2", "2/4", true}, {"2/4", "0/2", true}, {"1/2", "2/3", true}, {"0/2", "0/3", true},
		{"0/2", "1/2", false}, {"0/2", "1/4", false}, {"1/4", "0/2", false}, {"0/4", "3/4", false},
	} {
		t.Run(strings.ReplaceAll(fmt.Sprintf("%s, then %s", c.older, c.newer), "/", "of"), func(t *testing.T) {
			m := newMigration(t, broker, shardedTopic(), nil)
			m.plan(t)
			end := m.begin(t, c.older)
			newer := m.mustShard(t, c.newer)
			if newer.Written == 0 {
				t.Errorf("the newer one wrote nothing: %+v", newer)
			}
			before := m.targetEnds(t)
			err := end()
			if !c.overlap {
				if err != nil {
					t.Fatalf("disturbed: %v", err)
				}
			} else {
				if !errors.Is(err, ErrChanged) || ExitCode(err) != 4 || !strings.Contains(err.Error(), "another apply") {
					t.Errorf("exit code %d: %v", ExitCode(err), err)
				}
				if after := m.targetEnds(t); after != before {
					t.Errorf("it appended after it was shut out: ends %s, were %s", after, before)
				}
			}
			m.apply(t)
			m.check(t)
			m.verify(t)
		})
	}
}

// One run may have to shut out several divisions that it learns of one after the
// other.
func TestWholeTakesOverFromShards(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), shardedTopic(), nil)
	m.plan(t)
	var ends []func() error
	for _, shard := range []string{"0/3", "1/3", "2/3"} {
		ends = append(ends, m.begin(t, shard))
	}
	whole := m.apply(t)
	m.check(t)
	before := m.targetEnds(t)
	for i, end := range ends {
		if err := end(); !errors.Is(err, ErrChanged) {
			t.Errorf("shard %d: %v", i, err)
		}
	}
	if after := m.targetEnds(t); after != before {
		t.Errorf("a shard appended: %s after %s", after, before)
	}
	if whole.Resumed || whole.Written == 0 {
		t.Errorf("%+v", whole)
	}
	m.check(t)
	m.verify(t)
}

// Shards that do not overlap may all want to exclude the same older division, and
// overtake each other at that. It must not stop any of them.
func TestExcludersDoNotStopEachOther(t *testing.T) {
	testcluster.RequireFake(t, "refuses single batches")
	broker := testcluster.Start(t)
	m := newMigration(t, broker, shardedTopic(), nil)
	m.plan(t)
	end := m.begin(t, "") // leaves its padding
	cluster := broker.Fake().Cluster()
	var mu sync.Mutex
	excluding, answered := false, map[int32]bool{} // partitions that were asked for the first time since
	cluster.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if id := r.(*kmsg.InitProducerIDRequest).TransactionalID; id != nil && *id == lockName(m.target, rewrite.Whole) {
			mu.Lock()
			excluding = true
			mu.Unlock()
		}
		return nil, nil, false
	})
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request := r.(*kmsg.ProduceRequest)
		mu.Lock()
		defer mu.Unlock()
		// The first batch of a partition after the lock of the whole was taken is
		// the one that excludes it. In every other partition it is refused.
		topic := request.Topics[0]
		partition := topic.Partitions[0].Partition
		if !excluding || answered[partition] {
			return nil, nil, false
		}
		answered[partition] = true
		if partition%2 == 0 {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.ProduceResponse)
		answer := kmsg.NewProduceResponseTopic()
		answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
		one := kmsg.NewProduceResponseTopicPartition()
		one.Partition, one.ErrorCode = partition, kerr.InvalidProducerEpoch.Code
		answer.Partitions = append(answer.Partitions, one)
		response.Topics = append(response.Topics, answer)
		return response, nil, true
	})
	e := m.mustShard(t, "0/2")
	if len(answered) != 7 || e.Written == 0 {
		t.Fatalf("partitions %v were asked: %+v", answered, e)
	}
	if err := end(); !errors.Is(err, ErrChanged) {
		t.Errorf("the older one: %v", err)
	}
	m.apply(t)
	m.check(t)
}

func TestDividedCaptures(t *testing.T) {
	c := capture{Starts: []int64{0, 5, 0, 2}, Ends: []int64{10, 15, 0, 9}, AlignTo: []int64{10, 15, 0, 9}, Records: 24, RecordsBy: []int64{9, 8, 0, 7},
		Flows: []flow{{Source: 0, Target: 1}, {Source: 1, Target: 0}, {Source: 3, Target: 3}}}
	kept := c
	got := divided([]capture{c}, rewrite.Division{Index: 1, Count: 2})
	want := []capture{{Starts: c.Starts, Ends: []int64{0, 15, 0, 9}, AlignTo: c.AlignTo, Records: 15, RecordsBy: []int64{0, 8, 0, 7},
		Flows: []flow{{Source: 1, Target: 0}, {Source: 3, Target: 3}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(kept, c); diff != "" {
		t.Errorf("the plan is changed: %s", diff)
	}
	if got := divided([]capture{c}, rewrite.Whole); !slices.EqualFunc(got, []capture{c}, func(a, b capture) bool { return cmp.Equal(a, b) }) {
		t.Errorf("the whole has %+v", got)
	}
}

// However shards take turns, each partition gets to its goal, and too many are few.
func TestPaddingRounds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		count := 1 + random.IntN(8)
		goals, next := make([]int64, 5), make([]int64, 5)
		for p := range goals {
			goals[p] = random.Int64N(1 << (1 + random.IntN(18)))
			next[p] = random.Int64N(1 << 10)
		}
		beyond := make([]int64, 5) // what may be too many
		for p := range goals {
			beyond[p] = max(goals[p], next[p])
			if goals[p] > next[p] {
				beyond[p] += int64(count-1) * largestPaddingChunk
			}
		}
		pending, done := make([][]Span, count), map[int]bool{}
		for turn := 0; len(done) < count; turn++ {
			if turn > 100_000 {
				t.Fatal("no end")
			}
			i := random.IntN(count)
			if pending[i] == nil {
				round, missing := paddingRound(goals, next, rewrite.Division{Index: int32(i), Count: int32(count)})
				if missing == 0 {
					done[i] = true
					for p := range goals {
						if next[p] < goals[p] {
							t.Fatalf("done at %v, the goals are %v", next, goals)
						}
					}
				}
				pending[i] = round
				continue
			}
			for _, span := range pending[i] {
				next[span.Partition] += span.To - span.From
			}
			pending[i] = nil
		}
		for p := range goals {
			if next[p] > beyond[p] {
				t.Fatalf("%d shards: padded to %d, the goal was %d", count, next[p], goals[p])
			}
		}
	}
	round, missing := paddingRound([]int64{100_000, 5}, []int64{1, 9}, rewrite.Whole)
	if missing != 99_999 || !slices.Equal(round, []Span{{0, 1, 100_000}}) {
		t.Errorf("the whole pads %v, %d missing", round, missing)
	}
}

func TestFirstWriteOf(t *testing.T) {
	s := &targetScan{writers: map[rewrite.Division]int64{
		{Index: 0, Count: 4}: 10, {Index: 1, Count: 4}: 20, {Index: 0, Count: 2}: 30, {Index: 1, Count: 2}: -1,
	}}
	for d, want := range map[rewrite.Division]int64{
		rewrite.Whole: 10, {Index: 0, Count: 4}: 10, {Index: 1, Count: 4}: 20, {Index: 2, Count: 4}: 30, {Index: 3, Count: 4}: -1, {Index: 1, Count: 2}: 20,
	} {
		if got := s.firstWriteOf(d, 8); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}

func TestShardLocks(t *testing.T) {
	names := map[string]bool{}
	for _, topic := range []string{"a", "a-0-of-2", "a_0_2"} {
		for _, d := range []rewrite.Division{rewrite.Whole, {Index: 0, Count: 1}, {Index: 0, Count: 2}, {Index: 1, Count: 2}} {
			names[lockName(topic, d)] = true
		}
	}
	if len(names) != 12 || !names["rekey-a"] || !names["rekey-a:1/2"] {
		t.Errorf("%v", slices.Sorted(maps.Keys(names)))
	}
}

func TestShardOption(t *testing.T) {
	for _, shard := range []string{"4/4", "1", "-1/4", "1/0", "01/4", "a/b"} {
		o := RunOptions{Connections: Connections{Source: Connection{Bootstrap: []string{"localhost:1"}}}, RunDir: "run", Shard: shard}
		if err := o.Validate(); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), shard) || !strings.Contains(Advice(err), "0/4") {
			t.Errorf("%s: %v, %s", shard, err, Advice(err))
		}
	}
}
