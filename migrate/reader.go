package migrate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
	// Read calls fn with the records of a span, in order, until the span is
	// read to its end or fn fails. The slice and all it points to are used
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
// back in part and is asked for again with twice the size.
const (
	firstFetchBytes = 2 << 20
	maxFetchBytes   = 64 << 20
	fetchWait       = 500 * time.Millisecond // how long the broker may wait for the first byte
)

// topicReader reads a topic's partitions from their leaders with Fetch
// requests of one partition each.
type topicReader struct {
	cluster     *cluster
	topic       string
	skipAborted bool  // leave out records of aborted transactions
	fetchBytes  int32 // 0: firstFetchBytes
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
	fetched := make(chan []piece, 1)
	var fetchErr error // written before fetched is closed
	go func() {
		defer close(fetched)
		fetchErr = r.fetchAll(ctx, span, fetched)
	}()
	var records []rewrite.Record
	for {
		var pieces []piece
		var more bool
		select {
		case pieces, more = <-fetched:
		case <-ctx.Done():
			return stats, ctx.Err()
		}
		if !more {
			return stats, fetchErr
		}
		for _, piece := range pieces {
			var err error
			if records, err = piece.records(records[:0], span.Partition); err != nil {
				return stats, r.failure(span.Partition, piece.batch.FirstOffset, err)
			}
			stats.Batches[piece.batch.Codec]++
			if piece.aborted {
				stats.Aborted += int64(len(records))
				if r.skipAborted {
					continue
				}
			}
			stats.Records += int64(len(records))
			if err := fn(records); err != nil {
				return stats, err
			}
		}
	}
}

// fetchAll fetches a span until its end and sends what each response held.
func (r *topicReader) fetchAll(ctx context.Context, span Span, out chan<- []piece) error {
	link := r.cluster.newLink()
	defer link.close()
	at := cursor{pos: span.From, end: span.To, maxBytes: r.fetchBytes}
	if at.maxBytes == 0 {
		at.maxBytes = firstFetchBytes
	}
	wait := newBackoff(r.cluster.patience)
	for at.pos < at.end {
		before := at.pos
		block, err := r.fetch(link, span.Partition, at.pos, at.maxBytes)
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
			if err = r.outOfRange(ctx, span, at.pos); err != nil {
				return err
			}
		case err != nil && !transient(err):
			return r.failure(span.Partition, at.pos, err)
		case err == nil && verdict == tailGone:
			return nil
		case err == nil && at.pos > before:
			wait.reset()
			r.cluster.env.Progress.Wait("")
			if len(pieces) > 0 {
				select {
				case out <- pieces:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			continue
		case err == nil && verdict == needsMore:
			if at.maxBytes >= maxFetchBytes {
				return r.failure(span.Partition, at.pos, fmt.Errorf("a batch larger than %d MiB, or a damaged one", maxFetchBytes>>20))
			}
			at.maxBytes *= 2
			continue
		}
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
				err = fmt.Errorf("the log ends before the captured end %d; was an out-of-sync replica elected leader?", at.end)
			}
			return r.failure(span.Partition, at.pos, fmt.Errorf("gave up after %s: %w", r.cluster.patience, err))
		}
	}
	return nil
}

// fetch sends one request. A missing block, as in throttled responses, is nil.
func (r *topicReader) fetch(link *link, partition int32, offset int64, maxBytes int32) (*sarama.FetchResponseBlock, error) {
	broker, epoch, err := link.leader(r.topic, partition)
	if err != nil {
		return nil, err
	}
	request := &sarama.FetchRequest{
		Version:      11,
		MaxWaitTime:  int32(fetchWait / time.Millisecond),
		MinBytes:     1,
		MaxBytes:     maxBytes,
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
// went past it. It returns nil where the broker meanwhile says otherwise, as
// may happen just after a leader moved.
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

// cursor is the position of one read and what is needed to move it.
type cursor struct {
	pos, end int64
	maxBytes int32
	aborts   abortedProducers
}

// verdict says what a response that moved nothing means.
type verdict uint8

const (
	undecided verdict = iota // ask again
	needsMore                // the next batch does not fit into the fetch size
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
	active    map[int64]bool
}

func (a *abortedProducers) announce(transactions []*sarama.AbortedTransaction) {
	if len(transactions) == 0 {
		return
	}
	for _, t := range transactions {
		// Each response announces all that overlap it, so one that spans
		// several responses is announced again and again.
		if !a.active[t.ProducerID] && !slices.Contains(a.announced, *t) {
			a.announced = append(a.announced, *t)
		}
	}
	slices.SortFunc(a.announced, func(x, y sarama.AbortedTransaction) int { return int(min(max(x.FirstOffset-y.FirstOffset, -1), 1)) })
}

// covers says whether a batch belongs to an aborted transaction, and takes note
// of markers.
func (a *abortedProducers) covers(batch *sarama.RecordBatch) bool {
	for len(a.announced) > 0 && a.announced[0].FirstOffset <= batch.LastOffset() {
		if a.active == nil {
			a.active = map[int64]bool{}
		}
		a.active[a.announced[0].ProducerID] = true
		a.announced = a.announced[1:]
	}
	if batch.Control {
		if isAbortMarker(batch) {
			delete(a.active, batch.ProducerID)
		}
		return false
	}
	return batch.IsTransactional && a.active[batch.ProducerID]
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

// records appends the records of a piece that lie in its range.
func (p piece) records(dst []rewrite.Record, partition int32) ([]rewrite.Record, error) {
	clock := batchClock(p.batch)
	for _, record := range p.batch.Records {
		offset := p.batch.FirstOffset + record.OffsetDelta
		if offset < p.from || offset >= p.to {
			continue
		}
		timestamp, err := clock.of(record)
		if err != nil {
			return nil, fmt.Errorf("offset %d: %w", offset, err)
		}
		out := rewrite.Record{Partition: partition, Offset: offset, Timestamp: timestamp, Key: record.Key, Value: record.Value}
		if len(record.Headers) > 0 {
			out.Headers = make([]rewrite.Header, len(record.Headers))
			for i, header := range record.Headers {
				out.Headers[i] = rewrite.Header{Key: header.Key, Value: header.Value}
			}
		}
		dst = append(dst, out)
	}
	return dst, nil
}

// timestamps recovers the raw 64-bit timestamps of a batch. The client library
// converts them to time.Time and time.Duration, which loses some: a negative
// base becomes the zero time, and a delta in nanoseconds overflows.
type timestamps struct {
	base, newest int64
	appendTime   bool // all records have the batch's newest timestamp
	noBase       bool // the base is negative: -1, or unknown
}

func batchClock(batch *sarama.RecordBatch) timestamps {
	clock := timestamps{base: -1, newest: -1, appendTime: batch.LogAppendTime, noBase: batch.FirstTimestamp.IsZero()}
	if !clock.noBase {
		clock.base = batch.FirstTimestamp.UnixMilli()
	}
	if !batch.MaxTimestamp.IsZero() {
		clock.newest = batch.MaxTimestamp.UnixMilli()
	}
	return clock
}

// of is the raw timestamp of a record. It fails where the library destroyed it
// beyond recovery: no released Kafka client writes such records.
func (t timestamps) of(record *sarama.Record) (int64, error) {
	if t.appendTime {
		return t.newest, nil
	}
	timestamp := t.base + deltaMillis(record.TimestampDelta)
	if timestamp > t.newest || t.noBase && t.newest < 0 && timestamp != -1 {
		return 0, &Failure{Kind: ErrPreflight,
			What: "a timestamp that cannot be read exactly: negative, or in one batch with others that are more than 4 million years away",
			Do:   "rekey carries -1 and every timestamp from 0 on; copy this record to a topic of its own with a sane timestamp first"}
	}
	return timestamp, nil
}

// deltaMillis undoes the library's multiplication of a delta by 10^6 even
// where it overflowed. 10^6 is 2^6 x 5^6, so the product modulo 2^64 still
// holds the delta modulo 2^58: divide by 2^6, then multiply by the inverse of
// 5^6 modulo 2^58, and extend the sign.
func deltaMillis(delta time.Duration) int64 {
	const inverse = 0x10fb65668c26139 // of 5^6 modulo 2^58; a test computes it
	product := uint64(delta) >> 6 * inverse
	return int64(product<<6) >> 6
}
