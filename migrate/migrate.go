package migrate

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"rekey/report"
	"rekey/rewrite"
)

// Outcome is what the phases of Migrate have to say; nil for phases that did
// not run.
type Outcome struct {
	Plan   *report.Report
	Apply  *report.Apply
	Verify *report.Verify
}

// Migrate is plan, apply and verify in one go. With a plan already in the run
// directory it goes on with that one, provided that the options still mean the
// same: so the same command resumes.
func Migrate(ctx context.Context, o PlanOptions, allowLive bool, env Environment) (*Outcome, error) {
	if o.lacksKeyType() {
		return nil, o.askForKeyType(ctx, env)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	out := new(Outcome)
	exists, err := env.runDir(o.RunDir).has(planFileName)
	if err != nil {
		return nil, err
	}
	if exists {
		if err := o.sameAs(env.runDir(o.RunDir)); err != nil {
			return nil, err
		}
	} else if out.Plan, err = Plan(ctx, o, env); err != nil {
		return out, err
	}
	run := RunOptions{Connections: o.Connections, RunDir: o.RunDir, AllowLiveSource: allowLive}
	if out.Apply, err = Apply(ctx, run, env); err != nil {
		return out, err
	}
	out.Verify, err = Verify(ctx, run, env)
	return out, err
}

// sameAs refuses options that differ from those of an existing plan.
func (o PlanOptions) sameAs(dir runDir) error {
	p, err := dir.readPlan()
	if err != nil {
		return err
	}
	align, err := o.alignment()
	if err != nil {
		return err
	}
	quarantine := ""
	if p.Quarantine != nil {
		quarantine = p.Quarantine.Topic
	}
	for _, option := range []struct{ flag, given, planned string }{
		{"--source", o.Source, p.Source.Topic}, {"--target", o.Target, p.Target.Topic},
		{"--from", o.From, p.From}, {"--to", o.To, p.To}, {"--partitioner", o.Partitioner, p.Partitioner},
		{"--on-unparseable", string(o.OnUnparseable), string(p.OnUnparseable)}, {"--history", string(o.History), string(p.History)},
		{"--align", align, p.Align}, {"--isolation-level", o.Isolation, p.Isolation},
		{"--on-collision", o.OnCollision, p.OnCollision}, {"--quarantine-topic", o.QuarantineTopic, quarantine},
	} {
		if option.given != option.planned {
			return usage(fmt.Sprintf("%s holds a plan with %s %s, not %s", dir.folder, option.flag, option.planned, option.given),
				"repeat the flags of that plan to go on with it, or name a new --run-dir")
		}
	}
	planned, err := o.planned04()
	if err != nil {
		return err
	}
	if flag := p.Release04.difference(planned); flag != "" {
		return usage(fmt.Sprintf("%s holds a plan with another %s", dir.folder, flag), "repeat the flags and files of that plan to go on with it, or name a new --run-dir")
	}
	return o.sameRules(p, dir)
}

// sameRules refuses repairs and prune rules that differ from those of a plan.
func (o PlanOptions) sameRules(p *plan, dir runDir) error {
	differs := func(flag string) error {
		return usage(fmt.Sprintf("%s holds a plan with other content of %s", dir.folder, flag),
			"repeat the flags and files of that plan to go on with it, or name a new --run-dir")
	}
	repairs := newRepairSet(rewrite.Rules{})
	if o.Repairs != "" {
		rules, err := p.formats()
		if err != nil {
			return err
		}
		if repairs, err = readRepairsFile(o.Repairs, rules); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(repairs.sorted(), p.Repairs) {
		return differs("--repairs")
	}
	var given pruneList
	var err error
	if o.Prune != "" {
		if given, err = readPruneList(o.Prune); err != nil {
			return err
		}
	}
	planned, err := p.prunes(dir)
	if err != nil {
		return err
	}
	if !maps.Equal(given, planned) {
		return differs("--prune")
	}
	var before []int64
	if o.PruneBefore != "" {
		if before, _, err = o.pruneBefore(p); err != nil {
			return err
		}
	}
	if !slices.Equal(before, p.PruneBefore) {
		return differs("--prune-before")
	}
	if o.Pruned != "" && o.Pruned != p.Pruned {
		return differs("--pruned")
	}
	return nil
}
