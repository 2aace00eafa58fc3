package migrate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/rewrite"
)

// Tests of the reader on logs that a broker holds. Those that make a broker
// fail need the embedded one; the others pass on both.

// readerCompare reads spans of a partition at both isolation levels and compares
// with the exact reader of the fixtures, null, empty and order included.
func readerCompare(t *testing.T, c *testcluster.Cluster, topic string, partition int32, fetchBytes int32, spans ...Span) {
	t.Helper()
	ctx := testcluster.Context(t)
	batches, err := reader.Batches(ctx, c.Addrs(), topic)
	if err != nil {
		t.Fatal(err)
	}
	all := reader.Records(batches[partition], reader.ReadUncommitted)
	committed := reader.Records(batches[partition], reader.ReadCommitted)
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic, fetchBytes: fetchBytes}
	for _, span := range spans {
		within := func(records []reader.Record) (out []reader.Record) {
			for _, r := range records {
				if r.Offset >= span.From && r.Offset < span.To {
					out = append(out, r)
				}
			}
			return out
		}
		aborted := int64(len(within(all)) - len(within(committed)))
		for _, skip := range []bool{false, true} {
			want := within(all)
			if skip {
				want = within(committed)
			}
			r.skipAborted = skip
			got, stats, err := readerRead(ctx, r, span)
			if err != nil {
				t.Fatalf("%+v, skip %v: %v", span, skip, err)
			}
			if d := cmp.Diff(want, got, cmp.Transformer("exact", func(b []byte) any { return readerExact(b) })); d != "" {
				t.Errorf("%+v, skip %v, want against got: %s", span, skip, d)
			}
			if stats.Records != int64(len(want)) || stats.Aborted != aborted {
				t.Errorf("%+v, skip %v: %+v, want %d records and %d aborted ones", span, skip, stats, len(want), aborted)
			}
		}
	}
}

// readerExact shows bytes such that null and empty differ.
func readerExact(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

// readerWhole is all of a partition.
func readerWhole(t testing.TB, c *testcluster.Cluster, topic string, partition int32) Span {
	t.Helper()
	ranges, err := reader.Ranges(testcluster.Context(t), c.Addrs(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return Span{partition, ranges[partition].Start, ranges[partition].End}
}

// readerFill writes n batches, one record each, with values of size bytes that
// do not compress.
func readerFill(t testing.TB, c *testcluster.Cluster, topic string, n, size int) {
	t.Helper()
	ctx, cl := testcluster.Context(t), c.Client(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		record := wire.Record{Timestamp: time.Now().UnixMilli(), Key: fmt.Append(nil, "key ", i), Value: value}
		if _, err := seed.ProduceBatch(ctx, cl, topic, 0, wire.Batch{Records: []wire.Record{record}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever the end of a partition looks like, a read reaches it: behind
// transaction markers, aborted records, what DeleteRecords or the log cleaner
// left. An empty partition needs no request.
func TestReader_Rule01_TheEndIsReachedWhateverTheTail(t *testing.T) {
	// The cleaner is kept off: a marker is of today and the records are of 1970, so
	// it would start a new segment, and what the test is about would be cleaned.
	const compact = "config cleanup.policy=compact,delete\nconfig retention.ms=-1\nconfig min.compaction.lag.ms=9223372036854775807\n"
	for _, x := range []struct{ name, seed string }{
		{"empty", ""},
		{"plain", "0 1 a b\n0 2 c d\n"},
		{"commit marker", "0 1 a b\nbegin\n0 2 a b\ncommit\n"},
		{"abort marker", "0 1 a b\nbegin\n0 2 a b\nabort\n"},
		{"aborted and nothing else", "begin\n0 2 a b\n0 2 c d\nabort\n"},
		{"markers in a row", "begin\n0 1 a b\nopen\nbegin\n0 2 a b\nabort\nbegin\n0 2 a b\ncommit\n"},
		{"start is end", "0 1 a b\n0 1 a b\ndelete-before 0 2\n"},
		{"start is end behind a marker", "begin\n0 1 a b\ncommit\ndelete-before 0 2\n"},
		{"start inside a batch", "0 1 a b\n0 1 a b\n0 1 a b\ndelete-before 0 1\n"},
		{"start between data and its abort marker", "begin\n0 1 a b\nabort\n0 3 c d\ndelete-before 0 1\n"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := testcluster.Start(t)
			topic := c.Seed(t, "tail", compact+x.seed)
			span := readerWhole(t, c, topic, 0)
			if strings.Contains(x.seed, "open") {
				span.To = 0 // only what lies before the open transaction
			}
			readerCompare(t, c, topic, 0, 0, span)
		})
	}
	t.Run("compacted", func(t *testing.T) {
		c := testcluster.Start(t)
		topic := c.Seed(t, "tail", "config cleanup.policy=compact\n"+strings.Repeat("batch\n0 now a b\n0 now c d\n0 now e f\n", 4)+"batch\n0 now a last\nbegin\n0 now c gone\nabort\n")
		c.Compact(t, topic)
		readerCompare(t, c, topic, 0, 0, readerWhole(t, c, topic, 0))
	})
}

// Null, empty and the text "null", duplicate and null-valued headers, their
// order and that of the records, through every codec.
func TestReader_Rule09_RecordsAreExactInEveryCodec(t *testing.T) {
	c := testcluster.Start(t)
	topic := c.CreateTopic(t, "exact", 1, map[string]string{"message.timestamp.after.max.ms": testcluster.Forever})
	ctx, cl := testcluster.Context(t), c.Client(t)
	for codec := wire.None; codec <= wire.Zstd; codec++ {
		records := []wire.Record{
			{Timestamp: 1, Key: nil, Value: nil},
			{Timestamp: 0, Key: []byte{}, Value: []byte{}},
			{Timestamp: 1_760_000_000_000, Key: []byte("null"), Value: []byte("null")},
			{Timestamp: 1_760_000_000_000_000, Key: []byte{0xff, 0}, Value: []byte{0}, Headers: []wire.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte("1")}, {Key: "", Value: []byte("\xff")}}},
			{Timestamp: math.MaxInt64 / 1_000_000, Key: []byte("k"), Value: make([]byte, 100_000)},
		}
		for _, batch := range []wire.Batch{{Records: records, Codec: codec}, {Records: []wire.Record{{Timestamp: -1, Key: []byte("k"), Value: []byte("v")}}, Codec: codec}} {
			if _, err := seed.ProduceBatch(ctx, cl, topic, 0, batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := readerWhole(t, c, topic, 0)
	readerCompare(t, c, topic, 0, 0, whole, Span{0, 3, 17})
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic}
	_, stats, err := readerRead(ctx, r, whole)
	if want := [5]int64{2, 2, 2, 2, 2}; err != nil || stats.Batches != want {
		t.Errorf("batches by codec %v, want %v, %v", stats.Batches, want, err)
	}
}

// A position before the log start is a failure that names the partition and
// what is gone, whether it was so from the beginning or became so. It is never
// a reset to where the log starts now.
func TestReader_Rule06_AMovedLogStartIsAFailureAndNeverAReset(t *testing.T) {
	c := testcluster.Start(t)
	topic := c.CreateTopic(t, "moved", 1, nil)
	const batches, size = 30, 100_000
	readerFill(t, c, topic, batches, size)
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic, fetchBytes: 1}
	refused := func(err error, from int64) {
		t.Helper()
		if !errors.Is(err, ErrChanged) || ExitCode(err) != 4 {
			t.Fatalf("%v", err)
		}
		for _, name := range []string{topic, "partition 0", fmt.Sprintf("offsets %d to %d", from, batches-2)} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%v: does not name %q", err, name)
			}
		}
	}
	// One answer is worked on, one waits and one is under way: the read cannot
	// have got to the end when the first record is handed out.
	last := int64(-1)
	_, err := r.Read(testcluster.Context(t), Span{0, 0, batches}, func(records []rewrite.Record) error {
		if last < 0 {
			c.DeleteRecords(t, topic, 0, batches-1)
		}
		for _, r := range records {
			if r.Offset != last+1 {
				t.Errorf("offset %d follows %d", r.Offset, last)
			}
			last = r.Offset
		}
		return nil
	})
	refused(err, last+1)
	got, _, err := readerRead(testcluster.Context(t), r, Span{0, 3, batches})
	refused(err, 3)
	if len(got) != 0 {
		t.Errorf("read %d", readerOffsets(got))
	}
	// What is still there can be read.
	readerCompare(t, c, topic, 0, 0, Span{0, batches - 1, batches})
}

// An open transaction that does not end is named, on a broker as well.
func TestReader_Rule04_ABrokersOpenTransactionIsNamed(t *testing.T) {
	c := testcluster.Start(t)
	topic := c.Seed(t, "open", "0 1 a b\nbegin\n0 2 a b\nopen\n0 3 c d\n")
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerImpatient), topic: topic}
	got, _, err := readerRead(testcluster.Context(t), r, readerWhole(t, c, topic, 0))
	readerNames(t, err, topic, 0, 1)
	if len(got) != 1 || !strings.Contains(err.Error(), "transaction") {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// readerFaulty is an embedded broker with one batch at each of 20 offsets.
func readerFaulty(t *testing.T, brokers int) (*testcluster.Cluster, string) {
	t.Helper()
	testcluster.RequireFake(t, "the broker is made to fail")
	c := testcluster.StartWith(t, testcluster.Options{Brokers: brokers})
	topic := c.CreateTopic(t, "faulty", 1, nil)
	readerFill(t, c, topic, 20, 40_000)
	return c, topic
}

// readerFails answers every fetch of a faulty broker from an offset on with an
// error, a number of times.
func readerFails(c *testcluster.Cluster, e *kerr.Error, from int64, count int) *kfake.FaultHandle {
	return c.Fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: e, Count: count,
		When: func(r kmsg.Request) bool { return r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset >= from }})
}

// What passes by itself is waited for: on the first answer or a later one, once
// or several times. What does not pass is a failure that names topic, partition
// and offset, after as long as the reader's patience.
func TestReader_Rule03_ErrorsThatPassAreSurvived(t *testing.T) {
	t.Parallel()
	c, topic := readerFaulty(t, 1)
	span := Span{0, 0, 20}
	patient := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic, fetchBytes: 1}
	impatient := &topicReader{cluster: readerConnect(t, c.Addrs(), readerImpatient), topic: topic, fetchBytes: 1}
	passing := []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable,
		kerr.KafkaStorageError, kerr.ReplicaNotAvailable, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable,
		kerr.RequestTimedOut, kerr.CorruptMessage,
	}
	for i, e := range passing {
		for _, from := range []int64{0, 3} {
			for _, times := range []int{1, 3} {
				if times > 1 && i > 0 {
					continue // several times is the same for all
				}
				fault := readerFails(c, e, from, times)
				got, _, err := readerRead(testcluster.Context(t), patient, span)
				if err != nil || len(got) != 20 || fault.Hits() != times {
					t.Errorf("%s from %d, %d times: %d records, %d hits, %v", e.Message, from, times, len(got), fault.Hits(), err)
				}
				fault.Remove()
			}
		}
		fault := readerFails(c, e, 3, -1)
		got, _, err := readerRead(testcluster.Context(t), impatient, span)
		var offsets []int64
		for o := int64(3); o < 20; o++ {
			offsets = append(offsets, o)
		}
		readerNames(t, err, topic, 0, offsets...)
		if len(got) >= 20 || fault.Hits() < 2 || ExitCode(err) != 1 {
			t.Errorf("%s for ever: %d records, %d hits, %v", e.Message, len(got), fault.Hits(), err)
		}
		fault.Remove()
	}
}

// Patience counts from the last batch, not from the beginning: trouble before
// each batch, together longer than patience, is survived.
func TestReader_Rule03_PatienceStartsOverWithEachBatch(t *testing.T) {
	c, topic := readerFaulty(t, 1)
	for from := int64(0); from < 16; from += 2 {
		c.Fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetNotAvailable, Count: 5,
			When: func(r kmsg.Request) bool { return r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset == from }})
	}
	c.Fake().Cluster().ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().Cluster().KeepControl()
		r.(*kmsg.FetchRequest).Topics[0].Partitions[0].PartitionMaxBytes = 1 // one batch in each answer
		return nil, nil, false
	})
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), time.Second), topic: topic}
	begin := time.Now()
	got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 20})
	if err != nil || len(got) != 20 {
		t.Errorf("%d records, %v", len(got), err)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the trouble took %s only: the test shows nothing", took)
	}
}

// What does not pass by itself ends the read at once.
func TestReader_Rule03_OtherErrorsEndTheReadAtOnce(t *testing.T) {
	c, topic := readerFaulty(t, 1)
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic, fetchBytes: 1}
	for e, code := range map[*kerr.Error]int{kerr.UnknownServerError: 1, kerr.InvalidRequest: 1, kerr.UnsupportedCompressionType: 1, kerr.TopicAuthorizationFailed: 6} {
		fault := readerFails(c, e, 0, -1)
		_, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 20})
		if fault.Hits() != 1 || ExitCode(err) != code || !strings.Contains(err.Error(), topic) {
			t.Errorf("%s: %d hits, exit code %d, %v", e.Message, fault.Hits(), ExitCode(err), err)
		}
		fault.Remove()
	}
	fault := c.Fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, TopLevel: true, Err: kerr.UnknownServerError, Count: -1})
	_, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 20})
	readerNames(t, err, topic, 0, 0)
	if fault.Hits() != 1 {
		t.Errorf("an error of the whole answer: %d hits, %v", fault.Hits(), err)
	}
}

// A throttled answer lacks the partition. It decides nothing.
func TestReader_Rule03_ThrottledAnswersAreAskedForAgain(t *testing.T) {
	c, topic := readerFaulty(t, 1)
	var times atomic.Int64
	c.Fake().Cluster().ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().Cluster().KeepControl()
		if r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset == 0 || times.Add(-1) < 0 {
			return nil, nil, false
		}
		response := r.ResponseKind().(*kmsg.FetchResponse)
		response.ThrottleMillis = 1
		return response, nil, true
	})
	span := Span{0, 0, 20}
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic, fetchBytes: 1}
	times.Store(3)
	if got, _, err := readerRead(testcluster.Context(t), r, span); err != nil || len(got) != 20 || times.Load() >= 0 {
		t.Errorf("%d records, %v", len(got), err)
	}
	r.cluster.patience = readerImpatient
	times.Store(math.MaxInt64)
	got, _, err := readerRead(testcluster.Context(t), r, span)
	readerNames(t, err, topic, 0, 1)
	if len(got) != 1 || !strings.Contains(err.Error(), "throttles") {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// The leader may move before and while a partition is read.
func TestReader_Rule03_TheLeaderIsFollowed(t *testing.T) {
	c, topic := readerFaulty(t, 3)
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic, fetchBytes: 1}
	move := func() {
		next := (c.Fake().Cluster().LeaderFor(topic, 0) + 1) % 3
		if err := c.Fake().Cluster().MoveTopicPartition(topic, 0, next); err != nil {
			t.Error(err)
		}
	}
	var unknown atomic.Int64 // fetches that do not say which leader they mean
	c.Fake().Cluster().ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if r.(*kmsg.FetchRequest).Topics[0].Partitions[0].CurrentLeaderEpoch < 0 {
			unknown.Add(1)
		}
		return nil, nil, false
	})
	for range 3 {
		move()
		records := 0
		_, err := r.Read(testcluster.Context(t), Span{0, 0, 20}, func(r []rewrite.Record) error {
			move()
			records += len(r)
			return nil
		})
		if err != nil || records != 20 {
			t.Errorf("%d records, %v", records, err)
		}
	}
	if n := unknown.Load(); n > 0 {
		t.Errorf("%d fetches without leader epoch: an old leader would answer them", n)
	}
}

// A partition without leader is waited for, and named if none comes.
func TestReader_Rule03_APartitionWithoutLeaderIsWaitedFor(t *testing.T) {
	t.Parallel()
	c, topic := readerFaulty(t, 1)
	without := func(count int) *kfake.FaultHandle {
		readerFails(c, kerr.NotLeaderForPartition, 3, 1)
		return c.Fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.LeaderNotAvailable, Count: count})
	}
	r := &topicReader{cluster: readerConnect(t, c.Addrs(), readerPatient), topic: topic, fetchBytes: 1}
	if _, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 1}); err != nil {
		t.Fatal(err) // the client knows the leader now
	}
	fault := without(5)
	if got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 20}); err != nil || len(got) != 20 || fault.Hits() != 5 {
		t.Errorf("%d records, %d hits, %v", len(got), fault.Hits(), err)
	}
	fault.Remove()
	r.cluster.patience = readerImpatient
	fault = without(-1)
	got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 20})
	if err == nil || len(got) >= 20 || fault.Hits() == 0 || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "partition 0 at offset") {
		t.Errorf("%d records, %d hits, %v", len(got), fault.Hits(), err)
	}
}

// readerCutter dials connections of which the first ones break after a number of
// bytes received.
type readerCutter struct {
	left  atomic.Int64 // connections to break
	after int64
	cuts  atomic.Int64
}

func (d *readerCutter) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, testcluster.Deadline)
	if err != nil || d.left.Add(-1) < 0 {
		return conn, err
	}
	return &readerCut{Conn: conn, dialer: d, rest: d.after}, nil
}

type readerCut struct {
	net.Conn
	dialer *readerCutter
	rest   int64
}

func (c *readerCut) Read(p []byte) (int, error) {
	if c.rest == 0 {
		c.dialer.cuts.Add(1)
		return 0, errors.Join(io.EOF, c.Close())
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.rest)])
	c.rest -= int64(n)
	return n, err
}

// A connection that breaks in the middle of an answer, in its header or between
// answers is opened again; what was cut off is asked for again, not skipped.
func TestReader_Rule03_BrokenConnectionsAreSurvived(t *testing.T) {
	t.Parallel()
	c, topic := readerFaulty(t, 1)
	cluster := readerConnect(t, c.Addrs(), readerPatient)
	cutter := &readerCutter{}
	config := *cluster.config // the client is still opening connections with the other
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, cutter
	cluster.config = &config
	r := &topicReader{cluster: cluster, topic: topic, fetchBytes: 1}
	for _, after := range []int64{1, 6, 500, 1000, 41_000, 60_000, 200_000} {
		cutter.after = after
		cutter.left.Store(3)
		before := cutter.cuts.Load()
		got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 20})
		offsets := readerOffsets(got)
		if err != nil || len(offsets) != 20 || !slices.IsSorted(offsets) || offsets[0] != 0 || offsets[19] != 19 {
			t.Errorf("cut after %d bytes: read %d, %v", after, offsets, err)
		}
		if cutter.cuts.Load() == before {
			t.Errorf("cut after %d bytes: nothing was cut", after)
		}
	}
	cluster.patience = readerImpatient
	cutter.after = 1000
	cutter.left.Store(math.MaxInt64)
	got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 20})
	readerNames(t, err, topic, 0, 0)
	if len(got) != 0 {
		t.Errorf("read %d", readerOffsets(got))
	}
}

// Random logs of random batches, transactions, deletions and compactions, read
// in random spans and sizes of answers, are what the exact reader sees.
func TestReader_RandomLogsAreReadExactly(t *testing.T) {
	t.Parallel()
	logs := 25
	if testing.Short() || testcluster.Start(t).Real() {
		logs = 5
	}
	first := rand.Uint64()
	for i := range logs {
		seed := first + uint64(i)
		if t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { readerRandom(t, seed) }); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func readerRandom(t *testing.T, from uint64) {
	random := rand.New(rand.NewPCG(from, 0))
	c := testcluster.Start(t)
	// Kafka's cleaner works when it likes and would change the log between the two
	// reads that are compared; the embedded broker compacts when told.
	topic := c.CreateTopic(t, "random", 1, map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "-1",
		"min.compaction.lag.ms": testcluster.Forever, "message.timestamp.after.max.ms": testcluster.Forever})
	ctx, cl := testcluster.Context(t), c.Client(t)
	stamps := []int64{-1, 0, 1, 1_760_000_000_000, 1_760_000_000_001, 1_760_000_000_000_000, math.MaxInt64 / 1_000_000}
	records := func() (out []wire.Record) {
		for range 1 + random.IntN(6) {
			r := wire.Record{Timestamp: stamps[random.IntN(len(stamps))], Key: fmt.Append(nil, "key ", random.IntN(8))}
			if n := random.IntN(200); n > 20 {
				r.Value = make([]byte, n)
			}
			for range random.IntN(3) {
				r.Headers = append(r.Headers, wire.Header{Key: "h", Value: [][]byte{nil, {}, []byte("v")}[random.IntN(3)]})
			}
			out = append(out, r)
		}
		if len(out) > 1 {
			// The embedded broker's compaction miscalculates the newest timestamp
			// of a batch, without which a base of -1 cannot be told from others.
			out[0].Timestamp = max(0, out[0].Timestamp)
		}
		return out
	}
	// The embedded broker's compaction removes abort markers and yet goes on to
	// announce their transactions, so a log has either.
	compacts := !c.Real() && random.IntN(2) == 0
	open := map[int]*seed.Tx{}
	end := func(id int, commit bool) {
		t.Helper()
		tx := open[id]
		delete(open, id)
		finish := tx.Abort
		if commit || compacts {
			finish = tx.Commit
		}
		if err := finish(ctx); err != nil {
			t.Fatal(err)
		}
	}
	id := func(n int) string { return fmt.Sprint(topic, " ", n) }
	for range 10 + random.IntN(30) {
		codec := wire.Codec(random.IntN(5))
		n := random.IntN(3)
		switch what := random.IntN(20); {
		case what < 8:
			if _, err := seed.ProduceBatch(ctx, cl, topic, 0, wire.Batch{Records: records(), Codec: codec}); err != nil {
				t.Fatal(err)
			}
		case what < 18:
			if open[n] == nil {
				tx, err := seed.Begin(ctx, c.Addrs(), topic, id(n), codec)
				if err != nil {
					t.Fatal(err)
				}
				open[n] = tx
			}
			if err := open[n].Write(ctx, records()...); err != nil {
				t.Fatal(err)
			}
			if random.IntN(3) == 0 {
				end(n, random.IntN(2) == 0)
			}
		case what == 18:
			if whole := readerWhole(t, c, topic, 0); whole.To > whole.From && len(open) == 0 {
				c.DeleteRecords(t, topic, 0, whole.From+random.Int64N((whole.To-whole.From)/3+1))
			}
		case compacts && len(open) == 0:
			c.Fake().Cluster().Compact()
		}
	}
	for n := range 3 {
		if open[n] != nil {
			end(n, random.IntN(2) == 0)
		}
		if err := seed.WaitForMarkers(ctx, cl, id(n)); err != nil && !errors.Is(err, kerr.TransactionalIDNotFound) {
			t.Fatal(err)
		}
	}
	if !c.Real() {
		// Small answers, whatever the reader asks for.
		sizes := rand.New(rand.NewPCG(from, 1))
		c.Fake().Cluster().ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.Fake().Cluster().KeepControl()
			request := r.(*kmsg.FetchRequest)
			request.Topics[0].Partitions[0].PartitionMaxBytes = 1 + sizes.Int32N(2000)
			return nil, nil, false
		})
	}
	whole := readerWhole(t, c, topic, 0)
	spans := []Span{whole}
	for range 5 {
		span := whole
		span.From += random.Int64N(whole.To - whole.From + 1)
		span.To = span.From + random.Int64N(whole.To-span.From+1)
		spans = append(spans, span)
	}
	readerCompare(t, c, topic, 0, 1+random.Int32N(1000), spans...)
}
