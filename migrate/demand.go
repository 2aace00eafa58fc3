package migrate

import (
	"context"

	"golang.org/x/sync/errgroup"

	"rekey/rewrite"
)

// demand says what a plan demands of the source: each record of a span with
// the decision on it. Plan, apply and verify all ask it, so they cannot
// disagree about what belongs on the target.
type demand struct {
	source Source
	rules  rewrite.Rules
	aside  bool // of the quarantine topic, not of the target
	prints fingerprinter
	count  *counter // positions passed
}

// each calls fn with every record of a span that has an offset of at least
// from, in order. Where decisions depend on later records of a key, the whole
// span is read once before.
func (d demand) each(ctx context.Context, span Span, from int64, fn func(*rewrite.Record, rewrite.Decision) error) (ReadStats, error) {
	var last keyTable[int64] // offset of the last record of each key in the span
	if d.rules.NeedsLast() {
		_, err := d.source.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				offset, _ := last.at(d.prints.of(records[i].Key))
				*offset = records[i].Offset
			}
			return nil
		})
		if err != nil {
			return ReadStats{}, err
		}
	}
	decider := rewrite.NewDecider(d.rules)
	position := max(span.From, from)
	stats, err := d.source.Read(ctx, Span{span.Partition, position, span.To}, func(records []rewrite.Record) error {
		for i := range records {
			record := &records[i]
			lastOfKey := record.Offset
			if d.rules.NeedsLast() {
				if offset := last.get(d.prints.of(record.Key)); offset != nil {
					lastOfKey = *offset
				}
			}
			decision, err := d.decide(decider, record, lastOfKey)
			if err != nil {
				return err
			}
			if err := fn(record, decision); err != nil {
				return err
			}
		}
		if n := len(records); n > 0 {
			d.count.add(records[n-1].Offset + 1 - position)
			position = records[n-1].Offset + 1
		}
		return nil
	})
	if err == nil {
		d.count.add(span.To - position) // a hole at the end is passed too
	}
	return stats, err
}

// decide is the decision on one record.
func (d demand) decide(decider *rewrite.Decider, r *rewrite.Record, last int64) (rewrite.Decision, error) {
	decision, err := decider.Decide(r, last)
	if err == nil && d.aside && decision.Action != rewrite.Refuse {
		decision = decision.Aside(r)
	}
	return decision, err
}

// eachSpan runs fn for every span, until one fails. How many readers there are at
// a time bounds the memory for what was fetched: each has one response in work,
// one ready and one on its way.
func eachSpan(ctx context.Context, readers int, spans []Span, fn func(context.Context, Span) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, span := range spans {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fn(ctx, span)
		})
	}
	return group.Wait()
}
