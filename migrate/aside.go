package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rekey/report"
	"rekey/rewrite"
)

// Records that are quarantined go to a file of the run directory, or with
// --quarantine-topic to a topic beside the target: as they are, each to the
// partition it came from. Keys may be null there and nothing may be compacted
// away, so the topic is not compacted.
//
// For apply and verify that topic is the target of a plan of its own, the aside
// view of the plan: what flows to it is what the plan keeps from the target. So
// it is locked, written, resumed and compared in the same way. A record that
// joins the target with a replay stays in it.

// aside is the plan of the quarantine topic, or nil without one.
func (p *plan) aside() *plan {
	if p.Quarantine == nil {
		return nil
	}
	view := *p
	view.IsAside, view.Quarantine = true, nil
	view.Target = *p.Quarantine
	view.Replays, view.Align = nil, AlignNone
	view.Captures = slices.Clone(p.Captures)
	for i := range view.Captures {
		c := &view.Captures[i]
		c.AlignTo, c.Flows = nil, c.Aside
		if c.AsideExtremes != nil {
			c.Extremes = *c.AsideExtremes
		} else {
			c.Extremes = extremes{}
		}
	}
	return &view
}

// quarantineTopic settles what the topic of --quarantine-topic will be.
func (pl *planner) quarantineTopic(ctx context.Context) error {
	p, name := pl.plan, pl.options.QuarantineTopic
	if name == "" {
		return nil
	}
	p.Quarantine = &planTarget{ClusterID: p.Target.ClusterID, Topic: name, Partitions: p.Source.Partitions, Replication: p.Target.Replication,
		Configs: asideConfigs(p.Target.Configs)}
	state, err := pl.sides.target.topic(ctx, name)
	if errors.Is(err, errNoTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	return pl.existingTopic(ctx, state, p.Quarantine)
}

// asideConfigs are the settings of the quarantine topic: nothing in it is ever
// removed, and it takes what the target takes.
func asideConfigs(target []report.Config) []report.Config {
	configs := []report.Config{
		{Name: "cleanup.policy", Value: "delete", Origin: originRekey, Note: "a compacted topic takes no null keys"},
		{Name: "message.timestamp.type", Value: createTime, Origin: originRekey, Note: "keeps the records' timestamps"},
		{Name: "retention.bytes", Value: "-1", Origin: originRekey, Note: "nothing is removed"},
		{Name: "retention.ms", Value: "-1", Origin: originRekey, Note: "nothing is removed"},
	}
	for _, c := range target {
		taken := c.Name == "max.message.bytes" || strings.HasPrefix(c.Name, "message.timestamp.") && c.Name != "message.timestamp.type"
		if taken && c.Origin != originLeft {
			configs = append(configs, c)
		}
	}
	return configs
}

// setAside carries out the plan of the quarantine topic.
func (a *applier) setAside(ctx context.Context) error {
	view := a.plan.aside()
	if view == nil {
		return nil
	}
	a.evidence.Quarantine = &report.Aside{Topic: view.Target.Topic}
	side := &applier{options: a.options, env: a.env, dir: a.dir, plan: view, rules: a.rules, sides: a.sides, division: a.division, phase: a.phase, limit: largestBatch,
		evidence: &report.Apply{}, main: a}
	err := side.run(ctx)
	e := a.evidence.Quarantine
	e.ID, e.Present, e.Written = side.evidence.Target.ID, side.evidence.Present, side.written.Load()
	return err
}

// verifyAside compares the quarantine topic with what the plan keeps from the
// target, and adds what is wrong to the differences.
func (v *verifier) verifyAside(ctx context.Context) error {
	view := v.plan.aside()
	if view == nil {
		return nil
	}
	side := &verifier{options: v.options, env: v.env, dir: v.dir, plan: view, sides: v.sides, evidence: &report.Verify{},
		comparison: newComparison(view, v.comparison.demand.rules, v.sides, newFingerprinter())}
	if err := side.compare(ctx); err != nil {
		return err
	}
	v.evidence.Quarantine = &report.Aside{Topic: view.Target.Topic, ID: side.evidence.Target.ID, Demanded: side.evidence.Demanded, Present: side.evidence.Found}
	for _, difference := range side.comparison.sorted() {
		difference.Topic = view.Target.Topic
		v.comparison.differences.add(difference)
	}
	v.comparison.total += side.comparison.total - int64(len(side.comparison.kept))
	return nil
}

// validateQuarantineTopic refuses a topic that nothing would go to, or that is
// one of the others.
func (o PlanOptions) validateQuarantineTopic() error {
	switch {
	case o.QuarantineTopic == "":
		return nil
	case o.QuarantineTopic == o.Source, o.QuarantineTopic == o.Target:
		return usage(fmt.Sprintf("--quarantine-topic %s is the source or the target", o.QuarantineTopic), "name a topic of its own; apply creates it")
	case o.OnUnparseable == rewrite.PolicyFail && o.OnIncompatible != rewrite.PolicyQuarantine:
		return usage("--quarantine-topic with a policy that quarantines nothing", "give --on-unparseable quarantine, or leave the topic out")
	}
	return nil
}
