package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// mostStrays bounds the memory for keys that are not where the job's
// partitioner would have put them: 48 bytes each.
const mostStrays = 2_000_000

// strays finds keys that lie in two partitions of the source. The job's own
// partitioner never does that, so each such key has a record that is not at
// home: only those are remembered. Then their home partitions are read once
// more to see which of them are there, too.
type strays struct {
	mu     sync.Mutex
	prints fingerprinter
	table  keyTable[stray]
	many   bool // more than are looked at
	homes  map[int32]bool
	split  int64 // keys in two partitions
	first  []string
}

type stray struct {
	partition, home int32
	offset          int64
	split           bool
}

// add takes down a record that is not at home.
func (s *strays) add(r *rewrite.Record, home int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	print := s.prints.of(r.Key)
	known := s.table.get(print)
	if known == nil {
		if s.table.size == mostStrays {
			s.many = true
			return
		}
		added, _ := s.table.at(print)
		*added = stray{partition: r.Partition, home: home, offset: r.Offset}
		if s.homes == nil {
			s.homes = map[int32]bool{}
		}
		s.homes[home] = true
		return
	}
	if known.partition != r.Partition {
		s.found(r, known)
	}
}

const splitExamples = 5

// found counts a key that lies in the partition of r and in another one.
func (s *strays) found(r *rewrite.Record, known *stray) {
	if known.split {
		return
	}
	known.split = true
	s.split++
	if len(s.first) < splitExamples {
		s.first = append(s.first, fmt.Sprintf("%s at %s and %s", report.Shorten(report.Printable(r.Key), 60),
			report.Position{Partition: known.partition, Offset: known.offset}, report.Position{Partition: r.Partition, Offset: r.Offset}))
	}
}

// atHome takes down a record of a home partition.
func (s *strays) atHome(r *rewrite.Record) error {
	print := s.prints.of(r.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.table.get(print); known != nil && known.home == r.Partition {
		s.found(r, known)
	}
	return nil
}

// findSplitKeys reads the homes of stray keys once more. An extension looks at
// all captures: either record of such a key may lie in an earlier one.
func (pl *planner) findSplitKeys(ctx context.Context, s *strays) error {
	const phase = "look for keys in two partitions"
	earlier := pl.plan.Captures[:len(pl.plan.Captures)-1]
	if pl.earlier != nil && pl.earlier.Counts.Misplaced > 0 {
		released, err := keycodec.LookupPartitioner(releasedPartitioner)
		if err != nil {
			return err
		}
		for i := range earlier {
			if err := pl.readAgain(ctx, phase, earlier[i].spans(), func() func(*rewrite.Record) error { return pl.strayWatcher(s, released) }); err != nil {
				return err
			}
		}
	}
	if s.table.size == 0 {
		return nil
	}
	for i := range pl.plan.Captures {
		spans := slices.DeleteFunc(pl.plan.Captures[i].spans(), func(span Span) bool { return !s.homes[span.Partition] })
		if err := pl.readAgain(ctx, phase, spans, func() func(*rewrite.Record) error { return s.atHome }); err != nil {
			return err
		}
	}
	return nil
}

// strayWatcher takes down the records of earlier captures that are not at home.
func (pl *planner) strayWatcher(s *strays, released keycodec.Partitioner) func(*rewrite.Record) error {
	decider := rewrite.NewDecider(pl.rules)
	return func(r *rewrite.Record) error {
		d, err := decider.Decide(r, r.Offset)
		if err != nil || d.Parsed == nil || keycodec.RuntimeRefuses(r.Key) {
			return err
		}
		if home := released.Partition(pl.rules.From, r.Key, d.Parsed, r.Partition, pl.plan.Source.Partitions); home != r.Partition {
			s.add(r, home)
		}
		return nil
	}
}

// addHomeless counts a key that the job's partitioner refuses, so that it has no
// home, if it goes to the target from two partitions.
func (s *strays) addHomeless(rules *rewrite.Rules, key []byte, stats *badKeyStats) {
	repair := rules.Repair(key)
	goes := rules.Copies(key) || repair != nil && repair.Action == rewrite.RepairRewrite
	if !goes || stats.firstPartition == stats.lastPartition || !keycodec.RuntimeRefuses(key) {
		return
	}
	s.found(&rewrite.Record{Key: key, Partition: stats.lastPartition, Offset: stats.lastOffset},
		&stray{partition: stats.firstPartition, offset: stats.firstOffset})
}

// splitFindings warn of keys that lie in two partitions.
func (pl *planner) splitFindings(s *strays) {
	if s.many {
		pl.findings = append(pl.findings, report.Finding{Severity: report.Warning, Code: "split-keys-unknown",
			Title: fmt.Sprintf("More than %d keys are not where the job's partitioner would have put them", mostStrays),
			Text:  "Whether one of the others lies in two partitions was not looked at.", Do: "check --partitioner and who else writes to the topic"})
	}
	if s.split == 0 {
		return
	}
	slices.Sort(s.first)
	text := "In which order the records of such a key were written is not known; they keep it within each partition, but on the target either may come last. " + strings.Join(s.first, "; ") + "."
	if pl.rules.PruneBefore != nil && pl.rules.Pruned == rewrite.PrunedTombstone {
		pl.refuse("split-keys", 6, "keys that lie in two partitions of the source, so that --prune-before could delete what the other partition has of them: %d", s.split)
		return
	}
	pl.findings = append(pl.findings, report.Finding{Severity: report.Warning, Code: "split-keys",
		Title: fmt.Sprintf("Keys that lie in two partitions of the source: %d", s.split), Text: text,
		Do: "find out which partition the job reads them from; drop the other by hand if it matters"})
}
