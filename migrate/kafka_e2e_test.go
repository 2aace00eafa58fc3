package migrate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/rewrite"
)

// Whole migrations on a broker: whichever testcluster gives, and what only a
// real Kafka shows (RequireReal). Each is checked by Verify and by the model.

// kafkaIDs are an event UUID and an action UUID, as they end a state key.
const kafkaIDs = "a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13"

// A generated topic as a job leaves it behind: records of all kinds, several
// batches in each partition, keys that cannot be parsed of every kind.
func TestKafkaGeneratedTopic(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t)
	m := newMigration(t, c, seed.Options{Seed: 11, Partitions: 8, Records: 5000, Keys: 300, Skew: 1.1, Tombstones: 250,
		Unparseable: 63, NullKeys: true, EmptyValues: 9, NullText: 9, Headers: 6, ValueBytes: 200, Jitter: 60_000, Codec: wire.Snappy}, nil)
	before := c.Read(t, m.source)
	m.planAndApply(t)
	if v := m.verify(t); v.Method != "exact" {
		t.Errorf("verified by method %s", v.Method)
	}
	m.check(t)
	kafkaCheckQuarantine(t, m, before, func(r reader.Record) bool { return readLegacy(r.Key) == nil })
	if after := c.Read(t, m.source); !reflect.DeepEqual(before, after) {
		t.Errorf("the source changed (-before +after):\n%s", cmp.Diff(before, after))
	}
}

// kafkaCheckQuarantine demands that quarantine.jsonl holds exactly the wanted
// records of the source, in full and in order.
func kafkaCheckQuarantine(t *testing.T, m *migration, source []reader.Record, wanted func(reader.Record) bool) {
	t.Helper()
	var want, got []reader.Record
	for _, r := range source {
		if wanted(r) {
			want = append(want, r)
		}
	}
	if len(want) == 0 {
		t.Fatal("nothing to quarantine: the test proves nothing")
	}
	content, err := os.ReadFile(filepath.Join(m.options.RunDir, quarantineFileName))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Partition int32   `json:"partition"`
			Offset    int64   `json:"offset"`
			Timestamp int64   `json:"timestamp_ms"`
			Key       *string `json:"key_base64"`
			Value     *string `json:"value_base64"`
			Headers   []struct {
				Key   string  `json:"key_base64"`
				Value *string `json:"value_base64"`
			} `json:"headers"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		decode := func(text *string) []byte {
			if text == nil {
				return nil
			}
			data, err := base64.StdEncoding.DecodeString(*text)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		r := reader.Record{Partition: line.Partition, Offset: line.Offset, Timestamp: line.Timestamp, Key: decode(line.Key), Value: decode(line.Value)}
		for _, h := range line.Headers {
			r.Headers = append(r.Headers, reader.Header{Key: string(decode(&h.Key)), Value: decode(h.Value)})
		}
		got = append(got, r)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("quarantine.jsonl (-want +got):\n%s", diff)
	}
}

// kafkaUnwritten demands that no record is on the target, not even padding.
func kafkaUnwritten(t *testing.T, m *migration) {
	t.Helper()
	for partition, end := range m.ends(t, m.target) {
		if end != 0 {
			t.Errorf("target partition %d ends at %d: something was written", partition, end)
		}
	}
}

// kafkaAbsent demands that the target does not exist.
func kafkaAbsent(t *testing.T, m *migration) {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &m.target
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(testcluster.Context(t), m.client)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("the target topic exists (%v)", err)
	}
}

// kafkaApplyRefused demands that apply refuses, says each text, and leaves
// the target empty.
func kafkaApplyRefused(t *testing.T, m *migration, exit int, texts ...string) {
	t.Helper()
	_, err := Apply(testcluster.Context(t), m.run, m.env)
	refused(t, err, exit, texts...)
	kafkaUnwritten(t, m)
}

// Rule 20: a compacted topic takes no null keys, and only the broker says so.
func TestKafkaNullKeysAreFoundBeforeTheFirstWrite(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker takes null keys on compacted topics")
	c := testcluster.Start(t)
	source := c.Topic(t, "source")
	options := smallTopic()
	options.NullKeys, options.Unparseable = true, 42
	if _, err := seed.Write(testcluster.Context(t), c.Addrs(), source, options, nil); err != nil {
		t.Fatal(err)
	}
	_, err := seed.ProduceBatch(testcluster.Context(t), c.Client(t), source, 0, seed.Batch{Records: []seed.Record{{Value: []byte("x")}}})
	if !errors.Is(err, kerr.InvalidRecord) {
		t.Fatalf("the broker takes a null key: %v", err)
	}

	m := migrationOf(t, c, source, func(o *PlanOptions) { o.OnUnparseable = rewrite.PolicyFail })
	_, err = Plan(testcluster.Context(t), m.options, m.env)
	refused(t, err, 3, "cannot be parsed")
	kafkaAbsent(t, m)
	listed, err := os.ReadFile(filepath.Join(m.options.RunDir, unparseableFileName))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(listed, []byte(`"reason":"null-key"`)) {
		t.Errorf("unparseable.jsonl does not name the null key:\n%s", listed)
	}

	m = migrationOf(t, c, source, func(o *PlanOptions) { o.OnUnparseable = rewrite.PolicyCopy })
	m.planAndApply(t)
	m.verify(t)
	m.check(t)
	kafkaCheckQuarantine(t, m, c.Read(t, source), func(r reader.Record) bool { return r.Key == nil })
}

// Rule 17: a record outside of the target's timestamp limits is named before
// the first record is written. The way that the message advises leads on.
func TestKafkaTimestampLimits(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker ignores timestamp limits")
	c := testcluster.Start(t)
	now := time.Now()
	const after, before = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
	for _, test := range []struct {
		name    string
		extreme time.Time
		given   map[string]string // settings of the target
		setting string
		text    string
	}{
		{"after, by the broker's default", now.Add(48 * time.Hour), nil, after, "newest record"},
		{"after, as given", now.Add(30 * time.Minute), map[string]string{after: "60000"}, after, "newest record"},
		{"before, as given", now.AddDate(-3, 0, 0), map[string]string{before: "86400000"}, before, "oldest record"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var text strings.Builder
			fmt.Fprintf(&text, "partitions 2\nconfig cleanup.policy=compact\nconfig %s=%s\nconfig %s=%s\n", after, testcluster.Forever, before, testcluster.Forever)
			for i := range 20 {
				stamp := now
				if i == 11 {
					stamp = test.extreme
				}
				fmt.Fprintf(&text, "* %d k_%d_0_%s v\n", stamp.UnixMilli(), i, kafkaIDs)
			}
			source := c.Seed(t, "source", text.String())
			// The limits of the source came after such records.
			c.ResetConfig(t, source, after, before)
			m := migrationOf(t, c, source, func(o *PlanOptions) { o.TargetConfig = test.given })
			m.plan(t)
			kafkaApplyRefused(t, m, 6, test.text, test.setting)
			// The broker would indeed have refused it.
			_, err := seed.ProduceBatch(testcluster.Context(t), m.client, m.target, 0, seed.Batch{Records: []seed.Record{
				{Timestamp: test.extreme.UnixMilli(), Key: []byte("k"), Value: []byte("v")}}})
			if !errors.Is(err, kerr.InvalidTimestamp) {
				t.Errorf("the broker's own answer: %v", err)
			}
			m.deleteTopic(t, m.target)

			m = migrationOf(t, c, source, func(o *PlanOptions) { o.TargetConfig = map[string]string{test.setting: testcluster.Forever} })
			m.planAndApply(t)
			m.verify(t)
			m.check(t)
		})
	}
}

// Rule 16: a record that the target cannot take is named before the first
// record is written.
func TestKafkaLargestRecord(t *testing.T) {
	c := testcluster.Start(t)
	source := c.CreateTopic(t, "source", 2, map[string]string{"cleanup.policy": "compact", "max.message.bytes": "3000000"})
	noise := make([]byte, 1_500_000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	m := migrationOf(t, c, source, nil)
	for i, value := range [][]byte{[]byte("small"), noise, []byte("small too")} {
		key := fmt.Appendf(nil, "k_%d_0_%s", i, kafkaIDs)
		m.write(t, source, []reader.Record{{Partition: 1, Timestamp: time.Now().UnixMilli(), Key: key, Value: value}})
	}
	c.ResetConfig(t, source, "max.message.bytes")
	m.plan(t)
	kafkaApplyRefused(t, m, 6, "largest record", "partition 1, offset 1", "max.message.bytes")

	m.deleteTopic(t, m.target)
	m = migrationOf(t, c, source, func(o *PlanOptions) { o.TargetConfig = map[string]string{"max.message.bytes": "1600000"} })
	m.planAndApply(t)
	m.verify(t)
	m.check(t)
}

// kafkaRewrites is a topic on which every key has been written several times
// and some were deleted: work for the log cleaner.
func kafkaRewrites(keys, times int) string {
	var text strings.Builder
	text.WriteString("partitions 3\nconfig cleanup.policy=compact\n")
	stamp := int64(1_700_000_000_000)
	for round := range times {
		for key := range keys {
			value := fmt.Sprintf("round-%d", round)
			if round == times-1 && key%4 == 0 {
				value = "null"
			}
			fmt.Fprintf(&text, "* %d user_%d_%d_%s %s round=%d\n", stamp, key, key%5, kafkaIDs, value, round)
			stamp += 1000
		}
		text.WriteString("batch\n")
	}
	return text.String()
}

// The log cleaner may work on either side at any moment between the phases. It
// is no difference, and the last value of every key stays.
func TestKafkaLogCleaner(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker moves the log start when it compacts")
	c := testcluster.Start(t)
	for _, when := range []string{"before plan", "after plan", "after apply", "on the target"} {
		t.Run(when, func(t *testing.T) {
			m := migrationOf(t, c, c.Seed(t, "source", kafkaRewrites(40, 4)), nil)
			latest := kafkaLatest(c.Read(t, m.source), true)
			// Compacting appends markers to the source, which is no change of
			// what it says.
			m.run.AllowLiveSource = true
			compact := func(moment, topic string) {
				if moment == when {
					records := len(c.Read(t, topic))
					c.Compact(t, topic)
					left := len(c.Read(t, topic))
					t.Logf("compaction left %d of %d records of %s", left, records, topic)
					if left >= records {
						t.Fatal("nothing was compacted: the test proves nothing")
					}
				}
			}
			compact("before plan", m.source)
			ends := m.ends(t, m.source)
			m.plan(t)
			compact("after plan", m.source)
			m.apply(t)
			compact("after apply", m.source)
			compact("on the target", m.target)
			v := m.verify(t)
			method := "exact"
			if when == "after apply" || when == "on the target" {
				method = "compacted"
			}
			if v.Method != method {
				t.Errorf("verified by method %s, want %s", v.Method, method)
			}
			target := c.Read(t, m.target)
			if diff := cmp.Diff(latest, kafkaLatest(target, false)); diff != "" {
				t.Errorf("last value by key (-source +target):\n%s", diff)
			}
			if when == "on the target" {
				kafkaCheckPaddingGone(t, target)
				check := m.model(t)
				check.compacted, check.align = true, ends
				modelCheck(t, c, m.source, m.target, check)
			}
			if again := m.apply(t); !again.Nothing || again.Written != 0 || again.Padded != 0 {
				t.Errorf("apply after success wrote %d records and %d padding", again.Written, again.Padded)
			}
		})
	}
}

// kafkaCheckPaddingGone demands that compaction left at most one padding record
// in each partition.
func kafkaCheckPaddingGone(t *testing.T, target []reader.Record) {
	t.Helper()
	padding := map[int32]int{}
	for _, r := range target {
		if strings.HasPrefix(string(r.Key), "rekey-padding_") {
			padding[r.Partition]++
		}
	}
	for partition, n := range padding {
		if n > 1 {
			t.Errorf("%d padding records are left on partition %d", n, partition)
		}
	}
}

// kafkaLatest is the last value of each key, by its form on the target.
func kafkaLatest(records []reader.Record, source bool) map[string]string {
	out := map[string]string{}
	for _, r := range records {
		key := string(r.Key)
		switch legacy := readLegacy(r.Key); {
		case source:
			key = escapeText(legacy[0]) + "_" + strings.Join(legacy[1:], "_")
		case strings.HasPrefix(key, "rekey-padding_"):
			continue
		}
		out[key] = show(r.Value)
	}
	return out
}

// A target whose own settings make the cleaner work hard: while a copy is
// interrupted, nothing of it may vanish, for resume counts on all that was
// written. Once the copy is complete, the cleaner may begin.
func TestKafkaEagerCleanerWaitsForTheCopy(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker compacts on demand only")
	c := testcluster.Start(t)
	source := c.CreateTopic(t, "source", 1, map[string]string{"cleanup.policy": "compact"})
	m := migrationOf(t, c, source, func(o *PlanOptions) {
		o.TargetConfig = map[string]string{"min.cleanable.dirty.ratio": "0", "segment.bytes": "1048576", "max.compaction.lag.ms": "1"}
	})
	const rounds, keys = 300, 20
	for round := range rounds {
		var records []reader.Record
		for key := range keys {
			records = append(records, reader.Record{Timestamp: time.Now().UnixMilli(), Key: fmt.Appendf(nil, "user_%d_0_%s", key, kafkaIDs),
				Value: bytes.Repeat([]byte{byte('a' + round%26)}, 1000)})
		}
		m.write(t, source, records)
	}
	m.plan(t)
	ctx, interrupt := context.WithCancel(testcluster.Context(t))
	defer interrupt()
	var copied atomic.Int64
	var copying atomic.Bool
	m.env.Progress = kafkaProgress{phase: func(name string) { copying.Store(strings.HasPrefix(name, "copy to ")) }, add: func(n int64) {
		if copying.Load() && copied.Add(n) > rounds*keys/2 {
			interrupt()
		}
	}}
	_, err := Apply(ctx, m.run, m.env)
	refused(t, err, 7)
	segments, err := c.Kafka().SegmentCount(m.target, 0)
	if err != nil {
		t.Fatal(err)
	}
	if segments < 3 {
		t.Fatalf("%d segments: nothing for the cleaner to do, the test proves nothing", segments)
	}
	// The cleaner has had its turn when it is through with another topic that
	// was written later.
	c.Compact(t, c.Seed(t, "control", "partitions 1\nconfig cleanup.policy=compact\n0 1 k v\nbatch\n0 2 k w\n"))
	if problems := holes(c.Read(t, m.target)); len(problems) > 0 {
		t.Errorf("the cleaner was at work: %s", problems[0])
	}
	m.env.Progress = NoProgress{}
	if evidence := m.apply(t); !evidence.Resumed {
		t.Error("apply did not resume")
	}
	m.verify(t)
	err = wire.Poll(testcluster.Context(t), func() (bool, error) { return len(holes(c.Read(t, m.target))) > 0, nil })
	if err != nil {
		t.Fatalf("the cleaner never came: the test proves nothing: %v", err)
	}
	if v := m.verify(t); v.Method != "compacted" {
		t.Errorf("verified by method %s", v.Method)
	}
	check := m.model(t)
	check.compacted = true
	modelCheck(t, c, m.source, m.target, check)
}

func TestSameSetting(t *testing.T) {
	for _, same := range [][2]string{{"0", "0.0"}, {"0.50", "0.5"}, {"007", "7"}, {"compact, delete", "compact,delete"}, {"TRUE", "true"}, {"", ""}, {"lz4", "lz4"}} {
		if !sameSetting(same[0], same[1]) || !sameSetting(same[1], same[0]) {
			t.Errorf("%q and %q are the same setting", same[0], same[1])
		}
	}
	for _, other := range [][2]string{{"0", "1"}, {"0", ""}, {"9223372036854775807", "9223372036854775806"}, {"compact", "delete"}, {"0.5", "0.51"}} {
		if sameSetting(other[0], other[1]) || sameSetting(other[1], other[0]) {
			t.Errorf("%q and %q are not the same setting", other[0], other[1])
		}
	}
}

// kafkaProgress calls functions as a phase goes on.
type kafkaProgress struct {
	NoProgress
	phase, wait func(string)
	add         func(int64)
	done        func()
}

func (p kafkaProgress) Phase(name string, total int64) {
	if p.phase != nil {
		p.phase(name)
	}
}

func (p kafkaProgress) Add(n int64) {
	if p.add != nil {
		p.add(n)
	}
}

func (p kafkaProgress) Wait(reason string) {
	if p.wait != nil && reason != "" {
		p.wait(reason)
	}
}

func (p kafkaProgress) Done() {
	if p.done != nil {
		p.done()
	}
}

// Rule 4: while a transaction is open, its records are neither there nor not
// there. Plan waits for a while, then says so; if it ends in time, plan goes on.
func TestKafkaOpenTransaction(t *testing.T) {
	c := testcluster.Start(t)
	for _, end := range []string{"never", "commit", "abort"} {
		t.Run(end, func(t *testing.T) {
			source := c.Seed(t, "source", "partitions 2\nconfig cleanup.policy=compact\n"+
				"0 1700000000000 a_b_0_"+kafkaIDs+" one\n1 1700000000000 a_c_0_"+kafkaIDs+" two\n")
			ctx := testcluster.Context(t)
			tx, err := seed.Begin(ctx, c.Addrs(), source, "tx-"+source, wire.None)
			if err != nil {
				t.Fatal(err)
			}
			err = tx.Write(ctx, seed.Record{Partition: 1, Timestamp: 1700000000001, Key: []byte("a_c_1_" + kafkaIDs), Value: []byte("three")},
				seed.Record{Partition: 1, Timestamp: 1700000000002, Key: []byte("a_c_2_" + kafkaIDs), Value: []byte("four")})
			if err != nil {
				t.Fatal(err)
			}
			m := migrationOf(t, c, source, func(o *PlanOptions) { o.Isolation = IsolationCommitted })
			if end == "never" {
				m.env.TransactionPatience = 500 * time.Millisecond
				began := time.Now()
				_, err := Plan(ctx, m.options, m.env)
				refused(t, err, 4, "a transaction is open on "+source+" partition 1", "offset 1 to 2")
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("plan gave up after %s", took)
				}
				kafkaAbsent(t, m)
				if err := tx.Abort(ctx); err != nil {
					t.Fatal(err)
				}
				return
			}
			waited := sync.OnceFunc(func() {
				if end == "commit" {
					err = tx.Commit(ctx)
				} else {
					err = tx.Abort(ctx)
				}
			})
			m.env.Progress = kafkaProgress{wait: func(string) { waited() }}
			// The marker lies behind the captured end, so the source has grown.
			m.run.AllowLiveSource = true
			m.plan(t)
			if err != nil {
				t.Fatal(err)
			}
			m.apply(t)
			m.verify(t)
			records, err := reader.ReadIsolated(ctx, c.Addrs(), source, reader.ReadCommitted)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[string]int{"commit": 4, "abort": 2}[end]; len(records) != want {
				t.Fatalf("%d committed records, want %d", len(records), want)
			}
			check := m.model(t)
			check.align = nil
			if problems := check.problems(records, c.Read(t, m.target), 2); len(problems) > 0 {
				t.Error(strings.Join(problems, "\n"))
			}
		})
	}
}

// Rule 6: a source that lost records which the plan has seen is not that source
// any more.
func TestKafkaDeleteRecords(t *testing.T) {
	c := testcluster.Start(t)
	for _, when := range []string{"before apply", "before verify"} {
		t.Run(when, func(t *testing.T) {
			m := newMigration(t, c, smallTopic(), nil)
			m.plan(t)
			if when == "before verify" {
				m.apply(t)
			}
			c.DeleteRecords(t, m.source, 1, 7)
			texts := []string{"log start of " + m.source + " partition 1", "offsets 0 to 6"}
			if when == "before apply" {
				_, err := Apply(testcluster.Context(t), m.run, m.env)
				refused(t, err, 4, texts...)
				kafkaAbsent(t, m)
				return
			}
			_, err := Verify(testcluster.Context(t), m.run, m.env)
			refused(t, err, 4, texts...)
		})
	}
}

// Rule 19: segments roll by record timestamps. A copy of records whose
// timestamps jump to and fro must not leave thousands of tiny segments.
func TestKafkaSegments(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker has no segments to speak of")
	c := testcluster.Start(t)
	const partitions, batches, perBatch, valueBytes = 2, 120, 5, 30_000
	source := c.CreateTopic(t, "source", partitions, map[string]string{"cleanup.policy": "compact", "segment.ms": "3600000",
		"min.cleanable.dirty.ratio": "1"}) // the cleaner would join segments
	m := migrationOf(t, c, source, nil)
	start := time.Now().AddDate(-1, 0, 0)
	value := bytes.Repeat([]byte("x"), valueBytes)
	for batch := range batches {
		for partition := range int32(partitions) {
			var records []reader.Record
			for i := range perBatch {
				// A day on with each batch, and half a year back with every other.
				stamp := start.AddDate(0, 0, batch-180*(batch%2))
				records = append(records, reader.Record{Partition: partition, Timestamp: stamp.UnixMilli(), Value: value,
					Key: fmt.Appendf(nil, "user_%d_%d_%s", batch, i, kafkaIDs)})
			}
			m.write(t, source, records)
		}
	}
	m.planAndApply(t)
	m.verify(t)
	m.check(t)
	for partition := range int32(partitions) {
		before, err := c.Kafka().SegmentCount(source, partition)
		if err != nil {
			t.Fatal(err)
		}
		after, err := c.Kafka().SegmentCount(m.target, partition)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("partition %d: %d segments on the source, %d on the target", partition, before, after)
		if before < 10 {
			t.Errorf("the source has %d segments only: the test proves nothing", before)
		}
		if after >= 5 {
			t.Errorf("the target has %d segments", after)
		}
	}
}

// The target has the settings of the source when apply is done, and those of
// the copy while it runs.
func TestKafkaSettings(t *testing.T) {
	c := testcluster.Start(t)
	for _, test := range []struct {
		name    string
		configs map[string]string
	}{
		{"none of those that the copy changes", map[string]string{"delete.retention.ms": "172800000"}},
		{"all of those that the copy changes", map[string]string{
			"segment.ms": "7200000", "min.compaction.lag.ms": "60000", "max.compaction.lag.ms": "86400000",
			"delete.retention.ms": "172800000", "min.cleanable.dirty.ratio": "0.2", "compression.type": "lz4",
			"max.message.bytes": "2000000", "segment.bytes": "16777216", "min.insync.replicas": "1",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			source := c.Topic(t, "source")
			if _, err := seed.Write(testcluster.Context(t), c.Addrs(), source, smallTopic(), test.configs); err != nil {
				t.Fatal(err)
			}
			m := migrationOf(t, c, source, nil)
			during := map[string]string{}
			m.env.Progress = kafkaProgress{phase: func(name string) {
				if strings.HasPrefix(name, "copy to ") {
					during = kafkaOwnConfigs(t, m, m.target)
				}
			}}
			m.planAndApply(t)
			m.verify(t)

			want := maps.Clone(test.configs)
			want["cleanup.policy"] = "compact"
			if diff := cmp.Diff(want, kafkaOwnConfigs(t, m, m.target)); diff != "" {
				t.Errorf("settings after apply (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, kafkaOwnConfigs(t, m, m.source)); diff != "" {
				t.Errorf("settings of the source (-want +got):\n%s", diff)
			}
			maps.Copy(want, map[string]string{"segment.ms": testcluster.Forever, "min.compaction.lag.ms": testcluster.Forever})
			delete(want, "max.compaction.lag.ms")
			if diff := cmp.Diff(want, during); diff != "" {
				t.Errorf("settings during the copy (-want +got):\n%s", diff)
			}
		})
	}
}

// kafkaOwnConfigs are the settings that are set on a topic itself.
func kafkaOwnConfigs(t *testing.T, m *migration, topic string) map[string]string {
	t.Helper()
	all, err := seed.DescribeConfig(testcluster.Context(t), m.client, topic)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{}
	for name, config := range all {
		if config.Source == kmsg.ConfigSourceDynamicTopicConfig && config.Value != nil {
			own[name] = *config.Value
		}
	}
	return own
}

// Rule 18, and LogAppendTime: a target on which old records would vanish, or
// lose their timestamps, gets none.
func TestKafkaTargetThatWouldNotKeepTheRecords(t *testing.T) {
	c := testcluster.Start(t)
	for _, test := range []struct {
		name  string
		given map[string]string
		texts []string
	}{
		{"compact,delete", map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "604800000"}, []string{"cleanup.policy", "retention.ms"}},
		{"compact,delete by size", map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "1000000000"}, []string{"cleanup.policy", "retention.bytes"}},
		{"delete", map[string]string{"cleanup.policy": "delete", "retention.ms": "-1"}, []string{"cleanup.policy", "compacted"}},
		{"LogAppendTime", map[string]string{"message.timestamp.type": "LogAppendTime"}, []string{"message.timestamp.type", "LogAppendTime"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMigration(t, c, smallTopic(), func(o *PlanOptions) { o.TargetConfig = test.given })
			if _, err := Plan(testcluster.Context(t), m.options, m.env); err != nil {
				refused(t, err, 6, test.texts...) // before apply is as good
				kafkaAbsent(t, m)
				return
			}
			kafkaApplyRefused(t, m, 6, test.texts...)
		})
	}
	t.Run("compact,delete without limits is fine", func(t *testing.T) {
		m := newMigration(t, c, smallTopic(), func(o *PlanOptions) {
			o.TargetConfig = map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}
		})
		m.planAndApply(t)
		m.verify(t)
		m.check(t)
	})
	t.Run("a target that is there and has other settings", func(t *testing.T) {
		m := newMigration(t, c, smallTopic(), nil)
		err := seed.CreateTopic(testcluster.Context(t), m.client, m.target, 3, -1, map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "604800000"})
		if err != nil {
			t.Fatal(err)
		}
		m.plan(t)
		kafkaApplyRefused(t, m, 6, "cleanup.policy")
	})
}

// A source with LogAppendTime keeps the broker's timestamps only in the batch;
// the copy has them as the records' own.
func TestKafkaSourceWithLogAppendTime(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker ignores message.timestamp.type")
	c := testcluster.Start(t)
	source := c.Seed(t, "source", "partitions 2\nconfig cleanup.policy=compact\nconfig message.timestamp.type=LogAppendTime\n"+
		"* 1000 a_b_0_"+kafkaIDs+" one\n* 2000 a_b_1_"+kafkaIDs+" two\nbatch\n* 3000 a_b_2_"+kafkaIDs+" three\n")
	for _, r := range c.Read(t, source) {
		if r.Timestamp < 1_600_000_000_000 {
			t.Fatalf("timestamp %d: not the broker's", r.Timestamp)
		}
	}
	m := migrationOf(t, c, source, nil)
	m.planAndApply(t)
	m.verify(t)
	m.check(t)
	if got := kafkaOwnConfigs(t, m, m.target)["message.timestamp.type"]; got != "CreateTime" {
		t.Errorf("message.timestamp.type of the target is %q", got)
	}
}

// Every codec, from batches that another client wrote. Padding is compressed in
// any case.
func TestKafkaCodecs(t *testing.T) {
	c := testcluster.Start(t)
	for _, codec := range []wire.Codec{wire.None, wire.Gzip, wire.Snappy, wire.LZ4, wire.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			options := smallTopic()
			options.Codec, options.ValueBytes = codec, 2000
			m := newMigration(t, c, options, nil)
			m.planAndApply(t)
			m.verify(t)
			m.check(t)
			batches, err := reader.Batches(testcluster.Context(t), c.Addrs(), m.target)
			if err != nil {
				t.Fatal(err)
			}
			for partition, all := range batches {
				for _, batch := range all {
					want := codec
					if countPadding(batch.Records) == len(batch.Records) && codec == wire.None {
						want = wire.LZ4
					}
					if batch.Codec != want {
						t.Errorf("partition %d, offset %d: a batch is compressed by %s", partition, batch.FirstOffset, batch.Codec)
					}
				}
			}
		})
	}
}

// A node dies in the middle of the copy and comes back: leaders move, requests
// fail, and the copy is as if nothing had happened.
func TestKafkaNodeLost(t *testing.T) {
	testcluster.RequireReal(t, "leaders that move on the embedded broker have tests of their own")
	c := testcluster.StartWith(t, testcluster.Options{Brokers: 3, Properties: map[string]string{
		"default.replication.factor": "3", "min.insync.replicas": "2"}})
	m := newMigration(t, c, seed.Options{Seed: 5, Partitions: 6, Records: 30_000, Keys: 500, Tombstones: 500, ValueBytes: 1000, Headers: 50}, nil)
	m.plan(t)
	var copying atomic.Bool
	var lost error
	kill := sync.OnceFunc(func() { lost = c.Kafka().Kill(2) })
	m.env.Progress = kafkaProgress{phase: func(name string) { copying.Store(strings.HasPrefix(name, "copy to ")) }, add: func(int64) {
		if copying.Load() {
			kill()
		}
	}}
	evidence := m.apply(t)
	kill()
	if lost != nil {
		t.Fatal(lost)
	}
	t.Logf("%d records written", evidence.Written)
	if err := c.Kafka().Restart(testcluster.Context(t), 2); err != nil {
		t.Fatal(err)
	}
	m.env.Progress = NoProgress{}
	if v := m.verify(t); v.Method != "exact" {
		t.Errorf("verified by method %s", v.Method)
	}
	m.check(t)
}

// kcat is another implementation of the protocol, and what many operators look
// at topics with.
func TestKafkaReadWithKcat(t *testing.T) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		const message = "kcat is not installed (Debian, Ubuntu: apt-get install kcat)"
		if os.Getenv("CI") == "true" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	c := testcluster.Start(t)
	source := c.Seed(t, "source", `partitions 2
config cleanup.policy=compact
codec lz4
0 1700000000000 "user_123_0_`+kafkaIDs+`" first trace=abc trace=def empty=""
0 1700000000001 "user_123_1_`+kafkaIDs+`" ""
0 1700000000002 "100%_1_`+kafkaIDs+`" percent
0 1700000000003 "user_123_0_`+kafkaIDs+`" null
0 1700000000004 "Grüße_😀_2_`+kafkaIDs+`" "null"
0 1700000000005 malformed quarantined
`)
	m := migrationOf(t, c, source, func(o *PlanOptions) { o.Align = AlignNone })
	m.planAndApply(t)
	m.verify(t)
	command := exec.CommandContext(testcluster.Context(t), kcat, "-C", "-b", c.Bootstrap(), "-t", m.target, "-o", "beginning", "-e", "-q",
		"-f", `%p|%T|%k|%S|%s|%h\n`)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("kcat: %v\n%s", err, stderr.Bytes())
	}
	line := func(key, rest string) string {
		escaped := key + "_" + kafkaIDs
		return fmt.Sprintf("%d|", seed.Partition([]byte(escaped), 2)) + strings.Replace(rest, "KEY", escaped, 1)
	}
	want := []string{
		line("user%5F123_0", "1700000000000|KEY|5|first|trace=abc,trace=def,empty=,rekey-source=0:0"),
		line("user%5F123_1", "1700000000001|KEY|0||rekey-source=0:1"),
		line("100%25_1", "1700000000002|KEY|7|percent|rekey-source=0:2"),
		line("user%5F123_0", "1700000000003|KEY|-1||rekey-source=0:3"),
		line("Grüße%5F😀_2", "1700000000004|KEY|4|null|rekey-source=0:4"),
	}
	var got []string
	for text := range strings.Lines(string(out)) {
		if !strings.Contains(text, "rekey-padding_0_") {
			got = append(got, strings.TrimSuffix(text, "\n"))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kcat shows (-want +got):\n%s", diff)
	}
}
