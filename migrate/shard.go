package migrate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"rekey/report"
	"rekey/rewrite"
)

// A shard of an apply, --shard i/n, is an apply of some of the source partitions.
// Shards run at the same time, on different machines, and do not know of each
// other. What makes that work:
//
//   - All records of a pair of partitions come from one source partition, so from
//     one shard. Each pair is written in source order whatever the others do, and
//     provenance says where to go on.
//   - Each division has a lock of its own; lock.go says how runs whose divisions
//     overlap exclude each other all the same.
//   - Alignment is a lower bound for the place of a record. Each shard sees to it
//     that it is reached before it writes, whoever wrote the padding.
//   - What concerns all, that is the settings of the target after the copy and the
//     evidence that it is complete, is left to an apply without --shard. It finds
//     every record there.

// division is what --shard says; the whole without it.
func (o RunOptions) division() (rewrite.Division, error) {
	if o.Shard == "" {
		return rewrite.Whole, nil
	}
	d, err := rewrite.ParseDivision([]byte(o.Shard))
	if err != nil {
		return rewrite.Whole, usage(fmt.Sprintf("--shard %q is none", o.Shard),
			"give the number of the shard, from 0 on, and how many there are: --shard 0/4, 1/4, 2/4 and 3/4 together copy everything")
	}
	return d, nil
}

// evidenceFile is where an apply writes its evidence. Shards have files of their
// own, for they may share a run directory.
func evidenceFile(d rewrite.Division) string {
	if d == rewrite.Whole {
		return applyFileName
	}
	return fmt.Sprintf("apply-%d-of-%d.json", d.Index, d.Count)
}

// divided are the captures with what a division has of them. The captures of the
// plan stay what a record on the target is checked against.
func divided(captures []capture, d rewrite.Division) []capture {
	if d == rewrite.Whole {
		return captures
	}
	var own []capture
	for _, c := range captures {
		c.Ends, c.RecordsBy, c.Records = slices.Clone(c.Ends), slices.Clone(c.RecordsBy), 0
		for p := range c.Ends {
			if !d.Has(int32(p)) {
				c.Ends[p], c.RecordsBy[p] = c.Starts[p], 0 // nothing to read
			}
			c.Records += c.RecordsBy[p]
		}
		c.Flows = slices.DeleteFunc(slices.Clone(c.Flows), func(f flow) bool { return !d.Has(f.Source) })
		own = append(own, c)
	}
	return own
}

// recordsOf counts the records of a division's source partitions.
func (l *ledger) recordsOf(d rewrite.Division) int64 {
	var n int64
	for i := range l.pairs {
		if _, source, _ := l.place(i); d.Has(source) {
			n += l.pairs[i].records
		}
	}
	return n
}

// idle is the outcome of a shard that has no source partition.
func (a *applier) idle() error {
	e := a.evidence
	e.Nothing = true
	e.Findings = append(e.Findings, report.Finding{Severity: report.Note, Code: "no-partitions",
		Title: fmt.Sprintf("Shard %s has nothing to copy: %s has %d partitions", a.division, a.plan.Source.Topic, a.plan.Source.Partitions)})
	a.conclude()
	return a.writeEvidence()
}

// conclude says when the run ended and what to do next.
func (a *applier) conclude() {
	a.evidence.FinishedAt = a.env.Now().UTC()
	if a.division == rewrite.Whole {
		a.evidence.Next = []string{a.sides.command("verify", a.dir.folder)}
		return
	}
	whole := a.options
	whole.Shard = ""
	a.evidence.Next = []string{fmt.Sprintf("when all %d shards are done, once, without --shard:", a.division.Count), whole.command("apply"), whole.command("verify")}
}

// beginSettings puts the settings in force that hold while the copy runs. A shard
// leaves them alone where they are: one that slept before it changed them would
// undo what an apply without --shard has put in force since.
func (a *applier) beginSettings(ctx context.Context) error {
	c, topic := a.sides.target, a.plan.Target.Topic
	if a.division != rewrite.Whole {
		configs, err := c.topicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		if holdDuringCopy(configs) {
			return nil
		}
	}
	return c.alterConfigs(ctx, topic, temporaryConfigs())
}

// holdDuringCopy says whether the settings of the copy are in force.
func holdDuringCopy(configs map[string]topicConfig) bool {
	for name, value := range temporaryConfigs() {
		if have := configs[name]; have.own != (value != nil) || value != nil && !sameSetting(have.value, *value) {
			return false
		}
	}
	return true
}

// excludeOthers makes every older apply harmless that may write records of this
// one's source partitions under another lock. See lock.go.
func (a *applier) excludeOthers(ctx context.Context) error {
	excluded := map[rewrite.Division]bool{a.division: true}
	for {
		var found []rewrite.Division
		for d := range a.scan.writers {
			if !excluded[d] && d.Overlaps(a.division, a.plan.Source.Partitions) {
				found = append(found, d)
			}
		}
		if len(found) == 0 {
			return nil
		}
		slices.SortFunc(found, func(x, y rewrite.Division) int {
			return cmp.Or(cmp.Compare(x.Count, y.Count), cmp.Compare(x.Index, y.Index))
		})
		for _, d := range found {
			if err := a.exclude(ctx, d); err != nil {
				return err
			}
			excluded[d] = true
		}
		if err := a.catchUp(ctx); err != nil {
			return err
		}
	}
}

// exclude takes the lock of another division and lets every target partition know.
// Where a partition knows of a newer holder already, older ones are excluded there
// as well, which is all that is wanted.
func (a *applier) exclude(ctx context.Context, d rewrite.Division) error {
	padding, err := a.paddingRecord()
	if err != nil {
		return err
	}
	c, topic := a.sides.target, a.plan.Target.Topic
	identity, err := c.acquire(ctx, lockName(topic, d))
	if err != nil {
		return err
	}
	for partition := int32(0); partition < a.plan.Target.Partitions; {
		w := newTopicWriter(c, topic, int(a.plan.Target.Partitions), identity, a.writer.codec, a.limit)
		err = nil
		for ; err == nil && partition < a.plan.Target.Partitions; partition++ {
			if err = w.Write(ctx, partition, &padding); err == nil {
				err = w.Flush(ctx)
			}
			if err == nil {
				a.evidence.Padded++
			}
		}
		closeErr := closeSoon(w)
		if err = cmp.Or(err, closeErr); err != nil && !overtaken(err) {
			return err
		}
	}
	return nil
}

// newcomer says whether an apply that shares source partitions with this one has
// begun to write since this one was the only one.
func (a *applier) newcomer(ctx context.Context) (bool, error) {
	ends, err := highWatermarks(ctx, a.sides.target, a.plan.Target.Topic, a.plan.Target.Partitions)
	if err != nil {
		return false, err
	}
	clear(a.scan.writers)
	if err := a.comparison.advance(ctx, a.scan, ends); err != nil {
		return false, err
	}
	for d := range a.scan.writers {
		if d != a.division && d.Overlaps(a.division, a.plan.Source.Partitions) {
			return true, nil
		}
	}
	return false, nil
}

// firstWriteOf is when the first apply began that may have written records of a
// division; -1 if that is not known.
func (s *targetScan) firstWriteOf(d rewrite.Division, partitions int32) int64 {
	first := int64(-1)
	for writer, at := range s.writers {
		if at >= 0 && writer.Overlaps(d, partitions) && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// Sizes of the chunks in which shards pad a partition that others may pad at the
// same time: at most so many records of each are too many in the end.
const (
	smallestPaddingChunk = 500
	largestPaddingChunk  = 16_000
)

// paddingRound is what to pad now, given the next offset of each target
// partition, and how far that is from the goal altogether. A shard pads its share
// and looks again: others are likely to be at it, too.
func paddingRound(goals, next []int64, d rewrite.Division) (round []Span, missing int64) {
	for partition, goal := range goals {
		gap := goal - next[partition]
		if gap <= 0 {
			continue
		}
		missing += gap
		n := gap
		if d.Count > 1 {
			n = min(gap, largestPaddingChunk, max(smallestPaddingChunk, gap/int64(d.Count)))
		}
		round = append(round, Span{int32(partition), next[partition], next[partition] + n})
	}
	return round, missing
}

func (a *applier) writeEvidence() error {
	if a.main != nil {
		a.main.evidence.Quarantine.ID = a.evidence.Target.ID
		return a.main.writeEvidence()
	}
	return a.dir.write(evidenceFile(a.division), func(w io.Writer) error { return report.WriteJSON(w, a.evidence) })
}
