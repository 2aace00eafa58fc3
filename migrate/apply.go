package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"rekey/report"
	"rekey/rewrite"
)

// Apply carries out a plan. It resumes by itself: what is already on the target
// is found there, by provenance. An error leaves the target in a state that the
// same command goes on from, unless the error says otherwise.
func Apply(ctx context.Context, o RunOptions, env Environment) (*report.Apply, error) {
	a, err := newApplier(o, env)
	if err != nil {
		return nil, err
	}
	return a.execute(ctx)
}

// newApplier reads the plan and checks what can be checked without a broker.
func newApplier(o RunOptions, env Environment) (*applier, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir := env.runDir(o.RunDir)
	p, rules, err := dir.openPlan()
	if err != nil {
		return nil, err
	}
	division, err := o.division()
	if err != nil {
		return nil, err
	}
	return &applier{options: o, env: env, dir: dir, plan: p, rules: rules, division: division, phase: "apply", limit: largestBatch, evidence: &report.Apply{
		Schema: report.SchemaVersion, Tool: env.Version, PlanID: p.ID, Shard: o.Shard, StartedAt: env.Now().UTC(),
		Source: sourceReport(p), Target: targetReport(p), Rollback: rollback(p),
	}}, nil
}

// execute runs to the end, or until it is stopped.
func (a *applier) execute(ctx context.Context) (*report.Apply, error) {
	if a.division != rewrite.Whole && !a.division.Overlaps(rewrite.Whole, a.plan.Source.Partitions) {
		return a.evidence, a.idle()
	}
	done := make(chan error, 1)
	go func() { done <- a.connectAndRun(ctx) }()
	ended, err := endInTime(ctx, done)
	switch {
	case !ended:
		return nil, a.interrupted() // what is left behind may still write to the evidence
	case err != nil && ctx.Err() != nil:
		return a.evidence, a.interrupted()
	}
	return a.evidence, err
}

// stopWait bounds the wait for requests under way when a run is stopped.
const stopWait = 2 * time.Second

// endInTime waits for a phase to end, but not for longer than stopWait once ctx
// is done. The client library's calls know no context: one that is not answered
// holds a phase up for as long as the request's time-out. It is left behind
// then, as it would be by a process that ends, and does nothing more than that
// request before it notices.
func endInTime(ctx context.Context, done <-chan error) (ended bool, err error) {
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	select {
	case err := <-done:
		return true, err
	case <-timer.C:
		return false, nil
	}
}

// applier carries what the steps of one apply hand to each other.
type applier struct {
	options  RunOptions
	env      Environment
	dir      runDir
	plan     *plan
	rules    rewrite.Rules
	sides    *sides
	evidence *report.Apply
	division rewrite.Division // of the source partitions: which of them are copied
	captures []capture        // of the plan, with what the division has of them
	phase    string           // the command that goes on after an interruption
	replay   *replayer        // of a round that the plan does not have yet, or nil
	main     *applier         // that this one writes the quarantine topic for, or nil

	comparison   *comparison
	scan         *targetScan
	replacements *replacements
	limit        int // the target's max.message.bytes; largestBatch where the broker does not say
	writer       *topicWriter
	acked        atomic.Pointer[atomic.Int64] // of the writer
	fenced       []int64                      // where each target partition ended as the lock was taken, less what the writer wrote by then
	firstRead    time.Time                    // when the oldest data on the target was read
	written      atomic.Int64
	replayed     atomic.Int64 // of those written
	bytes        atomic.Int64
}

func (a *applier) connectAndRun(ctx context.Context) (err error) {
	if a.sides, err = connectSides(ctx, a.options.Connections, a.env); err != nil {
		return err
	}
	defer a.sides.close()
	if a.replay != nil {
		if err := a.replay.prepare(ctx); err != nil {
			return err
		}
	}
	return a.run(ctx)
}

func (a *applier) run(ctx context.Context) error {
	if _, err := a.plan.checkSource(ctx, a.sides.source); err != nil {
		return err
	}
	if err := a.openTarget(ctx); err != nil {
		return err
	}
	if err := a.setAside(ctx); err != nil {
		return err
	}
	a.captures = divided(a.plan.Captures, a.division)
	a.comparison = newComparison(a.plan, a.rules, a.sides, newFingerprinter())
	a.comparison.division = a.division
	if err := a.scanTarget(ctx); err != nil {
		return err
	}
	if a.replay != nil {
		if err := a.replay.seal(); err != nil {
			return err
		}
	}
	complete, err := a.complete(ctx)
	if err != nil {
		return err
	}
	if complete {
		a.evidence.Nothing = true
		a.evidence.Present = a.scan.recordsOf(a.division)
		if err := a.checkUntouched(ctx); err != nil {
			return err
		}
		return a.finish(ctx)
	}
	if err := a.takeOver(ctx); err != nil {
		return err
	}
	err = a.copy(ctx)
	if err == nil {
		err = a.checkWritten(ctx)
	}
	// Whatever happened, what is under way is waited for: afterwards the
	// target holds all of it or none of it, and nothing changes any more.
	if closeErr := a.closeWriter(); err == nil {
		err = closeErr
	}
	if err != nil {
		return a.explain(ctx, err)
	}
	return a.finish(ctx)
}

// openTarget makes sure that the target is there, is the one that the plan
// means, and can take the records; everything that speaks against it is named
// before the first write.
func (a *applier) openTarget(ctx context.Context) error {
	p, c := a.plan, a.sides.target
	known, err := p.knownTarget(a.dir, evidenceFile(a.division))
	if err != nil {
		return err
	}
	state, err := c.topic(ctx, p.Target.Topic)
	if errors.Is(err, errNoTopic) {
		if p.Target.TopicID != "" || known != "" {
			return changed(fmt.Sprintf("the target topic %s is gone", p.Target.Topic))
		}
		if err := c.createTopic(ctx, p.Target.Topic, p.Target.Partitions, p.Target.Replication, copyConfigs(p.Target.Configs)); err != nil {
			return err
		}
		state, err = c.topic(ctx, p.Target.Topic)
	}
	if err != nil {
		return err
	}
	if err := p.checkTarget(state, known); err != nil {
		return err
	}
	a.evidence.Target.ID = state.id
	return a.preflight(ctx, state)
}

// preflight names everything that speaks against writing to the target, before
// the first write.
func (a *applier) preflight(ctx context.Context, target topicState) error {
	p := a.plan
	var found preflight
	found.checkPermissions(target, "Write", "Read", "DescribeConfigs", "AlterConfigs")
	source, err := a.sides.source.topic(ctx, p.Source.Topic)
	if err != nil {
		return err
	}
	found.checkPermissions(source, "Read")
	found.checkPartitions("source", source, 1, true)
	configs, err := a.sides.target.topicConfigs(ctx, p.Target.Topic)
	if err == nil {
		if limit, ok := number(configs, "max.message.bytes"); ok {
			a.limit = int(limit)
		}
		minInSync, ok := number(configs, "min.insync.replicas")
		if !ok {
			minInSync = 1
		}
		found.checkPartitions("target", target, minInSync, false)
		found.checkTargetConfigs(configs, p.lastingConfigs(), p.extremes(), a.env.Now().UnixMilli())
		if !p.IsAside {
			found.checkCleanup(configs)
		}
	}
	refused := found.failure(fmt.Sprintf("%s is not fit to take the records; nothing was written to it", p.Target.Topic),
		"change what is named above; a topic that apply created just now and that is still empty can be deleted")
	return cmp.Or(refused, err)
}

// extremes are those of all captures.
func (p *plan) extremes() extremes {
	var all extremes
	for _, c := range p.Captures {
		if c.Extremes.Records > 0 {
			all.merge(c.Extremes)
		}
	}
	return all
}

// knownTarget is the topic id that an earlier apply of this run directory wrote
// to, by its evidence in the file name, or "".
func (p *plan) knownTarget(d runDir, name string) (string, error) {
	exists, err := d.has(name)
	if err != nil || !exists {
		return "", err
	}
	earlier, err := d.readApply(name)
	if errors.Is(err, ErrStorage) || errors.Is(err, ErrUsage) {
		return "", err
	}
	if err != nil {
		return "", &Failure{Kind: ErrChanged, What: "cannot read the evidence of the apply before", Cause: err,
			Do: "if the file is damaged, delete it: apply finds out from the target where to go on"}
	}
	if !p.IsAside {
		return earlier.Target.ID, nil
	}
	if earlier.Quarantine == nil {
		return "", nil
	}
	return earlier.Quarantine.ID, nil
}

// scanTarget reads what is on the target, before anything is written.
func (a *applier) scanTarget(ctx context.Context) error {
	p := a.plan
	starts, ends, err := bounds(ctx, a.sides.target, p.Target.Topic, int(p.Target.Partitions))
	if err != nil {
		return err
	}
	a.scan = a.comparison.newTargetScan(starts)
	return a.advance(ctx, ends)
}

// advance scans what was appended to the target since.
func (a *applier) advance(ctx context.Context, ends []int64) error {
	var positions int64
	for partition, end := range ends {
		positions += end - a.scan.next[partition]
	}
	if positions > 0 {
		a.env.Progress.Phase("look at "+a.plan.Target.Topic, positions)
		defer a.env.Progress.Done()
	}
	if err := a.comparison.advance(ctx, a.scan, ends); err != nil {
		return err
	}
	return a.foreign()
}

// foreign refuses a target that holds what this plan did not write.
func (a *applier) foreign() error {
	if a.comparison.total == 0 {
		return nil
	}
	first := a.comparison.sorted()[0]
	at := ""
	if first.Target != nil {
		at = fmt.Sprintf(" at partition %d, offset %d", first.Target.Partition, first.Target.Offset)
	}
	return &Failure{Kind: ErrPreflight,
		What: fmt.Sprintf("the target topic %s holds what this plan did not write: %s%s, key %s: %s (%d such records)", a.plan.Target.Topic, first.Kind, at, first.Key, first.Text, a.comparison.total),
		Do:   "plan again with a new --run-dir and a target that does not exist"}
}

// complete says whether the target holds all that the plan demands: the last
// record of every flow, or a record that rightly replaced it.
func (a *applier) complete(ctx context.Context) (bool, error) {
	if a.allFlowsEnded() {
		return true, nil
	}
	var err error
	if a.replacements, err = a.findReplacements(ctx); err != nil || a.replacements == nil {
		return false, err
	}
	a.env.Progress.Phase("check what is missing", 0)
	defer a.env.Progress.Done()
	for _, s := range a.steps() {
		err := a.eachMissing(ctx, s, func() func(*rewrite.Record, *rewrite.Decision) error {
			return func(*rewrite.Record, *rewrite.Decision) error { return errEnough }
		})
		if errors.Is(err, errEnough) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// unfinishedSince is when the first data was read of what is being finished: of
// the copy itself, or of the first replay that is not complete. Whatever is
// complete was read, and its deletions seen, before.
func (a *applier) unfinishedSince(firstWrite time.Time) time.Time {
	if !a.flowsEnded(0) {
		return firstWrite
	}
	for i, replay := range a.plan.Replays {
		if !a.flowsEnded(int32(i + 1)) {
			return replay.At
		}
	}
	return a.env.Now()
}

// allFlowsEnded says whether the last record of every flow is there.
func (a *applier) allFlowsEnded() bool {
	for round := range len(a.plan.Replays) + 1 {
		if !a.flowsEnded(int32(round)) {
			return false
		}
	}
	return true
}

// flowsEnded says so for the copy itself, round 0, or for one replay.
func (a *applier) flowsEnded(round int32) bool {
	for _, c := range a.captures {
		for _, f := range c.Flows {
			if f.Round == round && a.scan.pair(f.Round, f.Source, f.Target).last < f.Last {
				return false
			}
		}
	}
	return true
}

// takeOver takes the lock, makes older holders of it harmless, and checks that
// what they left is an exact prefix of what the plan demands.
func (a *applier) takeOver(ctx context.Context) error {
	p, c := a.plan, a.sides.target
	codec, err := codecByName(p.Compression)
	if err != nil {
		return err
	}
	// All that an apply changes beside records, it changes before it takes the
	// lock: were it the other way round, one that slept meanwhile would undo
	// what the apply that took over from it left behind when it was done.
	if err := a.writeEvidence(); err != nil {
		return err
	}
	// A topic that existed, or that an earlier apply completed, has other
	// settings than one that was created just now. Whether they stay in force
	// is not waited for: another apply that ends now puts its own there.
	if err := a.beginSettings(ctx); err != nil {
		return err
	}
	identity, err := c.acquire(ctx, lockName(p.Target.Topic, a.division))
	if err != nil {
		return err
	}
	a.firstRead = a.env.Now()
	a.writer = newTopicWriter(c, p.Target.Topic, int(p.Target.Partitions), identity, codec, a.limit)
	cmp.Or(a.main, a).acked.Store(&a.writer.acked)
	if err := a.fence(ctx); err != nil {
		return cmp.Or(err, a.closeWriter())
	}
	if err := a.checkPrefix(ctx); err != nil {
		return cmp.Or(err, a.closeWriter())
	}
	return nil
}

// fence writes one padding record to each partition and reads up to it, until no
// older apply is left that could write here. See lock.go for why that makes all
// of them harmless.
func (a *applier) fence(ctx context.Context) error {
	if err := a.padAll(ctx); err != nil {
		return err
	}
	if err := a.catchUp(ctx); err != nil {
		return err
	}
	if err := a.excludeOthers(ctx); err != nil {
		return err
	}
	for partition, end := range a.scan.next {
		a.fenced = append(a.fenced, end-a.writer.partitions[partition].written)
	}
	return nil
}

// catchUp scans what was appended to the target so far.
func (a *applier) catchUp(ctx context.Context) error {
	ends, err := highWatermarks(ctx, a.sides.target, a.plan.Target.Topic, a.plan.Target.Partitions)
	if err != nil {
		return err
	}
	return a.advance(ctx, ends)
}

// padAll writes one padding record to each partition.
func (a *applier) padAll(ctx context.Context) error {
	padding, err := a.paddingRecord()
	if err != nil {
		return err
	}
	for partition := range a.plan.Target.Partitions {
		if err := a.writer.Write(ctx, partition, &padding); err != nil {
			return err
		}
	}
	if err := a.writer.Flush(ctx); err != nil {
		return err
	}
	a.evidence.Padded += int64(a.plan.Target.Partitions)
	return nil
}

func (a *applier) paddingRecord() (rewrite.Record, error) {
	key, err := rewrite.PaddingKey(a.rules.To)
	if err != nil {
		return rewrite.Record{}, err
	}
	return rewrite.Record{Timestamp: a.env.Now().UnixMilli(), Key: key,
		Headers: []rewrite.Header{{Key: []byte(rewrite.ProvenanceHeader), Value: rewrite.PaddingProvenance(a.division)}}}, nil
}

// checkPrefix compares what an interrupted apply left with what the plan
// demands, record by record.
func (a *applier) checkPrefix(ctx context.Context) error {
	a.evidence.Present = a.scan.recordsOf(a.division)
	if a.evidence.Present == 0 {
		return nil
	}
	a.evidence.Resumed = true
	firstWrite := a.plan.Captures[0].At
	if first := a.scan.firstWriteOf(a.division, a.plan.Source.Partitions); first >= 0 {
		firstWrite = time.UnixMilli(first)
	}
	a.firstRead = a.unfinishedSince(firstWrite)
	if err := a.plan.horizonFailure(a.firstRead, a.env.Now()); err != nil {
		return err
	}
	var positions int64
	for partition := range a.plan.Source.Partitions {
		if !a.division.Has(partition) {
			continue
		}
		positions += max(0, a.scan.endOf(partition)-a.plan.starts()[partition])
	}
	a.env.Progress.Phase("check what is there", positions)
	defer a.env.Progress.Done()
	configs, err := a.sides.target.topicConfigs(ctx, a.plan.Target.Topic)
	if err != nil {
		return err
	}
	if _, _, err := a.comparison.compare(ctx, a.scan, true, tombstonesMayBeGone(configs, firstWrite, a.env.Now())); err != nil {
		return err
	}
	return a.foreign()
}

// step is what is written before anything of the next one: the records of a
// capture that the copy itself or one replay takes to the target.
type step struct {
	*capture
	round int32 // 0 is the copy itself
}

// steps are those of a plan, in order: first the copy of all captures, then
// replay after replay.
func (a *applier) steps() []step {
	var steps []step
	for round := range len(a.plan.Replays) + 1 {
		for i := range a.captures {
			steps = append(steps, step{&a.captures[i], int32(round)})
		}
	}
	return steps
}

// copy writes what is missing, step by step.
func (a *applier) copy(ctx context.Context) error {
	for _, s := range a.steps() {
		if s.round == 0 {
			if err := a.align(ctx, s.capture); err != nil {
				return err
			}
		}
		if err := a.copyStep(ctx, s); err != nil {
			return err
		}
		if err := a.writer.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// align pads every target partition up to where the capture's first record may
// be written, so that no recovery marker taken before the capture's end points
// past one of its records. Where a record of the capture is there already,
// nothing is missing: it could only be written after the padding.
func (a *applier) align(ctx context.Context, c *capture) error {
	if c.AlignTo == nil {
		return nil
	}
	for left := int64(-1); ; {
		next, err := highWatermarks(ctx, a.sides.target, a.plan.Target.Topic, a.plan.Target.Partitions)
		if err != nil {
			return err
		}
		round, missing := paddingRound(c.AlignTo, next, a.division)
		switch {
		case missing == 0:
			return nil
		case left < 0:
			a.env.Progress.Phase("pad "+a.plan.Target.Topic, missing)
			defer a.env.Progress.Done()
		default:
			a.env.Progress.Add(max(0, left-missing)) // what other shards wrote
		}
		written, err := a.pad(ctx, round)
		if err != nil {
			return err
		}
		left = max(0, missing-written)
	}
}

// pad appends padding to target partitions, as much as the spans are long.
func (a *applier) pad(ctx context.Context, spans []Span) (written int64, err error) {
	padding, err := a.paddingRecord()
	if err != nil {
		return 0, err
	}
	err = eachSpan(ctx, a.env.budget().readers, spans, func(ctx context.Context, span Span) error {
		const step = 10_000
		for n := span.From; n < span.To; n++ {
			if err := a.writer.Write(ctx, span.Partition, &padding); err != nil {
				return err
			}
			if (n+1-span.From)%step == 0 {
				a.env.Progress.Add(step)
			}
		}
		a.env.Progress.Add((span.To - span.From) % step)
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, span := range spans {
		written += span.To - span.From
	}
	a.evidence.Padded += written
	return written, a.writer.Flush(ctx)
}

// copyStep writes the records of a step that are not on the target yet.
func (a *applier) copyStep(ctx context.Context, s step) error {
	from := a.resumeFrom(s)
	var positions int64
	for partition := range from {
		positions += s.Ends[partition] - from[partition]
	}
	phase := "copy to "
	if s.round > 0 {
		phase = "replay to "
	}
	a.env.Progress.Phase(phase+a.plan.Target.Topic, positions)
	defer a.env.Progress.Done()
	return a.eachMissing(ctx, s, func() func(*rewrite.Record, *rewrite.Decision) error {
		out := copyOut{}
		return func(r *rewrite.Record, d *rewrite.Decision) error {
			a.written.Add(1)
			if d.Round > 0 {
				a.replayed.Add(1)
			}
			record := out.record(r, d)
			a.bytes.Add(int64(record.Size()))
			return a.writer.Write(ctx, d.Partition, record)
		}
	})
}

// eachMissing hands on the records of a step that belong on the target and are
// not there. Each source partition gets a function of its own.
func (a *applier) eachMissing(ctx context.Context, s step, handler func() func(*rewrite.Record, *rewrite.Decision) error) error {
	planned := a.plan.newLedger()
	for _, f := range s.Flows {
		planned.pair(f.Round, f.Source, f.Target).last = f.Last
	}
	from := a.resumeFrom(s)
	return eachSpan(ctx, a.env.budget().readers, s.spans(), func(ctx context.Context, span Span) error {
		if from[span.Partition] >= span.To {
			return nil
		}
		handle := handler()
		_, err := a.comparison.demand.each(ctx, span, from[span.Partition], func(r *rewrite.Record, d rewrite.Decision) error {
			switch {
			case d.Action == rewrite.Refuse,
				d.Action.OnTarget() && r.Offset > planned.pair(d.Round, r.Partition, d.Partition).last:
				return changed(fmt.Sprintf("%s partition %d, offset %d is not what the plan saw", a.plan.Source.Topic, r.Partition, r.Offset))
			case !d.Action.OnTarget(), d.Round != s.round, r.Offset <= a.scan.pair(d.Round, r.Partition, d.Partition).last, a.replacements.replaced(r, &d):
				return nil
			}
			return handle(r, &d)
		})
		return err
	})
}

// resumeFrom is, for each source partition, the first offset of a step that may
// be missing on the target: everything before lies in complete flows or in the
// prefix of an incomplete one.
func (a *applier) resumeFrom(s step) []int64 {
	from := append([]int64(nil), s.Ends...)
	for _, f := range s.Flows {
		if f.Round != s.round {
			continue
		}
		if last := a.scan.pair(f.Round, f.Source, f.Target).last; last < f.Last {
			from[f.Source] = min(from[f.Source], max(f.First, last+1))
		}
	}
	return from
}

// copyOut builds target records in buffers that are used again.
type copyOut struct {
	out        rewrite.Record
	headers    []rewrite.Header
	provenance []byte
}

// record is the target record of r by a decision: the provenance header stands
// behind the source's own headers.
func (c *copyOut) record(r *rewrite.Record, d *rewrite.Decision) *rewrite.Record {
	c.provenance = rewrite.AppendProvenance(c.provenance[:0], r.Partition, r.Offset, d.Round)
	c.headers = append(c.headers[:0], r.Headers...)
	c.headers = append(c.headers, rewrite.Header{Key: provenanceName, Value: c.provenance})
	c.out = rewrite.Record{Timestamp: r.Timestamp, Key: d.Key, Value: d.Value(r), Headers: c.headers}
	return &c.out
}

var provenanceName = []byte(rewrite.ProvenanceHeader)

// finish checks the world once more, puts the target's settings in force and
// writes the evidence.
func (a *applier) finish(ctx context.Context) error {
	e := a.evidence
	e.Written, e.Replayed, e.Bytes = a.written.Load(), a.replayed.Load(), a.bytes.Load()
	for _, c := range a.captures {
		e.Skipped += c.Records
		for _, f := range c.Flows {
			e.Skipped -= f.Records
		}
	}
	ends, err := a.plan.checkSource(ctx, a.sides.source)
	if err != nil {
		return err
	}
	if !e.Nothing {
		if err := a.plan.horizonFailure(a.firstRead, a.env.Now()); err != nil {
			return err
		}
	}
	if a.division == rewrite.Whole {
		if err := a.sides.target.setConfigs(ctx, a.plan.Target.Topic, finalConfigs(a.plan.Target.Configs)); err != nil {
			return err
		}
	}
	if err := a.checkSettings(ctx); err != nil {
		return err
	}
	if a.main != nil {
		return nil // the rest is up to the apply that this one is a part of
	}
	grown, live := a.plan.liveFailure(ends, a.options.AllowLiveSource)
	e.LiveSource = grown > 0
	if grown > 0 {
		e.Findings = append(e.Findings, report.Finding{Severity: report.Warning, Code: "live-source",
			Title: fmt.Sprintf("The source grew by %d offsets since its end was captured", grown), Do: "stop the job, then plan --extend, apply, verify"})
	}
	a.conclude()
	if err := a.writeEvidence(); err != nil {
		return err
	}
	return live
}

func (d runDir) readApply(name string) (*report.Apply, error) {
	content, err := d.read(name)
	if err != nil {
		return nil, err
	}
	return report.ReadApply(newReader(content))
}

// closeWriter waits for what is under way, but not for longer than stopWait:
// a request that is not answered by then is as good as one whose answer got
// lost, which resume copes with.
func (a *applier) closeWriter() error { return closeSoon(a.writer) }

func closeSoon(w *topicWriter) error {
	done := make(chan error, 1)
	go func() { done <- w.Close() }()
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return nil
	}
}

// interrupted says how far the run got and how to go on.
func (a *applier) interrupted() error {
	acknowledged := int64(0)
	if acked := a.acked.Load(); acked != nil {
		acknowledged = acked.Load()
	}
	return &Failure{Kind: ErrInterrupted,
		What: fmt.Sprintf("interrupted; the brokers acknowledged %d records of this run, padding included, and there are no holes", acknowledged),
		Do:   "go on with: " + a.options.command(a.phase) + a.env.memoryFlag()}
}

// command is the command line of a phase with these options.
func (o RunOptions) command(phase string) string {
	line := fmt.Sprintf("rekey %s --bootstrap-server %s", phase, strings.Join(o.Source.Bootstrap, ","))
	if o.Source.Properties != "" {
		line += " --command-config " + shellQuote(o.Source.Properties)
	}
	if len(o.Target.Bootstrap) > 0 {
		line += " --target-bootstrap-server " + strings.Join(o.Target.Bootstrap, ",")
	}
	if o.Target.Properties != "" {
		line += " --target-command-config " + shellQuote(o.Target.Properties)
	}
	line += " --run-dir " + shellQuote(o.RunDir)
	if o.AllowLiveSource {
		line += " --allow-live-source"
	}
	if o.Shard != "" && phase == "apply" {
		line += " --shard " + o.Shard
	}
	return line
}
