package migrate

import (
	"bytes"
	"fmt"

	"github.com/google/uuid"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// mostActions bounds how many action UUIDs are counted one by one: real jobs
// have a few for each run, a wrong topic may have any number.
const mostActions = 10_000

// releasedPartitioner is what the released runtimes, and so the running job, use.
const releasedPartitioner = "flink-agents"

// tally sums up the decisions on the records of one source partition, then of
// all of them.
type tally struct {
	rules            rewrite.Rules
	sourcePartitions int32
	released         keycodec.Partitioner // what the running job uses
	prints           fingerprinter

	counts      report.Counts
	flows       []flow // by replay and target partition; Records 0 where nothing flows
	traits      map[keycodec.Traits]*report.TraitCount
	actions     map[uuid.UUID]int64
	manyActions bool
	times       report.TimeRange
	timeline    report.Timeline
	timed       int64 // records with a timestamp
	batches     [5]int64

	recordsBy     []int64 // by source partition; only of the sum
	aside         []flow  // to the quarantine topic; Records 0 where nothing flows
	asideExtremes extremes

	pruned    pruneTally
	hints     hints
	release04 *tally04 // nil for another target format
	strays    *strays  // where to note records that are not at home, or nil
	setsAside bool     // there is a quarantine topic

	separator   int64 // records whose business key holds the separator
	prunable    int64 // of those, ending in _digits: a prune could hit another key's state
	migrated    int64 // records with a provenance header
	migratedAt  report.Position
	refusedKeys int64 // records whose new key the released partitioner refuses
	extremes    extremes
	sequences   keyTable[sequenceSeen] // by business key, of one source partition
	fallen      int64                  // business keys whose sequence number falls
	restarted   int64                  // of those, that fall to 0
	falls       []string               // the first few, in words
	late        int64                  // records with a timestamp that cannot be written
	lateAt      report.Position
	lateMS      int64
}

func newTally(rules rewrite.Rules, prints fingerprinter, partition, sourcePartitions int32) (*tally, error) {
	released, err := keycodec.LookupPartitioner(releasedPartitioner)
	if err != nil {
		return nil, err
	}
	t := &tally{rules: rules, sourcePartitions: sourcePartitions, released: released, prints: prints,
		traits: map[keycodec.Traits]*report.TraitCount{}, actions: map[uuid.UUID]int64{}, release04: newTally04(rules)}
	for round := range rules.Replays + 1 {
		for target := range rules.TargetPartitions {
			t.flows = append(t.flows, flow{Round: round, Source: partition, Target: target})
		}
	}
	t.aside = []flow{{Source: partition, Target: partition}}
	return t, nil
}

// add counts one record and its decision.
func (t *tally) add(r *rewrite.Record, d rewrite.Decision) {
	at := report.Position{Partition: r.Partition, Offset: r.Offset}
	size := int64(r.Size())
	t.counts.Records++
	t.counts.Bytes += size
	t.counts.LargestRecord = max(t.counts.LargestRecord, size)
	if len(r.Headers) > 0 {
		t.counts.Headers++
	}
	if r.Value != nil && len(r.Value) == 0 {
		t.counts.EmptyValues++
	}
	t.time(r.Timestamp, at)
	if t.release04 != nil {
		t.release04.add(r, &d, at)
	}
	if d.Problem != nil {
		t.counts.Unparseable++
		if r.Value == nil {
			t.counts.UnparseableTombstones++
		}
	}
	switch d.Action {
	case rewrite.Write:
		t.counts.Rewritten++
	case rewrite.Tombstone:
		t.counts.Tombstones++
	case rewrite.Copy:
		t.counts.Copied++
	case rewrite.Omit:
		t.counts.Omitted++
	case rewrite.Drop:
		t.counts.Dropped++
	case rewrite.Quarantine:
		t.counts.Quarantined++
	case rewrite.Refuse:
		t.counts.Undecided++
	}
	if d.Reason == rewrite.AlreadyMigrated {
		if t.migrated == 0 {
			t.migratedAt = at
		}
		t.migrated++
	}
	if d.Reason == rewrite.Pruned || d.Reason == rewrite.PrunedBefore {
		t.pruned.add(r, &d)
	}
	if d.Parsed != nil {
		t.parsed(r, d, at)
	}
	if d.Action.OnTarget() {
		t.flows[d.Round*t.rules.TargetPartitions+d.Partition].add(r.Offset)
		t.onTarget(r, d, at)
	}
	if aside := d.Aside(r); t.setsAside && aside.Action.OnTarget() {
		t.aside[0].add(r.Offset)
		t.asideExtremes.add(r, &aside, at)
		t.timestamp(r, at)
	}
}

// parsed counts what is worth knowing of a key that parses.
func (t *tally) parsed(r *rewrite.Record, d rewrite.Decision, at report.Position) {
	t.sequence(r, d.Parsed)
	if bytes.IndexByte(d.Parsed.BusinessKey, '_') >= 0 {
		t.separator++
		if endsInNumber(d.Parsed.BusinessKey) {
			t.prunable++
		}
	}
	if !keycodec.RuntimeRefuses(r.Key) {
		if home := t.released.Partition(t.rules.From, r.Key, d.Parsed, r.Partition, t.sourcePartitions); home != r.Partition {
			t.counts.Misplaced++
			if t.strays != nil {
				t.strays.add(r, home)
			}
		}
	}
	if t.rules.From == keycodec.Legacy && d.Problem == nil {
		t.hints.add(d.Parsed)
	}
	if traits := d.Parsed.Traits(); traits != 0 {
		for bit := keycodec.Traits(1); bit != 0 && bit <= traits; bit <<= 1 {
			if traits&bit == 0 {
				continue
			}
			count := t.traits[bit]
			if count == nil {
				count = &report.TraitCount{Example: report.Printable(d.Parsed.BusinessKey), At: at}
				t.traits[bit] = count
			}
			count.Records++
		}
	}
	if _, known := t.actions[d.Parsed.Action]; known || len(t.actions) < mostActions {
		t.actions[d.Parsed.Action]++
	} else {
		t.manyActions = true
	}
}

// sequenceSeen is what is known of the sequence numbers of a business key.
type sequenceSeen struct {
	highest int64
	fell    bool
}

// fallsInReport bounds the examples of falling sequence numbers.
const fallsInReport = 3

// sequence watches for a sequence number that falls: a fresh job used the topic
// again, so old states may be taken for its own. Tombstones do not count, for a
// prune writes them for old sequence numbers at any time.
func (t *tally) sequence(r *rewrite.Record, k *keycodec.Key) {
	if r.Value == nil {
		return
	}
	seen, isNew := t.sequences.at(t.prints.of(k.BusinessKey))
	if !isNew && k.Sequence < seen.highest && !seen.fell {
		seen.fell = true
		t.fallen++
		if k.Sequence == 0 {
			t.restarted++
		}
		if len(t.falls) < fallsInReport {
			t.falls = append(t.falls, fmt.Sprintf("%s goes from %d to %d at partition %d, offset %d",
				report.Printable(k.BusinessKey), seen.highest, k.Sequence, r.Partition, r.Offset))
		}
	}
	seen.highest = max(seen.highest, k.Sequence)
}

// endsInNumber says whether a business key ends in "_" and digits.
func endsInNumber(key []byte) bool {
	digits := 0
	for digits < len(key) && key[len(key)-1-digits] >= '0' && key[len(key)-1-digits] <= '9' {
		digits++
	}
	return digits > 0 && digits < len(key) && key[len(key)-1-digits] == '_'
}

// onTarget counts a record that will be written.
func (t *tally) onTarget(r *rewrite.Record, d rewrite.Decision, at report.Position) {
	if !bytes.Equal(r.Key, d.Key) {
		t.counts.ChangedKeys++
	}
	if r.Partition != d.Partition {
		t.counts.Moved++
	}
	if d.Parsed != nil && keycodec.RuntimeRefuses(d.Key) {
		t.refusedKeys++
	}
	t.extremes.add(r, &d, at)
	t.timestamp(r, at)
}

// add notes the record of a flow that comes next.
func (f *flow) add(offset int64) {
	if f.Records == 0 {
		f.First = offset
	}
	f.Records++
	f.Last = offset
}

// add notes a record that is to be written.
func (e *extremes) add(r *rewrite.Record, d *rewrite.Decision, at report.Position) {
	e.merge(extremes{Records: 1, Largest: targetSize(r, d), LargestAt: at, Oldest: r.Timestamp, OldestAt: at, Newest: r.Timestamp, NewestAt: at})
}

// timestamp notes a record that cannot be written because of it.
func (t *tally) timestamp(r *rewrite.Record, at report.Position) {
	if r.Timestamp > newestWritable || r.Timestamp < -1 {
		if t.late == 0 {
			t.lateAt, t.lateMS = at, r.Timestamp
		}
		t.late++
	}
}

// targetSize bounds the size of a batch that holds this record alone, before
// compression, with its new key and the provenance header.
func targetSize(r *rewrite.Record, d *rewrite.Decision) int64 {
	const provenance = len(rewrite.ProvenanceHeader) + 31 // two decimals and a colon
	return int64(batchOverhead + wireSize(r) - len(r.Key) + len(d.Key) - len(r.Value) + len(d.Value(r)) + headerOverhead + provenance)
}

func (t *tally) time(ms int64, at report.Position) {
	if ms == -1 {
		t.times.Unset++
		return
	}
	if t.timed == 0 || ms < t.times.Oldest {
		t.times.Oldest, t.times.OldestAt = ms, at
	}
	if t.timed == 0 || ms > t.times.Newest {
		t.times.Newest, t.times.NewestAt = ms, at
	}
	t.timeline.Add(ms)
	t.timed++
}

// merge adds the tally of another source partition.
func (t *tally) merge(o *tally) {
	addCounts(&t.counts, &o.counts)
	t.flows = append(t.flows, o.flows...)
	for bit, count := range o.traits {
		if have := t.traits[bit]; have != nil {
			have.Records += count.Records
		} else {
			t.traits[bit] = count
		}
	}
	for action, n := range o.actions {
		t.actions[action] += n
	}
	t.manyActions = t.manyActions || o.manyActions
	if o.timed > 0 {
		if t.timed == 0 || o.times.Oldest < t.times.Oldest {
			t.times.Oldest, t.times.OldestAt = o.times.Oldest, o.times.OldestAt
		}
		if t.timed == 0 || o.times.Newest > t.times.Newest {
			t.times.Newest, t.times.NewestAt = o.times.Newest, o.times.NewestAt
		}
	}
	t.timeline.Merge(&o.timeline)
	t.timed += o.timed
	t.times.Unset += o.times.Unset
	for codec, n := range o.batches {
		t.batches[codec] += n
	}
	t.aside = append(t.aside, o.aside...)
	if o.asideExtremes.Records > 0 {
		t.asideExtremes.merge(o.asideExtremes)
	}
	t.pruned.merge(&o.pruned)
	t.hints.merge(&o.hints)
	t.release04.merge(o.release04)
	t.separator += o.separator
	t.prunable += o.prunable
	t.refusedKeys += o.refusedKeys
	t.fallen += o.fallen
	t.restarted += o.restarted
	t.falls = append(t.falls, o.falls[:min(len(o.falls), fallsInReport-len(t.falls))]...)
	if o.migrated > 0 && t.migrated == 0 {
		t.migratedAt = o.migratedAt
	}
	t.migrated += o.migrated
	if o.extremes.Records > 0 {
		t.extremes.merge(o.extremes)
	}
	if o.late > 0 && t.late == 0 {
		t.lateAt, t.lateMS = o.lateAt, o.lateMS
	}
	t.late += o.late
}

func addCounts(sum, more *report.Counts) {
	sum.Records += more.Records
	sum.Bytes += more.Bytes
	sum.Rewritten += more.Rewritten
	sum.Tombstones += more.Tombstones
	sum.Omitted += more.Omitted
	sum.Quarantined += more.Quarantined
	sum.Copied += more.Copied
	sum.Dropped += more.Dropped
	sum.Undecided += more.Undecided
	sum.Unparseable += more.Unparseable
	sum.UnparseableTombstones += more.UnparseableTombstones
	sum.ChangedKeys += more.ChangedKeys
	sum.Moved += more.Moved
	sum.Misplaced += more.Misplaced
	sum.Aborted += more.Aborted
	sum.Headers += more.Headers
	sum.EmptyValues += more.EmptyValues
	sum.LargestRecord = max(sum.LargestRecord, more.LargestRecord)
}
