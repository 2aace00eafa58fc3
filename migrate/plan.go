package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rekey/report"
	"rekey/rewrite"
)

// openTransactionPatience bounds the wait for a transaction that is open on
// the source, unless the environment says otherwise: its records are neither
// there nor not there.
const openTransactionPatience = 30 * time.Second

// Plan scans the source, decides on every record and seals the outcome in the
// run directory. It writes nothing to Kafka. A plan that apply must refuse is
// written too, for its reports; the error says why.
func Plan(ctx context.Context, o PlanOptions, env Environment) (*report.Report, error) {
	if o.lacksKeyType() {
		return nil, o.askForKeyType(ctx, env)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Extend {
		return extendPlan(ctx, o, env)
	}
	dir := env.runDir(o.RunDir)
	if exists, err := dir.has(planFileName); err != nil {
		return nil, err
	} else if exists {
		return nil, usage(fmt.Sprintf("%s already holds a plan", o.RunDir), "name a new --run-dir; to add what was appended to the source since, use plan --extend")
	}
	if err := dir.create(); err != nil {
		return nil, err
	}
	dir.sweep(env)
	sides, err := connectSides(ctx, o.Connections, env)
	if err != nil {
		return nil, err
	}
	defer sides.close()

	align, err := o.alignment()
	if err != nil {
		return nil, err
	}
	p := &plan{
		Schema: planSchema, Tool: env.Version, CreatedAt: env.Now().UTC(),
		From: o.From, To: o.To, Partitioner: o.Partitioner, OnUnparseable: o.OnUnparseable,
		History: o.History, Align: align, Isolation: o.Isolation, Compression: o.Compression,
		OnCollision: o.OnCollision, Refusals: []refusal{}, Files: []sealedFile{},
	}
	if p.Release04, err = o.planned04(); err != nil {
		return nil, err
	}
	if o.Prune != "" || o.PruneBefore != "" {
		p.Pruned = cmp.Or(o.Pruned, rewrite.PrunedTombstone)
	}
	planner := planner{options: o, env: env, dir: dir, sides: sides, plan: p, prints: newFingerprinter()}
	if err := planner.describe(ctx); err != nil {
		return nil, err
	}
	if err := planner.capture(ctx, nil); err != nil {
		return nil, err
	}
	if err := planner.checkPruneBefore(); err != nil {
		return nil, err
	}
	return planner.scanAndSeal(ctx)
}

// sides are the connections to both clusters; the same one twice when the
// target lives beside the source.
type sides struct {
	source, target *cluster
	env            Environment
}

func connectSides(ctx context.Context, c Connections, env Environment) (*sides, error) {
	source, err := connect(ctx, c.Source, env)
	if err != nil {
		return nil, err
	}
	if len(c.Target.Bootstrap) == 0 {
		return &sides{source: source, target: source, env: env}, nil
	}
	target, err := connect(ctx, c.target(), env)
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return &sides{source: source, target: target, env: env}, nil
}

// close ends the connections. Nothing depends on how that goes any more, so a
// failure is only logged.
func (s *sides) close() {
	err := s.source.Close()
	if s.target != s.source {
		err = errors.Join(err, s.target.Close())
	}
	if err != nil {
		s.env.Logf("close the connections: %v", err)
	}
}

// planner carries what the steps of one plan hand to each other.
type planner struct {
	options PlanOptions
	env     Environment
	dir     runDir
	sides   *sides
	plan    *plan
	prints  fingerprinter

	source   topicState
	target   topicState // without partitions if the topic does not exist yet
	configs  map[string]topicConfig
	rules    rewrite.Rules
	findings []report.Finding
	earlier  *report.Report // of the captures before an extension, or nil

	repairs   *repairSet // of --repairs, or nil
	claims    *claims
	strays    strays
	causes    map[string]int64 // records of unparseable keys by the cause that a suggestion names
	undecided struct{ keys, records int64 }
	suggested map[string]bool // reasons of undecided keys that something is suggested for

	incompatible spools // records whose value release 0.4 cannot read
}

// describe learns both topics' identity and settles what the target will be.
func (pl *planner) describe(ctx context.Context) error {
	p, o := pl.plan, pl.options
	var err error
	if pl.source, err = sourceTopic(ctx, pl.sides.source, o.Source); err != nil {
		return err
	}
	var found preflight
	found.checkPermissions(pl.source, "Read", "DescribeConfigs")
	if err := found.failure(fmt.Sprintf("%s cannot be read as it is", o.Source), "see docs/permissions.md for what plan needs"); err != nil {
		return err
	}
	if pl.configs, err = pl.sides.source.topicConfigs(ctx, o.Source); err != nil {
		return err
	}
	retention := tombstoneRetention(pl.configs)
	p.Source = planSource{ClusterID: pl.source.clusterID, Topic: o.Source, TopicID: pl.source.id,
		Partitions: int32(len(pl.source.partitions)), DeleteRetentionMS: retention}
	p.Target = planTarget{Topic: o.Target, Partitions: o.TargetPartitions,
		Replication: int16(pl.source.partitions[0].replicas), Configs: targetConfigs(pl.configs, o.TargetConfig)}
	if p.Target.Partitions == 0 {
		p.Target.Partitions = p.Source.Partitions
	}
	if p.Target.Partitions != p.Source.Partitions {
		if p.Align != AlignNone {
			return usage(fmt.Sprintf("%d target partitions for %d source partitions", p.Target.Partitions, p.Source.Partitions),
				"recovery reads only the partitions that its marker names, so another number loses states; if no savepoint will be restored on the target, say so with --align none")
		}
		if o.Partitioner == "source" {
			return usage("--partitioner source needs as many target as source partitions", "leave --target-partitions out")
		}
	}
	pl.target, err = pl.sides.target.topic(ctx, o.Target)
	exists := !errors.Is(err, errNoTopic)
	if exists && err != nil {
		return err
	}
	p.Target.ClusterID = pl.target.clusterID
	if p.Target.ClusterID == p.Source.ClusterID && o.Source == o.Target {
		return usage(fmt.Sprintf("source and target are the same topic, %s, of the same cluster", o.Source), "rekey never writes to the source: name a new topic with --target")
	}
	if exists {
		if err := pl.existingTopic(ctx, pl.target, &p.Target); err != nil {
			return err
		}
	}
	if err := pl.quarantineTopic(ctx); err != nil {
		return err
	}
	if err := pl.chooseRepairs(); err != nil {
		return err
	}
	if err := pl.choosePrunes(); err != nil {
		return err
	}
	pl.rules, err = p.rules(pl.dir)
	return err
}

// tombstoneRetention is how long a topic keeps tombstones at least, in
// milliseconds; -1 if it never removes them because it is not compacted.
func tombstoneRetention(configs map[string]topicConfig) int64 {
	if policy := configs["cleanup.policy"].value; policy != "" && !strings.Contains(policy, "compact") {
		return -1
	}
	if retention, ok := number(configs, "delete.retention.ms"); ok {
		return retention
	}
	return int64(24 * time.Hour / time.Millisecond) // Kafka's default
}

// sourceTopic looks up the topic to read.
func sourceTopic(ctx context.Context, c *cluster, name string) (topicState, error) {
	state, err := c.topic(ctx, name)
	if errors.Is(err, errNoTopic) {
		return state, usage(fmt.Sprintf("the source topic %s does not exist at %s", name, c.addresses()), "check --source and --bootstrap-server; topic names are case-sensitive")
	}
	return state, err
}

// existingTopic accepts a target that exists only if it is empty and has the
// right number of partitions.
func (pl *planner) existingTopic(ctx context.Context, state topicState, target *planTarget) error {
	target.TopicID = state.id
	if have := int32(len(state.partitions)); have != target.Partitions {
		return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("the target topic %s exists with %d partitions, the plan needs %d", target.Topic, have, target.Partitions),
			Do: "name a target that does not exist; apply creates it"}
	}
	starts, ends, err := bounds(ctx, pl.sides.target, target.Topic, len(state.partitions))
	if err != nil {
		return err
	}
	for partition := range ends {
		if starts[partition] < ends[partition] {
			return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("the target topic %s exists and is not empty: partition %d has offsets %d to %d", target.Topic, partition, starts[partition], ends[partition]-1),
				Do: "name a target that does not exist. If an earlier run wrote it, go on with that run's --run-dir"}
		}
	}
	return nil
}

// capture takes down where the source begins and ends now. An extension
// begins where the capture before it ended.
func (pl *planner) capture(ctx context.Context, previous *capture) error {
	p := pl.plan
	n := int(p.Source.Partitions)
	c := capture{At: pl.env.Now().UTC(), Flows: []flow{}}
	var err error
	if c.Starts, c.Ends, err = bounds(ctx, pl.sides.source, p.Source.Topic, n); err != nil {
		return err
	}
	if err := pl.awaitTransactions(ctx, c.Ends); err != nil {
		return err
	}
	if previous != nil {
		for partition, start := range c.Starts {
			if start > previous.Ends[partition] {
				return logStartPassed(p.Source.Topic, int32(partition), start, previous.Ends[partition])
			}
		}
		c.Starts = previous.Ends
	}
	if c.AlignTo, err = pl.alignTo(c.Ends, previous); err != nil {
		return err
	}
	p.Captures = append(p.Captures, c)
	return nil
}

// alignTo is the next offset that each target partition must reach before the
// first record of a capture is written.
func (pl *planner) alignTo(ends []int64, previous *capture) ([]int64, error) {
	switch {
	case pl.plan.Align == AlignNone:
		return nil, nil
	case pl.plan.Align == AlignSourceEnd:
		return ends, nil
	case previous != nil && pl.options.Align == AlignSourceEnd:
		return previous.AlignTo, nil // an extension without a marker file of its own
	}
	set, err := readMarkers(pl.options.Align)
	if err != nil {
		return nil, err
	}
	if set.topicID != "" && set.topicID != pl.plan.Source.TopicID {
		return nil, &Failure{Kind: ErrChanged, What: fmt.Sprintf("%s is for the topic id %s, %s has %s", pl.options.Align, set.topicID, pl.plan.Source.Topic, pl.plan.Source.TopicID),
			Do: "take the markers of a savepoint of the job that uses this topic"}
	}
	goals := make([]int64, len(ends))
	for partition := range goals {
		// Whichever of the markers a restore begins with, no record may lie
		// before it: the farthest one decides.
		named := false
		for _, m := range set.markers {
			if offset, ok := m[int32(partition)]; ok {
				named = true
				goals[partition] = max(goals[partition], offset)
			}
		}
		if !named {
			return nil, usage(fmt.Sprintf("%s names no offset of partition %d", pl.options.Align, partition),
				"recovery reads only the partitions that its marker names, so states that move to this one would be lost; give a marker of all partitions")
		}
		if goals[partition] > ends[partition] {
			return nil, usage(fmt.Sprintf("%s has offset %d of partition %d, the log ends at %d", pl.options.Align, goals[partition], partition, ends[partition]),
				"the marker belongs to another topic, or to a later state of this one")
		}
	}
	return goals, nil
}

func logStartPassed(topic string, partition int32, start, needed int64) error {
	return &Failure{Kind: ErrChanged,
		What: fmt.Sprintf("the log start of %s partition %d went to %d: offsets %d to %d are needed and gone", topic, partition, start, needed, start-1),
		Do:   "retention or DeleteRecords removed records of the source: plan again with a new --run-dir and a new target"}
}

// awaitTransactions waits until every transaction that began before the ends
// is decided: until then the last stable offset stays behind.
func (pl *planner) awaitTransactions(ctx context.Context, ends []int64) error {
	topic := pl.plan.Source.Topic
	wait := newBackoff(cmp.Or(pl.env.TransactionPatience, openTransactionPatience))
	for {
		stable, err := lastStableOffsets(ctx, pl.sides.source, topic, int32(len(ends)))
		if err != nil {
			return err
		}
		open := 0
		for open < len(ends) && stable[open] >= ends[open] {
			open++
		}
		if open == len(ends) {
			return nil
		}
		pl.env.Progress.Wait(fmt.Sprintf("a transaction is open on %s partition %d", topic, open))
		if !wait.next(ctx) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &Failure{Kind: ErrChanged, What: fmt.Sprintf("a transaction is open on %s partition %d: records from offset %d to %d are undecided", topic, open, stable[open], ends[open]-1),
				Do: "stop whatever writes transactions to the topic, or abort a hanging one with kafka-transactions.sh, then plan again"}
		}
	}
}

// scanAndSeal reads the latest capture, writes all files and says whether
// apply may run.
func (pl *planner) scanAndSeal(ctx context.Context) (*report.Report, error) {
	bad, err := newBadKeys(pl.dir, pl.prints)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := bad.close(); err != nil {
			pl.env.Logf("remove a temporary file: %v", err)
		}
	}()
	if pl.earlier != nil {
		if err := bad.addEarlierKeys(); err != nil {
			return nil, err
		}
	}
	spools := pl.dir.newSpools(pl.plan.Source.Partitions)
	defer spools.close(pl.env)
	pl.incompatible = pl.dir.newSpools(pl.plan.Source.Partitions)
	defer pl.incompatible.close(pl.env)
	total, err := pl.scanSettled(ctx, bad, spools)
	if err != nil {
		return nil, err
	}
	if err := pl.checkRepairsUsed(bad); err != nil {
		return nil, err
	}
	if err := pl.findSplitKeys(ctx, &pl.strays); err != nil {
		return nil, err
	}
	c := &pl.plan.Captures[len(pl.plan.Captures)-1]
	c.Records, c.RecordsBy = total.counts.Records, total.recordsBy
	c.Extremes = total.extremes
	for _, f := range total.flows {
		if f.Records > 0 {
			c.Flows = append(c.Flows, f)
		}
	}
	for _, f := range total.aside {
		if f.Records > 0 {
			c.Aside, c.AsideExtremes = append(c.Aside, f), &total.asideExtremes
		}
	}
	if pl.plan.Compression == "" {
		pl.plan.Compression = mostUsed(total.batches)
	}
	r := pl.newReport(total)
	if pl.earlier != nil {
		addEarlier(r, pl.earlier)
	}
	if err := pl.writeBadKeys(bad, r); err != nil {
		return nil, err
	}
	if err := pl.writeActionsTemplate(r.Release04); err != nil {
		return nil, err
	}
	if err := pl.writeSpools(quarantineFileName, spools); err != nil {
		return nil, err
	}
	if err := pl.writeSpools(incompatibleName, pl.incompatible); err != nil {
		return nil, err
	}
	if err := pl.reportPruned(&total.pruned, r); err != nil {
		return nil, err
	}
	if err := collisionsReport(pl.plan.Claims, r); err != nil {
		return nil, err
	}
	if err := pl.checkLive(ctx); err != nil {
		return nil, err
	}
	pl.judge(total, r)
	if refused := pl.plan.refuse(); refused != nil && pl.earlier != nil {
		return r, refusedExtension(refused)
	}
	if err := pl.plan.seal(); err != nil {
		return nil, err
	}
	r.PlanID = pl.plan.ID
	if err := pl.dir.writeReport(r); err != nil {
		return nil, err
	}
	// Last, for with it the plan is there: until then, the same command begins anew.
	if err := pl.dir.writePlan(pl.plan); err != nil {
		return nil, err
	}
	return r, pl.plan.refuse()
}

// scanSettled scans, and scans once more if keys turn out to collide and the
// plan says which of them give way: that changes the decisions.
func (pl *planner) scanSettled(ctx context.Context, bad *badKeys, spools spools) (*tally, error) {
	var err error
	if pl.claims, err = newClaims(pl.rules, pl.plan.Claims); err != nil {
		return nil, err
	}
	if err := pl.rememberMeetings(ctx); err != nil {
		return nil, err
	}
	pl.strays.prints = pl.prints
	total, err := pl.scan(ctx, bad, spools)
	if err != nil {
		return nil, err
	}
	again, err := pl.settleCollisions(ctx, pl.claims, bad)
	if err != nil || !again {
		return total, err
	}
	pl.claims = nil
	return pl.scan(ctx, nil, nil)
}

// reader reads the source as the plan says.
func (pl *planner) reader() *topicReader {
	return &topicReader{cluster: pl.sides.source, topic: pl.plan.Source.Topic, skipAborted: pl.plan.Isolation == IsolationCommitted}
}

// scan asks for the decision on every record of the latest capture. In a scan
// that only decides anew, bad and spools are nil: they have everything already.
func (pl *planner) scan(ctx context.Context, bad *badKeys, spools spools) (*tally, error) {
	p := pl.plan
	c := &p.Captures[len(p.Captures)-1]
	ask := demand{source: pl.reader(), rules: pl.rules, prints: pl.prints, count: &counter{progress: pl.env.Progress}}
	tallies := make([]*tally, p.Source.Partitions)
	pl.env.Progress.Phase("scan "+p.Source.Topic, c.positions())
	defer pl.env.Progress.Done()
	err := eachSpan(ctx, pl.env.budget().readers, c.spans(), func(ctx context.Context, span Span) error {
		t, err := newTally(pl.rules, pl.prints, span.Partition, p.Source.Partitions)
		if err != nil {
			return err
		}
		t.setsAside = p.Quarantine != nil
		tallies[span.Partition] = t
		var watch watcher
		if bad != nil {
			t.strays, watch = &pl.strays, pl.claims.watcher()
		}
		stats, err := ask.each(ctx, span, span.From, func(r *rewrite.Record, d rewrite.Decision) error {
			t.add(r, d)
			if bad == nil {
				return nil
			}
			if err := watch.note(r); err != nil {
				return err
			}
			if d.Problem != nil {
				if err := bad.add(r); err != nil {
					return err
				}
			}
			if d.Action == rewrite.Quarantine && p.Quarantine == nil {
				if err := spools[span.Partition].add(newQuarantined(r, &d)); err != nil {
					return err
				}
			}
			if t.release04.refusesValue() {
				return pl.incompatible[span.Partition].add(t.release04.incompatible(r, &d))
			}
			return nil
		})
		t.counts.Aborted = stats.Aborted
		t.batches = stats.Batches
		t.sequences = keyTable[sequenceSeen]{} // only one partition at a time is worth its memory
		return err
	})
	if err != nil {
		return nil, err
	}
	total, err := newTally(pl.rules, pl.prints, 0, p.Source.Partitions)
	if err != nil {
		return nil, err
	}
	total.flows, total.aside = nil, nil
	total.recordsBy = make([]int64, p.Source.Partitions)
	for partition, t := range tallies {
		if t != nil {
			total.merge(t)
			total.recordsBy[partition] = t.counts.Records
		}
	}
	return total, nil
}

// mostUsed is the name of the codec of most batches; "none" without any.
func mostUsed(batches [5]int64) string {
	most := 0
	for codec, n := range batches {
		if n > batches[most] {
			most = codec
		}
	}
	return codecName(most)
}

// examplesInReport bounds the keys that report.json repeats from
// unparseable.jsonl.
const examplesInReport = 1000

// writeBadKeys writes unparseable.jsonl and tells the report what is in it.
func (pl *planner) writeBadKeys(bad *badKeys, r *report.Report) error {
	byReason := map[string]*report.ReasonCount{}
	pl.causes, pl.suggested = map[string]int64{}, map[string]bool{}
	var repaired []report.BadKey
	err := pl.dir.write(unparseableFileName, func(w io.Writer) error {
		return bad.each(func(key []byte, stats *badKeyStats) error {
			entry, err := badKeyEntry(&pl.rules, key, stats)
			if err != nil {
				return err
			}
			pl.strays.addHomeless(&pl.rules, key, stats)
			r.BadKeys++
			if len(r.Examples) < examplesInReport {
				r.Examples = append(r.Examples, entry)
			}
			count := byReason[entry.Reason]
			if count == nil {
				count = &report.ReasonCount{Reason: entry.Reason, Meaning: report.Meaning(entry.Reason)}
				byReason[entry.Reason] = count
			}
			count.Keys++
			count.Records += entry.Records
			if entry.Suggestion != nil {
				pl.causes[entry.Suggestion.Cause] += entry.Records
			}
			switch {
			case pl.rules.Repair(key) != nil:
				repaired = append(repaired, entry)
			case entry.Decision == rewrite.Refuse.String():
				pl.undecided.keys++
				pl.undecided.records += entry.Records
				if entry.Suggestion != nil {
					pl.suggested[entry.Reason] = true
				}
			}
			return report.WriteBadKey(w, entry)
		})
	})
	if err != nil {
		return err
	}
	for _, count := range byReason {
		r.Unparseable = append(r.Unparseable, *count)
	}
	slices.SortFunc(r.Unparseable, func(a, b report.ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Reason, b.Reason))
	})
	if err := pl.repairsReport(r, repaired); err != nil {
		return err
	}
	return pl.sealFile(unparseableFileName, r.BadKeys)
}

// writeSpools joins the spools of a file in partition order. An extension appends
// to what the captures before it wrote.
func (pl *planner) writeSpools(name string, spools spools) error {
	lines := int64(0)
	for i := range spools {
		lines += spools[i].lines
	}
	earlier := slices.IndexFunc(pl.plan.Files, func(f sealedFile) bool { return f.Name == name })
	if lines == 0 && earlier < 0 {
		return pl.dir.remove(name) // of a plan that was not finished
	}
	if lines == 0 {
		return nil
	}
	err := pl.dir.write(name, func(w io.Writer) error {
		if earlier >= 0 {
			lines += pl.plan.Files[earlier].Lines
			if err := pl.dir.copyTo(w, name); err != nil {
				return err
			}
		}
		for i := range spools {
			if err := spools[i].copyTo(w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return pl.sealFile(name, lines)
}

// sealFile binds a file of the run directory to the plan.
func (pl *planner) sealFile(name string, lines int64) error {
	sum, err := pl.dir.digest(name)
	if err != nil {
		return err
	}
	sealed := sealedFile{Name: name, SHA256: sum, Lines: lines}
	for i := range pl.plan.Files {
		if pl.plan.Files[i].Name == name {
			pl.plan.Files[i] = sealed
			return nil
		}
	}
	pl.plan.Files = append(pl.plan.Files, sealed)
	return nil
}

// checkLive notes whether the source grew during the scan, and refuses if it
// lost records that the plan saw or became another topic.
func (pl *planner) checkLive(ctx context.Context) error {
	p := pl.plan
	state, err := sourceTopic(ctx, pl.sides.source, p.Source.Topic)
	if err != nil {
		return err
	}
	if state.id != p.Source.TopicID {
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("the source topic %s was re-created while it was read", p.Source.Topic), Do: "plan again with a new --run-dir"}
	}
	if have := len(state.partitions); have != int(p.Source.Partitions) {
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("the source topic %s got more partitions while it was read: it has %d partitions, it had %d", p.Source.Topic, have, p.Source.Partitions), Do: "plan again with a new --run-dir"}
	}
	_, ends, err := bounds(ctx, pl.sides.source, p.Source.Topic, int(p.Source.Partitions))
	if err != nil {
		return err
	}
	if grown := grownBy(ends, p.ends()); grown > 0 {
		pl.findings = append(pl.findings, report.Finding{Severity: report.Note, Code: "live-source",
			Title: "The source is still written to",
			Text:  fmt.Sprintf("%d offsets were appended while the plan read it. They are not part of this plan.", grown),
			Do:    "in the maintenance window, stop the job and run: rekey plan --extend, then apply and verify"})
	}
	return nil
}

// grownBy is by how many offsets the ends moved past the captured ones.
func grownBy(ends, captured []int64) int64 {
	var n int64
	for partition := range ends {
		n += max(0, ends[partition]-captured[partition])
	}
	return n
}

// refuse is the error of a plan that apply must not carry out, or nil.
func (p *plan) refuse() error {
	if len(p.Refusals) == 0 {
		return nil
	}
	first := p.Refusals[0]
	kinds := map[int]error{3: ErrUnparseable, 4: ErrChanged, 6: ErrPreflight}
	text := first.Text
	for _, more := range p.Refusals[1:] {
		text += "\n" + more.Text
	}
	return &Failure{Kind: kinds[first.Exit], What: text, Do: "see report.txt in the run directory; then plan again with a new --run-dir"}
}

// writeReport writes the report in its three forms.
func (d runDir) writeReport(r *report.Report) error {
	if err := d.write(reportJSONName, func(w io.Writer) error { return report.WriteJSON(w, r) }); err != nil {
		return err
	}
	if err := d.write(reportTextName, func(w io.Writer) error { return r.WriteText(w, report.Style{Width: 80}) }); err != nil {
		return err
	}
	return d.write(reportHTMLName, r.WriteHTML)
}
