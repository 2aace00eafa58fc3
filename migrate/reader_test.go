package migrate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/rewrite"
)

// Tests of the reader on logs that no broker can be made to write: a readerLog
// answers the fetches, so what the client library makes of each answer is part
// of the test. reader_kafka_test.go has those that read from brokers.

// readerConnect is a connection whose requests give up after patience.
func readerConnect(t testing.TB, addrs []string, patience time.Duration) *cluster {
	t.Helper()
	env := Environment{Now: time.Now, Progress: NoProgress{}, Logf: func(string, ...any) {}}
	c, err := connect(testcluster.Context(t), Connection{Bootstrap: addrs}, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	c.patience = patience
	return c
}

const (
	readerPatient   = testcluster.Deadline
	readerImpatient = 300 * time.Millisecond
)

// readerRead reads a span and gives copies of its records, in the type of the
// exact reader of the fixtures.
func readerRead(ctx context.Context, r *topicReader, span Span) ([]reader.Record, ReadStats, error) {
	var out []reader.Record
	stats, err := r.Read(ctx, span, func(records []rewrite.Record) error {
		for _, r := range records {
			record := reader.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, reader.Header{Key: string(h.Key), Value: slices.Clone(h.Value)})
			}
			out = append(out, record)
		}
		return nil
	})
	return out, stats, err
}

func readerOffsets(records []reader.Record) (out []int64) {
	for _, r := range records {
		out = append(out, r.Offset)
	}
	return out
}

// readerNames fails the test unless an error names the topic, the partition and
// one of the offsets.
func readerNames(t testing.TB, err error, topic string, partition int32, offsets ...int64) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	at := slices.ContainsFunc(offsets, func(o int64) bool { return strings.Contains(err.Error(), fmt.Sprint("offset ", o)) })
	if !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), fmt.Sprint("partition ", partition)) || !at {
		t.Errorf("the error does not name topic %s, partition %d and one of the offsets %d: %v", topic, partition, offsets, err)
	}
}

// readerBatch is one batch as it lies in a log.
type readerBatch struct {
	first, last int64
	raw         []byte
	producer    int64
	abort       bool // it is the marker of an aborted transaction
}

// Offsets of fields in a batch of magic 2.
const (
	atCRC        = 17
	atAttributes = 21
	atLastDelta  = 23
	atMaxTime    = 35
	atCount      = 57
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readerEncode makes a batch that starts at an offset. edit may change its bytes
// before they are sealed with a checksum.
func readerEncode(t testing.TB, first int64, b wire.Batch, edit ...func(raw []byte)) readerBatch {
	t.Helper()
	raw, err := wire.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(raw, uint64(first))
	for _, e := range edit {
		e(raw)
	}
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], castagnoli))
	out := readerBatch{first: first, last: first + int64(int32(binary.BigEndian.Uint32(raw[atLastDelta:]))), raw: raw, producer: -1}
	if b.Producer != nil {
		out.producer = b.Producer.ID
	}
	return out
}

// readerData is a batch of n records, one offset each.
func readerData(t testing.TB, first int64, n int, edit ...func(raw []byte)) readerBatch {
	t.Helper()
	return readerEncode(t, first, wire.Batch{Records: readerRecords(first, n)}, edit...)
}

func readerRecords(first int64, n int) (out []wire.Record) {
	for i := range int64(n) {
		out = append(out, wire.Record{Offset: first + i, Timestamp: first + i, Key: fmt.Append(nil, "key ", first+i), Value: fmt.Append(nil, "value ", first+i)})
	}
	return out
}

// readerHole is a batch that covers offsets but has no record left.
func readerHole(t testing.TB, first, last int64) readerBatch {
	t.Helper()
	return readerEncode(t, first, wire.Batch{}, func(raw []byte) { binary.BigEndian.PutUint32(raw[atLastDelta:], uint32(last-first)) })
}

// readerMarker ends a transaction.
func readerMarker(t testing.TB, at, producer int64, commit bool) readerBatch {
	t.Helper()
	key := []byte{0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	b := readerEncode(t, at, wire.Batch{Producer: &wire.Producer{ID: producer}, Transactional: true, Records: []wire.Record{{Timestamp: 1, Key: key, Value: make([]byte, 6)}}},
		func(raw []byte) { raw[atAttributes+1] |= wire.AttrControl })
	b.abort = !commit
	return b
}

// readerTx is a batch of n records of a transaction.
func readerTx(t testing.TB, first, producer int64, n int) readerBatch {
	t.Helper()
	return readerEncode(t, first, wire.Batch{Producer: &wire.Producer{ID: producer}, Transactional: true, Records: readerRecords(first, n)})
}

// readerLog is a partition whose leader answers as told: whole batches, or cut
// off at the size asked for as brokers did before they always sent one batch.
type readerLog struct {
	topic string

	mu        sync.Mutex
	start     int64
	end       int64 // the high watermark
	stable    int64 // 0: end
	batches   []readerBatch
	perAnswer int   // batches in an answer; 0: as many as fit
	cut       int32 // 0: whole batches only; n: an n-th of what is asked for, cut off
	narrow    bool  // announce no aborted transactions that begin behind what is sent; brokers may or may not
	fetches   int
	// before runs ahead of each answer and may change the log. It gets the
	// number of fetches so far; an answer that is not nil is sent instead.
	before func(n int) *kmsg.FetchResponseTopicPartition
}

// serve makes the embedded broker answer from the log and gives a reader of it.
func (l *readerLog) serve(t testing.TB, patience time.Duration) *topicReader {
	t.Helper()
	testcluster.RequireFake(t, "the answers are made by hand")
	c := testcluster.Start(t)
	l.topic = c.CreateTopic(t, "log", 1, nil)
	c.Fake().Cluster().ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().Cluster().KeepControl()
		request := r.(*kmsg.FetchRequest)
		asked := request.Topics[0].Partitions[0]
		response := request.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = request.Topics[0].Topic
		topic.Partitions = append(topic.Partitions, l.answer(asked.FetchOffset, asked.PartitionMaxBytes))
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	return &topicReader{cluster: readerConnect(t, c.Addrs(), patience), topic: l.topic}
}

func (l *readerLog) answer(offset int64, maxBytes int32) kmsg.FetchResponseTopicPartition {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fetches++
	if l.before != nil {
		if instead := l.before(l.fetches); instead != nil {
			return *instead
		}
	}
	answer := kmsg.NewFetchResponseTopicPartition()
	answer.HighWatermark, answer.LastStableOffset, answer.LogStartOffset = l.end, l.end, l.start
	if l.stable > 0 {
		answer.LastStableOffset = l.stable
	}
	answer.RecordBatches = []byte{}
	if offset < l.start || offset > l.end {
		answer.ErrorCode = kerr.OffsetOutOfRange.Code
		return answer
	}
	if l.cut > 0 {
		maxBytes = max(1, maxBytes/l.cut)
	}
	sent, reached := 0, offset
	for _, b := range l.batches {
		full := sent > 0 && len(answer.RecordBatches)+len(b.raw) > int(maxBytes)
		if b.last < offset || b.first >= answer.LastStableOffset || l.perAnswer > 0 && sent == l.perAnswer || full && l.cut == 0 {
			continue
		}
		answer.RecordBatches = append(answer.RecordBatches, b.raw...)
		reached = b.last + 1
		sent++
	}
	if l.cut > 0 {
		answer.RecordBatches = answer.RecordBatches[:min(len(answer.RecordBatches), int(maxBytes))]
	}
	upTo := int64(math.MaxInt64)
	if l.narrow {
		upTo = reached
	}
	answer.AbortedTransactions = l.aborted(offset, upTo)
	return answer
}

// aborted announces the aborted transactions that end at or after an offset and
// begin before another.
func (l *readerLog) aborted(offset, upTo int64) (out []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	begun := map[int64]int64{}
	for _, b := range l.batches {
		first, open := begun[b.producer]
		switch {
		case b.abort && open && b.last >= offset && first < upTo:
			a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			a.ProducerID, a.FirstOffset = b.producer, first
			out = append(out, a)
			fallthrough
		case b.raw[atAttributes+1]&wire.AttrControl != 0:
			delete(begun, b.producer)
		case b.producer >= 0 && !open:
			begun[b.producer] = b.first
		}
	}
	slices.Reverse(out) // no order is promised
	return out
}

func (l *readerLog) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fetches = 0
	change()
}

func (l *readerLog) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetches
}

// A read ends exactly at its end, whatever lies there: "saw the last offset" is
// no stop condition, an answer is never mistaken for the end of the log, and a
// position behind a cut-off batch is never trusted. How the broker cuts the log
// into answers makes no difference to what is read.
func TestReader_Rule01And02_EveryShapeOfALogIsReadToItsEnd(t *testing.T) {
	data := func(first int64, n int) readerBatch { return readerData(t, first, n) }
	hole := func(first, last int64) readerBatch { return readerHole(t, first, last) }
	upTo := func(from, to int64) (out []int64) {
		for o := from; o < to; o++ {
			out = append(out, o)
		}
		return out
	}
	large := readerEncode(t, 5, wire.Batch{Records: []wire.Record{{Value: make([]byte, 7_000)}}})
	log := &readerLog{}
	r := log.serve(t, readerPatient)
	for _, x := range []struct {
		name       string
		start, end int64
		batches    []readerBatch
		from, to   int64
		want       []int64
	}{
		{"nothing but data", 0, 9, []readerBatch{data(0, 3), data(3, 3), data(6, 3)}, 0, 9, upTo(0, 9)},
		{"start and end inside of batches", 0, 9, []readerBatch{data(0, 3), data(3, 3), data(6, 3)}, 1, 8, upTo(1, 8)},
		{"inside of one batch", 0, 9, []readerBatch{data(0, 9)}, 4, 5, upTo(4, 5)},
		{"the log goes on behind the end", 0, 99, []readerBatch{data(0, 3), data(3, 3)}, 0, 3, upTo(0, 3)},
		{"empty, end above 0", 7, 7, nil, 7, 7, nil},
		{"nothing left between start and end", 3, 7, nil, 3, 7, nil},
		{"the last offsets are gone", 0, 9, []readerBatch{data(0, 3)}, 0, 9, upTo(0, 3)},
		{"the last offsets are gone, the log goes on", 0, 20, []readerBatch{data(0, 3), data(12, 8)}, 0, 9, upTo(0, 3)},
		{"log start above 0", 5, 9, []readerBatch{data(3, 3), data(6, 3)}, 5, 9, upTo(5, 9)},
		{"gap of 100,000", 0, 100_006, []readerBatch{data(0, 3), data(100_003, 3)}, 0, 100_006, append(upTo(0, 3), upTo(100_003, 100_006)...)},
		{"gap of 100,000 at the end", 0, 100_003, []readerBatch{data(0, 3)}, 0, 100_003, upTo(0, 3)},
		{"gap of 100,000 in an empty batch", 0, 100_006, []readerBatch{data(0, 3), hole(3, 100_002), data(100_003, 3)}, 0, 100_006, append(upTo(0, 3), upTo(100_003, 100_006)...)},
		{"empty batch at the end", 0, 6, []readerBatch{data(0, 3), hole(3, 5)}, 0, 6, upTo(0, 3)},
		{"empty batches at the end", 0, 9, []readerBatch{data(0, 3), hole(3, 5), hole(6, 8)}, 0, 9, upTo(0, 3)},
		{"empty batch that ends behind the end", 0, 9, []readerBatch{data(0, 3), hole(3, 8)}, 0, 5, upTo(0, 3)},
		{"empty batch, then nothing", 0, 9, []readerBatch{data(0, 3), hole(3, 5)}, 0, 9, upTo(0, 3)},
		{"only empty batches", 0, 9, []readerBatch{hole(0, 4), hole(5, 8)}, 0, 9, nil},
		{"empty batches in front", 0, 9, []readerBatch{hole(0, 2), hole(3, 5), data(6, 3)}, 0, 9, upTo(6, 9)},
		{"empty batches between", 0, 12, []readerBatch{data(0, 3), hole(3, 5), hole(6, 8), data(9, 3)}, 0, 12, append(upTo(0, 3), upTo(9, 12)...)},
		{"start inside of an empty batch", 0, 9, []readerBatch{data(0, 3), hole(3, 5), data(6, 3)}, 4, 9, upTo(6, 9)},
		{"large batch behind an empty one", 0, 7, []readerBatch{hole(0, 4), large, data(6, 1)}, 0, 7, upTo(5, 7)},
		{"large batch behind a small one", 0, 7, []readerBatch{data(0, 5), large, data(6, 1)}, 0, 7, upTo(0, 7)},
		{"markers at the end", 0, 6, []readerBatch{readerTx(t, 0, 1, 2), readerMarker(t, 2, 1, true), readerTx(t, 3, 1, 2), readerMarker(t, 5, 1, false)}, 0, 6, []int64{0, 1, 3, 4}},
		{"only a marker", 0, 1, []readerBatch{readerMarker(t, 0, 1, true)}, 0, 1, nil},
		{"a marker behind an empty batch", 0, 4, []readerBatch{hole(0, 2), readerMarker(t, 3, 1, false)}, 0, 4, nil},
	} {
		for _, perAnswer := range []int{0, 1, 2} {
			for _, cut := range []int32{0, 512, 2 << 10, 4 << 10, 8 << 10} {
				name := fmt.Sprintf("%s, %d batches in an answer, cut to 1/%d", x.name, perAnswer, cut)
				log.set(func() {
					log.start, log.end, log.batches, log.perAnswer, log.cut = x.start, x.end, x.batches, perAnswer, cut
				})
				got, stats, err := readerRead(testcluster.Context(t), r, Span{0, x.from, x.to})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if d := cmp.Diff(x.want, readerOffsets(got)); d != "" {
					t.Errorf("%s: %s", name, d)
				}
				batches := int64(0) // that have a record to hand out
				for _, b := range x.batches {
					if slices.ContainsFunc(x.want, func(o int64) bool { return o >= b.first && o <= b.last }) {
						batches++
					}
				}
				if stats.Records != int64(len(x.want)) || stats.Batches[0] != batches {
					t.Errorf("%s: %+v, want %d records in %d batches", name, stats, len(x.want), batches)
				}
				// One fetch more than batches tells where the log ends.
				if n := log.asked(); cut == 0 && n > len(x.batches)+1 {
					t.Errorf("%s: %d fetches for %d batches", name, n, len(x.batches))
				}
			}
		}
	}
}

// The client library keeps two things that are needed to itself: where the last
// batch of an answer ended, also if it dropped that batch for having no record,
// and how many bytes a batch's records took. This fails when a new version no
// longer has the fields, before any read goes wrong.
func TestReader_Rule02_TheLibraryStillHasTheFieldsThatAreReadFromIt(t *testing.T) {
	block := reflect.TypeFor[sarama.FetchResponseBlock]()
	if f, found := block.FieldByName("recordsNextOffset"); !found || f.Type != reflect.TypeFor[*int64]() {
		t.Errorf("FetchResponseBlock.recordsNextOffset: %v %v", found, f.Type)
	}
	batch := reflect.TypeFor[sarama.RecordBatch]()
	if f, found := batch.FieldByName("recordsLen"); !found || f.Type != reflect.TypeFor[int]() {
		t.Errorf("RecordBatch.recordsLen: %v %v", found, f.Type)
	}
	if _, found := nextOffset(&sarama.FetchResponseBlock{}); found {
		t.Error("a block without a batch has a next offset")
	}
}

// A damaged batch ends the read with an error that names it, after a bounded
// number of fetches. What lies before it may be handed out; it is not skipped.
func TestReader_Rule02_ADamagedBatchIsAnErrorAndNeverSkipped(t *testing.T) {
	count := func(n int) func([]byte) {
		return func(raw []byte) { binary.BigEndian.PutUint32(raw[atCount:], uint32(n)) }
	}
	broken := func(b readerBatch, at int) readerBatch {
		b.raw = slices.Clone(b.raw)
		b.raw[(at+len(b.raw))%len(b.raw)] ^= 0x40
		return b
	}
	compressed := wire.Batch{Records: readerRecords(3, 3), Codec: wire.Zstd}
	log := &readerLog{}
	r := log.serve(t, readerImpatient)
	for _, x := range []struct {
		name string
		bad  readerBatch
	}{
		{"checksum", broken(readerData(t, 3, 3), -1)},
		{"checksum of a compressed batch", broken(readerEncode(t, 3, compressed), -1)},
		{"one record more than there is", readerData(t, 3, 3, count(4))},
		{"many records more than there are", readerData(t, 3, 3, count(1<<30))},
		{"a negative number of records", readerData(t, 3, 3, count(-5))},
		{"one record less than there is", readerData(t, 3, 3, count(2))},
		{"one record more in a compressed batch", readerEncode(t, 3, compressed, count(4))},
		{"unknown codec", readerData(t, 3, 3, func(raw []byte) { raw[atAttributes+1] |= 5 })},
		{"not what the codec says", readerData(t, 3, 3, func(raw []byte) { raw[atAttributes+1] |= byte(wire.Zstd) })},
		{"length much too large", broken(readerData(t, 3, 3), 8)},
		{"length negative", readerData(t, 3, 3, func(raw []byte) { raw[8] = 0xff })},
		{"length below that of a header", readerData(t, 3, 3, func(raw []byte) { binary.BigEndian.PutUint32(raw[8:], 20) })},
	} {
		for _, perAnswer := range []int{0, 1} {
			for _, before := range []readerBatch{readerData(t, 0, 3), readerHole(t, 0, 2)} {
				name := fmt.Sprintf("%s, %d batches in an answer", x.name, perAnswer)
				log.set(func() {
					log.end, log.batches, log.perAnswer = 9, []readerBatch{before, x.bad, readerData(t, 6, 3)}, perAnswer
				})
				got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 9})
				t.Logf("%s: %v", name, err)
				readerNames(t, err, log.topic, 0, 0, 3)
				if slices.ContainsFunc(got, func(r reader.Record) bool { return r.Offset >= 3 }) {
					t.Errorf("%s: read %d", name, readerOffsets(got))
				}
				if n := log.asked(); n > 12 {
					t.Errorf("%s: %d fetches", name, n)
				}
			}
		}
	}
}

// The client library cannot tell a batch whose record count is more than the
// bytes that are left in the answer from a cut-off one. With data behind it such
// a batch is read; as the last of a log it is refused by name, not waited for.
func TestReader_Rule02_ALastBatchOfLessThanAByteARecordIsRefusedByName(t *testing.T) {
	same := make([]wire.Record, 5000)
	for i := range same {
		same[i] = wire.Record{Key: []byte("the same key in all records")}
	}
	dense := readerEncode(t, 0, wire.Batch{Records: same, Codec: wire.Zstd})
	if len(dense.raw) >= len(same) {
		t.Fatalf("%d bytes for %d records", len(dense.raw), len(same))
	}
	log := &readerLog{end: 5000, batches: []readerBatch{dense}}
	r := log.serve(t, readerImpatient)
	_, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 5000})
	if !errors.Is(err, errUndecodable) {
		t.Errorf("%v", err)
	}
	readerNames(t, err, log.topic, 0, 0)
	log.set(func() {
		log.end, log.batches = 5001, append(log.batches, readerEncode(t, 5000, wire.Batch{Records: []wire.Record{{Value: make([]byte, 5000)}}}))
	})
	got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 5001})
	if err != nil || len(got) != 5001 {
		t.Errorf("with data behind it: %d records, %v", len(got), err)
	}
}

// An empty answer decides nothing while the log is said to end before the
// captured end: the reader asks again, for as long as its patience.
func TestReader_Rule03_NothingIsDecidedWhileTheLogIsBehind(t *testing.T) {
	all := []readerBatch{readerData(t, 0, 3), readerData(t, 3, 3)}
	t.Run("it catches up", func(t *testing.T) {
		log := &readerLog{end: 3, batches: all[:1]}
		log.before = func(n int) *kmsg.FetchResponseTopicPartition {
			if n == 5 {
				log.end, log.batches = 6, all
			}
			return nil
		}
		got, _, err := readerRead(testcluster.Context(t), log.serve(t, readerPatient), Span{0, 0, 6})
		if err != nil || len(got) != 6 || log.asked() < 5 {
			t.Errorf("%d records in %d fetches, %v", len(got), log.asked(), err)
		}
	})
	t.Run("it never does", func(t *testing.T) {
		log := &readerLog{end: 3, batches: all[:1]}
		got, _, err := readerRead(testcluster.Context(t), log.serve(t, readerImpatient), Span{0, 0, 6})
		readerNames(t, err, log.topic, 0, 3)
		if len(got) != 3 || !strings.Contains(err.Error(), "captured end 6") {
			t.Errorf("%d records, %v", len(got), err)
		}
	})
	t.Run("it was truncated below the position", func(t *testing.T) {
		log := &readerLog{end: 2, batches: nil}
		got, _, err := readerRead(testcluster.Context(t), log.serve(t, readerImpatient), Span{0, 3, 6})
		readerNames(t, err, log.topic, 0, 3)
		if len(got) != 0 || !errors.Is(err, sarama.ErrOffsetOutOfRange) || errors.Is(err, ErrChanged) {
			t.Errorf("%d records, %v", len(got), err)
		}
	})
}

// An open transaction holds back what lies behind its first record: the reader
// waits, goes on when it ends, and names it if it does not.
func TestReader_Rule04_AnOpenTransactionIsWaitedForAndNamed(t *testing.T) {
	open := []readerBatch{readerData(t, 0, 2), readerTx(t, 2, 1, 2), readerData(t, 4, 2)}
	log := &readerLog{end: 6, stable: 2, batches: open}
	r := log.serve(t, readerImpatient)
	got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 6})
	readerNames(t, err, log.topic, 0, 2)
	if len(got) != 2 || !strings.Contains(err.Error(), "transaction") {
		t.Errorf("%d records, %v", len(got), err)
	}
	r.cluster.patience = readerPatient
	log.set(func() {
		log.before = func(n int) *kmsg.FetchResponseTopicPartition {
			if n == 4 {
				log.end, log.stable, log.batches = 7, 0, append(open, readerMarker(t, 6, 1, false))
			}
			return nil
		}
	})
	got, stats, err := readerRead(testcluster.Context(t), r, Span{0, 0, 6})
	if err != nil || len(got) != 6 || stats.Aborted != 2 {
		t.Errorf("%d records, %+v, %v", len(got), stats, err)
	}
}

// An answer whose log start is past the position is no progress, whatever it
// holds: what lies between was not delivered.
func TestReader_Rule06_AnAnswerFromBehindTheLogStartIsNotTaken(t *testing.T) {
	log := &readerLog{end: 9}
	r := log.serve(t, readerImpatient)
	log.set(func() {
		log.before = func(int) *kmsg.FetchResponseTopicPartition {
			answer := kmsg.NewFetchResponseTopicPartition()
			answer.HighWatermark, answer.LastStableOffset, answer.LogStartOffset = 9, 9, 6
			answer.RecordBatches = readerData(t, 6, 3).raw
			return &answer
		}
	})
	got, _, err := readerRead(testcluster.Context(t), r, Span{0, 3, 9})
	readerNames(t, err, log.topic, 0, 3)
	if len(got) != 0 || !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		t.Errorf("read %d, %v", readerOffsets(got), err)
	}
}

// An answer may begin before the position, with a whole batch even.
func TestReader_Rule02_BatchesBeforeThePositionAreSkipped(t *testing.T) {
	log := &readerLog{end: 9}
	r := log.serve(t, readerImpatient)
	log.set(func() {
		log.before = func(int) *kmsg.FetchResponseTopicPartition {
			answer := kmsg.NewFetchResponseTopicPartition()
			answer.HighWatermark, answer.LastStableOffset = 9, 9
			for first := int64(0); first < 9; first += 3 {
				answer.RecordBatches = append(answer.RecordBatches, readerData(t, first, 3).raw...)
			}
			return &answer
		}
	})
	got, stats, err := readerRead(testcluster.Context(t), r, Span{0, 4, 9})
	if offsets := readerOffsets(got); err != nil || !slices.Equal(offsets, []int64{4, 5, 6, 7, 8}) || stats.Batches[0] != 2 {
		t.Errorf("read %d, %+v, %v", offsets, stats, err)
	}
}

// Records of aborted transactions are told from others however the log is cut
// into answers, and counted exactly, whether they are left out or not.
func TestReader_Rule02_AbortedTransactionsAreTrackedAcrossAnswers(t *testing.T) {
	t.Parallel()
	tx := func(first, producer int64) readerBatch { return readerTx(t, first, producer, 2) }
	abort := func(at, producer int64) readerBatch { return readerMarker(t, at, producer, false) }
	commit := func(at, producer int64) readerBatch { return readerMarker(t, at, producer, true) }
	log := &readerLog{}
	r := log.serve(t, readerPatient)
	for _, x := range []struct {
		name      string
		batches   []readerBatch
		aborted   []int64
		committed []int64
	}{
		{"committed", []readerBatch{tx(0, 1), commit(2, 1)}, nil, []int64{0, 1}},
		{"aborted", []readerBatch{tx(0, 1), tx(2, 1), abort(4, 1)}, []int64{0, 1, 2, 3}, nil},
		{"no transaction in between", []readerBatch{tx(0, 1), readerData(t, 2, 2), abort(4, 1), readerData(t, 5, 1)}, []int64{0, 1}, []int64{2, 3, 5}},
		{"aborted, then committed", []readerBatch{tx(0, 1), abort(2, 1), tx(3, 1), commit(5, 1)}, []int64{0, 1}, []int64{3, 4}},
		{"committed, then aborted", []readerBatch{tx(0, 1), commit(2, 1), tx(3, 1), abort(5, 1)}, []int64{3, 4}, []int64{0, 1}},
		{"aborted twice", []readerBatch{tx(0, 1), tx(2, 1), abort(4, 1), tx(5, 1), tx(7, 1), abort(9, 1)}, []int64{0, 1, 2, 3, 5, 6, 7, 8}, nil},
		{"aborted twice, committed between", []readerBatch{tx(0, 1), tx(2, 1), abort(4, 1), tx(5, 1), commit(7, 1), tx(8, 1), abort(10, 1)}, []int64{0, 1, 2, 3, 8, 9}, []int64{5, 6}},
		{"interleaved", []readerBatch{tx(0, 1), tx(2, 2), tx(4, 1), commit(6, 2), tx(7, 2), abort(9, 1), tx(10, 1), abort(12, 2), commit(13, 1)}, []int64{0, 1, 4, 5, 7, 8}, []int64{2, 3, 10, 11}},
		{"not transactional, of the same producer", []readerBatch{tx(0, 1), readerEncode(t, 2, wire.Batch{Producer: &wire.Producer{ID: 1}, Records: readerRecords(2, 2)}), abort(4, 1)}, []int64{0, 1}, []int64{2, 3}},
		{"all of it gone but the marker", []readerBatch{readerHole(t, 0, 3), abort(4, 1), tx(5, 1), commit(7, 1)}, nil, []int64{5, 6}},
		{"its first batch gone", []readerBatch{tx(0, 2), readerHole(t, 2, 3), tx(4, 2), abort(6, 2)}, []int64{0, 1, 4, 5}, nil},
	} {
		last := x.batches[len(x.batches)-1].last
		for mode := range 8 {
			perAnswer, narrow := mode/2, mode%2 == 1
			log.set(func() { log.end, log.batches, log.perAnswer, log.narrow = last+1, x.batches, perAnswer, narrow })
			for from := range last + 1 {
				for _, to := range []int64{last + 1, (from + last + 2) / 2} {
					name := fmt.Sprintf("%s, %d batches in an answer, narrow %v, offsets %d to %d", x.name, perAnswer, narrow, from, to)
					within := func(offsets []int64) []int64 {
						return slices.DeleteFunc(slices.Clone(offsets), func(o int64) bool { return o < from || o >= to })
					}
					for _, skip := range []bool{false, true} {
						r.skipAborted = skip
						want := within(x.committed)
						if !skip {
							want = append(want, within(x.aborted)...)
							slices.Sort(want)
						}
						got, stats, err := readerRead(testcluster.Context(t), r, Span{0, from, to})
						if err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						if offsets := readerOffsets(got); !slices.Equal(offsets, want) || stats.Records != int64(len(want)) || stats.Aborted != int64(len(within(x.aborted))) {
							t.Errorf("%s, skip %v: read %d, want %d; %+v", name, skip, offsets, want, stats)
						}
					}
				}
			}
		}
	}
}

// Timestamps are raw 64-bit numbers. The client library converts them in ways
// that lose some; what is lost beyond recovery is refused, never changed.
func TestReader_Rule09_TimestampsAreExactOrRefused(t *testing.T) {
	const (
		now     = 1_760_000_000_000
		micros  = now * 1000
		nanos   = now * 1_000_000
		limit   = math.MaxInt64 / 1_000_000 // the year 2262: the last that fits a time.Duration
		refused = true
	)
	log := &readerLog{}
	r := log.serve(t, readerPatient)
	for _, x := range []struct {
		stamps  []int64
		refused bool
	}{
		{[]int64{0}, false}, {[]int64{1}, false}, {[]int64{-1}, false}, {[]int64{now}, false},
		{[]int64{limit}, false}, {[]int64{limit + 1}, false}, {[]int64{micros}, false}, {[]int64{nanos}, false},
		{[]int64{1<<57 - 1}, false}, {[]int64{1 << 58}, false}, {[]int64{math.MaxInt64}, false}, {[]int64{math.MaxInt64 - 1}, false},
		{[]int64{0, 0, 0}, false}, {[]int64{now, now + 1, now - 1}, false}, {[]int64{now, 0, 1, now}, false},
		{[]int64{-1, -1}, false}, {[]int64{-1, now}, false}, {[]int64{-1, 0}, false}, {[]int64{-1, 0, -1, now}, false}, {[]int64{now, -1}, false}, {[]int64{0, -1}, false},
		{[]int64{micros, micros + 1, micros - 1}, false}, {[]int64{micros, now, 0, -1}, false}, {[]int64{0, now, micros}, false}, {[]int64{-1, micros}, false},
		{[]int64{nanos, nanos + 1, nanos - 1_000_000_000}, false}, {[]int64{limit, 0}, false}, {[]int64{0, limit + 1}, false}, {[]int64{-1, limit + 1}, false},
		{[]int64{now, -7}, false}, {[]int64{0, -2, now}, false}, {[]int64{-1, -3, 5}, false},
		{[]int64{math.MaxInt64, math.MaxInt64 - 5}, false}, {[]int64{math.MaxInt64, math.MinInt64}, false}, // the difference wraps around to 1
		{[]int64{0, 1<<55 - 1}, false}, {[]int64{1 << 54, -(1 << 54) + 1}, false},

		{[]int64{0, 1 << 55}, refused}, {[]int64{0, 1 << 57}, refused}, {[]int64{0, 1 << 58}, refused}, {[]int64{now, now + 1<<58}, refused}, {[]int64{now, now - 1<<58}, refused},
		{[]int64{0, math.MaxInt64}, refused}, {[]int64{math.MaxInt64, 0}, refused}, {[]int64{math.MaxInt64, 0, -1}, refused}, {[]int64{0, 1 << 62, 1 << 61}, refused},
		{[]int64{now, nanos}, refused}, {[]int64{nanos, now}, refused}, {[]int64{nanos, -1}, refused}, {[]int64{-1, nanos}, refused},
		{[]int64{-7, 5}, refused}, {[]int64{-7, -9}, refused}, {[]int64{-9, -7}, refused}, {[]int64{-2, -1}, refused}, {[]int64{-1, -3}, refused}, {[]int64{-7, -1, 0}, refused},
		{[]int64{math.MinInt64, 0}, refused}, {[]int64{0, math.MinInt64}, refused}, {[]int64{math.MinInt64, math.MaxInt64}, refused}, {[]int64{-1, math.MinInt64}, refused},
	} {
		for codec := wire.None; codec <= wire.Zstd; codec += 2 {
			readerStamps(t, log, r, codec, x.stamps, func(name string, err error) {
				if x.refused != (err != nil) {
					t.Errorf("%s: %v, want refused %v", name, err, x.refused)
				}
			})
		}
	}
	t.Run("random", func(t *testing.T) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		near := []int64{0, -1, now, micros, nanos, limit, 1 << 55, 1 << 57, 1 << 58, -(1 << 55), -(1 << 57), -(1 << 58), math.MaxInt64, math.MinInt64}
		for range 500 {
			stamps := make([]int64, 1+random.IntN(4))
			for i := range stamps {
				switch random.IntN(3) {
				case 0:
					stamps[i] = int64(random.Uint64())
				case 1:
					stamps[i] = near[random.IntN(len(near))] + random.Int64N(5) - 2
				default: // congruent to another
					stamps[i] = stamps[max(0, i-1)] + random.Int64N(65)<<58
				}
			}
			if stamps[0] < -1 && slices.Max(stamps) == slices.Min(stamps) {
				continue // see the next test
			}
			readerStamps(t, log, r, wire.None, stamps, func(string, error) {})
			if t.Failed() {
				t.Fatal("seed", seed)
			}
		}
	})
}

// readerStamps reads a batch of records with given timestamps, whole and then
// each record alone: each is exact or the read is refused.
func readerStamps(t *testing.T, log *readerLog, r *topicReader, codec wire.Codec, stamps []int64, verdict func(name string, err error)) {
	t.Helper()
	records := readerRecords(0, len(stamps))
	for i := range records {
		records[i].Timestamp = stamps[i]
		records[i].Headers = []wire.Header{{Key: "h", Value: nil}, {Key: "", Value: []byte{}}}
	}
	end := int64(len(stamps))
	batch := readerEncode(t, 0, wire.Batch{Records: records, Codec: codec})
	log.set(func() { log.end, log.batches = end, []readerBatch{batch} })
	spans := []Span{{0, 0, end}}
	if end > 1 {
		// A part of a batch is as exact as the whole.
		spans = append(spans, Span{0, 0, 1}, Span{0, end - 1, end})
	}
	for _, span := range spans {
		name := fmt.Sprintf("%d, %s, offsets %d to %d", stamps, codec, span.From, span.To)
		got, _, err := readerRead(testcluster.Context(t), r, span)
		if err != nil && !errors.Is(err, ErrPreflight) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if d := cmp.Diff(records[span.From:span.To], got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		} else {
			readerNames(t, err, log.topic, 0, 0)
		}
		verdict(name, err)
	}
}

// The one exception: the client library tells nothing about a batch whose
// records all have the same negative timestamp. It is read as -1.
func TestReader_Rule09_OneNegativeTimestampForAWholeBatchIsReadAsNone(t *testing.T) {
	log := &readerLog{}
	r := log.serve(t, readerPatient)
	for _, stamps := range [][]int64{{-2}, {-7, -7}, {math.MinInt64}} {
		records := readerRecords(0, len(stamps))
		for i := range records {
			records[i].Timestamp = stamps[i]
		}
		log.set(func() {
			log.end, log.batches = int64(len(stamps)), []readerBatch{readerEncode(t, 0, wire.Batch{Records: records})}
		})
		got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, int64(len(stamps))})
		if err != nil || len(got) != len(stamps) {
			t.Fatalf("%d: %d records, %v", stamps, len(got), err)
		}
		for _, r := range got {
			if r.Timestamp != -1 {
				t.Errorf("%d: %d", stamps, r.Timestamp)
			}
		}
	}
}

// In a batch that the broker stamped, the batch's newest timestamp is that of
// every record, whatever the records say.
func TestReader_Rule09_TheBrokersStampIsThatOfEveryRecord(t *testing.T) {
	log := &readerLog{}
	r := log.serve(t, readerPatient)
	for _, stamp := range []int64{0, 1_760_000_000_000, math.MaxInt64} {
		for _, stamps := range [][]int64{{5}, {-1, 7}, {math.MinInt64, 0, math.MaxInt64}, {1 << 58, 0}} {
			records := readerRecords(0, len(stamps))
			for i := range records {
				records[i].Timestamp = stamps[i]
			}
			batch := readerEncode(t, 0, wire.Batch{Records: records}, func(raw []byte) {
				raw[atAttributes+1] |= wire.AttrLogAppendTime
				binary.BigEndian.PutUint64(raw[atMaxTime:], uint64(stamp))
			})
			log.set(func() { log.end, log.batches = int64(len(stamps)), []readerBatch{batch} })
			got, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, int64(len(stamps))})
			if err != nil || len(got) != len(stamps) {
				t.Fatalf("%d stamped %d: %d records, %v", stamps, stamp, len(got), err)
			}
			for _, r := range got {
				if r.Timestamp != stamp {
					t.Errorf("%d stamped %d: %d", stamps, stamp, r.Timestamp)
				}
			}
		}
	}
}

// The library multiplies each timestamp delta by 10^6 modulo 2^64. Undoing that
// is exact below 2^57, and modulo 2^58 in any case.
func TestReader_Rule09_TheMultiplicationOfDeltasIsUndone(t *testing.T) {
	fifths := big.NewInt(5 * 5 * 5 * 5 * 5 * 5)
	inverse := new(big.Int).ModInverse(fifths, new(big.Int).Lsh(big.NewInt(1), 58))
	if inverse.Cmp(big.NewInt(inverseOf5To6)) != 0 {
		t.Errorf("the inverse of 5^6 modulo 2^58 is %#x", inverse)
	}
	for shift := range 63 {
		for _, near := range []int64{-1, 0, 1} {
			readerUndo(t, 1<<shift+near)
			readerUndo(t, -(1<<shift)+near)
		}
	}
	for _, delta := range []int64{0, math.MaxInt64, math.MinInt64, math.MaxInt64 / 1_000_000, math.MaxInt64/1_000_000 + 1, math.MinInt64 / 1_000_000, math.MinInt64/1_000_000 - 1} {
		readerUndo(t, delta)
	}
}

func FuzzReaderDelta(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(1 << 57))
	f.Fuzz(func(t *testing.T, delta int64) { readerUndo(t, delta) })
}

func readerUndo(t *testing.T, delta int64) {
	t.Helper()
	got := deltaMillis(time.Duration(delta) * time.Millisecond)
	if small := delta >= -(1<<57) && delta < 1<<57; small && got != delta {
		t.Errorf("%d came back as %d", delta, got)
	}
	if (got-delta)<<6 != 0 || got < -(1<<57) || got >= 1<<57 {
		t.Errorf("%d came back as %d, which is not congruent modulo 2^58 and closest to 0", delta, got)
	}
}

// Message formats from before Kafka 0.11 are refused by name.
func TestReader_Rule10_OldMessageFormatsAreRefusedByName(t *testing.T) {
	old := func(magic int8, first int64, size int) readerBatch {
		var body []byte
		if magic == 1 {
			m := kmsg.MessageV1{Offset: first, Magic: 1, Timestamp: 5, Key: []byte("key"), Value: make([]byte, size)}
			body = m.AppendTo(nil)
		} else {
			m := kmsg.MessageV0{Offset: first, Key: []byte("key"), Value: make([]byte, size)}
			body = m.AppendTo(nil)
		}
		binary.BigEndian.PutUint32(body[8:], uint32(len(body)-12))
		binary.BigEndian.PutUint32(body[12:], crc32.ChecksumIEEE(body[16:]))
		return readerBatch{first: first, last: first, raw: body, producer: -1}
	}
	log := &readerLog{}
	r := log.serve(t, readerImpatient)
	for magic := range int8(2) {
		for name, batches := range map[string][]readerBatch{
			"alone":          {old(magic, 0, 10)},
			"several":        {old(magic, 0, 10), old(magic, 1, 10)},
			"before a batch": {old(magic, 0, 10), readerData(t, 1, 3)},
			"behind a batch": {readerData(t, 0, 3), old(magic, 3, 10)},
			"behind a hole":  {readerHole(t, 0, 3), old(magic, 4, 10)},
			"cut off":        {old(magic, 0, 2000)},
		} {
			for _, cut := range []int32{0, 8 << 10} {
				last := batches[len(batches)-1].last
				log.set(func() { log.end, log.batches, log.cut = last+1, batches, cut })
				_, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, last + 1})
				if !errors.Is(err, errOldFormat) || !errors.Is(err, ErrPreflight) || !strings.Contains(err.Error(), "magic 0 or 1") {
					t.Errorf("magic %d, %s, cut to 1/%d: %v", magic, name, cut, err)
					continue
				}
				readerNames(t, err, log.topic, 0, 0, last)
			}
		}
	}
}

// The end of the context ends a read at once, and so does an error of the
// receiver; nothing is left running.
func TestReader_NothingIsLeftBehindByAnEarlyEnd(t *testing.T) {
	log := &readerLog{end: 3, batches: []readerBatch{readerData(t, 0, 3)}}
	r := log.serve(t, readerPatient)
	if _, _, err := readerRead(testcluster.Context(t), r, Span{0, 0, 3}); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	const times = 5 // a leak shows even if some goroutines of earlier connections were still counted
	for range times {
		readerEndEarly(t, log, r)
	}
	err := wire.Poll(testcluster.Context(t), func() (bool, error) {
		if n := runtime.NumGoroutine(); n > before {
			return false, fmt.Errorf("%d goroutines before, %d after", before, n)
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
}

func readerEndEarly(t *testing.T, log *readerLog, r *topicReader) {
	data := []readerBatch{readerData(t, 0, 3), readerData(t, 3, 3), readerData(t, 6, 3)}
	t.Run("while the log is waited for", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		log.set(func() {
			log.end, log.batches = 3, data[:1]
			log.before = func(n int) *kmsg.FetchResponseTopicPartition {
				if n == 3 {
					cancel()
				}
				return nil
			}
		})
		got, _, err := readerRead(ctx, r, Span{0, 0, 99})
		if !errors.Is(err, context.Canceled) || len(got) != 3 {
			t.Errorf("%d records, %v", len(got), err)
		}
	})
	log.set(func() { log.before = nil })
	t.Run("while records are handed out", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := r.Read(ctx, Span{0, 0, 99}, func([]rewrite.Record) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("while the broker does not answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended, late := make(chan struct{}), false
		log.set(func() {
			log.before = func(int) *kmsg.FetchResponseTopicPartition {
				cancel()
				select {
				case <-ended:
				case <-time.After(testcluster.Deadline / 4): // less than the client waits for an answer
					late = true
				}
				return nil
			}
		})
		_, _, err := readerRead(ctx, r, Span{0, 0, 99})
		close(ended)
		log.set(func() { log.before = nil })
		if !errors.Is(err, context.Canceled) || late {
			t.Errorf("%v, late %v", err, late)
		}
	})
	t.Run("before it begins", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := readerRead(ctx, r, Span{0, 0, 99}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("an error of the receiver", func(t *testing.T) {
		failed := errors.New("no more")
		log.set(func() { log.end, log.batches, log.perAnswer = 9, data, 1 })
		calls := 0
		_, err := r.Read(t.Context(), Span{0, 0, 9}, func([]rewrite.Record) error {
			calls++
			// The second answer waits and there is no room for the third.
			if err := wire.Poll(testcluster.Context(t), func() (bool, error) { return log.asked() >= 3, nil }); err != nil {
				t.Error(err)
			}
			return failed
		})
		if !errors.Is(err, failed) || calls != 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}
