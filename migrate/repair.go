package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// RepairOptions are those of rekey repair.
type RepairOptions struct {
	RunDir string
	Accept []string // reasons whose suggestions are accepted
	Edit   string   // path of a file with lines made by hand, or ""
}

// Validate reports the first flag that is missing, unknown or in conflict with
// another.
func (o RepairOptions) Validate() error {
	switch {
	case o.RunDir == "":
		return usage("--run-dir is missing", "name the folder that plan wrote")
	case len(o.Accept) == 0 && o.Edit == "":
		return usage("neither --accept nor --edit is given", "name reasons whose suggestions you accept, or a file with lines made by hand")
	case len(o.Accept) > 0 && o.Edit != "":
		return usage("--accept and --edit are both given", "run rekey repair once for each: both add to repairs.jsonl")
	}
	for _, reason := range o.Accept {
		if !slices.Contains(keycodec.Reasons(), keycodec.Reason(reason)) {
			return usage(fmt.Sprintf("unknown reason %q", reason), "known: "+strings.Join(report.ReasonCodes(), ", "))
		}
	}
	return nil
}

// Repair writes repairs.jsonl for the next plan. It begins with the repairs that
// the plan of the run directory was made with and those that repairs.jsonl
// holds already, so that the next plan needs this one file.
//
// A decision that is there already is never changed by accepting a reason: the
// suggestion is left out and counted. A line made by hand replaces it, and the
// result names each key where that happened. Neither asks a broker.
func Repair(o RepairOptions, env Environment) (*report.RepairRun, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir := env.runDir(o.RunDir)
	p, err := dir.readPlan()
	if err != nil {
		return nil, err
	}
	if err := p.checkFiles(dir); err != nil {
		return nil, err
	}
	rules, err := p.formats()
	if err != nil {
		return nil, err
	}
	r := repairer{options: o, dir: dir, plan: p, set: newRepairSet(rules), out: &report.RepairRun{Schema: report.SchemaVersion, Tool: env.Version, PlanID: p.ID,
		File: dir.path(repairsFileName), Replaced: []report.Replaced{}, Remaining: []report.ReasonCount{}}}
	if err := r.begin(); err != nil {
		return nil, err
	}
	if o.Edit != "" {
		err = r.edit()
	} else {
		err = r.accept()
	}
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		return nil, err
	}
	return r.out, nil
}

// repairer carries what the steps of one repair hand to each other.
type repairer struct {
	options RepairOptions
	dir     runDir
	plan    *plan
	set     *repairSet
	out     *report.RepairRun
}

// begin takes over the decisions that are there.
func (r *repairer) begin() error {
	exists, err := r.dir.has(repairsFileName)
	if err != nil {
		return err
	}
	if exists {
		if r.set, err = r.dir.readRepairs(r.set.rules); err != nil {
			return err
		}
	}
	sealed, err := r.plan.repairSet(r.set.rules)
	if err != nil {
		return err
	}
	for _, line := range sealed.lines {
		if _, known := r.set.byKey[mapKey(line.key)]; !known {
			if err := r.set.add(0, line.Repair); err != nil {
				return err
			}
		}
	}
	r.out.Before = int64(len(r.set.lines))
	return nil
}

// accept takes the suggestions of the given reasons.
func (r *repairer) accept() error {
	return r.dir.eachBadKey(func(bad report.BadKey, key []byte) error {
		if !slices.Contains(r.options.Accept, bad.Reason) {
			return nil
		}
		if _, known := r.set.byKey[mapKey(key)]; known {
			r.out.Kept++
			return nil
		}
		if bad.Suggestion == nil {
			r.out.WithoutSuggestion++
			return nil
		}
		line, err := report.RepairFor(bad, "rewrite")
		if err == nil {
			err = r.set.add(0, line)
		}
		if err != nil {
			return &Failure{Kind: ErrUsage, What: fmt.Sprintf("the suggestion for key %s", report.Shorten(bad.Key, 60)), Cause: err,
				Do: "decide on this key by hand with --edit"}
		}
		r.out.Added++
		return nil
	})
}

// edit takes lines made by hand. Each must be of a key that cannot be parsed.
func (r *repairer) edit() error {
	edits, err := readRepairsFile(r.options.Edit, r.set.rules)
	if err != nil {
		return err
	}
	unknown := map[string]bool{}
	for _, line := range edits.lines {
		unknown[mapKey(line.key)] = true
	}
	if err := r.dir.eachBadKey(func(_ report.BadKey, key []byte) error {
		delete(unknown, mapKey(key))
		return nil
	}); err != nil {
		return err
	}
	for _, line := range edits.lines {
		if unknown[mapKey(line.key)] {
			return usage(fmt.Sprintf("%s: line %d: key %s is not in unparseable.jsonl", r.options.Edit, line.number, report.Shorten(line.Key, 60)),
				"take the key from unparseable.jsonl of this run directory; its bytes decide, not how it looks")
		}
		at, known := r.set.byKey[mapKey(line.key)]
		if !known {
			if err := r.set.add(line.number, line.Repair); err != nil {
				return err
			}
			r.out.Added++
			continue
		}
		was := r.set.lines[at]
		if same, err := sameLine(was.Repair, line.Repair); err != nil || same {
			r.out.Kept++
			if err != nil {
				return err
			}
			continue
		}
		r.set.lines[at] = line
		r.out.Replaced = append(r.out.Replaced, report.Replaced{Key: line.Key, Was: was.Decision, Now: line.Decision})
	}
	return nil
}

func sameLine(a, b report.Repair) (bool, error) {
	left, err := a.Line()
	if err != nil {
		return false, err
	}
	right, err := b.Line()
	return left == right, err
}

// finish writes the file and counts what is still undecided.
func (r *repairer) finish() error {
	r.out.Lines = int64(len(r.set.lines))
	remaining := map[string]*report.ReasonCount{}
	err := r.dir.eachBadKey(func(bad report.BadKey, key []byte) error {
		if _, decided := r.set.byKey[mapKey(key)]; decided {
			return nil
		}
		count := remaining[bad.Reason]
		if count == nil {
			count = &report.ReasonCount{Reason: bad.Reason, Meaning: report.Meaning(bad.Reason)}
			remaining[bad.Reason] = count
		}
		count.Keys++
		count.Records += bad.Records
		return nil
	})
	if err != nil {
		return err
	}
	for _, count := range remaining {
		r.out.Remaining = append(r.out.Remaining, *count)
	}
	slices.SortFunc(r.out.Remaining, func(a, b report.ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Reason, b.Reason))
	})
	if err := r.dir.writeRepairs(r.set.sorted()); err != nil {
		return err
	}
	r.out.Next = []string{fmt.Sprintf("rekey plan --repairs %s with the flags of this plan and a new --run-dir", shellQuote(r.out.File))}
	if r.plan.refuse() == nil && r.plan.OnUnparseable != rewrite.PolicyFail {
		r.out.Next = append(r.out.Next, fmt.Sprintf("or, to add what was quarantined to this plan's target: rekey repair --replay --run-dir %s --bootstrap-server HOST:PORT", shellQuote(r.dir.folder)))
	}
	return nil
}
