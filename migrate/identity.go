package migrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// checkSource refuses to go on with a source that is not the one the plan saw:
// another cluster, a topic re-created under its name, other partitions, or a
// log whose beginning is gone. It returns the source's high watermarks.
func (p *plan) checkSource(ctx context.Context, c *cluster) ([]int64, error) {
	state, err := c.topic(ctx, p.Source.Topic)
	if errors.Is(err, errNoTopic) {
		return nil, changed(fmt.Sprintf("the source topic %s is gone", p.Source.Topic))
	}
	if err != nil {
		return nil, err
	}
	switch {
	case state.clusterID != p.Source.ClusterID:
		return nil, &Failure{Kind: ErrChanged, What: fmt.Sprintf("this is another cluster: its id is %s, the plan is for %s", state.clusterID, p.Source.ClusterID),
			Do: "check --bootstrap-server"}
	case state.id != p.Source.TopicID:
		return nil, changed(fmt.Sprintf("the source topic %s was re-created: its id is %s, the plan is for %s", p.Source.Topic, state.id, p.Source.TopicID))
	case int32(len(state.partitions)) != p.Source.Partitions:
		return nil, changed(fmt.Sprintf("the source topic %s has %d partitions, it had %d when the plan was made", p.Source.Topic, len(state.partitions), p.Source.Partitions))
	}
	starts, ends, err := bounds(ctx, c, p.Source.Topic, len(state.partitions))
	if err != nil {
		return nil, err
	}
	for partition, start := range starts {
		// A partition that was empty from the start on may begin anywhere.
		if needed := p.starts()[partition]; start > needed && needed < p.ends()[partition] {
			return nil, logStartPassed(p.Source.Topic, int32(partition), start, needed)
		}
		if ends[partition] < p.ends()[partition] {
			return nil, changed(fmt.Sprintf("the log of %s partition %d ends at %d, it ended at %d when the plan was made", p.Source.Topic, partition, ends[partition], p.ends()[partition]))
		}
	}
	return ends, nil
}

func changed(what string) error {
	return &Failure{Kind: ErrChanged, What: what, Do: "plan again with a new --run-dir and a new target"}
}

// checkTarget refuses a target that is not the one the plan or an earlier apply
// saw. known is the topic id that apply.json recorded, or "".
func (p *plan) checkTarget(state topicState, known string) error {
	switch {
	case state.clusterID != p.Target.ClusterID:
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("this is another target cluster: its id is %s, the plan is for %s", state.clusterID, p.Target.ClusterID),
			Do: "check --bootstrap-server and --target-bootstrap-server"}
	case p.Target.TopicID != "" && state.id != p.Target.TopicID:
		return changed(fmt.Sprintf("the target topic %s was re-created: its id is %s, the plan is for %s", p.Target.Topic, state.id, p.Target.TopicID))
	case known != "" && state.id != known:
		return changed(fmt.Sprintf("the target topic %s was re-created: its id is %s, apply wrote to %s", p.Target.Topic, state.id, known))
	case int32(len(state.partitions)) != p.Target.Partitions:
		return changed(fmt.Sprintf("the target topic %s has %d partitions, the plan is for %d", p.Target.Topic, len(state.partitions), p.Target.Partitions))
	}
	return nil
}

// liveFailure refuses a source that grew past its captured end, unless that is
// allowed. It returns by how many offsets it grew.
func (p *plan) liveFailure(ends []int64, allowed bool) (int64, error) {
	grown := grownBy(ends, p.ends())
	if grown == 0 || allowed {
		return grown, nil
	}
	return grown, &Failure{Kind: ErrChanged, What: fmt.Sprintf("%s is still written to: %d offsets were appended after its end was captured", p.Source.Topic, grown),
		Do: "stop the job, then run rekey plan --extend with this --run-dir, apply and verify; or give --allow-live-source to go on without what was appended"}
}

// milliseconds is a setting in milliseconds as a duration; what is too long for
// one, 292 years, is the longest.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// longAway is beyond what anybody plans for.
const longAway = 100 * 365 * 24 * time.Hour

// horizonFailure refuses a read that took longer than the source keeps its
// tombstones: it may have copied a value and missed the deletion after it.
func (p *plan) horizonFailure(since, now time.Time) error {
	retention := milliseconds(p.Source.DeleteRetentionMS)
	if p.Source.DeleteRetentionMS < 0 || now.Sub(since) <= retention {
		return nil
	}
	return &Failure{Kind: ErrChanged,
		What: fmt.Sprintf("the first record was read %s ago, and %s keeps tombstones for %s only: a key that was deleted since may have been copied without its deletion", now.Sub(since).Round(time.Second), p.Source.Topic, retention),
		Do:   "plan again with a new --run-dir and a new target; if the copy cannot be faster, raise delete.retention.ms of the source first"}
}

// readableEnds are up to where a reader of the source gets without waiting: an
// open transaction stops one that leaves out aborted records.
func readableEnds(ctx context.Context, c *cluster, p *plan) ([]int64, error) {
	if p.Isolation == IsolationCommitted {
		return lastStableOffsets(ctx, c, p.Source.Topic, p.Source.Partitions)
	}
	return highWatermarks(ctx, c, p.Source.Topic, p.Source.Partitions)
}
