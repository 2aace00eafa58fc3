package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"rekey/rewrite"
)

// Invariants of writing without holes:
//
//   - One batch is in flight for a target partition, never two.
//   - A batch whose fate is unknown is sent again unchanged, with the same
//     producer id, epoch and sequence; the broker drops it if it is in the log.
//   - After an error that sending again does not cure, nothing more is sent to
//     any partition.
//   - The offset in an acknowledgement is never used: for a duplicate it may be
//     made up.
//   - Records of one target partition keep the order in which Write got them.

// Sink takes the records of a topic.
type Sink interface {
	// Write appends a record to a target partition. It copies what it keeps.
	// A nil error does not mean that the record is in the log: Flush does.
	// Safe for concurrent use; the order of the calls for one partition is
	// the order in the log.
	Write(ctx context.Context, partition int32, r *rewrite.Record) error
	// Flush sends everything and waits for the acknowledgements.
	Flush(ctx context.Context) error
}

// Sizes of a batch before compression. Large batches compress well and cost
// few requests; the memory for all of them is shared by the target partitions.
const (
	largestBatch  = 800 << 10
	smallestBatch = 16 << 10
	// recordOverhead bounds what a record takes in a batch beside its payload:
	// attributes, lengths and deltas as variable-length integers.
	recordOverhead = 32
	headerOverhead = 10
	batchOverhead  = 61 // the header of a record batch
	writeTimeout   = 30 * time.Second
)

// batchSize is how much a batch may hold before compression, so that it stays
// below the limit after it: compressed, what cannot be compressed takes a frame
// and a few bytes for each block more than raw.
func batchSize(partitions, limit int, memory int64) int {
	room := limit - batchOverhead - limit/1024 - 64
	return min(largestBatch, max(smallestBatch, int(memory)/(2*partitions)), max(1, room))
}

// producer is the identity under which a topic is written.
type producer struct {
	id    int64
	epoch int16
	since time.Time // when it was asked for
}

// topicWriter writes a topic with one ordered, idempotent sequence for each
// partition. It implements Sink.
type topicWriter struct {
	cluster    *cluster
	topic      string
	producer   producer
	codec      sarama.CompressionCodec
	partitions []*targetPartition
	huge       *gate            // for records that are larger than a batch should be
	queues     []chan *outgoing // one for each sender
	senders    sync.WaitGroup
	stop       context.CancelCauseFunc // stops the senders after a failure
	ctx        context.Context         // done after a failure
	acked      atomic.Int64            // records acknowledged
	lastAcked  atomic.Int64            // when, in nanoseconds since 1970; at first when the lock was taken
}

// targetPartition collects the next batch of one partition.
type targetPartition struct {
	mu       sync.Mutex
	filling  *outgoing
	free     chan *outgoing // the batches that are neither filling nor on their way
	sequence int32          // of the next batch; only its sender touches it
	written  int64          // records that were acknowledged; to be read when nothing is on its way
}

// newTopicWriter starts the senders. limit is the topic's max.message.bytes.
func newTopicWriter(c *cluster, topic string, partitions int, p producer, codec sarama.CompressionCodec, limit int) *topicWriter {
	ctx, stop := context.WithCancelCause(context.Background())
	budget := c.env.budget()
	w := &topicWriter{cluster: c, topic: topic, producer: p, codec: codec, ctx: ctx, stop: stop, huge: newGate(budget.hugeAtOnce)}
	w.lastAcked.Store(p.since.UnixNano())
	size := batchSize(partitions, limit, budget.batches)
	for partition := range partitions {
		target := &targetPartition{free: make(chan *outgoing, 2)}
		for range cap(target.free) {
			target.free <- &outgoing{partition: int32(partition), size: size}
		}
		w.partitions = append(w.partitions, target)
	}
	// A partition always goes through the same sender, which keeps its batches
	// in order and one at a time. With 64 partitions on Apache Kafka, two cores for
	// both, 16 senders were 15 % faster than 8; on the embedded broker the same.
	for range min(partitions, budget.senders) {
		// Both batches of every partition fit, so queueing never blocks.
		queue := make(chan *outgoing, 2*partitions)
		w.queues = append(w.queues, queue)
		w.senders.Go(func() { w.send(queue) })
	}
	return w
}

// Write implements Sink.
func (w *topicWriter) Write(ctx context.Context, partition int32, r *rewrite.Record) error {
	if r.Timestamp < -1 || r.Timestamp > newestWritable {
		return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("write to %s partition %d: timestamp %d would be changed; it must be -1 or from 0 to %d", w.topic, partition, r.Timestamp, newestWritable)}
	}
	target := w.partitions[partition]
	target.mu.Lock()
	defer target.mu.Unlock()
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if target.filling != nil && !target.filling.fits(r) {
		w.enqueue(target)
	}
	if target.filling == nil {
		select {
		case target.filling = <-target.free:
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if size := wireSize(r); size > target.filling.size {
		return w.writeHuge(ctx, target, r, size)
	}
	target.filling.add(r)
	return nil
}

// writeHuge sends a record that is larger than a batch should be, alone and at
// once: while it waited for company, it would keep others like it waiting.
func (w *topicWriter) writeHuge(ctx context.Context, target *targetPartition, r *rewrite.Record, size int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	taken, err := w.huge.enter(ctx, int64(size))
	if err != nil {
		target.free <- target.filling // empty: it must not be sent
		target.filling = nil
		return cmp.Or(context.Cause(w.ctx), err)
	}
	target.filling.add(r)
	target.filling.huge = taken
	w.enqueue(target)
	return nil
}

// enqueue hands the filling batch, if there is one, to its sender. The caller
// holds target.mu.
func (w *topicWriter) enqueue(target *targetPartition) {
	batch := target.filling
	if batch == nil {
		return
	}
	target.filling = nil
	w.queues[int(batch.partition)%len(w.queues)] <- batch
}

// Flush implements Sink.
func (w *topicWriter) Flush(ctx context.Context) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	for _, target := range w.partitions {
		target.mu.Lock()
		w.enqueue(target)
		target.mu.Unlock()
	}
	for _, target := range w.partitions {
		if err := w.settle(ctx, target); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until nothing of a partition is on its way: then both of its
// batches are free.
func (w *topicWriter) settle(ctx context.Context, target *targetPartition) error {
	target.mu.Lock()
	defer target.mu.Unlock()
	w.enqueue(target) // what another caller wrote since
	var taken []*outgoing
	defer func() {
		for _, batch := range taken {
			target.free <- batch
		}
	}()
	for range cap(target.free) {
		select {
		case batch := <-target.free:
			taken = append(taken, batch)
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close stops the senders after the requests that are under way; batches that
// were not flushed are dropped. It returns the failure that stopped the writer,
// if one did.
func (w *topicWriter) Close() error {
	w.stop(errWriterClosed) // an earlier failure stays the cause
	w.senders.Wait()
	if cause := context.Cause(w.ctx); !errors.Is(cause, errWriterClosed) {
		return cause
	}
	return nil
}

var errWriterClosed = errors.New("the writer is closed")

// send is the loop of one sender.
func (w *topicWriter) send(queue <-chan *outgoing) {
	link := w.cluster.newLink()
	defer link.close()
	for {
		select {
		case <-w.ctx.Done():
			return
		case batch := <-queue:
			if w.ctx.Err() != nil {
				return // both were ready; nothing is sent after a failure
			}
			err := w.awake()
			if err == nil {
				err = w.produce(link, batch)
			}
			if err != nil {
				w.stop(err)
				return
			}
			w.lastAcked.Store(time.Now().UnixNano())
			w.acked.Add(int64(len(batch.records)))
			w.huge.leave(batch.huge)
			batch.reset()
			w.partitions[batch.partition].free <- batch
		}
	}
}

// longestSleep is half of how long brokers remember a producer's epoch, unless
// they are told otherwise (producer.id.expiration.ms). See lock.go.
const longestSleep = 12 * time.Hour

// awake refuses to go on after a sleep so long that the brokers may have
// forgotten that another apply took over.
func (w *topicWriter) awake() error {
	if slept := time.Since(time.Unix(0, w.lastAcked.Load())); slept > longestSleep {
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("nothing was written to %s for %s: another apply may have written it meanwhile", w.topic, slept.Round(time.Minute)),
			Do: "run the same command again: it finds out from the target where to go on"}
	}
	return nil
}

// produce sends one batch until it is acknowledged or must be given up.
func (w *topicWriter) produce(link *link, batch *outgoing) error {
	target := w.partitions[batch.partition]
	request := &sarama.ProduceRequest{
		Version:      9,
		RequiredAcks: sarama.WaitForAll,
		Timeout:      int32(writeTimeout / time.Millisecond),
	}
	// The library keeps the compressed form in the batch, so sending again
	// sends the very same bytes.
	request.AddBatch(w.topic, batch.partition, batch.build(w.producer, target.sequence, w.codec))
	wait := newBackoff(w.cluster.patience)
	for {
		err := w.produceOnce(link, request, batch)
		if err == nil {
			target.sequence = nextSequence(target.sequence, len(batch.records))
			target.written += int64(len(batch.records))
			w.cluster.env.Progress.Wait("")
			return nil
		}
		if !transient(err) {
			return w.failure(batch, err)
		}
		w.cluster.env.Progress.Wait(fmt.Sprintf("partition %d of %s: %v", batch.partition, w.topic, err))
		if renewErr := link.renew(w.topic); renewErr != nil && !transient(renewErr) {
			return w.failure(batch, renewErr)
		}
		// Time and failure may come together, and nothing is sent after a failure.
		if !wait.next(w.ctx) || w.ctx.Err() != nil {
			if w.ctx.Err() != nil {
				return context.Cause(w.ctx)
			}
			return w.failure(batch, fmt.Errorf("gave up after %s: %w", w.cluster.patience, err))
		}
	}
}

// errStamped says that the broker wrote timestamps of its own.
var errStamped = errors.New("its message.timestamp.type is LogAppendTime")

func (w *topicWriter) produceOnce(link *link, request *sarama.ProduceRequest, batch *outgoing) error {
	broker, _, err := link.leader(w.topic, batch.partition)
	if err != nil {
		return err
	}
	response, err := broker.Produce(request)
	if err != nil {
		return err
	}
	block := response.GetBlock(w.topic, batch.partition)
	if block == nil {
		return fmt.Errorf("the answer lacks the partition: %w", sarama.ErrIncompleteResponse)
	}
	if !errors.Is(block.Err, sarama.ErrNoError) {
		return block.Err
	}
	// Of a batch that it has already, a broker gives the newest timestamp,
	// whoever wrote it; of another one, only its own.
	if !block.Timestamp.IsZero() && block.Timestamp.UnixMilli() != slices.Max(batch.stamps) {
		return errStamped
	}
	return nil
}

// failure names the records of a batch that could not be written.
func (w *topicWriter) failure(batch *outgoing, err error) error {
	at := fmt.Sprintf("write to %s partition %d, %d records of which the first is %s", w.topic, batch.partition, len(batch.records), batch.first)
	switch {
	case overtaken(err):
		return &Failure{Kind: ErrChanged, What: at + ": another apply of this target took over", Cause: err,
			Do: "let that one finish; this one wrote nothing after it started. To resume here instead, run the same command again"}
	case errors.Is(err, errStamped):
		return &Failure{Kind: ErrChanged, What: at + ": the broker replaced the timestamps", Cause: err,
			Do: "find out who changed that setting; then plan again with a new --run-dir and a target that does not exist"}
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return notPermitted("Write", "topic "+w.topic, err)
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return notPermitted("IdempotentWrite", "the cluster", err)
	case errors.Is(err, sarama.ErrMessageSizeTooLarge), errors.Is(err, sarama.ErrMessageSetSizeTooLarge):
		return &Failure{Kind: ErrPreflight, What: at + ": larger than the target takes", Cause: err,
			Do: "raise max.message.bytes of the target, then run the same command again"}
	case errors.Is(err, sarama.ErrInvalidTimestamp):
		return &Failure{Kind: ErrPreflight, What: at + ": the target refuses a timestamp", Cause: err,
			Do: "raise message.timestamp.before.max.ms or message.timestamp.after.max.ms of the target, then run the same command again"}
	}
	return fmt.Errorf("%s: %w", at, err)
}

// nextSequence is the sequence after a batch of n records that starts at s.
// Sequences go from 0 to 2^31-1 and then start over, as brokers expect.
func nextSequence(s int32, n int) int32 {
	return int32((int64(s) + int64(n)) & (1<<31 - 1))
}

// outgoing is one batch on its way to the log. It owns copies of all it holds,
// in buffers that are used again for the next batch: the fetch buffers behind
// the records would otherwise stay in memory until the slowest partition's
// batch is full.
type outgoing struct {
	partition int32
	size      int // payload and overhead that it takes, in bytes

	used     int
	arena    []byte
	records  []sarama.Record
	pointers []*sarama.Record
	headers  []sarama.RecordHeader
	headerPs []*sarama.RecordHeader
	stamps   []int64
	first    string // provenance of the first record, for errors
	huge     int64  // what it takes of the writer's gate
	padding  bool   // it holds padding and nothing else
}

// fits says whether a record may join the batch. Any record fits into an empty
// one. Records without a timestamp share no batch with others: their -1 would
// be the base of the others' deltas.
func (b *outgoing) fits(r *rewrite.Record) bool {
	if len(b.records) == 0 {
		return true
	}
	if b.used+wireSize(r) > b.size {
		return false
	}
	return (b.stamps[0] == -1) == (r.Timestamp == -1)
}

// wireSize bounds the bytes of a record in a batch before compression.
func wireSize(r *rewrite.Record) int {
	return recordOverhead + r.Size() + headerOverhead*len(r.Headers)
}

func (b *outgoing) add(r *rewrite.Record) {
	if len(b.records) == 0 {
		b.first, b.padding = "the padding", true
		if value, _ := rewrite.FindProvenance(r.Headers); !rewrite.IsPadding(value) {
			b.first, b.padding = "source "+string(value), false
		}
	} else if b.padding {
		value, _ := rewrite.FindProvenance(r.Headers)
		b.padding = rewrite.IsPadding(value)
	}
	b.used += wireSize(r)
	firstHeader := len(b.headers)
	for i := range r.Headers {
		b.headers = append(b.headers, sarama.RecordHeader{Key: b.keep(r.Headers[i].Key), Value: b.keep(r.Headers[i].Value)})
	}
	b.records = append(b.records, sarama.Record{
		OffsetDelta: int64(len(b.records)),
		Key:         b.keep(r.Key),
		Value:       b.keep(r.Value),
	})
	b.stamps = append(b.stamps, r.Timestamp)
	// Room for the pointers to this record's headers; build fills them in when
	// nothing moves any more.
	for range r.Headers {
		b.headerPs = append(b.headerPs, nil)
	}
	b.records[len(b.records)-1].Headers = b.headerPs[firstHeader:len(b.headerPs):len(b.headerPs)]
}

// keep copies bytes into the arena. Null stays null and empty stays empty.
func (b *outgoing) keep(data []byte) []byte {
	if len(data) == 0 {
		if data == nil {
			return nil
		}
		return []byte{}
	}
	if len(b.arena)+len(data) > cap(b.arena) {
		// What was handed out stays valid in the old arena.
		b.arena = make([]byte, 0, max(b.size+b.size/8, len(data)))
	}
	start := len(b.arena)
	b.arena = append(b.arena, data...)
	return b.arena[start:len(b.arena):len(b.arena)]
}

// build makes the record batch. Its base timestamp is that of the first record.
//
// Padding is compressed even where the records are not: all of it is the same, so
// a million records take 5 MB instead of 120 (docs/performance.md).
func (b *outgoing) build(p producer, sequence int32, codec sarama.CompressionCodec) *sarama.RecordBatch {
	if b.padding && codec == sarama.CompressionNone {
		codec = sarama.CompressionLZ4
	}
	next := 0
	b.pointers = b.pointers[:0]
	newest := b.stamps[0]
	for i := range b.records {
		record := &b.records[i]
		record.TimestampDelta = time.Duration(b.stamps[i]-b.stamps[0]) * time.Millisecond
		newest = max(newest, b.stamps[i])
		for h := range record.Headers {
			record.Headers[h] = &b.headers[next]
			next++
		}
		b.pointers = append(b.pointers, record)
	}
	return &sarama.RecordBatch{
		Version:              2,
		PartitionLeaderEpoch: -1,
		Codec:                codec,
		CompressionLevel:     sarama.CompressionLevelDefault,
		ProducerID:           p.id,
		ProducerEpoch:        p.epoch,
		FirstSequence:        sequence,
		FirstTimestamp:       libraryTime(b.stamps[0]),
		MaxTimestamp:         libraryTime(newest),
		LastOffsetDelta:      int32(len(b.records) - 1),
		Records:              b.pointers,
	}
}

func (b *outgoing) reset() {
	b.used, b.huge = 0, 0
	b.arena = b.arena[:0]
	if cap(b.arena) > 2*b.size {
		// One huge record must not hold its memory to the end.
		b.arena = nil
		clear(b.records)
		clear(b.headers)
	}
	b.records = b.records[:0]
	b.headers = b.headers[:0]
	b.headerPs = b.headerPs[:0]
	b.stamps = b.stamps[:0]
}

// newestWritable is the latest timestamp that the client library can write: it
// counts in nanoseconds, which reach to the year 2262. Preflight refuses later
// ones by name.
const newestWritable = (1<<63 - 1) / int64(time.Millisecond)

// libraryTime is the time that the client library encodes as the timestamp ms:
// the zero time stands for -1.
func libraryTime(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
