package migrate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"rekey/report"
)

// Verify reads both topics again and says whether the target holds what the
// plan demands of the source as it is now. A difference is ErrDifferent; the
// evidence lists the first hundred and counts all.
func Verify(ctx context.Context, o RunOptions, env Environment) (*report.Verify, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir := env.runDir(o.RunDir)
	p, rules, err := dir.openPlan()
	if err != nil {
		return nil, err
	}
	sides, err := connectSides(ctx, o.Connections, env)
	if err != nil {
		return nil, err
	}
	defer sides.close()
	v := &verifier{options: o, env: env, dir: dir, plan: p, sides: sides, comparison: newComparison(p, rules, sides, newFingerprinter()),
		evidence: &report.Verify{Schema: report.SchemaVersion, Tool: env.Version, PlanID: p.ID, StartedAt: env.Now().UTC(),
			Source: sourceReport(p), Target: targetReport(p), Rollback: rollback(p)}}
	err = v.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = &Failure{Kind: ErrInterrupted, What: "verify was interrupted and says nothing about the target", Do: "run the same command again"}
	}
	return v.evidence, err
}

type verifier struct {
	options    RunOptions
	env        Environment
	dir        runDir
	plan       *plan
	sides      *sides
	comparison *comparison
	evidence   *report.Verify
}

func (v *verifier) run(ctx context.Context) error {
	p, c, e := v.plan, v.comparison, v.evidence
	if _, err := p.checkSource(ctx, v.sides.source); err != nil {
		return err
	}
	if err := v.compare(ctx); err != nil {
		return err
	}
	if err := v.verifyAside(ctx); err != nil {
		return err
	}
	// What was compared must still be what the plan means.
	now, err := p.checkSource(ctx, v.sides.source)
	if err != nil {
		return err
	}
	_, live := p.liveFailure(now, v.options.AllowLiveSource)
	e.Differences, e.Total = c.sorted(), c.total
	e.Equal = c.total == 0
	e.FinishedAt = v.env.Now().UTC()
	if e.Equal {
		e.Next = []string{
			v.sides.command("rehearse", v.dir.folder) + " --runtime 0.3 --marker at-end",
			fmt.Sprintf("point the job at %s (kafkaActionStateTopic) and start it from its savepoint", p.Target.Topic),
		}
	} else if c.onlyConfigs() {
		e.Next = []string{v.sides.command("apply", v.dir.folder), v.sides.command("verify", v.dir.folder)}
	} else {
		e.Next = []string{"do not start the job on " + p.Target.Topic, "plan again with a new --run-dir and a new target"}
	}
	err = v.dir.write(verifyFileName, func(w io.Writer) error { return report.WriteJSON(w, e) })
	if !e.Equal { // whether or not that could be written down
		return &Failure{Kind: ErrDifferent, What: fmt.Sprintf("%s is not what the plan demands: %d differences", p.Target.Topic, e.Total), Cause: err,
			Do: "see verify.json in the run directory; do not start the job on the target"}
	}
	return cmp.Or(err, live)
}

// compare finds the differences between what the plan demands and the target.
func (v *verifier) compare(ctx context.Context) error {
	p, c, e := v.plan, v.comparison, v.evidence
	state, err := v.sides.target.topic(ctx, p.Target.Topic)
	if errors.Is(err, errNoTopic) {
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("the target topic %s does not exist", p.Target.Topic), Do: "run apply first"}
	}
	if err != nil {
		return err
	}
	known, err := p.knownTarget(v.dir, applyFileName)
	if err != nil {
		return err
	}
	if err := p.checkTarget(state, known); err != nil {
		return err
	}
	e.Target.ID = state.id
	configs, err := v.sides.target.topicConfigs(ctx, p.Target.Topic)
	if err != nil {
		return err
	}
	v.checkConfigs(configs)
	starts, ends, err := bounds(ctx, v.sides.target, p.Target.Topic, len(state.partitions))
	if err != nil {
		return err
	}
	positions := int64(0)
	for i := range p.Captures {
		positions += p.Captures[i].positions()
	}
	for partition, end := range ends {
		positions += end - starts[partition]
	}
	v.env.Progress.Phase("verify "+p.Target.Topic, positions)
	defer v.env.Progress.Done()
	scan := c.newTargetScan(starts)
	if err := c.advance(ctx, scan, ends); err != nil {
		return err
	}
	source, outcome, err := c.compare(ctx, scan, false, tombstonesMayBeGone(configs, p.Captures[0].At, v.env.Now()))
	if err != nil {
		return err
	}
	if err := v.checkTargetStill(ctx, starts, ends); err != nil {
		return err
	}
	e.Demanded, e.Found, e.Padding = source.records(), scan.ledger.records(), scan.padding
	e.Superseded = outcome.superseded
	e.Method = "compacted"
	if outcome.exact {
		e.Method = "exact"
	}
	return nil
}

// checkConfigs compares the settings in force with the planned ones. Settings
// of the copy that are still there mean that apply did not finish.
func (v *verifier) checkConfigs(configs map[string]topicConfig) {
	planned := inForce(v.plan.Target.Configs)
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		if have, known := configs[name]; known && !sameSetting(have.value, planned[name]) {
			v.comparison.differences.add(report.Difference{Kind: "config", Text: fmt.Sprintf("%s is %q, the plan says %q", name, have.value, planned[name])})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(duringCopy)) {
		if _, given := planned[name]; !given && configs[name].own && configs[name].value == duringCopy[name] {
			v.comparison.differences.add(report.Difference{Kind: "config", Text: fmt.Sprintf("%s is still %s, which holds only while apply runs: run apply to its end", name, duringCopy[name])})
		}
	}
}

// onlyConfigs says whether all that is wrong are settings, which apply puts
// right.
func (d *differences) onlyConfigs() bool {
	return d.total == int64(len(d.kept)) && !slices.ContainsFunc(d.kept, func(x report.Difference) bool { return x.Kind != "config" })
}

func newReader(content []byte) io.Reader { return bytes.NewReader(content) }
