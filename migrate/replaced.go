package migrate

import (
	"context"

	"rekey/rewrite"
)

// A missing record need not be missing. When an apply is complete, the target's
// cleaner may remove the last record of a pair of partitions, in favour of a
// later one of the same key that came from another source partition. To write it
// again would put the older value last. Nothing of that happens while a copy
// runs, for then the cleaner is kept off; so it takes a hole in the offsets of
// the target partition.

// replacements knows which keys of target partitions with holes have records
// there, and from where: under 50 bytes for each key. The nil one knows none.
type replacements struct {
	prints fingerprinter
	keys   keyTable[origin]
}

// origin is where the records of a key on the target came from.
type origin struct {
	partition int32
	several   bool // from more than one source partition
}

// replaced says whether the target holds a record of the key that came from
// another source partition.
func (x *replacements) replaced(r *rewrite.Record, d *rewrite.Decision) bool {
	if x == nil {
		return false
	}
	known := x.keys.get(x.prints.of(d.Key))
	return known != nil && (known.several || known.partition != r.Partition)
}

// findReplacements reads the target partitions that have holes and lack the
// last record of a pair. Without any it returns nil.
func (a *applier) findReplacements(ctx context.Context) (*replacements, error) {
	wanted := map[int32]bool{}
	for _, c := range a.captures {
		for _, f := range c.Flows {
			if a.scan.pair(f.Round, f.Source, f.Target).last < f.Last && a.scan.holes(f.Target) > 0 {
				wanted[f.Target] = true
			}
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	x := &replacements{prints: newFingerprinter()}
	for partition := range wanted {
		span := Span{partition, a.scan.starts[partition], a.scan.next[partition]}
		_, err := a.comparison.target.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				p, _, text := splitProvenance(&records[i])
				if text != "" || p.Padding {
					continue
				}
				known, isNew := x.keys.at(x.prints.of(records[i].Key))
				if isNew {
					known.partition = p.Partition
				}
				known.several = known.several || known.partition != p.Partition
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

// holes is the number of offsets of a target partition that hold no record.
func (s *targetScan) holes(partition int32) int64 {
	return s.next[partition] - s.starts[partition] - s.records[partition]
}
