package migrate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/rewrite"
)

// What a broker answers is made to fail with kfake's faults; what happens to a
// connection is made to fail in writerDialer, on the client's side, so that
// "the batch is in the log and nobody said so" is a certainty and not a race.
// What must be in the log is kept in writerModel, which shares nothing with the
// writer, and what is there is read by fixtures/reader.

// writerCut is what happens to the connection at one produce request.
type writerCut int

const (
	cutNothing      writerCut = iota
	cutBefore                 // closed, nothing of the request is sent
	cutMiddle                 // closed after half of the request
	cutAppended               // closed when the batch is in the log, before the answer
	cutAnswer                 // closed in the middle of the answer
	answerLost                // appended, open, but the answer never comes
	requestLost               // neither appended nor answered, open
	writerCutsTotal           // of the values above
)

func (c writerCut) String() string {
	return [...]string{"nothing", "cut before the request", "cut within the request", "cut after the append", "cut within the answer", "answer never comes", "request never arrives"}[c]
}

// appended says whether the batch is in the log afterwards.
func (c writerCut) appended() bool { return c == cutAppended || c == cutAnswer || c == answerLost }

// writerSent is one produce request as it left the client.
type writerSent struct {
	partition int32
	batch     []byte // as encoded
}

func (s writerSent) sequence() int32 { return int32(binary.BigEndian.Uint32(s.batch[53:])) }
func (s writerSent) records() int    { return int(binary.BigEndian.Uint32(s.batch[57:])) }

// writerDialer opens the client's connections and looks at what they carry.
type writerDialer struct {
	mu    sync.Mutex
	sent  []writerSent
	cut   func(writerSent) writerCut // nil: nothing
	conns []net.Conn
}

func (d *writerDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, conn)
	return &writerConn{Conn: conn, dialer: d}, nil
}

// recover ends all connections and lets new ones be.
func (d *writerDialer) recover() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = nil
	for _, conn := range d.conns {
		_ = conn.Close() // some are closed already
	}
}

func (d *writerDialer) decide(s writerSent) writerCut {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = append(d.sent, s)
	if d.cut == nil {
		return cutNothing
	}
	return d.cut(s)
}

// requests are the produce requests so far, of one partition or (-1) of all.
func (d *writerDialer) requests(partition int32) []writerSent {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []writerSent
	for _, s := range d.sent {
		if partition < 0 || s.partition == partition {
			out = append(out, s)
		}
	}
	return out
}

type writerConn struct {
	net.Conn
	dialer *writerDialer
	rest   []byte // to be read before the connection ends
	ended  bool
}

func (c *writerConn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	if c.ended {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// Write gets each request whole: the client library writes it in one call.
func (c *writerConn) Write(p []byte) (int, error) {
	sent, isProduce, err := writerParse(p)
	if err != nil {
		return 0, err
	}
	if !isProduce {
		return c.Conn.Write(p)
	}
	cut := c.dialer.decide(sent)
	switch cut {
	case cutBefore:
		return 0, errors.Join(syscallReset, c.Conn.Close())
	case cutMiddle:
		n, err := c.Conn.Write(p[:len(p)/2])
		return n, errors.Join(syscallReset, err, c.Conn.Close())
	case requestLost:
		return len(p), nil
	}
	if n, err := c.Conn.Write(p); err != nil || cut == cutNothing {
		return n, err
	}
	// The answer is read here, so the batch is in the log for certain.
	var size [4]byte
	if err := c.Conn.SetReadDeadline(time.Now().Add(testcluster.Deadline)); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
		return 0, err
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.Conn, answer); err != nil {
		return 0, err
	}
	switch cut {
	case cutAppended:
		c.ended = true
	case cutAnswer:
		c.rest, c.ended = append(size[:], answer[:len(answer)/2]...), true
	}
	return len(p), nil
}

// syscallReset is what a write to a broken connection fails with.
var syscallReset error = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", errors.New("connection reset by peer"))}

// writerParse reads a produce request of version 9 and the one batch in it.
func writerParse(frame []byte) (writerSent, bool, error) {
	if len(frame) < 14 || binary.BigEndian.Uint16(frame[4:]) != uint16(kmsg.Produce) {
		return writerSent{}, false, nil
	}
	request := kmsg.NewPtrProduceRequest()
	request.Version = int16(binary.BigEndian.Uint16(frame[6:]))
	clientID := int(binary.BigEndian.Uint16(frame[12:]))
	if err := request.ReadFrom(frame[14+clientID+1:]); err != nil { // + the header's empty tag section
		return writerSent{}, false, err
	}
	if len(request.Topics) != 1 || len(request.Topics[0].Partitions) != 1 {
		return writerSent{}, false, errors.New("a produce request for more than one partition")
	}
	if request.Acks != -1 {
		return writerSent{}, false, fmt.Errorf("a produce request with acks=%d", request.Acks)
	}
	p := request.Topics[0].Partitions[0]
	return writerSent{p.Partition, bytes.Clone(p.Records)}, true, nil
}

// writerModel is what the log of a topic must hold.
type writerModel struct {
	mu      sync.Mutex
	written [][]reader.Record // what Write took, in its order
	durable []int             // of those, what a Flush has vouched for
}

func newWriterModel(partitions int) *writerModel {
	return &writerModel{written: make([][]reader.Record, partitions), durable: make([]int, partitions)}
}

func (m *writerModel) add(partition int32, r *rewrite.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written[partition] = append(m.written[partition], writerExpected(partition, int64(len(m.written[partition])), r))
}

// writerExpected is a copy of r as the log must show it.
func writerExpected(partition int32, offset int64, r *rewrite.Record) reader.Record {
	out := reader.Record{Partition: partition, Offset: offset, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, reader.Header{Key: string(h.Key), Value: bytes.Clone(h.Value)})
	}
	return out
}

func (m *writerModel) flushed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.written {
		m.durable[p] = len(m.written[p])
	}
}

// writerTopic is a topic, a connection to its broker, and the model of it.
type writerTopic struct {
	testing.TB
	broker  *testcluster.Cluster
	cluster *cluster
	dialer  *writerDialer
	name    string
	model   *writerModel
}

// writerPatience is for what fails for ever, so that it is soon given up. All
// else has testcluster.Deadline: a busy machine must not look like a failure.
const writerPatience = 160 * time.Millisecond

func newWriterTopic(t testing.TB, broker *testcluster.Cluster, partitions int, configs map[string]string) *writerTopic {
	t.Helper()
	all := map[string]string{"retention.ms": "-1"}
	for name, value := range configs {
		all[name] = value
	}
	w := &writerTopic{TB: t, broker: broker, model: newWriterModel(partitions)}
	if fake := broker.Fake(); fake != nil {
		w.name = broker.Topic(t, "writer")
		if err := fake.Cluster().CreateTopic(w.name, int32(partitions), all); err != nil {
			t.Fatal(err)
		}
	} else {
		w.name = broker.CreateTopic(t, "writer", int32(partitions), all)
	}
	w.cluster, w.dialer = writerConnect(t, broker)
	return w
}

// writerConnect opens a connection that fails on demand.
func writerConnect(t testing.TB, broker *testcluster.Cluster) (*cluster, *writerDialer) {
	t.Helper()
	env := Environment{Now: time.Now, Progress: NoProgress{}, Logf: func(string, ...any) {}}
	c, err := connect(t.Context(), Connection{Bootstrap: broker.Addrs()}, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	dialer := new(writerDialer)
	c.patience = testcluster.Deadline
	writerConfigure(c, func(config *sarama.Config) { config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, dialer })
	return c, dialer
}

// writerConfigure changes the settings of the connections that writers open.
// The shared client uses its own already.
func writerConfigure(c *cluster, change func(*sarama.Config)) {
	config := *c.config
	change(&config)
	c.config = &config
}

// readTimeout is how long an answer is waited for.
func (w *writerTopic) readTimeout(d time.Duration) {
	writerConfigure(w.cluster, func(config *sarama.Config) { config.Net.ReadTimeout = d })
}

// open starts a writer that is closed when the test ends.
func (w *writerTopic) open(p producer, codec sarama.CompressionCodec, limit int) *topicWriter {
	out := newTopicWriter(w.cluster, w.name, len(w.model.written), p, codec, limit)
	w.Cleanup(func() { _ = out.Close() })
	return out
}

// openPlain is open under a fresh producer id, without compression, for
// batches of at most size bytes.
func (w *writerTopic) openPlain(size int) *topicWriter {
	w.Helper()
	out := w.open(w.lock(), sarama.CompressionNone, 1<<20)
	for _, target := range out.partitions {
		for range cap(target.free) {
			batch := <-target.free
			batch.size = size
			target.free <- batch
		}
	}
	return out
}

func (w *writerTopic) lock() producer {
	w.Helper()
	p, err := w.cluster.acquire(w.Context(), lockName(w.name, rewrite.Whole))
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// write hands a record to the writer and, if it is taken, to the model.
func (w *writerTopic) write(to *topicWriter, partition int32, r rewrite.Record) error {
	if err := to.Write(w.Context(), partition, &r); err != nil {
		return err
	}
	w.model.add(partition, &r)
	return nil
}

func (w *writerTopic) mustWrite(to *topicWriter, partition int32, r rewrite.Record) {
	w.Helper()
	if err := w.write(to, partition, r); err != nil {
		w.Fatal(err)
	}
}

func (w *writerTopic) flush(to *topicWriter) error {
	if err := to.Flush(w.Context()); err != nil {
		return err
	}
	w.model.flushed()
	return nil
}

func (w *writerTopic) mustFlush(to *topicWriter) {
	w.Helper()
	if err := w.flush(to); err != nil {
		w.Fatal(err)
	}
}

// checkExact compares the log with all that was written.
func (w *writerTopic) checkExact() {
	w.Helper()
	w.check(true)
}

// checkPrefix compares the log with what was written: each partition must hold
// a prefix of it that reaches at least as far as the last successful Flush. It
// gives how many records that are.
func (w *writerTopic) checkPrefix() []int {
	w.Helper()
	return w.check(false)
}

func (w *writerTopic) check(exact bool) []int {
	w.Helper()
	got, err := reader.Read(testcluster.Context(w), w.broker.Addrs(), w.name)
	if err != nil {
		w.Fatal(err)
	}
	there := make([][]reader.Record, len(w.model.written))
	for _, r := range got {
		there[r.Partition] = append(there[r.Partition], r)
	}
	counts := make([]int, len(there))
	for p, records := range there {
		want := w.model.written[p]
		counts[p] = len(records)
		switch {
		case exact && len(records) != len(want), len(records) > len(want), len(records) < w.model.durable[p]:
			w.Errorf("partition %d holds %d records; %d were written, of which %d flushed", p, len(records), len(want), w.model.durable[p])
		}
		n := min(len(records), len(want))
		if n == 0 {
			continue // nil and empty lists are the same here
		}
		if diff := cmp.Diff(want[:n], records[:n], writerBytes); diff != "" {
			w.Errorf("partition %d (-written +in the log):\n%s", p, writerShort(diff))
		}
	}
	return counts
}

// writerBytes compares at once what cmp would compare byte by byte.
var writerBytes = cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })

func writerSame(a, b reader.Record) bool {
	null := func(b []byte) bool { return b == nil }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp &&
		null(a.Key) == null(b.Key) && bytes.Equal(a.Key, b.Key) && null(a.Value) == null(b.Value) && bytes.Equal(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(a, b reader.Header) bool {
			return a.Key == b.Key && null(a.Value) == null(b.Value) && bytes.Equal(a.Value, b.Value)
		})
}

func writerShort(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "…"
	}
	return s
}

// writerRecord is the i-th of a row of records of equal size that all differ.
func writerRecord(i int) rewrite.Record {
	return rewrite.Record{
		Timestamp: 1_700_000_000_000 + int64(i),
		Key:       fmt.Appendf(nil, "key-%06d", i%7),
		Value:     fmt.Appendf(nil, "value-%06d", i),
		Headers:   []rewrite.Header{{Key: provenanceName, Value: fmt.Appendf(nil, "3:%d", 100_000+i)}},
	}
}

// writerRecordSize is what each of them takes in a batch.
func writerRecordSize() int { r := writerRecord(0); return wireSize(&r) }

// The matrix of failures: batchesEach batches of recordsEach records in each
// of two partitions, and one batch of partition 1 that fails.
const (
	writerBatchesEach = 4
	writerRecordsEach = 3
)

// writerMatrix is one case: what fails, at which batch, how often.
type writerMatrix struct {
	position string
	batch    int
	forever  bool
}

func writerPositions() []writerMatrix {
	var out []writerMatrix
	for _, m := range []writerMatrix{{position: "first", batch: 0}, {position: "middle", batch: 2}, {position: "last", batch: writerBatchesEach - 1}} {
		once, forever := m, m
		forever.forever = true
		out = append(out, once, forever)
	}
	return out
}

func (m writerMatrix) String() string {
	if m.forever {
		return m.position + " for ever"
	}
	return m.position + " once"
}

func (m writerMatrix) sequence() int32 { return int32(m.batch * writerRecordsEach) }

// run writes the matrix's records and gives the error of Flush.
func (m writerMatrix) run(w *writerTopic) error {
	to := w.openPlain(writerRecordsEach * writerRecordSize())
	err := func() error {
		for i := range writerBatchesEach * writerRecordsEach {
			for p := range int32(2) {
				if err := w.write(to, p, writerRecord(2*i+int(p))); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	flushErr := w.flush(to)
	if err != nil && flushErr == nil {
		w.Errorf("Write failed with %v, and then Flush did not", err)
	}
	_ = to.Close() // nothing moves from here on; the failure is flushErr
	return flushErr
}

// check holds the outcome against what it must be: exactly right if survived,
// otherwise an error and, in the partition that failed, exactly the batches
// before the failing one, and that one if it was appended.
func (m writerMatrix) check(w *writerTopic, err error, survived, appended bool) {
	if survived {
		if err != nil {
			w.Fatalf("the writer gave up: %v", err)
		}
		w.checkExact()
		return
	}
	if err == nil {
		w.Fatal("no error")
	}
	// A missing permission is not about one partition.
	if want := fmt.Sprintf("%s partition 1", w.name); !strings.Contains(err.Error(), "not permitted") && !(strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "source 3:")) {
		w.Errorf("the error names neither %q nor the source record: %v", want, err)
	}
	want := m.batch * writerRecordsEach
	if appended {
		want += writerRecordsEach
	}
	if got := w.checkPrefix()[1]; got != want {
		w.Errorf("the failed partition holds %d records, want %d", got, want)
	}
}

// writerEach runs cases side by side: most of their time they wait.
func writerEach[C any](t *testing.T, cases []C, run func(*testing.T, C)) {
	next := make(chan C)
	var workers sync.WaitGroup
	for range 12 {
		workers.Go(func() {
			for c := range next {
				t.Run(fmt.Sprint(c), func(t *testing.T) { run(t, c) })
			}
		})
	}
	for _, c := range cases {
		next <- c
	}
	close(next)
	workers.Wait()
}

// The codes that a produce response can carry, and a few that it should not.
var (
	// writerPasses are those that pass by themselves.
	writerPasses = []*kerr.Error{
		kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition,
		kerr.RequestTimedOut, kerr.BrokerNotAvailable, kerr.ReplicaNotAvailable, kerr.NetworkException,
		kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError,
		kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.ConcurrentTransactions, kerr.ThrottlingQuotaExceeded,
		kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.NotController,
		kerr.ListenerNotFound, kerr.OffsetNotAvailable, kerr.UnknownTopicID, kerr.InconsistentTopicID,
	}
	// writerStays are those that sending again does not cure.
	writerStays = []*kerr.Error{
		kerr.UnknownServerError, kerr.OffsetOutOfRange, kerr.MessageTooLarge, kerr.OffsetMetadataTooLarge, kerr.InvalidTopicException,
		kerr.RecordListTooLarge, kerr.InvalidRequiredAcks, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.InvalidTimestamp, kerr.UnsupportedVersion, kerr.InvalidConfig, kerr.InvalidRequest, kerr.UnsupportedForMessageFormat,
		kerr.PolicyViolation, kerr.OutOfOrderSequenceNumber, kerr.DuplicateSequenceNumber, kerr.InvalidProducerEpoch,
		kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.TransactionCoordinatorFenced,
		kerr.TransactionalIDAuthorizationFailed, kerr.SecurityDisabled, kerr.OperationNotAttempted, kerr.LogDirNotFound,
		kerr.SaslAuthenticationFailed, kerr.UnknownProducerID, kerr.UnsupportedCompressionType, kerr.StaleBrokerEpoch,
		kerr.InvalidRecord, kerr.ProducerFenced, kerr.TransactionAbortable,
		{Message: "A_CODE_OF_THE_FUTURE", Code: 31_000},
	}
)

// writerAppends says whether the broker has appended the batch when it answers
// with this code.
func writerAppends(e *kerr.Error) bool {
	return e == kerr.RequestTimedOut || e == kerr.NotEnoughReplicasAfterAppend
}

// writerAnswer is a case of the matrix in which a broker answers with a code.
type writerAnswer struct {
	writerMatrix
	code   *kerr.Error
	passes bool
}

func (a writerAnswer) String() string { return a.code.Message + " " + a.writerMatrix.String() }

func TestWriterLeavesNoHoleWhateverABrokerAnswers(t *testing.T) {
	t.Parallel()
	testcluster.RequireFake(t, "makes produce requests fail")
	broker := testcluster.Start(t)
	var cases []writerAnswer
	for _, m := range writerPositions() {
		for _, code := range writerPasses {
			cases = append(cases, writerAnswer{m, code, true})
		}
		for _, code := range writerStays {
			cases = append(cases, writerAnswer{m, code, false})
		}
	}
	t.Logf("%d cases", len(cases))
	writerEach(t, cases, func(t *testing.T, c writerAnswer) {
		w := newWriterTopic(t, broker, 2, nil)
		fault := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.name, Partitions: []int32{1}, Err: c.code,
			When: func(r kmsg.Request) bool { return writerFirstSequence(r) == c.sequence() }}
		if c.forever {
			fault.Count = -1
			w.cluster.patience = writerPatience
		}
		handle := broker.Fake().Cluster().Fault(fault)
		defer handle.Remove()
		err := c.run(w)
		if handle.Hits() == 0 {
			t.Fatal("the fault was never met")
		}
		if got := handle.Hits(); !c.passes && got != 1 {
			t.Errorf("sent %d times, though sending again cures nothing", got)
		}
		c.check(w, err, c.passes && !c.forever, writerAppends(c.code))
		if code := sarama.KError(c.code.Code); err != nil && !errors.Is(err, code) {
			t.Errorf("errors.Is does not find the broker's code in %v", err)
		}
	})
}

func writerFirstSequence(r kmsg.Request) int32 {
	return writerSent{batch: r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records}.sequence()
}

// writerBreak is a case of the matrix in which a connection breaks.
type writerBreak struct {
	writerMatrix
	cut writerCut
}

func (b writerBreak) String() string { return b.cut.String() + " " + b.writerMatrix.String() }

func TestWriterLeavesNoHoleWhereverAConnectionBreaks(t *testing.T) {
	t.Parallel()
	broker := testcluster.Start(t)
	var cases []writerBreak
	for _, m := range writerPositions() {
		for cut := cutNothing + 1; cut < writerCutsTotal; cut++ {
			cases = append(cases, writerBreak{m, cut})
		}
	}
	writerEach(t, cases, func(t *testing.T, c writerBreak) {
		w := newWriterTopic(t, broker, 2, nil)
		// Where no answer comes, this is how long it is waited for; it must be
		// long enough for a busy broker to answer what is not meant to be lost.
		w.readTimeout(time.Second)
		if c.forever {
			w.cluster.patience = writerPatience
		}
		met := 0
		w.dialer.cut = func(s writerSent) writerCut {
			if s.partition != 1 || s.sequence() != c.sequence() || met > 0 && !c.forever {
				return cutNothing
			}
			met++
			return c.cut
		}
		err := c.run(w)
		if met == 0 {
			t.Fatal("the connection never broke")
		}
		c.check(w, err, !c.forever, c.cut.appended())
	})
}

func TestWriterSendsABatchOfUnknownFateAgainUnchanged(t *testing.T) {
	t.Parallel()
	broker := testcluster.Start(t)
	for _, cut := range []writerCut{cutAppended, cutAnswer} {
		t.Run(cut.String(), func(t *testing.T) {
			w := newWriterTopic(t, broker, 1, nil)
			const lost = 4
			w.dialer.cut = func(s writerSent) writerCut {
				// Called with the dialer locked; the request itself is counted.
				if s.sequence() == 2 && len(w.dialer.sent) <= 1+lost {
					return cut
				}
				return cutNothing
			}
			to := w.openPlain(2 * writerRecordSize())
			for i := range 6 {
				w.mustWrite(to, 0, writerRecord(i))
			}
			w.mustFlush(to)
			w.checkExact()
			var again [][]byte
			for _, s := range w.dialer.requests(0) {
				if s.sequence() == 2 {
					again = append(again, s.batch)
				}
			}
			if len(again) != lost+1 {
				t.Fatalf("the batch was sent %d times, want %d", len(again), lost+1)
			}
			for _, batch := range again {
				if !bytes.Equal(batch, again[0]) {
					t.Error("a batch was sent again with other bytes")
				}
			}
		})
	}
}

func TestWriterHasOneBatchInFlightForEachPartition(t *testing.T) {
	testcluster.RequireFake(t, "holds produce requests back")
	// Requests on one connection are otherwise handled one after the other, and
	// a second one would not be seen while the first is held.
	broker := testcluster.StartWith(t, testcluster.Options{Fake: []kfake.Opt{kfake.SleepOutOfOrder()}})
	w := newWriterTopic(t, broker, 2, nil)
	to := w.openPlain(writerRecordSize())
	held, release := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	var inFlight [2]atomic.Int32
	var overlaps, holding atomic.Int32
	cluster := broker.Fake().Cluster()
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		p := r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Partition
		if inFlight[p].Add(1) > 1 {
			overlaps.Add(1)
		}
		if p == 0 && holding.Add(1) == 1 {
			close(held)
			cluster.SleepControl(func() { <-release })
		}
		inFlight[p].Add(-1)
		return nil, nil, false
	})
	// The first of these is held, the second waits behind it, the third gets no
	// batch until the first is acknowledged.
	w.mustWrite(to, 0, writerRecord(0))
	w.mustWrite(to, 0, writerRecord(1))
	third := make(chan error, 1)
	go func() { third <- w.write(to, 0, writerRecord(2)) }()
	<-held
	writerUntil(t, "the second batch is queued", func() bool { return len(to.queues[0]) == 1 })
	// The other partition makes its way meanwhile; a second request for the
	// first one would have come by then.
	for i := range 20 {
		w.mustWrite(to, 1, writerRecord(100+i))
	}
	if n := holding.Load(); n != 1 {
		t.Errorf("%d batches of partition 0 were sent before the first was acknowledged", n)
	}
	free()
	if err := <-third; err != nil {
		t.Fatal(err)
	}
	w.mustFlush(to)
	if n := overlaps.Load(); n != 0 {
		t.Errorf("%d produce requests came while another of the same partition was under way", n)
	}
	w.checkExact()
}

// writerUntil waits for a condition that nothing signals.
func writerUntil(t testing.TB, what string, met func() bool) {
	t.Helper()
	deadline := time.Now().Add(testcluster.Deadline)
	for !met() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		runtime.Gosched()
	}
}

func TestWriterSendsNothingAfterAFailure(t *testing.T) {
	testcluster.RequireFake(t, "makes a produce request fail while others are held")
	broker := testcluster.StartWith(t, testcluster.Options{Fake: []kfake.Opt{kfake.SleepOutOfOrder()}})
	const partitions = 10 // more than there are senders
	w := newWriterTopic(t, broker, partitions, nil)
	to := w.openPlain(writerRecordSize())
	cluster := broker.Fake().Cluster()
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.name, Partitions: []int32{0}, Err: kerr.InvalidRecord, Count: -1})
	// Partition 0 is answered only when a request of every other sender is under
	// way, and those are answered only when the writer has failed.
	var arrived atomic.Int32
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		arrived.Add(1)
		cluster.SleepControl(func() {
			if r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Partition == 0 {
				writerUntil(t, "all senders wait for an answer", func() bool { return int(arrived.Load()) == len(to.queues) })
				return
			}
			<-to.ctx.Done()
		})
		return nil, nil, false
	})
	for i := range 2 { // one batch under way, one filling
		for p := range int32(partitions) {
			w.mustWrite(to, p, writerRecord(partitions*i+int(p)))
		}
	}
	err := w.flush(to)
	if !errors.Is(err, sarama.KError(kerr.InvalidRecord.Code)) {
		t.Fatalf("Flush: %v", err)
	}
	for p := range int32(partitions) {
		for i := range 4 {
			if err := w.write(to, p, writerRecord(1000+i)); !errors.Is(err, sarama.KError(kerr.InvalidRecord.Code)) {
				t.Errorf("Write to partition %d after the failure: %v", p, err)
			}
		}
	}
	if again := w.flush(to); !errors.Is(again, err) {
		t.Errorf("Flush after the failure: %v, want %v", again, err)
	}
	for range 2 {
		if closed := to.Close(); !errors.Is(closed, err) {
			t.Errorf("Close after the failure: %v, want %v", closed, err)
		}
	}
	for p := range int32(partitions) {
		want := 0
		if int(p) < len(to.queues) {
			want = 1
		}
		if got := len(w.dialer.requests(p)); got != want {
			t.Errorf("%d requests for partition %d, want %d", got, p, want)
		}
	}
	if there := w.checkPrefix(); there[0] != 0 {
		t.Errorf("the failed partition holds %d records", there[0])
	}
}

func TestWriterStopsTryingAgainAfterAFailureElsewhere(t *testing.T) {
	testcluster.RequireFake(t, "makes produce requests fail")
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 2, nil)
	to := w.openPlain(writerRecordSize())
	faults := broker.Fake().Cluster()
	leaderless := faults.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.name, Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
	faults.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.name, Partitions: []int32{0}, Err: kerr.InvalidRecord, Count: -1})
	w.mustWrite(to, 1, writerRecord(1))
	w.mustWrite(to, 1, writerRecord(2))
	if err := leaderless.Wait(testcluster.Context(t), 2); err != nil {
		t.Fatal(err)
	}
	w.mustWrite(to, 0, writerRecord(3))
	w.mustWrite(to, 0, writerRecord(4))
	<-to.ctx.Done()
	if err := to.Close(); !errors.Is(err, sarama.KError(kerr.InvalidRecord.Code)) {
		t.Errorf("Close: %v", err)
	}
	// Close has waited for the senders, so this is all that was ever sent.
	leaderless.Remove()
	if there := w.checkPrefix(); there[0] != 0 || there[1] != 0 {
		t.Errorf("the partitions hold %d records", there)
	}
}

func TestWriterKeepsTheOrderOfConcurrentCallers(t *testing.T) {
	broker := testcluster.Start(t)
	for _, partitions := range []int{1, 3, 64} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			w := newWriterTopic(t, broker, partitions, nil)
			to := w.openPlain(5 * writerRecordSize())
			const callers, each = 8, 400
			var group sync.WaitGroup
			for caller := range callers {
				group.Go(func() {
					random := rand.New(rand.NewPCG(uint64(caller), 1))
					for i := range each {
						r := rewrite.Record{Timestamp: int64(i), Key: []byte{byte(caller)}}
						if err := to.Write(t.Context(), int32(random.IntN(partitions)), &r); err != nil {
							t.Errorf("caller %d: %v", caller, err)
							return
						}
						if random.IntN(100) == 0 {
							if err := to.Flush(t.Context()); err != nil {
								t.Errorf("caller %d: %v", caller, err)
								return
							}
						}
					}
				})
			}
			group.Wait()
			w.mustFlush(to)
			got, err := reader.Read(testcluster.Context(t), broker.Addrs(), w.name)
			if err != nil {
				t.Fatal(err)
			}
			var seen [callers]map[int64]bool
			for caller := range seen {
				seen[caller] = map[int64]bool{}
			}
			last := map[[2]int32]int64{}
			for _, r := range got {
				caller := r.Key[0]
				at := [2]int32{int32(caller), r.Partition}
				if before, found := last[at]; found && before >= r.Timestamp {
					t.Fatalf("partition %d: the records %d and %d of caller %d changed places", r.Partition, before, r.Timestamp, caller)
				}
				last[at] = r.Timestamp
				seen[caller][r.Timestamp] = true
			}
			for caller := range seen {
				if len(seen[caller]) != each {
					t.Errorf("%d of %d records of caller %d arrived", len(seen[caller]), each, caller)
				}
			}
			if len(got) != callers*each {
				t.Errorf("%d records, want %d", len(got), callers*each)
			}
		})
	}
}

func TestWriterSplitsBatchesBySize(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 1, nil)
	to := w.openPlain(3 * writerRecordSize())
	large := func(i int) rewrite.Record {
		r := writerRecord(i)
		r.Value = bytes.Repeat([]byte("large "), 1000)
		return r
	}
	for i := range 7 { // 3 + 3 + 1
		w.mustWrite(to, 0, writerRecord(i))
	}
	w.mustWrite(to, 0, large(7)) // larger than a batch: alone
	w.mustWrite(to, 0, large(8))
	for i := range 4 { // 3 + 1
		w.mustWrite(to, 0, writerRecord(9+i))
	}
	w.mustFlush(to)
	w.checkExact()
	var sizes []int
	sent := w.dialer.requests(0)
	for i, s := range sent {
		if i == 0 || s.sequence() != sent[i-1].sequence() { // not sent again
			sizes = append(sizes, s.records())
		}
	}
	if want := []int{3, 3, 1, 1, 1, 3, 1}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %d records, want %d", sizes, want)
	}
}

var writerCodecs = []sarama.CompressionCodec{
	sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
}

func TestWriterCompressesWithTheCodecItIsTold(t *testing.T) {
	broker := testcluster.Start(t)
	for _, codec := range writerCodecs {
		t.Run(codec.String(), func(t *testing.T) {
			w := newWriterTopic(t, broker, 2, nil)
			to := w.open(w.lock(), codec, 1<<20)
			for i := range 2000 {
				w.mustWrite(to, int32(i%2), writerRecord(i))
			}
			w.mustFlush(to)
			w.checkExact()
			batches, err := reader.Batches(testcluster.Context(t), broker.Addrs(), w.name)
			if err != nil {
				t.Fatal(err)
			}
			for p, of := range batches {
				for _, b := range of {
					if b.Codec.String() != codec.String() {
						t.Errorf("partition %d, offset %d: codec %s", p, b.FirstOffset, b.Codec)
					}
				}
			}
		})
	}
}

// TestWriterRespectsMaxMessageBytes fills batches to the last byte with what no
// codec can shrink: compressed it takes more than raw, and the limit is on the
// compressed batch.
func TestWriterRespectsMaxMessageBytes(t *testing.T) {
	broker := testcluster.Start(t)
	type limited struct {
		codec          sarama.CompressionCodec
		limit, records int // in a batch
	}
	var cases []limited
	for _, codec := range writerCodecs {
		for _, limit := range []int{400, 1000, 16_384, 200_000, 700_000} {
			for _, records := range []int{2, 3, 7} {
				if limit/records > 100 {
					cases = append(cases, limited{codec, limit, records})
				}
			}
		}
	}
	writerEach(t, cases, func(t *testing.T, c limited) {
		w := newWriterTopic(t, broker, 1, map[string]string{"max.message.bytes": strconv.Itoa(c.limit)})
		to := w.open(w.lock(), c.codec, c.limit)
		size := batchSize(1, c.limit, 32<<20)
		if size > c.limit || size < c.limit/2 {
			t.Fatalf("batches of %d bytes for a limit of %d", size, c.limit)
		}
		random := rand.NewChaCha8([32]byte{byte(c.limit), byte(c.codec)})
		const batches = 3
		for i := range batches * c.records {
			room := size / c.records
			if i%c.records == 0 {
				room += size % c.records
			}
			r := rewrite.Record{Timestamp: int64(i), Value: make([]byte, room-recordOverhead)}
			_, _ = random.Read(r.Value)
			w.mustWrite(to, 0, r)
		}
		w.mustFlush(to) // a larger batch is refused by the broker
		w.checkExact()
		sent := w.dialer.requests(0)
		if last := sent[len(sent)-1].sequence(); int(last) != (batches-1)*c.records {
			t.Errorf("the last batch begins with record %d", last)
		}
		for _, s := range sent {
			if len(s.batch) > c.limit {
				t.Errorf("a batch of %d bytes, %d records", len(s.batch), s.records())
			}
		}
	})
}

func TestWriterKeepsTimestamps(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 1, map[string]string{"message.timestamp.after.max.ms": "9223372036854775807"})
	to := w.openPlain(1 << 16)
	now := time.Now().UnixMilli()
	stamps := []int64{
		-1, -1, 0, 1, -1, now, 0, newestWritable, 0, newestWritable, 1, -1,
		newestWritable - 1, 0, -1, -1, 999, 1_000_000, newestWritable,
	}
	for i, stamp := range stamps {
		r := writerRecord(i)
		r.Timestamp = stamp
		w.mustWrite(to, 0, r)
	}
	w.mustFlush(to)
	w.checkExact()
	batches, err := reader.Batches(testcluster.Context(t), broker.Addrs(), w.name)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches[0] {
		newest, without := int64(-1), 0
		for _, r := range b.Records {
			newest = max(newest, r.Timestamp)
			if r.Timestamp == -1 {
				without++
			}
		}
		if without != 0 && without != len(b.Records) {
			t.Errorf("offset %d: %d of the %d records in a batch have no timestamp", b.FirstOffset, without, len(b.Records))
		}
		if b.MaxTimestamp != newest {
			t.Errorf("offset %d: the batch's max timestamp is %d, its newest record's %d", b.FirstOffset, b.MaxTimestamp, newest)
		}
	}
}

func TestWriterRefusesTimestampsItWouldChange(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 1, nil)
	to := w.openPlain(1 << 16)
	w.mustWrite(to, 0, writerRecord(0))
	for _, stamp := range []int64{-2, -1_700_000_000_000, newestWritable + 1, 1<<63 - 1, -1 << 63} {
		r := writerRecord(1)
		r.Timestamp = stamp
		if err := w.write(to, 0, r); err == nil || !errors.Is(err, ErrPreflight) {
			t.Errorf("timestamp %d: %v", stamp, err)
		}
	}
	w.mustWrite(to, 0, writerRecord(2)) // none of those harms what can be written
	w.mustFlush(to)
	w.checkExact()
}

func TestWriterKeepsEveryByte(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 2, nil)
	to := w.openPlain(1 << 12)
	header := func(name string, value []byte) rewrite.Header { return rewrite.Header{Key: []byte(name), Value: value} }
	var many []rewrite.Header
	for i := range 5000 {
		h := header("h"+strconv.Itoa(i%100), fmt.Append(nil, i))
		if i%3 == 0 {
			h.Value = nil
		}
		many = append(many, h)
	}
	for i, r := range []rewrite.Record{
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("k"), Value: nil},
		{Key: []byte("k"), Value: []byte{}},
		{Key: []byte("k"), Value: []byte("null")},
		{Key: nil, Value: []byte("value")},
		{Key: []byte("\xff\x00\xfe"), Value: []byte("\x00")},
		{Key: []byte("k"), Headers: []rewrite.Header{header("", nil), header("", []byte{}), header("a", nil), header("a", []byte{}), header("a", []byte("x")), header("a", []byte("x"))}},
		{Key: []byte("k"), Value: []byte("v"), Headers: many},
		{Key: []byte("k"), Value: []byte("v"), Headers: many[:1]},
		{Key: []byte("last")},
	} {
		for p := range int32(2) {
			r.Timestamp = int64(i)
			w.mustWrite(to, p, r)
		}
	}
	w.mustFlush(to)
	w.checkExact()
}

func TestWriterWritesAHugeRecordAndForgetsIt(t *testing.T) {
	broker := testcluster.Start(t)
	const limit = 32 << 20
	w := newWriterTopic(t, broker, 1, map[string]string{"max.message.bytes": strconv.Itoa(limit)})
	w.readTimeout(testcluster.Deadline)
	to := w.open(w.lock(), sarama.CompressionNone, limit)
	w.mustWrite(to, 0, writerRecord(0))
	huge := writerRecord(1)
	huge.Value = make([]byte, 20<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(huge.Value)
	w.mustWrite(to, 0, huge)
	w.mustWrite(to, 0, writerRecord(2))
	w.mustFlush(to)
	w.checkExact()
	for range cap(to.partitions[0].free) {
		batch := <-to.partitions[0].free
		held := cap(batch.arena)
		for _, r := range batch.records[:cap(batch.records)] {
			held += cap(r.Key) + cap(r.Value)
		}
		if held > 4*batch.size {
			t.Errorf("an empty batch holds on to %d bytes", held)
		}
		to.partitions[0].free <- batch
	}
}

// TestWriterCopiesWhatItKeeps overwrites everything that was handed to Write as
// soon as it returns, as a reader does that uses its fetch buffers again.
func TestWriterCopiesWhatItKeeps(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 1, nil)
	to := w.openPlain(1 << 11)
	scratch := make([]byte, 0, 1<<16)
	random := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		scratch = scratch[:0]
		next := func(most int) []byte {
			from := len(scratch)
			for range random.IntN(most) {
				scratch = append(scratch, byte(random.Uint32()))
			}
			return scratch[from:]
		}
		r := rewrite.Record{Timestamp: random.Int64N(1000), Key: next(20), Value: next(300)}
		for range random.IntN(4) {
			r.Headers = append(r.Headers, rewrite.Header{Key: writerLetters(next(5)), Value: next(20)})
		}
		w.mustWrite(to, 0, r)
		for i := range scratch {
			scratch[i] = 0xee
		}
		clear(r.Headers)
	}
	w.mustFlush(to)
	w.checkExact()
}

func writerLetters(b []byte) []byte {
	for i := range b {
		b[i] = 'a' + b[i]%26
	}
	return b
}

// FuzzWriterBatchOwnsItsBytes fills one batch again and again from a buffer that
// is overwritten after each record, and compares what it holds with copies.
func FuzzWriterBatchOwnsItsBytes(f *testing.F) {
	f.Add([]byte("\x01\x02\x03\x00\xff\x10\x40"), uint16(200))
	f.Add(bytes.Repeat([]byte{9, 200, 3, 77, 0}, 60), uint16(900))
	f.Fuzz(func(t *testing.T, script []byte, size uint16) {
		batch := &outgoing{size: int(size) + 1}
		buffer := make([]byte, 4096)
		var want []reader.Record
		check := func() {
			if len(want) == 0 {
				return
			}
			built := batch.build(producer{id: 1, since: time.Now()}, 0, sarama.CompressionNone)
			var got []reader.Record
			for _, r := range built.Records {
				out := reader.Record{Offset: r.OffsetDelta, Key: r.Key, Value: r.Value, Timestamp: r.TimestampDelta.Milliseconds() + max(built.FirstTimestamp.UnixMilli(), -1)}
				for _, h := range r.Headers {
					out.Headers = append(out.Headers, reader.Header{Key: string(h.Key), Value: h.Value})
				}
				got = append(got, out)
			}
			if !slices.EqualFunc(want, got, writerSame) {
				t.Fatalf("(-added +in the batch):\n%s", writerShort(cmp.Diff(want, got, writerBytes)))
			}
		}
		for i := 0; i+4 < len(script); i += 5 {
			at := 0
			take := func(n byte) []byte {
				if n == 255 {
					return nil
				}
				part := buffer[at : at+int(n)]
				at += int(n)
				for j := range part {
					part[j] = byte(i + j + int(n))
				}
				return part
			}
			r := rewrite.Record{Key: take(script[i]), Value: take(script[i+1]), Timestamp: int64(script[i+2]) - 1}
			for range script[i+3] % 5 {
				r.Headers = append(r.Headers, rewrite.Header{Key: take(script[i+4] % 250), Value: take(script[i+4])})
			}
			if !batch.fits(&r) {
				check()
				batch.reset()
				want = nil
			}
			batch.add(&r)
			want = append(want, writerExpected(0, int64(len(want)), &r))
			for j := range buffer {
				buffer[j] = 0xee
			}
			clear(r.Headers)
		}
		check()
	})
}

func TestWriterSaysWhatKindOfFailureItIs(t *testing.T) {
	testcluster.RequireFake(t, "makes produce requests fail")
	broker := testcluster.Start(t)
	for _, c := range []struct {
		code  *kerr.Error
		kind  error
		exit  int
		names string
	}{
		{kerr.MessageTooLarge, ErrPreflight, 6, "larger than the target takes"},
		{kerr.RecordListTooLarge, ErrPreflight, 6, "larger than the target takes"},
		{kerr.InvalidTimestamp, ErrPreflight, 6, "refuses a timestamp"},
		{kerr.TopicAuthorizationFailed, ErrPreflight, 6, "not permitted: Write on topic "},
		{kerr.ClusterAuthorizationFailed, ErrPreflight, 6, "not permitted: IdempotentWrite on the cluster"},
		{kerr.InvalidProducerEpoch, ErrChanged, 4, "another apply"},
		{kerr.ProducerFenced, ErrChanged, 4, "another apply"},
		{kerr.UnknownServerError, nil, 1, "partition 0"},
		{kerr.NotEnoughReplicas, nil, 1, "gave up after"},
	} {
		t.Run(c.code.Message, func(t *testing.T) {
			w := newWriterTopic(t, broker, 1, nil)
			w.cluster.patience = writerPatience
			handle := broker.Fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.name, Err: c.code, Count: -1})
			defer handle.Remove()
			to := w.openPlain(1 << 12)
			w.mustWrite(to, 0, writerRecord(7))
			err := w.flush(to)
			if got := ExitCode(err); got != c.exit {
				t.Errorf("exit code %d, want %d: %v", got, c.exit, err)
			}
			for _, kind := range []error{ErrUsage, ErrUnparseable, ErrChanged, ErrDifferent, ErrPreflight, ErrInterrupted} {
				if got, want := errors.Is(err, kind), kind == c.kind; got != want {
					t.Errorf("is %q: %t, want %t: %v", kind, got, want, err)
				}
			}
			if !strings.Contains(err.Error(), c.names) || !strings.Contains(err.Error(), w.name) && c.code != kerr.ClusterAuthorizationFailed {
				t.Errorf("the message names neither %q nor the topic: %v", c.names, err)
			}
			if !strings.Contains(err.Error(), c.code.Message) && !errors.Is(err, sarama.KError(c.code.Code)) {
				t.Errorf("the broker's own error is lost: %v", err)
			}
			if c.kind != nil && Advice(err) == "" {
				t.Error("no advice")
			}
		})
	}
}

// TestWriterIsToldByARealBroker has the broker itself refuse what it refuses.
func TestWriterIsToldByARealBroker(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker has no timestamp limits and takes null keys everywhere")
	broker := testcluster.Start(t)
	for _, c := range []struct {
		name    string
		configs map[string]string
		record  rewrite.Record
		exit    int
	}{
		{"timestamp", nil, rewrite.Record{Timestamp: time.Now().Add(48 * time.Hour).UnixMilli(), Key: []byte("k")}, 6},
		{"size", map[string]string{"max.message.bytes": "1000"}, rewrite.Record{Timestamp: 1, Key: []byte("k"), Value: make([]byte, 2000)}, 6},
		{"null key", map[string]string{"cleanup.policy": "compact"}, rewrite.Record{Timestamp: 1, Value: []byte("v")}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWriterTopic(t, broker, 2, c.configs)
			to := w.openPlain(1 << 12)
			w.mustWrite(to, 0, writerRecord(0))
			w.mustFlush(to)
			if err := w.write(to, 0, c.record); err != nil {
				t.Fatal(err)
			}
			w.mustWrite(to, 0, writerRecord(1))
			if err := w.flush(to); err == nil || ExitCode(err) != c.exit {
				t.Errorf("exit code %d, want %d: %v", ExitCode(err), c.exit, err)
			}
			_ = to.Close()
			if there := w.checkPrefix(); there[0] != 1 {
				t.Errorf("%d records, want 1", there[0])
			}
		})
	}
}

func TestWriterFollowsLeadersThatMove(t *testing.T) {
	testcluster.RequireFake(t, "moves leaders")
	broker := testcluster.StartWith(t, testcluster.Options{Brokers: 3})
	const partitions = 6
	w := newWriterTopic(t, broker, partitions, nil)
	to := w.openPlain(4 * writerRecordSize())
	for i := range 600 {
		if i%40 == 20 {
			for p := range int32(partitions) {
				if err := broker.Fake().Cluster().MoveTopicPartition(w.name, p, int32(i/40+int(p))%3); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.mustWrite(to, int32(i%partitions), writerRecord(i))
	}
	w.mustFlush(to)
	w.checkExact()
}

func TestWriterWaitsForALeader(t *testing.T) {
	testcluster.RequireFake(t, "takes the leader away")
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 2, nil)
	to := w.openPlain(writerRecordSize())
	w.mustWrite(to, 1, writerRecord(0))
	w.mustFlush(to)
	// Producing is refused and metadata knows no leader until the latter was
	// asked for five times.
	cluster := broker.Fake().Cluster()
	refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.name, Partitions: []int32{1}, Err: kerr.NotLeaderForPartition, Count: -1})
	absent := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: w.name, Err: kerr.LeaderNotAvailable, Count: 5})
	for i := range 5 {
		w.mustWrite(to, 1, writerRecord(1+i))
		w.mustWrite(to, 0, writerRecord(11+i))
		if i == 1 {
			if err := absent.Wait(testcluster.Context(t), 5); err != nil {
				t.Fatal(err)
			}
			refused.Remove()
		}
	}
	w.mustFlush(to)
	w.checkExact()
}

func TestWriterSurvivesBrokersThatComeAndGo(t *testing.T) {
	testcluster.RequireFake(t, "removes and adds brokers")
	broker := testcluster.StartWith(t, testcluster.Options{Brokers: 3})
	w := newWriterTopic(t, broker, 6, nil)
	to := w.openPlain(2 * writerRecordSize())
	write := func(from int) {
		for i := range 60 {
			w.mustWrite(to, int32(i%6), writerRecord(from+i))
		}
	}
	cluster := broker.Fake().Cluster()
	write(0)
	if err := cluster.RemoveNode(1); err != nil {
		t.Fatal(err)
	}
	write(100)
	if _, _, err := cluster.AddNode(7, 0); err != nil {
		t.Fatal(err)
	}
	cluster.ShufflePartitionLeaders()
	write(200)
	if err := cluster.RemoveNode(2); err != nil {
		t.Fatal(err)
	}
	write(300)
	w.mustFlush(to)
	w.checkExact()
}

func TestNextSequence(t *testing.T) {
	const highest = 1<<31 - 1
	for _, c := range []struct {
		from int32
		n    int
		want int32
	}{
		{0, 1, 1},
		{0, highest, highest},
		{highest - 1, 1, highest},
		{highest, 1, 0},
		{highest, 2, 1},
		{highest - 5, 6, 0},
		{highest - 5, 10, 4},
		{highest, highest, highest - 1},
	} {
		if got := nextSequence(c.from, c.n); got != c.want {
			t.Errorf("after %d records from %d comes %d, want %d", c.n, c.from, got, c.want)
		}
	}
}

func TestWriterGoesOnPastTheHighestSequence(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker starts over one sequence too early")
	broker := testcluster.Start(t)
	for _, before := range []int32{0, 1, 4, 5, 6, 12} {
		t.Run(strconv.Itoa(int(before)), func(t *testing.T) {
			w := newWriterTopic(t, broker, 1, nil)
			// A broker takes any first sequence from a producer it does not know
			// where something is in the log already.
			seedClient := broker.Client(t)
			first := reader.Record{Timestamp: 1, Key: []byte("k")}
			if _, err := seed.ProduceBatch(testcluster.Context(t), seedClient, w.name, 0, seed.Batch{Records: []reader.Record{first}}); err != nil {
				t.Fatal(err)
			}
			w.model.written[0] = append(w.model.written[0], first)
			to := w.openPlain(5 * writerRecordSize())
			to.partitions[0].sequence = 1<<31 - 1 - before
			appendedOnce := map[int32]bool{}
			w.dialer.cut = func(s writerSent) writerCut {
				if appendedOnce[s.sequence()] {
					return cutNothing
				}
				appendedOnce[s.sequence()] = true
				return cutAppended // and each batch is sent twice
			}
			for i := range 33 {
				w.mustWrite(to, 0, writerRecord(i))
			}
			w.mustFlush(to)
			w.checkExact()
		})
	}
}

func TestWriterFlushOfNothingSucceeds(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 3, nil)
	to := w.openPlain(1 << 12)
	w.mustFlush(to)
	w.mustWrite(to, 1, writerRecord(0))
	w.mustFlush(to)
	w.mustFlush(to)
	w.checkExact()
	// One record, one batch; it is sent again where the topic is too new for the
	// broker to lead it.
	for _, s := range w.dialer.requests(-1) {
		if s.partition != 1 || s.sequence() != 0 || s.records() != 1 {
			t.Errorf("a request for partition %d, sequence %d, %d records", s.partition, s.sequence(), s.records())
		}
	}
}

func TestWriterCloseWaitsForWhatIsUnderWay(t *testing.T) {
	testcluster.RequireFake(t, "holds a produce request back")
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 1, nil)
	to := w.openPlain(writerRecordSize())
	held := make(chan struct{})
	cluster := broker.Fake().Cluster()
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.DropControl()
		cluster.SleepControl(func() {
			close(held)
			<-to.ctx.Done() // Close was called
		})
		return nil, nil, false
	})
	for i := range 2 {
		w.mustWrite(to, 0, writerRecord(i))
	}
	<-held
	if err := to.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n := to.acked.Load(); n != 1 {
		t.Errorf("%d records acknowledged when Close returned, want 1", n)
	}
	if there := w.checkPrefix(); there[0] != 1 {
		t.Errorf("%d records in the log, want 1", there[0])
	}
}

func TestWriterTakesNothingAfterClose(t *testing.T) {
	broker := testcluster.Start(t)
	// Both with a batch that is partly filled and without one, and more than
	// once: a closed writer must not take a record by chance.
	for _, filled := range []int{0, 1} {
		for range 20 {
			w := newWriterTopic(t, broker, 1, nil)
			to := newTopicWriter(w.cluster, w.name, 1, producer{id: 1, since: time.Now()}, sarama.CompressionNone, 1<<20)
			for i := range filled {
				w.mustWrite(to, 0, writerRecord(i))
			}
			if err := to.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			if filled == 1 {
				w.model = newWriterModel(1) // Close drops what was not flushed
			}
			if err := w.write(to, 0, writerRecord(9)); !errors.Is(err, errWriterClosed) {
				t.Fatalf("%d records before Close, then Write: %v", filled, err)
			}
			if err := to.Flush(t.Context()); !errors.Is(err, errWriterClosed) {
				t.Fatalf("%d records before Close, then Flush: %v", filled, err)
			}
			if err := to.Close(); err != nil {
				t.Fatalf("the second Close: %v", err)
			}
			if n := len(w.dialer.requests(-1)); n != 0 {
				t.Fatalf("%d requests", n)
			}
		}
	}
}

// Brokers forget a producer's epoch after a day without records. A process that
// slept for so long may find that nothing fences it any more.
func TestWriterSendsNothingAfterALongSleep(t *testing.T) {
	w := newWriterTopic(t, testcluster.Start(t), 1, nil)
	to := newTopicWriter(w.cluster, w.name, 1, producer{id: 1, since: time.Now()}, sarama.CompressionNone, 1<<20)
	defer func() {
		if err := to.Close(); !errors.Is(err, ErrChanged) {
			t.Errorf("Close after the failure: %v", err)
		}
	}()
	to.lastAcked.Store(time.Now().Add(-longestSleep - time.Minute).UnixNano())
	w.mustWrite(to, 0, writerRecord(0))
	if err := to.Flush(t.Context()); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "nothing was written to") {
		t.Errorf("after a long sleep: %v, want a refusal", err)
	}
	if n := len(w.dialer.requests(-1)); n != 0 {
		t.Errorf("%d requests after a long sleep", n)
	}
}

func TestWriterReturnsWhenTheCallerGivesUp(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 1, nil)
	w.readTimeout(testcluster.Deadline) // the answer never comes
	to := newTopicWriter(w.cluster, w.name, 1, w.lock(), sarama.CompressionNone, 1<<20)
	w.dialer.cut = func(writerSent) writerCut { return requestLost }
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	// Each of these waits: the first for its acknowledgement, the others for a
	// batch that is free, or for the one that waits.
	go func() {
		r := writerRecord(0)
		if err := to.Write(ctx, 0, &r); err != nil {
			failed <- err
			return
		}
		failed <- to.Flush(ctx)
	}()
	writerUntil(t, "a request is under way", func() bool { return len(w.dialer.requests(0)) == 1 })
	for range 3 {
		go func() {
			r := writerRecord(1)
			r.Value = make([]byte, 1<<20)
			for {
				if err := to.Write(ctx, 0, &r); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	cancel()
	for range 4 {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	// Close would go on waiting for the answer, until the time-out.
	w.dialer.recover()
	_ = to.Close()
}

func TestWriterLeavesNoGoroutines(t *testing.T) {
	testcluster.RequireFake(t, "counts goroutines")
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 16, nil)
	_ = w.lock() // opens the connections that all writers share
	before := runtime.NumGoroutine()
	for range 5 {
		to := newTopicWriter(w.cluster, w.name, 16, w.lock(), sarama.CompressionNone, 1<<20)
		for i := range 64 {
			w.mustWrite(to, int32(i%16), writerRecord(i))
		}
		w.mustFlush(to)
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The broker's own goroutines of a connection end a moment later.
	writerUntil(t, "all goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}

// TestWriterAgainstTheModel writes at random while the broker and the
// connections fail at random. REKEY_WRITER_SEED repeats one seed alone.
func TestWriterAgainstTheModel(t *testing.T) {
	t.Parallel()
	testcluster.RequireFake(t, "makes produce requests fail")
	broker := testcluster.StartWith(t, testcluster.Options{Brokers: 2})
	var seeds []uint64
	if text := os.Getenv("REKEY_WRITER_SEED"); text != "" {
		one, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{one}
	} else {
		for range 60 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	var exact, gaveUp atomic.Int32
	writerEach(t, seeds, func(t *testing.T, seed uint64) {
		defer func() {
			if t.Failed() {
				t.Logf("repeat with REKEY_WRITER_SEED=%d", seed)
			}
		}()
		if writerRandom(t, broker, seed) {
			exact.Add(1)
		} else {
			gaveUp.Add(1)
		}
	})
	t.Logf("%d exact, %d gave up", exact.Load(), gaveUp.Load())
	if len(seeds) > 1 && (exact.Load() == 0 || gaveUp.Load() == 0) {
		t.Error("the faults are too many or too few to show anything")
	}
}

// writerRandom is one run; it says whether the writer got through.
func writerRandom(t *testing.T, broker *testcluster.Cluster, seed uint64) bool {
	random := rand.New(rand.NewPCG(seed, 0))
	partitions := 1 + random.IntN(12)
	w := newWriterTopic(t, broker, partitions, nil)
	w.readTimeout(500 * time.Millisecond)
	to := w.openPlain(1 + random.IntN(1000))
	codes := slices.Concat(writerPasses, writerPasses, writerPasses)
	if random.IntN(3) == 0 {
		codes = append(codes, writerStays...)
	}
	cluster := broker.Fake().Cluster()
	var handles []*kfake.FaultHandle
	defer func() {
		for _, h := range handles {
			h.Remove()
		}
	}()
	cuts := rand.New(rand.NewPCG(seed, 1))
	w.dialer.cut = func(writerSent) writerCut {
		if cuts.IntN(25) > 0 {
			return cutNothing
		}
		// Those that wait for a time-out are rare, since they take so long.
		if cuts.IntN(20) == 0 {
			return answerLost + writerCut(cuts.IntN(2))
		}
		return cutBefore + writerCut(cuts.IntN(int(answerLost-cutBefore)))
	}
	buffer := make([]byte, 2000)
	for i := range 150 {
		switch random.IntN(40) {
		case 0:
			handles = append(handles, cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.name,
				Partitions: []int32{int32(random.IntN(partitions))}, Err: codes[random.IntN(len(codes))], Count: 1 + random.IntN(2)}))
		case 1:
			if err := cluster.MoveTopicPartition(w.name, int32(random.IntN(partitions)), int32(random.IntN(2))); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := w.flush(to); err != nil {
				_ = to.Close()
				w.checkPrefix()
				return false
			}
		}
		value := buffer[:random.IntN(300)]
		if random.IntN(50) == 0 {
			value = buffer
		}
		for j := range value {
			value[j] = byte(i + j)
		}
		r := writerRecord(i)
		r.Value = value
		if random.IntN(10) == 0 {
			r.Timestamp = -1
		}
		err := w.write(to, int32(random.IntN(partitions)), r)
		clear(value)
		if err != nil {
			break
		}
	}
	err := w.flush(to)
	_ = to.Close()
	if err != nil {
		w.checkPrefix()
		return false
	}
	w.checkExact()
	return true
}

// TestWriterAllocatesNothingForARecord holds it for a batch that has been used
// before and that is not full.
func TestWriterAllocatesNothingForARecord(t *testing.T) {
	broker := testcluster.Start(t)
	w := newWriterTopic(t, broker, 1, nil)
	to := w.open(w.lock(), sarama.CompressionNone, 1<<20)
	r := writerRecord(0)
	const records = 1000
	write := func() {
		for range records {
			if err := to.Write(t.Context(), 0, &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 * cap(to.partitions[0].free) { // both batches have grown by then
		write()
		write()
		if err := to.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := testing.AllocsPerRun(1, write) // two runs: one to warm up
	if first > 2 {
		t.Errorf("%.0f allocations for %d records", first, records)
	}
}

func BenchmarkWriter(b *testing.B) {
	for _, partitions := range []int{1, 8, 64} {
		for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionLZ4} {
			b.Run(fmt.Sprintf("%d partitions, %s", partitions, codec), func(b *testing.B) {
				broker := testcluster.StartWith(b, testcluster.Options{Fake: []kfake.Opt{kfake.BlackholeProduce()}})
				w := newWriterTopic(b, broker, partitions, nil)
				writerConfigure(w.cluster, func(config *sarama.Config) { config.Net.Proxy.Enable = false })
				to := w.open(w.lock(), codec, 1<<20)
				r := writerRecord(0)
				r.Value = bytes.Repeat([]byte("some state 0123 "), 16)
				b.SetBytes(int64(r.Size()))
				b.ReportAllocs()
				i := int32(0)
				for b.Loop() {
					if err := to.Write(b.Context(), i%int32(partitions), &r); err != nil {
						b.Fatal(err)
					}
					i++
				}
				if err := to.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
