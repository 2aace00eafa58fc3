package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"rekey/rewrite"
)

// Invariants of reading a partition up to a fixed end:
//
//   - "saw offset end-1" is no stop condition: compaction, transaction markers
//     and DeleteRecords leave holes, at the end too.
//   - A time-out, an empty poll or a missing block decides nothing.
//   - The position moves by whole batches: past the last offset that a batch
//     covers, whether or not its records are still there.
//   - A partition is done when its position reaches the end, or when a response
//     brings nothing although the broker says, in that very response, that the
//     log reaches the end.
//   - A position outside of the log is a failure, never a reset.

// Span is a range of offsets of one partition: From inclusive, To exclusive.
type Span struct {
	Partition int32
	From, To  int64
}

// Source hands out the records of a topic.
type Source interface {
	// Read calls fn with the records of a span, in order and at least one at a
	// time, until the span is read to its end or fn fails. The slice and all it points to are used
	// again after fn returns.
	Read(ctx context.Context, span Span, fn func([]rewrite.Record) error) (ReadStats, error)
}

// ReadStats says what Read came across.
type ReadStats struct {
	Records int64
	Aborted int64    // records of aborted transactions, handed out or not
	Batches [5]int64 // by compression codec: none, gzip, snappy, lz4, zstd
}

// Fetch sizes, in compressed bytes. A batch larger than the fetch size comes
// back in part and is asked for again with twice the size. Otherwise the size
// follows how far the data expands: what counts for memory is what a response
// holds when it is decompressed, and there are up to three of them for each
// partition that is read (budget.expanded is the aim). At a fixed 2 MiB, lz4 data
// that shrinks to an eighth took three times the memory of the whole copy.
const (
	firstFetchBytes    = 64 << 10 // before it is known how far the data expands
	smallestFetchBytes = 4 << 10
	largestFetchBytes  = 4 << 20
	maxFetchBytes      = 64 << 20               // for a single batch that came in part
	fetchWait          = 500 * time.Millisecond // how long the broker may wait for the first byte
)

// topicReader reads a topic's partitions from their leaders with Fetch
// requests of one partition each.
type topicReader struct {
	cluster     *cluster
	topic       string
	skipAborted bool  // leave out records of aborted transactions
	fetchBytes  int32 // of the first request; 0: firstFetchBytes
}

// Read implements Source. One fetch is under way while the records of the one
// before are worked on.
func (r *topicReader) Read(ctx context.Context, span Span, fn func([]rewrite.Record) error) (ReadStats, error) {
	var stats ReadStats
	if span.From >= span.To {
		return stats, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fetched := make(chan response, 1)
	var fetchErr error // written before fetched is closed
	room := &room{gate: r.cluster.reading}
	defer room.close()
	go func() {
		defer close(fetched)
		fetchErr = r.fetchAll(ctx, span, room, fetched)
	}()
	budget := r.cluster.env.budget()
	var records []rewrite.Record
	for {
		var got response
		var more bool
		select {
		case got, more = <-fetched:
		case <-ctx.Done():
			return stats, ctx.Err()
		}
		if !more {
			return stats, fetchErr
		}
		if err := budget.check(); err != nil {
			return stats, err
		}
		for _, piece := range got.pieces {
			var err error
			if records, err = piece.records(records[:0], span.Partition); err != nil {
				return stats, r.failure(span.Partition, piece.batch.FirstOffset, err)
			}
			stats.Batches[piece.batch.Codec]++
			if piece.aborted {
				stats.Aborted += int64(len(records))
				if r.skipAborted {
					forget(records)
					continue
				}
			}
			if len(records) == 0 {
				continue // what the batch still holds lies outside of the span
			}
			stats.Records += int64(len(records))
			if err := fn(records); err != nil {
				return stats, err
			}
			forget(records)
		}
		room.leave(got.room)
	}
}

// response is what one fetch brought.
type response struct {
	pieces []piece
	room   int64 // that it takes in the gate for large responses
}

// room is what one Read takes of the gate for large responses. Where a Read
// ends early, what is still on its way gives its room back, too.
type room struct {
	gate   *gate
	mu     sync.Mutex
	taken  int64
	closed bool
}

func (r *room) enter(ctx context.Context, n int64) (int64, error) {
	n, err := r.gate.enter(ctx, n)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.gate.leave(n)
		return 0, context.Canceled
	}
	r.taken += n
	return n, nil
}

func (r *room) leave(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || n == 0 {
		return
	}
	r.taken -= n
	r.gate.leave(n)
}

func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.gate.leave(r.taken)
}

// fetchAll fetches a span until its end and sends what each response held.
func (r *topicReader) fetchAll(ctx context.Context, span Span, room *room, out chan<- response) error {
	link := r.cluster.newLink()
	defer link.close()
	budget := r.cluster.env.budget()
	at := cursor{pos: span.From, end: span.To, maxBytes: cmp.Or(r.fetchBytes, firstFetchBytes), aim: budget.expanded}
	wait := newBackoff(r.cluster.patience)
	for at.pos < at.end {
		before := at.pos
		// Only what is large waits, and only once it is known to be: the first
		// large batch of a partition is not.
		var taken int64
		if at.expanded > 2*at.aim {
			var err error
			if taken, err = room.enter(ctx, at.expanded); err != nil {
				return err
			}
		}
		block, err := r.fetch(link, span.Partition, at.pos, at.fetchBytes())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var pieces []piece
		var verdict verdict
		if err == nil {
			pieces, verdict, err = at.take(block)
		}
		switch {
		case errors.Is(err, sarama.ErrOffsetOutOfRange):
			if gone := r.outOfRange(ctx, span, at.pos); gone != nil {
				return gone
			}
		case undecodable(err) && at.alone == 0:
			// It may be any batch of the response. One at a time, those before it
			// are read and it can be named.
			at.alone = batchesAlone
			room.leave(taken)
			if err := link.renew(r.topic); err != nil && !transient(err) {
				return r.failure(span.Partition, at.pos, err)
			}
			continue
		case err != nil && !transient(err):
			return r.failure(span.Partition, at.pos, budget.explain(err))
		case err == nil && verdict == tailGone:
			return nil
		case err == nil && at.pos > before:
			wait.reset()
			r.cluster.env.Progress.Wait("")
			at.adapt(pieces)
			if len(pieces) > 0 {
				select {
				case out <- response{pieces, taken}:
				case <-ctx.Done():
					return ctx.Err()
				}
				continue
			}
			room.leave(taken)
			continue
		case err == nil && verdict == needsMore:
			room.leave(taken)
			at.alone = 0 // an old broker: see fetchBytes
			if at.maxBytes >= maxFetchBytes {
				return r.failure(span.Partition, at.pos, budget.explain(errUndecodable))
			}
			at.maxBytes = min(2*at.maxBytes, maxFetchBytes)
			continue
		}
		room.leave(taken)
		// Nothing moved: the leader is elsewhere, the request was throttled,
		// or the log is behind the captured end for now.
		if err != nil {
			r.cluster.env.Progress.Wait(fmt.Sprintf("partition %d of %s: %v", span.Partition, r.topic, err))
			if renewErr := link.renew(r.topic); renewErr != nil && !transient(renewErr) {
				return r.failure(span.Partition, at.pos, renewErr)
			}
		}
		if !wait.next(ctx) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				err = at.stuck(block)
			}
			return r.failure(span.Partition, at.pos, fmt.Errorf("gave up after %s: %w", r.cluster.patience, err))
		}
	}
	return nil
}

// fetch sends one request. The limit is the partition's, not the request's: an
// answer that the latter ends early lacks the aborted transactions, if it comes
// from the embedded broker. A missing block, as in throttled responses, is nil.
func (r *topicReader) fetch(link *link, partition int32, offset int64, maxBytes int32) (*sarama.FetchResponseBlock, error) {
	broker, epoch, err := link.leader(r.topic, partition)
	if err != nil {
		return nil, err
	}
	request := &sarama.FetchRequest{
		Version:      11,
		MaxWaitTime:  int32(fetchWait / time.Millisecond),
		MinBytes:     1,
		MaxBytes:     math.MaxInt32,        // the partition's own limit decides
		Isolation:    sarama.ReadCommitted, // the only level that lists aborted transactions
		SessionEpoch: -1,
	}
	request.AddBlock(r.topic, partition, offset, maxBytes, epoch)
	response, err := broker.Fetch(request)
	if err != nil {
		return nil, err
	}
	if response.ErrorCode != 0 {
		return nil, sarama.KError(response.ErrorCode)
	}
	block := response.GetBlock(r.topic, partition)
	if block != nil && !errors.Is(block.Err, sarama.ErrNoError) {
		return nil, block.Err
	}
	return block, nil
}

// outOfRange explains a position outside of the log: usually the log start
// went past it. It returns nil where the log start says otherwise, as may
// happen just after a leader moved; that may pass.
func (r *topicReader) outOfRange(ctx context.Context, span Span, pos int64) error {
	starts, err := r.cluster.offsets(ctx, r.topic, int(span.Partition)+1, sarama.OffsetOldest, false)
	if err != nil {
		return r.failure(span.Partition, pos, err)
	}
	start := starts[span.Partition]
	if start <= pos {
		return nil
	}
	return &Failure{Kind: ErrChanged,
		What: fmt.Sprintf("the log start of %s partition %d went to %d: offsets %d to %d are needed and gone", r.topic, span.Partition, start, pos, min(start, span.To)-1),
		Do:   "retention or DeleteRecords removed records while they were read: stop what removes them, then plan again with a new run directory and a new target"}
}

func (r *topicReader) failure(partition int32, offset int64, err error) error {
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		return notPermitted("Read", "topic "+r.topic, err)
	}
	return fmt.Errorf("read %s partition %d at offset %d: %w", r.topic, partition, offset, err)
}

// errUndecodable is a batch that does not fit into the largest fetch, or that
// looks so to the client library: it takes a batch for cut off when its record
// count is more than what the batch holds, and also when the count is more than
// the number of bytes from there to the end of the response. So it cannot read
// the last batch of a log if that is compressed to less than a byte a record.
var errUndecodable = errors.New("it does not fit, or is damaged, or is the last of its log and compressed to less than a byte a record")

// undecodable says whether an error is about what a response holds, so that it
// may be about any batch of it.
func undecodable(err error) bool {
	var malformed sarama.PacketDecodingError
	return errors.Is(err, sarama.ErrDecompressedBatchTooLarge) || errors.As(err, &malformed) && !mixedUp(err)
}

// explain says what memory has to do with a batch that could not be read.
func (b budget) explain(err error) error {
	switch {
	case errors.Is(err, sarama.ErrDecompressedBatchTooLarge):
		return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("the batch that begins here expands to more than %s, the most with a memory limit of %s", memoryText(b.largestBatch), memoryText(b.total)),
			Do: fmt.Sprintf("run the same command with more memory: --memory %s takes a batch that expands to twice as much. If no memory is enough, the batch was made to exhaust its readers: the topic's writer must be asked for it", memoryText(2*b.total))}
	case undecodable(err), errors.Is(err, errUndecodable):
		return &Failure{What: fmt.Sprintf("the batch that begins here cannot be read; a memory limit of %s takes batches of up to %s", memoryText(b.total), memoryText(b.largestBatch)), Cause: err,
			Do: fmt.Sprintf("if the topic takes batches that are larger (max.message.bytes), run the same command with more memory: --memory %s takes twice as much. If that changes nothing, the batch is damaged", memoryText(2*b.total))}
	}
	return err
}

// cursor is the position of one read and what is needed to move it.
type cursor struct {
	pos, end int64
	maxBytes int32
	alone    int   // so many responses are to hold no more than one batch
	aim      int64 // for what a response expands to
	expanded int64 // what the last response expanded to
	aborts   abortedProducers
}

// batchesAlone is how many batches are fetched one by one after a response that
// could not be decoded.
const batchesAlone = 100

// fetchBytes is the size of the next fetch. A broker sends the first batch as a
// whole, whatever the size. (Those before Kafka 0.10.1 do not: then it grows.)
func (c *cursor) fetchBytes() int32 {
	if c.alone > 0 {
		return 1
	}
	return c.maxBytes
}

// adapt chooses the size of the next fetch by how much the last one expanded
// to: down at once, up step by step.
func (c *cursor) adapt(pieces []piece) {
	c.expanded = 0
	for _, piece := range pieces {
		size, _ := storedSize(piece.batch)
		c.expanded += int64(size)
	}
	if c.alone > 0 {
		c.alone--
		return
	}
	if c.expanded == 0 {
		return
	}
	next := int64(c.maxBytes) * c.aim / c.expanded
	c.maxBytes = int32(clamp(min(next, 4*int64(c.maxBytes)), smallestFetchBytes, largestFetchBytes))
}

// verdict says what a response that moved nothing means.
type verdict uint8

const (
	undecided verdict = iota // ask again
	needsMore                // the next batch does not fit into the response
	tailGone                 // nothing is left between the position and the end
)

// piece is a batch with records to hand out, and which of them.
type piece struct {
	batch    *sarama.RecordBatch
	from, to int64
	aborted  bool
}

// errOldFormat refuses the message formats from before Kafka 0.11.
var errOldFormat = &Failure{Kind: ErrPreflight,
	What: "a message in the format of before Kafka 0.11 (magic 0 or 1)",
	Do:   "rekey reads record batches of magic 2 only; rewrite the topic with a current client first, or let the log cleaner of a Kafka 3 broker with inter.broker.protocol 3.0 or later convert it"}

// take moves the position over one response and returns the batches in it that
// have records in the range.
func (c *cursor) take(block *sarama.FetchResponseBlock) ([]piece, verdict, error) {
	if block == nil {
		return nil, undecided, nil
	}
	if block.LogStartOffset > c.pos {
		return nil, undecided, sarama.ErrOffsetOutOfRange
	}
	c.aborts.announce(block.AbortedTransactions)
	before, partial := c.pos, block.Partial
	var pieces []piece
	for _, set := range block.RecordsSet {
		if set.MsgSet != nil {
			return nil, undecided, errOldFormat
		}
		batch := set.RecordBatch
		if batch.PartialTrailingRecord {
			partial = true
			break
		}
		if batch.LastOffset() < c.pos {
			continue
		}
		aborted := c.aborts.covers(batch)
		if !batch.Control && batch.FirstOffset < c.end {
			pieces = append(pieces, piece{batch: batch, from: c.pos, to: c.end, aborted: aborted})
		}
		c.pos = batch.LastOffset() + 1
	}
	if len(block.RecordsSet) == 0 && !partial {
		// The cleaner keeps batches whose records are all gone. The client
		// library drops them but remembers where the last one ended. That
		// number is trusted only when nothing else came: behind a partial or
		// damaged batch it would point past records that were not delivered.
		if next, found := nextOffset(block); found && next > c.pos {
			c.pos = next
		}
	}
	switch {
	case c.pos > before:
		return pieces, undecided, nil
	case partial:
		return nil, needsMore, nil
	case len(block.RecordsSet) == 0 && block.LastStableOffset >= c.end:
		return nil, tailGone, nil
	}
	return nil, undecided, nil
}

// stuck says why a position did not move although nothing failed; block is the
// last response.
func (c *cursor) stuck(block *sarama.FetchResponseBlock) error {
	switch {
	case block == nil:
		return errors.New("the broker keeps answering without the partition, as it does while it throttles")
	case block.HighWaterMarkOffset >= c.end && block.LastStableOffset < c.end:
		return fmt.Errorf("a transaction that began at offset %d is open, before the captured end %d", block.LastStableOffset, c.end)
	case block.HighWaterMarkOffset >= c.end:
		return fmt.Errorf("the broker sends nothing that covers this offset, although the log ends at %d", block.HighWaterMarkOffset)
	}
	return fmt.Errorf("the log ends at offset %d, before the captured end %d; was an out-of-sync replica elected leader?", block.HighWaterMarkOffset, c.end)
}

// nextOffset reads the offset after the last batch of a response, dropped ones
// included, from an unexported field of the client library. A test fails when
// a new version of the library no longer has it.
func nextOffset(block *sarama.FetchResponseBlock) (int64, bool) {
	field := reflect.ValueOf(block).Elem().FieldByName("recordsNextOffset")
	if !field.IsValid() || field.Kind() != reflect.Pointer || field.IsNil() {
		return 0, false
	}
	return field.Elem().Int(), true
}

// abortedProducers tells the batches of aborted transactions from others. The
// broker announces for each producer where its aborted transaction begins; the
// abort marker in the log ends it.
type abortedProducers struct {
	announced []sarama.AbortedTransaction // not begun yet, by first offset
	active    map[int64]int64             // producer to the first offset of what it is about to abort
}

func (a *abortedProducers) announce(transactions []*sarama.AbortedTransaction) {
	if len(transactions) == 0 {
		return
	}
	for _, t := range transactions {
		// Each response announces all that overlap it, so one that spans
		// several responses is announced again and again. The same producer's
		// next one may be announced before the abort marker of this one.
		first, active := a.active[t.ProducerID]
		if !(active && first == t.FirstOffset) && !slices.Contains(a.announced, *t) {
			a.announced = append(a.announced, *t)
		}
	}
	slices.SortFunc(a.announced, func(x, y sarama.AbortedTransaction) int { return cmp.Compare(x.FirstOffset, y.FirstOffset) })
}

// covers says whether a batch belongs to an aborted transaction, and takes note
// of markers.
func (a *abortedProducers) covers(batch *sarama.RecordBatch) bool {
	for len(a.announced) > 0 && a.announced[0].FirstOffset <= batch.LastOffset() {
		if a.active == nil {
			a.active = map[int64]int64{}
		}
		a.active[a.announced[0].ProducerID] = a.announced[0].FirstOffset
		a.announced = a.announced[1:]
	}
	if batch.Control {
		if isAbortMarker(batch) {
			delete(a.active, batch.ProducerID)
		}
		return false
	}
	_, active := a.active[batch.ProducerID]
	return active && batch.IsTransactional
}

// isAbortMarker looks at a control record's key: a version and a type, 16 bits
// each; type 0 is abort.
func isAbortMarker(batch *sarama.RecordBatch) bool {
	if len(batch.Records) == 0 {
		return false
	}
	key := batch.Records[0].Key
	return len(key) >= 4 && key[2] == 0 && key[3] == 0
}

// records appends the records of a piece that lie in its range. The headers that
// former records left behind dst are used again: otherwise reading a target would
// make one allocation for each record. What they referred to is to be forgotten
// first.
func (p piece) records(dst []rewrite.Record, partition int32) ([]rewrite.Record, error) {
	clock, err := newBatchClock(p.batch)
	if err != nil {
		return nil, err
	}
	for _, record := range p.batch.Records {
		offset := p.batch.FirstOffset + record.OffsetDelta
		if offset < p.from || offset >= p.to {
			continue
		}
		var headers []rewrite.Header
		if n := len(dst); n < cap(dst) {
			headers = dst[:n+1][n].Headers[:0]
		}
		for _, header := range record.Headers {
			headers = append(headers, rewrite.Header{Key: header.Key, Value: header.Value})
		}
		dst = append(dst, rewrite.Record{Partition: partition, Offset: offset, Timestamp: clock.of(record), Key: record.Key, Value: record.Value, Headers: headers})
	}
	return dst, nil
}

// forget lets go of what records refer to, and leaves room for their headers. A
// single reference keeps a whole decompressed batch in memory. Where few records
// have headers, those of many batches back would stay at places that no header
// has come to since.
func forget(records []rewrite.Record) {
	for i := range records {
		headers := records[i].Headers[:0]
		clear(headers[:cap(headers)])
		records[i] = rewrite.Record{Headers: headers}
	}
}

// batchClock recovers the raw 64-bit timestamps of a batch: its base plus each
// record's delta. The client library converts both, which loses some:
//
//   - A negative base becomes the zero time. It is taken for -1, "none", the
//     only one that Kafka's own clients write, and checked against the batch's
//     newest timestamp.
//   - A delta is multiplied by 10^6, modulo 2^64. That is undone modulo 2^58
//     (see deltaMillis), which is exact below 2^57, 4 million years. A larger
//     delta betrays itself by the bytes that it takes in the batch.
//
// What cannot be read exactly is refused, with one exception: in a batch whose
// records all have one and the same negative timestamp, that is read as -1. A
// batch that the broker stamped has only one timestamp, the newest.
type batchClock struct {
	base       int64
	appendTime bool // the base is the timestamp of all records
}

// exactDelta bounds the deltas that are accepted. One that is smaller takes at
// most 8 bytes in a batch. One that deltaMillis cannot undo takes 9 or 10.
const exactDelta = 1 << 55

// errTimestamp refuses what the client library destroyed. It concerns whole
// batches, for a timestamp can only be trusted along with those beside it.
var errTimestamp = &Failure{Kind: ErrPreflight,
	What: "a timestamp in this batch cannot be read exactly: it is negative, or a million years away from others",
	Do:   "rekey carries -1 and every timestamp from 0 on, but not next to others that are so far away; copy the records of this batch to a topic of its own with sane timestamps first"}

func newBatchClock(batch *sarama.RecordBatch) (batchClock, error) {
	base, newest := rawMillis(batch.FirstTimestamp), rawMillis(batch.MaxTimestamp)
	if batch.LogAppendTime {
		return batchClock{base: newest, appendTime: true}, nil
	}
	clock := batchClock{base: base}
	size, last, allSame := 0, int64(math.MinInt64), true
	for _, record := range batch.Records {
		delta := deltaMillis(record.TimestampDelta)
		if delta <= -exactDelta || delta >= exactDelta {
			return batchClock{}, errTimestamp
		}
		size += encodedSize(record, delta)
		last = max(last, base+delta)
		allSame = allSame && delta == 0
	}
	if stored, found := storedSize(batch); !found || size != stored {
		return batchClock{}, errTimestamp
	}
	if base < 0 && (last != newest || newest < 0 && !allSame) {
		return batchClock{}, errTimestamp
	}
	return clock, nil
}

func (c batchClock) of(record *sarama.Record) int64 {
	if c.appendTime {
		return c.base
	}
	return c.base + deltaMillis(record.TimestampDelta)
}

// rawMillis undoes the library's conversion of a timestamp from 0 on; -1 stands
// for the negative ones.
func rawMillis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

// inverseOf5To6 is the inverse of 5^6 modulo 2^58.
const inverseOf5To6 = 0x10fb65668c26139

// deltaMillis undoes the library's multiplication of a delta by 10^6 even
// where it overflowed. 10^6 is 2^6 x 5^6, so the product modulo 2^64 still
// holds the delta modulo 2^58: divide by 2^6, then multiply by the inverse of
// 5^6 modulo 2^58, and extend the sign.
func deltaMillis(delta time.Duration) int64 {
	product := uint64(delta) >> 6 * inverseOf5To6
	return int64(product<<6) >> 6
}

// encodedSize is the number of bytes that a record takes in a batch before
// compression, if delta is its timestamp delta.
func encodedSize(record *sarama.Record, delta int64) int {
	size := 1 + varintSize(delta) + varintSize(record.OffsetDelta) + bytesSize(record.Key) + bytesSize(record.Value) + varintSize(int64(len(record.Headers)))
	for _, header := range record.Headers {
		size += bytesSize(header.Key) + bytesSize(header.Value)
	}
	return varintSize(int64(size)) + size
}

// bytesSize is the encoded size of bytes behind their length; null has length -1.
func bytesSize(data []byte) int {
	if data == nil {
		return varintSize(-1)
	}
	return varintSize(int64(len(data))) + len(data)
}

// varintSize is the number of bytes of a zig-zag varint.
func varintSize(n int64) int {
	zigzag := uint64(n)<<1 ^ uint64(n>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

// storedSize reads the number of bytes that the records of a batch take before
// compression, from an unexported field of the client library. A test fails
// when a new version of the library no longer has it.
func storedSize(batch *sarama.RecordBatch) (int, bool) {
	field := reflect.ValueOf(batch).Elem().FieldByName("recordsLen")
	if !field.IsValid() || !field.CanInt() {
		return 0, false
	}
	return int(field.Int()), true
}
