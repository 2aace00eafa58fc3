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

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// entry is one record of either side, reduced to digests.
type entry struct {
	contents
	source    report.Position
	round     int32           // of the replay that it came with, or comes with
	target    report.Position // where it is, or on the source side where it belongs (Offset -1)
	onTarget  bool
	misplaced bool // on the target in a partition where its key does not belong
	removed   bool // on the target alone, and compaction of the source explains it
	occupied  bool // on the target alone, though the source has a record in its place
}

// entryBytes is what an entry takes, and its share of what is settled afterwards.
// With more records in question than the comparison's memory takes, both topics
// are read once more for each part of the key space.
const entryBytes = 128

// outcome is what a comparison found.
type outcome struct {
	exact      bool // every demanded record is there
	superseded int64
}

// compare holds a scanned target against the source. With prefix, the target
// need only hold what an interrupted apply would have left. Differences are
// collected in c.differences.
//
// A division is compared by its own sums. Where these differ, all source
// partitions are looked at: a record of another one may be what superseded a
// missing one, and what other shards have written so far is a prefix, too.
func (c *comparison) compare(ctx context.Context, scan *targetScan, prefix bool, tombstonesGone bool) (*ledger, outcome, error) {
	var limit *ledger
	if prefix {
		limit = scan.ledger
	}
	source, err := c.sourceLedger(ctx, limit)
	if err != nil {
		return nil, outcome{}, err
	}
	// Compaction of a target partition can remove a record of one pair in
	// favour of a record of another, so whole target partitions are suspect.
	suspect := make([]bool, c.plan.Target.Partitions)
	for i := range source.pairs {
		if _, from, target := source.place(i); c.division.Has(from) && source.pairs[i] != scan.pairs[i] {
			suspect[target] = true
		}
	}
	var records int64
	for i := range source.pairs {
		if _, _, target := source.place(i); suspect[target] {
			records += max(source.pairs[i].records, scan.pairs[i].records) + scan.pairs[i].records
		}
	}
	if !slices.Contains(suspect, true) {
		return source, outcome{exact: true}, nil
	}
	r := reconciler{comparison: c, scan: scan, limit: limit, suspect: suspect, tombstonesGone: tombstonesGone,
		parts: uint64(records*entryBytes/c.memory + 1), gone: make([]int64, c.plan.Target.Partitions)}
	for r.part = range r.parts {
		if err := r.run(ctx); err != nil {
			return nil, outcome{}, err
		}
	}
	r.checkHoles()
	r.checkFlows()
	return source, outcome{superseded: r.superseded}, nil
}

// reconciler compares the records of suspect target partitions key by key, one
// part of the key space at a time.
type reconciler struct {
	*comparison
	scan           *targetScan
	limit          *ledger
	suspect        []bool // by target partition
	tombstonesGone bool   // the target's tombstones may have been removed since
	part, parts    uint64

	mu         sync.Mutex
	entries    []entry
	unmatched  []entry // on the target alone: settle decides
	superseded int64
	gone       []int64 // by target partition: records that compaction seems to have removed
}

func (r *reconciler) run(ctx context.Context) error {
	r.entries, r.unmatched = r.entries[:0], r.unmatched[:0]
	if err := r.collectSource(ctx); err != nil {
		return err
	}
	if err := r.collectTarget(ctx); err != nil {
		return err
	}
	slices.SortFunc(r.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.key, b.key), compareSource(a, b), cmp.Compare(a.target.Partition, b.target.Partition), cmp.Compare(a.target.Offset, b.target.Offset))
	})
	for key := range groups(r.entries, func(e entry) uint64 { return e.key }) {
		for run := range groups(key, func(e entry) uint64 { return uint64(e.source.Partition) }) {
			if err := r.key(ctx, key, run); err != nil {
				return err
			}
		}
	}
	return r.settle(ctx)
}

func compareSource(a, b entry) int {
	return cmp.Or(cmp.Compare(a.source.Partition, b.source.Partition), cmp.Compare(a.source.Offset, b.source.Offset))
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

// wanted says whether a record belongs to a suspect partition and to this part
// of the key space.
func (r *reconciler) wanted(target int32, key uint64) bool {
	return r.suspect[target] && key%r.parts == r.part
}

func (r *reconciler) keep(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
}

func (r *reconciler) collectSource(ctx context.Context) error {
	return r.eachDemanded(ctx, r.captures, r.limit, func(record *rewrite.Record, d rewrite.Decision) error {
		c := r.hasher.of(d.Key, d.Value(record), record.Headers, record.Timestamp)
		if r.wanted(d.Partition, c.key) {
			r.keep(entry{contents: c, source: report.Position{Partition: record.Partition, Offset: record.Offset}, round: d.Round,
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
	return eachSpan(ctx, r.readers, spans, func(ctx context.Context, span Span) error {
		var key keycodec.Key
		_, err := r.target.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				record := &records[i]
				p, headers, text := splitProvenance(record)
				if text != "" || p.Padding || r.captureOf(p) < 0 {
					continue // reported by the scan
				}
				c := r.hasher.of(record.Key, record.Value, headers, record.Timestamp)
				if r.wanted(record.Partition, c.key) {
					r.keep(entry{contents: c, onTarget: true, source: report.Position{Partition: p.Partition, Offset: p.Offset}, round: p.Round,
						target:    report.Position{Partition: record.Partition, Offset: record.Offset},
						misplaced: !r.belongs(record, p.Partition, &key)})
				}
			}
			return nil
		})
		return err
	})
}

// belongs says whether a record of the target is in a partition that its key
// can be in, by the rules that the plan has for keys of its kind.
func (r *reconciler) belongs(record *rewrite.Record, source int32, key *keycodec.Key) bool {
	rules := r.demand.rules
	if r.demand.aside {
		return record.Partition == source
	}
	copied := rules.Copies(record.Key)
	if copied && record.Partition == rewrite.CopiedPartition(source, rules) {
		return true // whether it was copied as it is, only the source can tell
	}
	if err := rules.To.Parse(key, record.Key); err != nil {
		return !copied // reported by the scan
	}
	return record.Partition == rules.Partitioner.Partition(rules.To, record.Key, key, source, rules.TargetPartitions)
}

// key compares the records of one key from one source partition, a run ordered
// by source offset. With them come all records of the key.
func (r *reconciler) key(ctx context.Context, key, run []entry) error {
	lastOnSource, lastOnTarget, place := int64(-1), int64(-1), int32(-1)
	for _, e := range run {
		if e.onTarget {
			lastOnTarget = max(lastOnTarget, e.source.Offset)
		} else {
			lastOnSource, place = e.source.Offset, e.target.Partition
		}
	}
	elsewhere, forgotten := r.others(key, run[0].source.Partition, place)
	before := int64(-1) // target offset of the run's previous record in its place
	for at := range groups(run, func(e entry) uint64 { return uint64(e.source.Offset) }) {
		e := at[0]
		source := slices.IndexFunc(at, func(e entry) bool { return !e.onTarget })
		target := slices.IndexFunc(at, func(e entry) bool { return e.onTarget && e.target.Partition == place })
		if target < 0 {
			target = slices.IndexFunc(at, func(e entry) bool { return e.onTarget && !e.misplaced })
		}
		if target < 0 {
			target = slices.IndexFunc(at, func(e entry) bool { return e.onTarget })
		}
		if target >= 0 && at[target].target.Partition == place {
			before = at[target].target.Offset
		}
		switch {
		case source >= 0 && target >= 0:
			if err := r.both(ctx, at[source], at[target]); err != nil {
				return err
			}
		case source < 0:
			// The source's cleaner may have removed it after it was copied: a
			// later record of the key replaced it, or it was a tombstone of age.
			at[target].removed = e.source.Offset < max(lastOnSource, lastOnTarget) || e.tombstone && lastOnSource < 0
			r.unmatched = append(r.unmatched, at[target])
		case e.source.Offset < lastOnTarget, elsewhere > before, forgotten:
			// The target's cleaner removed it.
			r.superseded++
			r.gone[place]++
		default:
			if err := r.report(ctx, "missing", fmt.Sprintf("it belongs in target partition %d and is not there with this key", place), &e.source, nil); err != nil {
				return err
			}
		}
		for i := range at {
			if at[i].onTarget && i != target && at[i].target.Partition != at[target].target.Partition {
				if err := r.report(ctx, "duplicate", fmt.Sprintf("the record of this source position is in partition %d, too", at[target].target.Partition), &at[i].source, &at[i].target); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// others says what records of the key from other source partitions explain on
// the target partition place: a record that lies before the offset elsewhere is
// superseded; where forgotten, the key was deleted and even its tombstone may
// be gone.
func (r *reconciler) others(key []entry, source, place int32) (elsewhere int64, forgotten bool) {
	elsewhere = -1
	present, deleted := false, false
	for i, e := range key {
		switch {
		case e.target.Partition != place:
		case e.onTarget:
			present = true
			if e.source.Partition != source {
				elsewhere = max(elsewhere, e.target.Offset)
			}
		case i+1 == len(key) || key[i+1].source.Partition != e.source.Partition:
			deleted = deleted || e.tombstone
		}
	}
	return elsewhere, r.tombstonesGone && deleted && !present
}

// settle looks at the source once more for what the target alone has. Where it
// is right, the source has a hole in that place, and nearly always the record
// that superseded it: among those compared, or behind the captured end, or
// behind what an interrupted apply got to.
func (r *reconciler) settle(ctx context.Context) error {
	if len(r.unmatched) == 0 {
		return nil
	}
	slices.SortFunc(r.unmatched, compareSource)
	ends, err := r.sourceEnds(ctx)
	if err != nil {
		return err
	}
	var spans []Span
	byPartition := make([][]entry, len(ends))
	for run := range groups(r.unmatched, func(e entry) uint64 { return uint64(e.source.Partition) }) {
		partition := run[0].source.Partition
		byPartition[partition] = run
		spans = append(spans, Span{partition, run[0].source.Offset, ends[partition]})
	}
	err = eachSpan(ctx, r.readers, spans, func(ctx context.Context, span Span) error {
		return r.settlePartition(ctx, span, byPartition[span.Partition])
	})
	if err != nil {
		return err
	}
	for i := range r.unmatched {
		e := &r.unmatched[i]
		switch {
		case e.misplaced:
			err = r.report(ctx, "partition", "its key does not belong in this partition", &e.source, &e.target)
		case e.occupied:
			err = r.report(ctx, "extra", "what the source has in this place does not become this record", &e.source, &e.target)
		case e.removed:
			r.superseded++
		default:
			err = r.report(ctx, "extra", "the source has no such record with this key", &e.source, &e.target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settlePartition finds, for the unmatched records of one source partition in
// order, whether the source has another record in their place, and whether it
// has a later record of their key.
func (r *reconciler) settlePartition(ctx context.Context, span Span, unmatched []entry) error {
	byKey := map[uint64][]int{}
	for i, e := range unmatched {
		if !e.removed {
			byKey[e.key] = append(byKey[e.key], i)
		}
	}
	decider := rewrite.NewDecider(r.demand.rules.WholeHistory()) // an omitted record supersedes, too
	next := 0
	_, err := r.demand.source.Read(ctx, span, func(records []rewrite.Record) error {
		for i := range records {
			record := &records[i]
			for next < len(unmatched) && unmatched[next].source.Offset < record.Offset {
				next++
			}
			for j := next; j < len(unmatched) && unmatched[j].source.Offset == record.Offset; j++ {
				unmatched[j].occupied = true
			}
			d, err := r.demand.decide(decider, record, record.Offset)
			if err != nil {
				return err
			}
			if !d.Action.OnTarget() {
				continue
			}
			for _, j := range byKey[r.hasher.key(d.Key)] {
				if unmatched[j].source.Offset < record.Offset {
					unmatched[j].removed = true
				}
			}
		}
		return nil
	})
	return err
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
	case source.round != target.round:
		kind, text = "provenance", fmt.Sprintf("it says that it came with replay %d, it belongs to %d; 0 is the copy itself", target.round, source.round)
	default:
		return nil
	}
	return r.report(ctx, kind, text, &source.source, &target.target)
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
		holes := r.scan.holes(int32(partition))
		if gone > holes {
			r.differences.add(report.Difference{Kind: "missing", Target: &report.Position{Partition: int32(partition), Offset: r.scan.next[partition]},
				Text: fmt.Sprintf("%d records are not in the partition, but its offsets have room for %d that compaction removed", gone, holes)})
		}
	}
}

// checkFlows demands that no pair holds more than the plan saw on the source:
// what is removed there later must have been seen.
func (r *reconciler) checkFlows() {
	if r.total > 0 {
		return // known already, one by one
	}
	planned := r.plan.newLedger()
	for i := range r.captures {
		for _, f := range r.captures[i].Flows {
			pair := planned.pair(f.Round, f.Source, f.Target)
			pair.records += f.Records
			pair.last = f.Last
		}
	}
	for i, have := range r.scan.pairs {
		if want := planned.pairs[i]; have.records > want.records || have.last > want.last {
			_, source, target := planned.place(i)
			r.differences.add(report.Difference{Kind: "extra", Target: &report.Position{Partition: target, Offset: r.scan.next[target]},
				Text: fmt.Sprintf("the partition has %d records of source partition %d up to offset %d, the plan saw %d up to %d", have.records, source, have.last, want.records, want.last)})
		}
	}
}

// tombstonesMayBeGone says whether the target's cleaner may have removed
// tombstones that were written at the earliest at the given time.
func tombstonesMayBeGone(configs map[string]topicConfig, since, now time.Time) bool {
	retention, ok := number(configs, "delete.retention.ms")
	return !ok || now.Sub(since) > milliseconds(retention)
}
