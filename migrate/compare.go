package migrate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// How both sides are compared without keeping records in memory:
//
// All records of one source partition that go to one target partition, a
// pair, keep their order. So each side is summed up as one running digest for
// each pair, in one pass over each topic. Where the digests agree, the pair
// holds the same records in the same order. Records that were kept aside and
// replayed later are a pair of their own in each round of replays.
//
// Where they differ, the log cleaner may have removed superseded records from
// either side, which is no difference. Then the records of the pairs in
// question are compared key by key (reconcile.go).

// hasher digests the parts of records. Digests are comparable within one
// process only.
type hasher struct{ seed maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed()} }

// contents are the digests of the parts of one record.
type contents struct {
	key, value, headers uint64
	timestamp           int64
	tombstone           bool
}

// Odd multipliers keep the parts of a sum apart: 64-bit constants from the
// golden ratio and the square roots of 3 and 5.
const (
	mulA = 0x9e3779b97f4a7c15
	mulB = 0xbb67ae8584caa73b
	mulC = 0x3c6ef372fe94f82b | 1
)

func (h hasher) of(key, value []byte, headers []rewrite.Header, timestamp int64) contents {
	c := contents{key: h.key(key), timestamp: timestamp, tombstone: value == nil}
	c.value = h.nullable(value)
	for i := range headers {
		c.headers = c.headers*mulA + maphash.Bytes(h.seed, headers[i].Key)*mulB + h.nullable(headers[i].Value) + 1
	}
	return c
}

func (h hasher) key(key []byte) uint64 { return h.nullable(key) }

// nullable digests bytes that may be null, which is not the same as empty.
func (h hasher) nullable(data []byte) uint64 {
	if data == nil {
		return mulC
	}
	return maphash.Bytes(h.seed, data)
}

// sum joins the digests of a record and its source offset.
func (c contents) sum(offset int64) uint64 {
	s := (c.key*mulA+c.value)*mulB + c.headers
	s = (s*mulC+uint64(c.timestamp))*mulA + uint64(offset)
	return s ^ s>>31
}

// pairSum sums up the records of a pair of partitions.
type pairSum struct {
	records int64
	last    int64 // highest source offset, -1 without records
	sum     uint64
}

// ledger holds the sums of all pairs: 24 bytes for each, however many records.
type ledger struct {
	sources, targets int
	pairs            []pairSum
}

func (p *plan) newLedger() *ledger {
	l := &ledger{sources: int(p.Source.Partitions), targets: int(p.Target.Partitions)}
	l.pairs = make([]pairSum, (1+len(p.Replays))*l.sources*l.targets)
	for i := range l.pairs {
		l.pairs[i].last = -1
	}
	return l
}

func (l *ledger) pair(round, source, target int32) *pairSum {
	return &l.pairs[(int(round)*l.sources+int(source))*l.targets+int(target)]
}

// place is where a sum belongs: the inverse of pair.
func (l *ledger) place(i int) (round, source, target int32) {
	return int32(i / l.targets / l.sources), int32(i / l.targets % l.sources), int32(i % l.targets)
}

func (p *pairSum) add(offset int64, c contents) {
	p.records++
	p.last = offset
	p.sum = p.sum*mulA + c.sum(offset)
}

func (l *ledger) records() int64 {
	var n int64
	for i := range l.pairs {
		n += l.pairs[i].records
	}
	return n
}

// comparison compares a target with what a plan demands of its source.
type comparison struct {
	plan     *plan
	demand   demand
	target   Source
	hasher   hasher
	captures []capture
	// division are the source partitions that are compared. What is on the target of
	// the others is only looked at.
	division rewrite.Division
	// sourceEnds are up to where the source can be read now: past the captured
	// ends where it is still written to.
	sourceEnds func(context.Context) ([]int64, error)
	memory     int64 // for what is compared key by key
	readers    int   // partitions read at the same time
	differences
}

func newComparison(p *plan, rules rewrite.Rules, s *sides, prints fingerprinter) *comparison {
	count := &counter{progress: s.env.Progress}
	source := &topicReader{cluster: s.source, topic: p.Source.Topic, skipAborted: p.Isolation == IsolationCommitted}
	return &comparison{
		plan: p, hasher: newHasher(), captures: p.Captures,
		demand: demand{source: source, rules: rules, aside: p.IsAside, prints: prints, count: count},
		target: &topicReader{cluster: s.target, topic: p.Target.Topic},
		sourceEnds: func(ctx context.Context) ([]int64, error) {
			return readableEnds(ctx, s.source, p)
		},
		memory: s.env.budget().reconcile, readers: s.env.budget().readers,
	}
}

// differences collects what is wrong: all are counted, the first hundred kept.
type differences struct {
	mu    sync.Mutex
	total int64
	kept  []report.Difference
}

const differencesKept = 100

func (d *differences) add(difference report.Difference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total++
	if len(d.kept) < differencesKept {
		d.kept = append(d.kept, difference)
	}
}

// sorted are the kept differences in an order that does not depend on which
// partition was read first.
func (d *differences) sorted() []report.Difference {
	place := func(p *report.Position) (int32, int64) {
		if p == nil {
			return -1, -1
		}
		return p.Partition, p.Offset
	}
	slices.SortStableFunc(d.kept, func(a, b report.Difference) int {
		ap, ao := place(a.Source)
		bp, bo := place(b.Source)
		at, aq := place(a.Target)
		bt, bq := place(b.Target)
		return cmp.Or(cmp.Compare(ap, bp), cmp.Compare(ao, bo), cmp.Compare(at, bt), cmp.Compare(aq, bq))
	})
	return d.kept
}

// sourceLedger sums up what the source demands now. With a limit, only up to
// the last offset that the limit holds for each pair: the prefix that an
// interrupted apply left.
func (c *comparison) sourceLedger(ctx context.Context, limit *ledger) (*ledger, error) {
	l := c.plan.newLedger()
	err := c.eachDemanded(ctx, divided(c.captures, c.division), limit, func(r *rewrite.Record, d rewrite.Decision) error {
		l.pair(d.Round, r.Partition, d.Partition).add(r.Offset, c.hasher.of(d.Key, d.Value(r), r.Headers, r.Timestamp))
		return nil
	})
	return l, err
}

// eachDemanded calls fn with every record that belongs on the target, several
// source partitions at a time, each in order.
func (c *comparison) eachDemanded(ctx context.Context, captures []capture, limit *ledger, fn func(*rewrite.Record, rewrite.Decision) error) error {
	for i := range captures {
		err := eachSpan(ctx, c.readers, captures[i].spans(), func(ctx context.Context, span Span) error {
			end := span.To
			if limit != nil {
				end = min(end, limit.endOf(span.Partition))
			}
			if end <= span.From {
				return nil
			}
			// Decisions may look ahead, so they are asked of the whole span.
			_, err := c.demand.each(ctx, span, span.From, func(r *rewrite.Record, d rewrite.Decision) error {
				if r.Offset >= end {
					return errEnough
				}
				if !d.Action.OnTarget() || limit != nil && r.Offset > limit.pair(d.Round, r.Partition, d.Partition).last {
					return nil
				}
				return fn(r, d)
			})
			if errors.Is(err, errEnough) {
				err = nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a read early.
var errEnough = errors.New("enough")

// endOf is one past the highest source offset that any pair of a source
// partition holds.
func (l *ledger) endOf(source int32) int64 {
	end := int64(0)
	for i := range l.pairs {
		if _, from, _ := l.place(i); from == source {
			end = max(end, l.pairs[i].last+1)
		}
	}
	return end
}

// targetScan is what was found on the target, up to next in each partition.
type targetScan struct {
	*ledger
	starts  []int64 // log starts
	next    []int64 // next offset to scan
	records []int64 // by partition, padding included
	padding int64
	writers map[rewrite.Division]int64 // by their padding, with its earliest timestamp: when the first of them began
	mu      sync.Mutex
}

// newTargetScan begins a scan at the target's log starts. Nothing moves the log
// start of a compacted topic but DeleteRecords or a wrong cleanup policy.
func (c *comparison) newTargetScan(starts []int64) *targetScan {
	for partition, start := range starts {
		if start > 0 {
			c.differences.add(report.Difference{Kind: "log-start", Target: &report.Position{Partition: int32(partition), Offset: start},
				Text: fmt.Sprintf("the log starts at offset %d: what lay before was deleted", start)})
		}
	}
	return &targetScan{
		ledger: c.plan.newLedger(), starts: starts, next: slices.Clone(starts),
		records: make([]int64, len(starts)), writers: map[rewrite.Division]int64{},
	}
}

// advance scans the target up to ends and adds to the scan. What does not
// belong there is added to the differences.
func (c *comparison) advance(ctx context.Context, scan *targetScan, ends []int64) error {
	paddingKey, err := rewrite.PaddingKey(c.demand.rules.To)
	if err != nil {
		return err
	}
	var spans []Span
	for partition, end := range ends {
		if scan.next[partition] < end {
			spans = append(spans, Span{int32(partition), scan.next[partition], end})
		}
	}
	return eachSpan(ctx, c.readers, spans, func(ctx context.Context, span Span) error {
		t := targetPartitionScan{comparison: c, scan: scan, paddingKey: paddingKey, writers: map[rewrite.Division]int64{}}
		position := span.From
		_, err := c.target.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				t.record(&records[i])
			}
			last := records[len(records)-1].Offset + 1
			c.demand.count.add(last - position)
			position = last
			return nil
		})
		if err != nil {
			return err
		}
		c.demand.count.add(span.To - position)
		scan.next[span.Partition] = span.To
		scan.records[span.Partition] += t.records
		scan.mu.Lock()
		defer scan.mu.Unlock()
		scan.padding += t.padding
		for writer, at := range t.writers {
			if first, known := scan.writers[writer]; !known || at < first {
				scan.writers[writer] = at
			}
		}
		return nil
	})
}

// targetPartitionScan checks the records of one target partition one by one.
type targetPartitionScan struct {
	*comparison
	scan       *targetScan
	paddingKey []byte
	key        keycodec.Key
	encoded    []byte
	padding    int64
	records    int64
	writers    map[rewrite.Division]int64
	writer     rewrite.Division // of the padding before
}

func (t *targetPartitionScan) record(r *rewrite.Record) {
	t.records++
	p, headers, text := splitProvenance(r)
	if text != "" {
		t.offence("provenance", r, nil, text)
		return
	}
	if p.Padding {
		if !bytes.Equal(r.Key, t.paddingKey) || r.Value != nil || len(headers) > 0 {
			t.offence("provenance", r, nil, "it is marked as padding but is no plain tombstone of the reserved key")
			return
		}
		t.padding++
		if p.Writer != t.writer || t.padding == 1 {
			t.writer = p.Writer
			if _, known := t.writers[p.Writer]; !known {
				t.writers[p.Writer] = r.Timestamp
			}
		}
		return
	}
	// On the heap only where something is wrong: once for each record would cost
	// verify an allocation a record.
	source := report.Position{Partition: p.Partition, Offset: p.Offset}
	number := t.captureOf(p)
	if number < 0 {
		t.offence("extra", r, new(source), "its source position lies outside of what the plan captured")
		return
	}
	if int(p.Round) > len(t.plan.Replays) {
		t.offence("extra", r, new(source), fmt.Sprintf("it came with replay %d, the plan has %d", p.Round, len(t.plan.Replays)))
		return
	}
	pair := t.scan.pair(p.Round, p.Partition, r.Partition)
	switch {
	case p.Offset == pair.last:
		t.offence("duplicate", r, new(source), "the record of this source position is there twice")
		return
	case p.Offset < pair.last:
		t.offence("order", r, new(source), fmt.Sprintf("it follows the record of source offset %d", pair.last))
		return
	}
	if align := t.captures[number].AlignTo; align != nil && r.Offset < align[r.Partition] {
		t.offence("alignment", r, new(source), fmt.Sprintf("it lies before offset %d, where an old marker may point", align[r.Partition]))
	}
	if t.demand.aside {
		t.checkHome(r, source)
	} else {
		t.checkKey(r, source)
	}
	pair.add(p.Offset, t.hasher.of(r.Key, r.Value, headers, r.Timestamp))
}

// checkKey demands that a key on the target is exactly what its format
// prescribes. Keys that were copied as they are need not parse.
func (t *targetPartitionScan) checkKey(r *rewrite.Record, source report.Position) {
	to := t.demand.rules.To
	if err := to.Parse(&t.key, r.Key); err != nil {
		if !t.demand.rules.Copies(r.Key) {
			t.offence("key", r, new(source), err.Error())
		}
		return
	}
	if t.key.BusinessKey == nil {
		return // a format that cannot be decoded
	}
	encoded, err := to.Append(t.encoded[:0], &t.key)
	t.encoded = encoded
	if err != nil || !bytes.Equal(encoded, r.Key) {
		t.offence("key", r, new(source), fmt.Sprintf("it is not the canonical %s form", to.Name()))
	}
}

// checkHome demands that a record is kept aside in the partition it came from.
func (t *targetPartitionScan) checkHome(r *rewrite.Record, source report.Position) {
	if source.Partition != r.Partition {
		t.offence("partition", r, new(source), "it is not in the partition that it came from")
	}
}

func (t *targetPartitionScan) offence(kind string, r *rewrite.Record, source *report.Position, text string) {
	t.differences.add(report.Difference{Kind: kind, Key: report.Printable(r.Key), Source: source,
		Target: &report.Position{Partition: r.Partition, Offset: r.Offset}, Text: text})
}

// captureOf is the number of the capture that a source position lies in, or -1.
func (c *comparison) captureOf(p rewrite.Provenance) int {
	if p.Partition >= c.plan.Source.Partitions {
		return -1
	}
	for i := range c.captures {
		if p.Offset >= c.captures[i].Starts[p.Partition] && p.Offset < c.captures[i].Ends[p.Partition] {
			return i
		}
	}
	return -1
}

// splitProvenance takes the provenance header off a target record. The text
// says what is wrong with it, if something is.
func splitProvenance(r *rewrite.Record) (p rewrite.Provenance, headers []rewrite.Header, text string) {
	last := len(r.Headers) - 1
	value, found := rewrite.FindProvenance(r.Headers)
	switch {
	case !found:
		return p, nil, fmt.Sprintf("it has no %s header: another program wrote it", rewrite.ProvenanceHeader)
	case string(r.Headers[last].Key) != rewrite.ProvenanceHeader:
		return p, nil, fmt.Sprintf("its %s header is not the last one", rewrite.ProvenanceHeader)
	}
	p, err := rewrite.ParseProvenance(value)
	if err != nil {
		return p, nil, err.Error()
	}
	if _, again := rewrite.FindProvenance(r.Headers[:last]); again {
		return p, nil, fmt.Sprintf("it has more than one %s header", rewrite.ProvenanceHeader)
	}
	return p, r.Headers[:last], ""
}
