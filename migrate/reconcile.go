package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"rekey/report"
	"rekey/rewrite"
)

// entry is one record of either side, reduced to digests.
type entry struct {
	contents
	source   report.Position
	target   report.Position // where it is, or on the source side where it belongs (Offset -1)
	onTarget bool
}

// reconcileMemory bounds the entries in memory. With more records in question
// than fit, both topics are read once more for each part of the key space.
const (
	reconcileMemory = 64 << 20
	entryBytes      = 96
)

// outcome is what a comparison found.
type outcome struct {
	exact      bool // every demanded record is there
	superseded int64
}

// compare holds a scanned target against the source. With prefix, the target
// need only hold what an interrupted apply would have left. Differences are
// collected in c.differences.
func (c *comparison) compare(ctx context.Context, scan *targetScan, prefix bool, tombstonesGone bool) (*ledger, outcome, error) {
	var limit *ledger
	if prefix {
		limit = scan.ledger
	}
	source, err := c.sourceLedger(ctx, limit)
	if err != nil {
		return nil, outcome{}, err
	}
	suspect := make([]bool, len(source.pairs))
	var records int64
	for i := range source.pairs {
		if source.pairs[i] != scan.pairs[i] {
			suspect[i] = true
			records += source.pairs[i].records + scan.pairs[i].records
		}
	}
	if records == 0 {
		return source, outcome{exact: true}, nil
	}
	r := reconciler{comparison: c, scan: scan, limit: limit, suspect: suspect, tombstonesGone: tombstonesGone,
		parts: uint64(records*entryBytes/reconcileMemory + 1), gone: make([]int64, c.plan.Target.Partitions)}
	for r.part = range r.parts {
		if err := r.run(ctx); err != nil {
			return nil, outcome{}, err
		}
	}
	r.checkHoles()
	return source, outcome{superseded: r.superseded}, nil
}

// reconciler compares suspect pairs key by key, one part of the key space at a
// time.
type reconciler struct {
	*comparison
	scan           *targetScan
	limit          *ledger
	suspect        []bool
	tombstonesGone bool // the target's tombstones may have been removed since
	part, parts    uint64

	mu         sync.Mutex
	entries    []entry
	superseded int64
	gone       []int64 // by target partition: records that compaction seems to have removed
}

func (r *reconciler) run(ctx context.Context) error {
	r.entries = r.entries[:0]
	if err := r.collectSource(ctx); err != nil {
		return err
	}
	if err := r.collectTarget(ctx); err != nil {
		return err
	}
	slices.SortFunc(r.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.source.Partition, b.source.Partition), cmp.Compare(a.source.Offset, b.source.Offset))
	})
	for key := range groups(r.entries, func(e entry) uint64 { return e.key }) {
		for run := range groups(key, func(e entry) uint64 { return uint64(e.source.Partition) }) {
			if err := r.key(ctx, run, onTargetFromElsewhere(key, run[0].source.Partition)); err != nil {
				return err
			}
		}
	}
	return nil
}

// groups cuts a sorted slice into runs of the same value of by.
func groups(entries []entry, by func(entry) uint64) iter.Seq[[]entry] {
	return func(yield func([]entry) bool) {
		for start := 0; start < len(entries); {
			end := start + 1
			for end < len(entries) && by(entries[end]) == by(entries[start]) {
				end++
			}
			if !yield(entries[start:end]) {
				return
			}
			start = end
		}
	}
}

// onTargetFromElsewhere says whether the target holds records of a key that
// came from another source partition. Compaction of the target may then have
// removed a record in favour of one of those.
func onTargetFromElsewhere(key []entry, partition int32) bool {
	return slices.ContainsFunc(key, func(e entry) bool { return e.onTarget && e.source.Partition != partition })
}

// wanted says whether a record belongs to a suspect pair and to this part of
// the key space.
func (r *reconciler) wanted(source, target int32, key uint64) bool {
	return r.suspect[int(source)*int(r.plan.Target.Partitions)+int(target)] && key%r.parts == r.part
}

func (r *reconciler) keep(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
}

func (r *reconciler) collectSource(ctx context.Context) error {
	return r.eachDemanded(ctx, r.limit, func(record *rewrite.Record, d rewrite.Decision) error {
		c := r.hasher.of(d.Key, record.Value, record.Headers, record.Timestamp)
		if r.wanted(record.Partition, d.Partition, c.key) {
			r.keep(entry{contents: c, source: report.Position{Partition: record.Partition, Offset: record.Offset},
				target: report.Position{Partition: d.Partition, Offset: -1}})
		}
		return nil
	})
}

func (r *reconciler) collectTarget(ctx context.Context) error {
	var spans []Span
	for partition, end := range r.scan.next {
		if r.scan.starts[partition] < end {
			spans = append(spans, Span{int32(partition), r.scan.starts[partition], end})
		}
	}
	return eachSpan(ctx, spans, func(ctx context.Context, span Span) error {
		_, err := r.target.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				record := &records[i]
				p, headers, text := splitProvenance(record)
				if text != "" || p.Padding || r.captureOf(p) < 0 {
					continue // reported by the scan
				}
				c := r.hasher.of(record.Key, record.Value, headers, record.Timestamp)
				if r.wanted(p.Partition, record.Partition, c.key) {
					r.keep(entry{contents: c, onTarget: true, source: report.Position{Partition: p.Partition, Offset: p.Offset},
						target: report.Position{Partition: record.Partition, Offset: record.Offset}})
				}
			}
			return nil
		})
		return err
	})
}

// key compares the records of one key from one source partition, ordered by
// source offset.
func (r *reconciler) key(ctx context.Context, run []entry, elsewhere bool) error {
	lastOnTarget, lastOnSource := int64(-1), int64(-1)
	for _, e := range run {
		if e.onTarget {
			lastOnTarget = max(lastOnTarget, e.source.Offset)
		} else {
			lastOnSource = max(lastOnSource, e.source.Offset)
		}
	}
	last := max(lastOnSource, lastOnTarget)
	for i := 0; i < len(run); i++ {
		e := run[i]
		if i+1 < len(run) && run[i+1].source == e.source {
			other := run[i+1]
			i++
			if other.onTarget == e.onTarget {
				continue // a duplicate: the scan reported it
			}
			if e.onTarget {
				e, other = other, e
			}
			if err := r.both(ctx, e, other); err != nil {
				return err
			}
			continue
		}
		var fine bool
		if e.onTarget {
			// The source's cleaner removed it after it was copied: a later
			// record of the key replaced it, or it was a tombstone of age.
			fine = e.source.Offset < last || e.tombstone && lastOnSource < 0
		} else {
			fine = e.source.Offset < lastOnTarget || elsewhere || e.tombstone && r.tombstonesGone && lastOnTarget < 0
			if fine {
				r.gone[e.target.Partition]++
			}
		}
		if fine {
			r.superseded++
			continue
		}
		if err := r.oneSided(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// both compares the two records of one source position.
func (r *reconciler) both(ctx context.Context, source, target entry) error {
	var kind, text string
	switch {
	case source.target.Partition != target.target.Partition:
		kind, text = "partition", fmt.Sprintf("it belongs in partition %d", source.target.Partition)
	case source.tombstone != target.tombstone:
		kind, text = "value", "one is a tombstone, the other has a value"
	case source.value != target.value:
		kind, text = "value", "the values differ"
	case source.timestamp != target.timestamp:
		kind, text = "timestamp", fmt.Sprintf("source %d ms, target %d ms", source.timestamp, target.timestamp)
	case source.headers != target.headers:
		kind, text = "headers", "the headers differ"
	default:
		return nil
	}
	return r.report(ctx, kind, text, &source.source, &target.target)
}

func (r *reconciler) oneSided(ctx context.Context, e entry) error {
	if e.onTarget {
		return r.report(ctx, "extra", "the source has no such record with this key", &e.source, &e.target)
	}
	return r.report(ctx, "missing", fmt.Sprintf("it belongs in target partition %d and is not there with this key", e.target.Partition), &e.source, nil)
}

// report adds a difference; while it is among those kept, the key is fetched
// to show it.
func (r *reconciler) report(ctx context.Context, kind, text string, source, target *report.Position) error {
	difference := report.Difference{Kind: kind, Source: source, Target: target, Text: text}
	if len(r.kept) < differencesKept {
		reader, at := r.demand.source, source
		if target != nil {
			reader, at = r.target, target
		}
		_, err := reader.Read(ctx, Span{at.Partition, at.Offset, at.Offset + 1}, func(records []rewrite.Record) error {
			difference.Key = report.Printable(records[0].Key)
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	r.differences.add(difference)
	return nil
}

// checkHoles demands that the target's log has room for what compaction seems
// to have removed: it leaves holes in the offsets, and a copy without holes was
// never compacted.
func (r *reconciler) checkHoles() {
	for partition, gone := range r.gone {
		holes := r.scan.next[partition] - r.scan.starts[partition] - r.scan.records[partition]
		if gone > holes {
			r.differences.add(report.Difference{Kind: "missing", Target: &report.Position{Partition: int32(partition), Offset: r.scan.next[partition]},
				Text: fmt.Sprintf("%d records are not in the partition, but its offsets have room for %d that compaction removed", gone, holes)})
		}
	}
}

// tombstonesMayBeGone says whether the target's cleaner may have removed
// tombstones that were written at the earliest at the given time.
func tombstonesMayBeGone(configs map[string]topicConfig, since, now time.Time) bool {
	retention, ok := number(configs, "delete.retention.ms")
	return !ok || now.Sub(since) > time.Duration(retention)*time.Millisecond
}
