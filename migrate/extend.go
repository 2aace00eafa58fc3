package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"rekey/report"
)

// extendPlan captures what was appended to the source since the last capture
// of a plan, scans only that, and seals the plan anew. So the bulk can be
// copied while the job still runs, and the maintenance window pays for the last
// minutes only.
func extendPlan(ctx context.Context, o PlanOptions, env Environment) (*report.Report, error) {
	dir := env.runDir(o.RunDir)
	p, rules, err := dir.openPlan()
	if err != nil {
		return nil, err
	}
	if err := o.agreesWith(p); err != nil {
		return nil, err
	}
	sides, err := connectSides(ctx, o.Connections, env)
	if err != nil {
		return nil, err
	}
	defer sides.close()
	ends, err := p.checkSource(ctx, sides.source)
	if err != nil {
		return nil, err
	}
	if err := p.horizonFailure(p.Captures[0].At, env.Now()); err != nil {
		return nil, err
	}
	earlier, isCopy, err := dir.readReport(p)
	if err != nil {
		return nil, err
	}
	dir.sweep(env)
	if grownBy(ends, p.ends()) == 0 {
		env.warn("nothing was appended to %s since its end was captured; the plan stays as it is", p.Source.Topic)
		return earlier, nil
	}
	if isCopy {
		if err := dir.writeReport(earlier); err != nil {
			return nil, err
		}
	}
	pl := planner{options: o, env: env, dir: dir, sides: sides, plan: p, prints: newFingerprinter(), rules: rules, earlier: earlier}
	if err := dir.restore(p.Files); err != nil {
		return nil, err
	}
	if err := dir.keep(p); err != nil {
		return nil, err
	}
	p.Extends = append(p.Extends, p.ID)
	p.Tool = env.Version
	if err := pl.capture(ctx, &p.Captures[len(p.Captures)-1]); err != nil {
		return nil, err
	}
	before := p.replaceable()
	r, err := pl.scanAndSeal(ctx)
	if err != nil {
		return r, err // the kept files stay: the plan may be as it was
	}
	dir.dropKept(before, env)
	return r, nil
}

// refusedExtension leaves the plan as it was: what it says may be on the target
// already, and stays good for that.
func refusedExtension(refused error) error {
	failure, ok := errors.AsType[*Failure](refused)
	if !ok {
		return refused
	}
	return &Failure{Kind: failure.Kind, What: "the extension is refused, and the plan stays as it was: " + failure.What, Cause: failure.Cause,
		Do: "what was appended cannot be copied under this plan. Plan again with other flags, a new --run-dir and a new target; or stop the job and see in unparseable.jsonl what it wrote"}
}

// An extension replaces the sealed files and the report one by one, and
// plan.json last. If it ends in between, the plan is as it was and some of its
// files are not. So a copy of each is kept until the plan is written: it counts
// for the file, and the next extension puts it back. Only an extension does, for
// a phase that runs beside one would take away what the new plan is being sealed
// with.
//
// Sealed files are known by their digest, the report by the id of its plan.

func keptName(name string) string { return name + ".before-extend" }

// replaceable are the names of the files that an extension replaces and of
// which it keeps copies. The other forms of the report are made from report.json.
func (p *plan) replaceable() []string {
	names := []string{reportJSONName}
	for _, file := range p.Files {
		names = append(names, file.Name)
	}
	return names
}

// keep makes the copies.
func (d runDir) keep(p *plan) error {
	for _, name := range p.replaceable() {
		if err := d.write(keptName(name), func(w io.Writer) error { return d.copyTo(w, name) }); err != nil {
			return err
		}
	}
	return nil
}

// dropKept removes the copies. Where that fails they are in nobody's way, so it
// is only logged.
func (d runDir) dropKept(names []string, env Environment) {
	for _, name := range names {
		if err := d.remove(keptName(name)); err != nil {
			env.Logf("remove a copy that is no longer needed: %v", err)
		}
	}
}

// hasKept says whether the copy of a sealed file is there and is the right one.
func (d runDir) hasKept(file sealedFile) (bool, error) {
	exists, err := d.has(keptName(file.Name))
	if err != nil || !exists {
		return false, err
	}
	sum, err := d.digest(keptName(file.Name))
	return sum == file.SHA256, err
}

// restore puts copies back where an extension that did not end replaced the
// sealed files. The files were checked.
func (d runDir) restore(files []sealedFile) error {
	for _, file := range files {
		sum, err := d.digest(file.Name)
		if err == nil && sum != file.SHA256 {
			err = d.write(file.Name, func(w io.Writer) error { return d.copyTo(w, keptName(file.Name)) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// agreesWith refuses flags of an extension that contradict its plan: nothing
// about the decisions may change between two captures.
func (o PlanOptions) agreesWith(p *plan) error {
	for _, option := range []struct{ flag, given, planned string }{
		{"--source", o.Source, p.Source.Topic}, {"--target", o.Target, p.Target.Topic},
	} {
		if option.given != "" && option.given != option.planned {
			return usage(fmt.Sprintf("the plan in %s has %s %s, not %s", o.RunDir, option.flag, option.planned, option.given), "leave the flag out to extend that plan")
		}
	}
	for _, option := range []struct{ flag, given string }{
		{"--repairs", o.Repairs}, {"--prune", o.Prune}, {"--prune-before", o.PruneBefore}, {"--pruned", string(o.Pruned)},
	} {
		if option.given != "" {
			return usage(fmt.Sprintf("%s with --extend", option.flag), "an extension keeps the rules of its plan: leave the flag out, or make a new plan with a new --run-dir")
		}
	}
	return nil
}

// readReport reads the report of a plan: report.json, or its copy where an
// extension did not end.
func (d runDir) readReport(p *plan) (r *report.Report, isCopy bool, err error) {
	var found error
	for _, name := range []string{reportJSONName, keptName(reportJSONName)} {
		err := d.readFrom(name, func(in io.Reader) (err error) {
			r, err = report.ReadReport(in)
			return err
		})
		switch {
		case errors.Is(err, ErrStorage), errors.Is(err, ErrUsage):
			return nil, false, err
		case err == nil && p.isReported(r):
			return r, name != reportJSONName, nil
		case err == nil:
			err = fmt.Errorf("%s is of another plan, %s", d.path(name), r.PlanID)
		}
		found = cmp.Or(found, err)
	}
	return nil, false, &Failure{Kind: ErrChanged, What: "cannot read the report of the plan to extend", Cause: found,
		Do: "restore report.json from a copy of the run directory, or plan again with a new --run-dir"}
}

// isReported says whether a report is that of the plan. A replay makes a new plan
// of the same records and leaves the report as it was.
func (p *plan) isReported(r *report.Report) bool {
	var records int64
	for _, c := range p.Captures {
		records += c.Records
	}
	return records == r.Counts.Records && (r.PlanID == p.ID || slices.Contains(p.Extends, r.PlanID))
}

// addEarlierKeys puts the keys of unparseable.jsonl back into the table, so
// that an extension counts on from there.
func (b *badKeys) addEarlierKeys() error {
	return b.dir.eachBadKey(func(entry report.BadKey, key []byte) error {
		return b.insert(key, badKeyStats{
			firstPartition: entry.First.Partition, firstOffset: entry.First.Offset,
			lastPartition: entry.Last.Partition, lastOffset: entry.Last.Offset,
			records: uint32(entry.Records), tombstones: uint32(entry.Tombstones),
		})
	})
}

// addEarlier adds the counts of the captures before an extension to a report.
func addEarlier(r, earlier *report.Report) {
	var timeline report.Timeline
	timeline.AddBuckets(earlier.Timeline)
	timeline.AddBuckets(r.Timeline)
	r.Timeline = timeline.Buckets()
	addCounts(&r.Counts, &earlier.Counts)
	r.Times = mergeTimes(earlier.Times, r.Times)
	r.Codecs = mergeNamed(earlier.Codecs, r.Codecs)
	r.Actions = mergeNamed(earlier.Actions, r.Actions)
	r.Actions = r.Actions[:min(len(r.Actions), actionsInReport)]
	r.ActionCount = max(r.ActionCount, earlier.ActionCount)
	addEarlier04(r.Release04, earlier.Release04)
	for _, trait := range earlier.Traits {
		if i := slices.IndexFunc(r.Traits, func(t report.TraitCount) bool { return t.Trait == trait.Trait }); i >= 0 {
			trait.Records += r.Traits[i].Records
			r.Traits[i] = trait
		} else {
			r.Traits = append(r.Traits, trait)
		}
	}
	for _, broken := range earlier.Breaks {
		if i := slices.IndexFunc(r.Breaks, func(b report.Break) bool { return b.Code == broken.Code }); i >= 0 {
			r.Breaks[i].Records += broken.Records
		} else {
			r.Breaks = append(r.Breaks, broken)
		}
	}
}

func mergeTimes(a, b report.TimeRange) report.TimeRange {
	merged := a
	merged.Unset += b.Unset
	if b.Oldest != -1 && (a.Oldest == -1 || b.Oldest < a.Oldest) {
		merged.Oldest, merged.OldestAt = b.Oldest, b.OldestAt
	}
	if b.Newest > a.Newest {
		merged.Newest, merged.NewestAt = b.Newest, b.NewestAt
	}
	return merged
}

// mergeNamed adds up counts of the same name, most first.
func mergeNamed(a, b []report.NamedCount) []report.NamedCount {
	sums := map[string]int64{}
	for _, n := range slices.Concat(a, b) {
		sums[n.Name] += n.Count
	}
	merged := make([]report.NamedCount, 0, len(sums))
	for name, n := range sums {
		merged = append(merged, report.NamedCount{Name: name, Count: n})
	}
	slices.SortFunc(merged, func(a, b report.NamedCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return merged
}
