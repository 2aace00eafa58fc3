package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rekey/rewrite"
)

// What others do to the target while it is read or written shows only in
// another look at it afterwards. An apply knows what that must show: since it
// took the lock, each partition grew by exactly what it wrote there, every batch
// once. One record more is somebody else's, one less is lost.

// stillTarget demands that the target is the topic that it was, with the log
// starts that it had, and returns its next offsets.
func (p *plan) stillTarget(ctx context.Context, c *cluster, id string, starts []int64) ([]int64, error) {
	state, err := c.topic(ctx, p.Target.Topic)
	if errors.Is(err, errNoTopic) {
		return nil, changed(fmt.Sprintf("the target topic %s is gone", p.Target.Topic))
	}
	if err != nil {
		return nil, err
	}
	if err := p.checkTarget(state, id); err != nil {
		return nil, err
	}
	now, ends, err := bounds(ctx, c, p.Target.Topic, len(state.partitions))
	if err != nil {
		return nil, err
	}
	for partition, start := range now {
		if start != starts[partition] {
			return nil, changed(fmt.Sprintf("the log start of the target topic %s partition %d went from %d to %d: somebody deleted what was written there", p.Target.Topic, partition, starts[partition], start))
		}
	}
	return ends, nil
}

// foreignWriter refuses a target that grew by what nobody here wrote.
func (p *plan) foreignWriter(partition int, next, expected int64) error {
	return &Failure{Kind: ErrChanged,
		What: fmt.Sprintf("another program writes to %s: its partition %d goes on to offset %d, and would to %d with nothing but what this plan demands", p.Target.Topic, partition, next, expected),
		Do:   "find out what writes there and stop it; then plan again with a new --run-dir and a target that does not exist"}
}

// tookOver says that a newcomer with another lock is there. It has shut this
// apply out by now, or is about to.
func (p *plan) tookOver() error {
	return &Failure{Kind: ErrChanged, What: fmt.Sprintf("a shard of %s was started: another apply of this target took over", p.Target.Topic),
		Do: "let that one finish. To resume here instead, run the same command again"}
}

// checkWritten takes the last look of an apply, before its writer is closed. A
// shard is not alone: what others wrote is looked at by the apply without --shard.
func (a *applier) checkWritten(ctx context.Context) error {
	ends, err := a.plan.stillTarget(ctx, a.sides.target, a.evidence.Target.ID, a.scan.starts)
	if err != nil {
		return err
	}
	for partition, base := range a.fenced {
		expected := base + a.writer.partitions[partition].written
		switch next := ends[partition]; {
		case next > expected && a.division != rewrite.Whole:
		case next > expected:
			// A newcomer writes there too. If that is who it was, this apply
			// has lost the lock, and its next record is refused.
			if err := a.padAll(ctx); err != nil {
				return err
			}
			if newcomer, err := a.newcomer(ctx); err != nil || newcomer {
				return cmp.Or(err, a.plan.tookOver())
			}
			return a.plan.foreignWriter(partition, next, expected)
		case next < expected:
			return changed(fmt.Sprintf("the log of the target topic %s partition %d ends at %d although the brokers acknowledged what lies before %d; was an out-of-sync replica elected leader?", a.plan.Target.Topic, partition, next, expected))
		}
	}
	return nil
}

// checkUntouched takes the last look of an apply that had nothing to write.
func (a *applier) checkUntouched(ctx context.Context) error {
	ends, err := a.plan.stillTarget(ctx, a.sides.target, a.evidence.Target.ID, a.scan.starts)
	if err != nil {
		return err
	}
	return a.advance(ctx, ends)
}

// checkSettings demands that the planned settings are in force on the target.
// Those that differ while the copy runs were waited for already.
func (a *applier) checkSettings(ctx context.Context) error {
	configs, err := a.sides.target.topicConfigs(ctx, a.plan.Target.Topic)
	if err != nil {
		return err
	}
	var found preflight
	found.checkTargetConfigs(configs, a.plan.lastingConfigs(), a.plan.extremes(), a.env.Now().UnixMilli())
	if !a.plan.IsAside {
		found.checkCleanup(configs)
	}
	if len(found) == 0 {
		return nil
	}
	return &Failure{Kind: ErrChanged, What: fmt.Sprintf("settings of %s were changed while it was written:\n  - %s", a.plan.Target.Topic, strings.Join(found, "\n  - ")),
		Do: "put back what is named above, then run the same command again, and rekey verify"}
}

// explainWait bounds the search for the cause of an error.
const explainWait = 10 * time.Second

// explain looks for what has become of the topics when a copy ends with an
// error that does not say: a topic that was deleted shows as one that the
// brokers do not know yet, a re-created one as a log in disorder. Where it was
// the brokers that failed, they get no second chance here.
func (a *applier) explain(ctx context.Context, err error) error {
	var failure *Failure
	if ctx.Err() != nil || errors.As(err, &failure) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, explainWait)
	defer cancel()
	_, sourceErr := a.plan.checkSource(ctx, a.sides.source)
	_, targetErr := a.plan.stillTarget(ctx, a.sides.target, a.evidence.Target.ID, a.scan.starts)
	for _, cause := range []error{sourceErr, targetErr} {
		if errors.As(cause, &failure) {
			return errors.Join(cause, err)
		}
	}
	return err
}

// checkTargetStill takes the last look of a verify: what it compared must be
// what is there.
func (v *verifier) checkTargetStill(ctx context.Context, starts, ends []int64) error {
	now, err := v.plan.stillTarget(ctx, v.sides.target, v.evidence.Target.ID, starts)
	if err != nil {
		return err
	}
	for partition, next := range now {
		if next != ends[partition] {
			return v.plan.foreignWriter(partition, next, ends[partition])
		}
	}
	return nil
}

// lastingConfigs are the planned settings that hold during the copy as well.
func (p *plan) lastingConfigs() map[string]string {
	planned := inForce(p.Target.Configs)
	for name := range planned {
		if _, during := duringCopy[name]; during || slices.Contains(onlyAfterCopy, name) {
			delete(planned, name)
		}
	}
	return planned
}
