package migrate

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"rekey/report"
	"rekey/rewrite"
)

// A replay takes records to the target that were quarantined when the plan was
// made, once repairs say what their keys mean.
//
// It becomes a part of the plan: the repairs of each replay are sealed in it as
// a round, with what they demand of each pair of partitions. The records come
// from the source, by the same decisions as all others, behind everything that
// is on the target, and their provenance names the round. So apply, resume,
// verify and rehearse treat them as they treat the copy itself: within a round,
// source offsets rise along each pair of partitions.
//
// A replayed state must not come after a newer one of the same key. The target
// key of a repair may therefore be that of no other source key; and when the job
// has begun to write to the target, apply refuses it, and with it every replay.

// replay is one round, as the plan holds it.
type replay struct {
	At      time.Time       `json:"at"`      // when the source was read for it
	Repairs []report.Repair `json:"repairs"` // in order of the key
}

// Replay takes the repairs of repairs.jsonl that the plan does not hold yet into
// the plan, and carries the plan out. Without new ones it goes on with what an
// earlier replay left undone.
func Replay(ctx context.Context, o RunOptions, env Environment) (*report.Apply, error) {
	a, err := newApplier(o, env)
	if err != nil {
		return nil, err
	}
	a.phase = "repair --replay"
	lines, err := a.plan.newRepairs(a.dir)
	if err != nil {
		return nil, err
	}
	if len(lines) > 0 {
		a.replay = &replayer{applier: a, lines: lines}
	} else if len(a.plan.Replays) == 0 {
		return nil, usage("there is nothing to replay: "+a.dir.path(repairsFileName)+" has no repair that the plan does not hold",
			"decide on quarantined keys with rekey repair --accept or --edit first")
	}
	return a.execute(ctx)
}

// newRepairs are the decisions of repairs.jsonl that the plan does not hold. Each
// must be on a key that was quarantined: of any other, something is on the target
// already, or nothing is to be.
func (p *plan) newRepairs(dir runDir) ([]report.Repair, error) {
	rules, err := p.formats()
	if err != nil {
		return nil, err
	}
	known, err := p.repairSet(rules)
	if err != nil {
		return nil, err
	}
	known.into(&rules)
	if exists, err := dir.has(repairsFileName); err != nil || !exists {
		return nil, err
	}
	given, err := dir.readRepairs(rules)
	if err != nil {
		return nil, err
	}
	quarantined := map[string]bool{}
	if err := dir.eachBadKey(func(_ report.BadKey, key []byte) error {
		quarantined[mapKey(key)] = rules.OnUnparseable != rewrite.PolicyFail && rules.Repair(key) == nil && !rules.Copies(key)
		return nil
	}); err != nil {
		return nil, err
	}
	refused := func(line repairLine, why string) error {
		return usage(fmt.Sprintf("%s: line %d: key %s: %s", dir.path(repairsFileName), line.number, report.Shorten(line.Key, 60), why),
			"take the line out or put it back as it was; or plan again with --repairs, a new --run-dir and a new target")
	}
	lines := newRepairSet(rules)
	for _, line := range given.lines {
		if at, sealed := known.byKey[mapKey(line.key)]; sealed {
			same, err := sameLine(known.lines[at].Repair, line.Repair)
			if err == nil && !same {
				err = refused(line, fmt.Sprintf("the plan has decided on it already, to %s", known.lines[at].Decision))
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if !quarantined[mapKey(line.key)] {
			return nil, refused(line, "it was not quarantined by this plan")
		}
		if err := lines.add(line.number, line.Repair); err != nil {
			return nil, err
		}
	}
	return lines.sorted(), nil
}

// replayer adds a round to the plan of an apply.
type replayer struct {
	*applier
	lines []report.Repair
}

// prepare makes the plan that has the new round. It is written to the run
// directory only when the target is found fit for it.
func (r *replayer) prepare(ctx context.Context) error {
	if _, err := r.plan.checkSource(ctx, r.sides.source); err != nil {
		return err
	}
	next := *r.plan
	next.Tool = r.env.Version
	next.Extends = append(slices.Clone(next.Extends), next.ID)
	next.Replays = append(slices.Clone(next.Replays), replay{At: r.env.Now().UTC(), Repairs: r.lines})
	next.Captures = slices.Clone(next.Captures)
	rules, err := next.rules(r.dir)
	if err != nil {
		return err
	}
	watched, err := r.watch(rules)
	if err != nil {
		return err
	}
	for i := range next.Captures {
		if err := r.scan(ctx, &next, &next.Captures[i], rules, watched); err != nil {
			return err
		}
	}
	if err := next.claimAlone(watched); err != nil {
		return err
	}
	r.plan, r.rules = &next, rules
	return nil
}

// watch makes the claims of the round: who else becomes one of its target keys.
func (r *replayer) watch(rules rewrite.Rules) (*claims, error) {
	mine := rules
	mine.Repairs = map[string]*rewrite.Repair{}
	for key, repair := range rules.Repairs {
		if int(repair.Round) == len(r.plan.Replays)+1 {
			mine.Repairs[key] = repair
		}
	}
	watched, err := newClaims(mine, nil)
	if err != nil {
		return nil, err
	}
	watched.rules = rules.WholeHistory()
	return watched, nil
}

// scan finds out what the round demands of a capture.
func (r *replayer) scan(ctx context.Context, next *plan, c *capture, rules rewrite.Rules, watched *claims) error {
	prints := newFingerprinter()
	source := &topicReader{cluster: r.sides.source, topic: next.Source.Topic, skipAborted: next.Isolation == IsolationCommitted}
	ask := demand{source: source, rules: rules, prints: prints, count: &counter{progress: r.env.Progress}}
	r.env.Progress.Phase("scan "+next.Source.Topic, c.positions())
	defer r.env.Progress.Done()
	total, err := newTally(rules, prints, 0, next.Source.Partitions)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	err = eachSpan(ctx, r.env.budget().readers, c.spans(), func(ctx context.Context, span Span) error {
		t, err := newTally(rules, prints, span.Partition, next.Source.Partitions)
		if err != nil {
			return err
		}
		watch := watched.watcher()
		_, err = ask.each(ctx, span, span.From, func(record *rewrite.Record, d rewrite.Decision) error {
			if int(d.Round) == len(next.Replays) {
				t.add(record, d)
			}
			return watch.note(record)
		})
		mu.Lock()
		defer mu.Unlock()
		total.merge(t)
		return err
	})
	if err != nil {
		return err
	}
	if total.late > 0 {
		return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("a record to replay has a timestamp that cannot be written, at %s partition %d, offset %d: %d ms; the range is -1 and 0 to %d",
			next.Source.Topic, total.lateAt.Partition, total.lateAt.Offset, total.lateMS, newestWritable),
			Do: "leave its key quarantined, or decide to drop it"}
	}
	c.Flows = slices.Clone(c.Flows)
	for _, f := range total.flows {
		if f.Records > 0 {
			c.Flows = append(c.Flows, f)
		}
	}
	slices.SortFunc(c.Flows, func(a, b flow) int {
		return cmp.Or(cmp.Compare(a.Round, b.Round), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Target, b.Target))
	})
	if total.extremes.Records > 0 {
		c.Extremes.merge(total.extremes)
	}
	return nil
}

// claimAlone takes the claims of a round into the plan, and refuses a target key
// that stands for another source key, too.
func (p *plan) claimAlone(watched *claims) error {
	taken := map[string]bool{}
	for _, c := range p.Claims {
		taken[c.Target] = len(c.Keys) > 0
	}
	settled := watched.settle(false)
	for _, c := range settled {
		if len(c.Keys) == 1 && !taken[c.Target] {
			continue
		}
		target, err := base64.StdEncoding.DecodeString(c.Target)
		if err != nil {
			return fmt.Errorf("a claim of the replay: %w", err)
		}
		return &Failure{Kind: ErrPreflight,
			What: fmt.Sprintf("the target key %s of a repair is that of another source key, too, whose records are on the target already: nothing was written", report.Shorten(report.Printable(target), 100)),
			Do:   "decide to drop the key, or plan again with --repairs, --on-collision latest, a new --run-dir and a new target"}
	}
	p.Claims = slices.Concat(p.Claims, settled)
	slices.SortFunc(p.Claims, func(a, b claim) int { return cmp.Compare(a.Target, b.Target) })
	return nil
}

// seal writes the plan with its new round. From here on, apply knows of it too.
func (r *replayer) seal() error {
	if err := r.dir.writePlan(r.plan); err != nil {
		return err
	}
	r.evidence.PlanID = r.plan.ID
	return nil
}

// eachBadKey calls fn for each line of unparseable.jsonl.
func (d runDir) eachBadKey(fn func(report.BadKey, []byte) error) error {
	return d.readFrom(unparseableFileName, func(in io.Reader) error {
		for bad, err := range report.ReadBadKeys(in) {
			if err != nil {
				return fmt.Errorf("%s: %w", d.path(unparseableFileName), err)
			}
			key, err := bad.Bytes()
			if err != nil {
				return fmt.Errorf("%s: %w", d.path(unparseableFileName), err)
			}
			if err := fn(bad, key); err != nil {
				return err
			}
		}
		return nil
	})
}
