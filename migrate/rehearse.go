package migrate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

const (
	rehearseFileName          = "rehearse.json"
	translatedMarkersFileName = "translated-markers.json"
)

// RehearseOptions are those of a rehearsal.
type RehearseOptions struct {
	RunOptions
	Runtimes []string // see RuntimeNames
	Markers  []string // marker files, or MarkerAtEnd
}

// Validate reports the first flag that is missing or unknown.
func (o RehearseOptions) Validate() error {
	if err := o.RunOptions.Validate(); err != nil {
		return err
	}
	switch {
	case len(o.Runtimes) == 0:
		return usage("--runtime is missing", "name the release of Flink Agents that will restore the savepoint: "+strings.Join(RuntimeNames(), ", "))
	case len(o.Markers) == 0:
		return usage("--marker is missing", "name a file with the recovery markers of the savepoint, or give --marker at-end for a savepoint taken now")
	}
	for _, runtime := range o.Runtimes {
		if _, err := recoveryOf(runtime); err != nil {
			return err
		}
	}
	return nil
}

// Rehearse replays both topics the way a recovering job does, from the same
// markers, and says whether the job will see the same states. Nothing is
// written to Kafka. What would go wrong is ErrDifferent, and rehearse.json has
// the evidence; translated-markers.json has the markers as positions of the
// target.
//
// States are compared by their parsed key: a source key means what the target
// key that it becomes means. Keys that cannot be parsed are counted and left
// out, since the plan says what became of them; padding and provenance are no
// part of any comparison.
//
// Of a state only digests are kept, at most 47 bytes for each state key and as
// much for each business key. With more keys than keysAtOnce both topics are
// read once for each part of the key space, so memory is bounded whatever the
// topics hold: by half of --memory, or a gigabyte without it.
func Rehearse(ctx context.Context, o RehearseOptions, env Environment) (*report.Rehearse, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var sets []markerSet
	for _, name := range o.Markers {
		set := markerSet{name: MarkerAtEnd} // filled in when the ends are known
		if name != MarkerAtEnd {
			var err error
			if set, err = readMarkers(name); err != nil {
				return nil, err
			}
		}
		sets = append(sets, set)
	}
	dir := env.runDir(o.RunDir)
	p, rules, err := dir.openPlan()
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		if err := set.checkSource(p); err != nil {
			return nil, err
		}
	}
	sides, err := connectSides(ctx, o.Connections, env)
	if err != nil {
		return nil, err
	}
	defer sides.close()
	r := &rehearser{options: o, env: env, dir: dir, plan: p, rules: rules, sides: sides, markers: sets,
		evidence: &report.Rehearse{Schema: report.SchemaVersion, Tool: env.Version, PlanID: p.ID, StartedAt: env.Now().UTC(),
			Source: sourceReport(p), Target: targetReport(p), Rollback: rollback(p), Translated: translatedMarkersFileName}}
	err = r.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = &Failure{Kind: ErrInterrupted, What: "rehearse was interrupted and says nothing about the target", Cause: err, Do: "run the same command again"}
	}
	return r.evidence, err
}

// rehearser carries what the steps of one rehearse hand to each other.
type rehearser struct {
	options  RehearseOptions
	env      Environment
	dir      runDir
	plan     *plan
	rules    rewrite.Rules
	sides    *sides
	markers  []markerSet
	evidence *report.Rehearse
}

func (r *rehearser) run(ctx context.Context) error {
	s, err := r.setStage(ctx)
	if err != nil {
		return err
	}
	for i := range r.markers {
		if r.markers[i].name == MarkerAtEnd {
			r.markers[i].markers = []marker{markerAt(endsOf(s.sourceLog))}
		}
	}
	e := r.evidence
	for _, set := range r.markers {
		for _, runtime := range r.options.Runtimes {
			recovery, err := recoveryOf(runtime)
			if err != nil {
				return err
			}
			r.env.Progress.Phase(fmt.Sprintf("rehearse runtime %s, marker %s", runtime, set.name), s.positions(recovery, set.merged()))
			rehearsal, err := s.rehearse(ctx, recovery, set)
			r.env.Progress.Done()
			if err != nil {
				return err
			}
			e.Rehearsals = append(e.Rehearsals, rehearsal)
		}
	}
	translated, err := r.translate(ctx, s)
	if err != nil {
		return err
	}
	// What was replayed must still be what the plan means.
	now, err := r.plan.checkSource(ctx, r.sides.source)
	if err != nil {
		return err
	}
	if err := r.checkTarget(ctx); err != nil {
		return err
	}
	grown, live := r.plan.liveFailure(now, r.options.AllowLiveSource)
	r.evidence.Findings = r.keyTypeFindings()
	r.conclude(grown)
	err = r.dir.write(translatedMarkersFileName, func(w io.Writer) error { return report.WriteJSON(w, translated) })
	if err == nil {
		err = r.dir.write(rehearseFileName, func(w io.Writer) error { return report.WriteJSON(w, e) })
	}
	if !e.Passed { // whether or not that could be written down
		return r.failure(err)
	}
	return cmp.Or(err, live)
}

// setStage checks both topics and takes down what they hold.
func (r *rehearser) setStage(ctx context.Context) (*stage, error) {
	p := r.plan
	if _, err := p.checkSource(ctx, r.sides.source); err != nil {
		return nil, err
	}
	if err := r.checkTarget(ctx); err != nil {
		return nil, err
	}
	sourceStarts, sourceEnds, err := bounds(ctx, r.sides.source, p.Source.Topic, int(p.Source.Partitions))
	if err != nil {
		return nil, err
	}
	targetStarts, targetEnds, err := bounds(ctx, r.sides.target, p.Target.Topic, int(p.Target.Partitions))
	if err != nil {
		return nil, err
	}
	return &stage{
		// The job reads uncommitted data, whatever the plan copies.
		source:    &topicReader{cluster: r.sides.source, topic: p.Source.Topic},
		target:    &topicReader{cluster: r.sides.target, topic: p.Target.Topic},
		sourceLog: logRanges(sourceStarts, sourceEnds), targetLog: logRanges(targetStarts, targetEnds), captured: p.ends(),
		rules: r.rules, prints: newFingerprinter(), hasher: newHasher(), keysAtOnce: r.env.budget().keysReplayed, readers: r.env.budget().readers,
		count: &counter{progress: r.env.Progress},
	}, nil
}

// checkTarget demands the target that apply wrote.
func (r *rehearser) checkTarget(ctx context.Context) error {
	p := r.plan
	state, err := r.sides.target.topic(ctx, p.Target.Topic)
	if errors.Is(err, errNoTopic) {
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("the target topic %s does not exist", p.Target.Topic), Do: "run apply first"}
	}
	if err != nil {
		return err
	}
	known, err := r.plan.knownTarget(r.dir, applyFileName)
	if err != nil {
		return err
	}
	if err := p.checkTarget(state, known); err != nil {
		return err
	}
	r.evidence.Target.ID = state.id
	return nil
}

// translate finds the positions of the target that stand for the markers.
func (r *rehearser) translate(ctx context.Context, s *stage) (*report.Markers, error) {
	var positions int64
	for _, log := range s.targetLog {
		positions += log.end - log.start
	}
	r.env.Progress.Phase("translate the markers", positions)
	defer r.env.Progress.Done()
	merged := make([]marker, len(r.markers))
	for i, set := range r.markers {
		merged[i] = set.merged()
	}
	translated, err := s.translate(ctx, merged)
	if err != nil {
		return nil, err
	}
	out := &report.Markers{Schema: report.SchemaVersion, Status: report.MarkersStatus, PlanID: r.plan.ID,
		Topic: r.plan.Target.Topic, TopicID: r.evidence.Target.ID}
	for i, set := range r.markers {
		out.Markers = append(out.Markers, report.TranslatedMarker{Marker: set.name, From: merged[i].named(), Offsets: translated[i].named()})
	}
	return out, nil
}

// named is a marker with the partitions as texts, as in a file.
func (m marker) named() map[string]int64 {
	names := make(map[string]int64, len(m))
	for partition, offset := range m {
		names[strconv.Itoa(int(partition))] = offset
	}
	return names
}

// conclude judges the rehearsals and says what to do next. grown is by how many
// offsets the source grew since its end was captured.
func (r *rehearser) conclude(grown int64) {
	e := r.evidence
	e.FinishedAt = r.env.Now().UTC()
	e.Passed = true
	var confusable, restarted, malformed, undefined int64
	exact := "MARKER"
	for i := range e.Rehearsals {
		one := &e.Rehearsals[i]
		e.Passed = e.Passed && one.Passed
		if one.Confusable > 0 && one.Marker != MarkerAtEnd {
			exact = one.Marker
		}
		confusable = max(confusable, one.Confusable)
		restarted = max(restarted, one.Restarted)
		undefined = max(undefined, one.Undefined)
		malformed = max(malformed, one.Target.Malformed)
	}
	advice := fmt.Sprintf("take the exact way, with a new target: --align %[1]s --prune-before %[1]s --pruned omit", shellQuote(exact))
	find := func(n int64, code, title, text, do string) {
		if n > 0 {
			e.Findings = append(e.Findings, report.Finding{Severity: report.Warning, Code: code, Title: fmt.Sprintf(title, n), Text: text, Do: do})
		}
	}
	find(grown, "live-source", "Offsets that were appended to the old topic since its end was captured: %d",
		"They are neither on the new topic nor part of this rehearsal. A savepoint may need them.", "stop the job, then plan --extend, apply, verify and rehearse")
	find(confusable, "confusable", "States of the new topic that could be taken for the job's own: %d",
		"They lie before the marker, and their business key has states behind it with the same or a lower sequence number. On the old topic the job would not have read them.", advice)
	find(restarted, "sequence-restart", "Older states with a higher sequence number than the last one of their business key: %d",
		"A fresh job re-used the topic, or the job went back to an older savepoint. When the job reaches such a sequence number again, it could take the old state for its own.", advice)
	find(malformed, "malformed-keys", "Records of the new topic with keys that the runtime cannot take apart: %d", "Lookups of releases 0.1 to 0.3 throw while one of them is loaded.",
		"plan again with --on-unparseable quarantine, and with --to escaped for a runtime that splits keys at the underscore")
	find(undefined, "undefined-order", "Keys that lie on several partitions of the old topic: %d", "Which of their records is the last one depends on the timing of each recovery, on the old topic too.", "")
	if e.Passed {
		e.Next = []string{fmt.Sprintf("point the job at %s (kafkaActionStateTopic) and start it from its savepoint", r.plan.Target.Topic)}
		return
	}
	e.Next = []string{fmt.Sprintf("do not start the job on %s from such a savepoint", r.plan.Target.Topic)}
	if confusable > 0 {
		e.Next = append(e.Next, "take the exact way: copy to another topic what this savepoint needs, and nothing else", r.exactWay(exact))
	}
}

// exactWay is the command that plans a copy of what the savepoint with these
// markers can still need, under the choices of this plan.
func (r *rehearser) exactWay(markers string) string {
	defaults := DefaultPlanOptions()
	line := r.sides.command("plan", "NEW-DIR") + " --source " + shellQuote(r.plan.Source.Topic) + " --target NEW-TOPIC"
	for _, option := range []struct{ flag, planned, normal string }{
		{"--from", r.plan.From, defaults.From}, {"--to", r.plan.To, defaults.To}, {"--partitioner", r.plan.Partitioner, defaults.Partitioner},
		{"--on-unparseable", string(r.plan.OnUnparseable), string(defaults.OnUnparseable)}, {"--isolation-level", r.plan.Isolation, defaults.Isolation},
		{"--on-collision", r.plan.OnCollision, defaults.OnCollision},
	} {
		if option.planned != option.normal {
			line += " " + option.flag + " " + shellQuote(option.planned)
		}
	}
	if len(r.plan.Repairs)+len(r.plan.Replays) > 0 {
		line += " --repairs REPAIRS-FILE"
	}
	line += r.plan.Release04.flags()
	return line + fmt.Sprintf(" --align %[1]s --prune-before %[1]s --pruned omit", shellQuote(markers))
}

// failure is the error of a rehearsal that did not pass.
func (r *rehearser) failure(cause error) error {
	var texts []string
	for i := range r.evidence.Rehearsals {
		if one := &r.evidence.Rehearsals[i]; !one.Passed {
			texts = append(texts, fmt.Sprintf("%s: %s", one.Marker, one.Summary))
		}
	}
	return &Failure{Kind: ErrDifferent, What: strings.Join(texts, "\n"), Cause: cause, Do: strings.Join(append(r.evidence.Next, "see rehearse.json in the run directory"), "\n")}
}

func endsOf(log []logRange) []int64 {
	ends := make([]int64, len(log))
	for partition := range log {
		ends[partition] = log[partition].end
	}
	return ends
}

// stage is both topics as a rehearsal finds them.
type stage struct {
	source, target       Source
	sourceLog, targetLog []logRange
	captured             []int64 // where the plan's knowledge of the source ends
	rules                rewrite.Rules
	prints               fingerprinter
	hasher               hasher
	keysAtOnce           int64 // of one replay
	readers              int
	count                *counter
}

// begin says where a recovery reads both topics from.
func (s *stage) begin(r recovery, m marker) (source, target []Span, onSource, onTarget []report.Effect) {
	source, onSource = r.begin(m, s.sourceLog)
	for i := range source {
		source[i].To = min(source[i].To, s.captured[source[i].Partition])
	}
	target, onTarget = r.begin(m, s.targetLog)
	return source, target, onSource, onTarget
}

func positionsIn(spans []Span) int64 {
	var n int64
	for _, span := range spans {
		n += max(0, span.To-span.From)
	}
	return n
}

// parts is in how many parts of the key space two replays are compared: each
// record could have a key of its own.
func (s *stage) parts(source, target []Span) uint64 {
	return uint64((positionsIn(source)+positionsIn(target))/s.keysAtOnce + 1)
}

// positions is how many log positions a rehearsal passes, for the progress.
func (s *stage) positions(r recovery, m marker) int64 {
	source, target, _, _ := s.begin(r, m)
	return (positionsIn(source) + positionsIn(target)) * int64(s.parts(source, target))
}

// rehearse plays one marker through the rules of one runtime.
func (s *stage) rehearse(ctx context.Context, r recovery, set markerSet) (report.Rehearsal, error) {
	m := set.merged()
	out := report.Rehearsal{Runtime: r.runtime, Marker: set.name, Markers: len(set.markers)}
	for _, partition := range m.partitions() {
		out.Offsets = append(out.Offsets, report.Position{Partition: partition, Offset: m[partition]})
	}
	var source, target []Span
	source, target, out.Source.Effects, out.Target.Effects = s.begin(r, m)
	if to := s.rules.To.Name(); r.reads != "" && r.reads != to {
		out.Target.Effects = append(out.Target.Effects, report.Effect{Code: report.EffectRefuse,
			Text: fmt.Sprintf("the new topic has %s keys, and runtime %s reads %s keys only: it fails at the first one", to, r.runtime, r.reads)})
	}
	if r.strict && set.topic != "" {
		out.Target.Effects = append(out.Target.Effects, report.Effect{Code: report.EffectRefuse,
			Text: fmt.Sprintf("the markers name the topic %s and its id, as those do that runtime %s takes itself: it restores them on that topic only", set.topic, r.runtime)})
	}
	parts := s.parts(source, target)
	for part := range parts {
		pass := pass{stage: s, replays: &replays{recovery: r}, part: part, parts: parts, out: &out}
		if err := pass.run(ctx, source, target); err != nil {
			return out, err
		}
	}
	out.Source.Effects = append(out.Source.Effects, malformedEffect(r, &out.Source)...)
	if !slices.ContainsFunc(out.Target.Effects, report.Effect.Stops) {
		out.Target.Effects = append(out.Target.Effects, malformedEffect(r, &out.Target)...)
		out.Target.Effects = append(out.Target.Effects, unreadableEffect(r, &out.Target)...)
	}
	judge(&out)
	return out, nil
}

// malformedEffect is what keys that a runtime cannot take apart do to it.
func malformedEffect(r recovery, replay *report.Replay) []report.Effect {
	if replay.Malformed == 0 {
		return nil
	}
	effect := report.Effect{Code: report.EffectMalformed,
		Text: fmt.Sprintf("the keys of %s do not split into four fields: runtime %s loads them, and its lookups throw", plural(replay.Malformed, "record"), r.runtime)}
	if r.malformedAborts {
		effect = report.Effect{Code: report.EffectAbort,
			Text: fmt.Sprintf("the keys of %s are not in the layout of runtime %s: recovery fails at the first one", plural(replay.Malformed, "record"), r.runtime)}
	}
	return []report.Effect{effect}
}

// unreadableEffect is what values that a runtime cannot read do to it.
func unreadableEffect(r recovery, replay *report.Replay) []report.Effect {
	if replay.Unreadable == 0 {
		return nil
	}
	return []report.Effect{{Code: report.EffectAbort,
		Text: fmt.Sprintf("runtime %s cannot read the values of %s: recovery fails at the first one", r.runtime, plural(replay.Unreadable, "record"))}}
}

// judge says in one sentence what a rehearsal came to.
//
// What the runtime would do on the old topic is no failure, as long as it reads
// it at all: malformed keys there are why there is a new one.
func judge(out *report.Rehearsal) {
	job := fmt.Sprintf("a %s job that restores this savepoint", out.Runtime)
	states := func(n int64) string { return plural(n, "state") }
	refuses := func(e report.Effect) bool { return e.Code == report.EffectRefuse }
	if i := slices.IndexFunc(out.Target.Effects, report.Effect.Stops); i >= 0 {
		out.Summary = fmt.Sprintf("%s does not start on the new topic: %s", job, out.Target.Effects[i].Text)
		return
	}
	if i := slices.IndexFunc(out.Source.Effects, refuses); i >= 0 {
		out.Summary = fmt.Sprintf("%s does not start even on the old topic, so there is nothing to compare with: %s", job, out.Source.Effects[i].Text)
		return
	}
	var wrong []string
	if out.Lost > 0 {
		wrong = append(wrong, fmt.Sprintf("loses %d of %s", out.Lost, states(out.Source.States)))
	}
	if out.Different > 0 {
		wrong = append(wrong, fmt.Sprintf("sees %s with other content", states(out.Different)))
	}
	if out.Confusable > 0 {
		wrong = append(wrong, fmt.Sprintf("could take %s for its own that it would not see on the old topic", states(out.Confusable)))
	}
	if len(wrong) > 0 {
		out.Summary = job + " " + strings.Join(wrong, " and ")
		return
	}
	out.Passed = true
	out.Summary = fmt.Sprintf("%s will see the same %s", job, states(out.Same))
	if out.Older > 0 {
		out.Summary += fmt.Sprintf(", and %s that it is past", plural(out.Older, "older one"))
	}
	if out.Same == 0 && out.Source.States == 0 {
		out.Summary += ": the old topic holds none that it needs"
	}
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// pass is both replays of one rehearsal, for one part of the key space.
type pass struct {
	*stage
	*replays
	part, parts uint64
	out         *report.Rehearsal

	mu          sync.Mutex
	unparseable keyTable[struct{}] // keys of the source that cannot be parsed
}

func (p *pass) run(ctx context.Context, source, target []Span) error {
	if err := p.replay(ctx, p.stage.source, source, false, &p.out.Source, p.onSource); err != nil {
		return err
	}
	p.settle()
	if err := p.replay(ctx, p.stage.target, target, true, &p.out.Target, p.onTarget); err != nil {
		return err
	}
	failures := p.out.Lost + p.out.Different + p.out.Confusable
	p.replays.count(p.out)
	p.out.Unparseable += int64(p.unparseable.size)
	if p.out.Lost+p.out.Different+p.out.Confusable == failures {
		return nil
	}
	return p.examples(ctx, source, target)
}

// replay reads the spans of one topic, several at a time, and hands on what it
// observes in each.
func (p *pass) replay(ctx context.Context, from Source, spans []Span, onTarget bool, out *report.Replay, take func(*observation)) error {
	return eachSpan(ctx, p.stage.readers, spans, func(ctx context.Context, span Span) error {
		o, err := newObserver(p, onTarget)
		if err != nil {
			return err
		}
		position := span.From
		_, err = from.Read(ctx, span, func(records []rewrite.Record) error {
			if len(records) == 0 {
				return nil // a batch of which compaction left nothing in the span
			}
			o.reset()
			for i := range records {
				if err := o.observe(&records[i]); err != nil {
					return err
				}
			}
			next := records[len(records)-1].Offset + 1
			p.stage.count.add(next - position)
			position = next
			p.mu.Lock()
			defer p.mu.Unlock()
			for i := range o.seen {
				take(&o.seen[i])
			}
			if !onTarget {
				for _, key := range o.unparseable {
					p.unparseable.at(key)
				}
			}
			if p.part == 0 { // counts of records, not of keys
				out.Records += o.records
				out.Malformed += o.malformed
				out.Unreadable += o.unreadable
				out.LeftOut += o.leftOut
			}
			return nil
		})
		p.stage.count.add(max(0, span.To-position)) // a hole at the end is passed too
		return err
	})
}

// observer turns records of one partition into observations.
type observer struct {
	*pass
	onTarget   bool
	choosy     bool // the runtime gets as far as the values, and does not load every one
	paddingKey []byte
	decider    *rewrite.Decider
	key        keycodec.Key
	encoded    []byte

	// of the records since reset
	seen               []observation
	unparseable        []fingerprint
	records, malformed int64
	unreadable         int64 // records whose value the runtime cannot read
	leftOut            int64 // see leftOut
}

func newObserver(p *pass, onTarget bool) (*observer, error) {
	padding, err := rewrite.PaddingKey(p.rules.To)
	choosy := onTarget && p.readsValue != nil && p.reads == p.rules.To.Name()
	return &observer{pass: p, onTarget: onTarget, choosy: choosy, paddingKey: padding, decider: rewrite.NewDecider(p.rules.WholeHistory())}, err
}

func (o *observer) reset() {
	o.seen, o.unparseable, o.records, o.malformed = o.seen[:0], o.unparseable[:0], 0, 0
	o.unreadable, o.leftOut = 0, 0
}

func (o *observer) observe(r *rewrite.Record) error {
	if o.onTarget && o.isPadding(r) {
		return nil
	}
	o.records++
	if !o.wellFormed(r.Key) {
		o.malformed++
	}
	if o.choosy && r.Value != nil && !o.readsValue(r.Value) {
		o.unreadable++
	}
	observation, parsed, err := o.identify(r)
	if errors.Is(err, errLeftOut) {
		o.leftOut++
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case !parsed:
		key := o.prints.of(r.Key)
		if r.Key == nil {
			key = fingerprint{} // null is not empty
		}
		if key[0]%o.parts == o.part {
			o.unparseable = append(o.unparseable, key)
		}
	// All state keys of a business key belong to the same part.
	case observation.business[0]%o.parts == o.part:
		o.seen = append(o.seen, observation)
	}
	return nil
}

// isPadding recognises what apply writes to move offsets, and nothing else.
func (o *observer) isPadding(r *rewrite.Record) bool {
	if r.Value != nil || !bytes.Equal(r.Key, o.paddingKey) {
		return false
	}
	value, found := rewrite.FindProvenance(r.Headers)
	if !found {
		return false
	}
	provenance, err := rewrite.ParseProvenance(value)
	return err == nil && provenance.Padding
}

// identify reduces a record to what it says of which state. Both sides speak of
// a state by the key that it has on the target.
func (o *observer) identify(r *rewrite.Record) (out observation, parsed bool, err error) {
	key := r.Key
	if !o.onTarget {
		if key, out.repaired, err = o.targetKey(r); key == nil || err != nil {
			return out, false, err
		}
	}
	if key == nil || o.rules.To.Parse(&o.key, key) != nil {
		return out, false, nil
	}
	out.state = o.prints.of(key)
	out.business = o.prints.of(businessKeyOf(&o.key))
	out.sequence = o.key.Sequence
	out.value = o.hasher.nullable(r.Value)
	out.tombstone = r.Value == nil
	out.partition = r.Partition
	return out, true, nil
}

// businessKeyOf is the business key, or what stands for it in a format that
// keeps only a digest.
func businessKeyOf(key *keycodec.Key) []byte {
	if key.BusinessKey == nil {
		return key.Digest
	}
	return key.BusinessKey
}

// targetKey is the key that a source record has on the target, nil if it cannot
// be parsed. It does not matter here whether the plan copies the record: the job
// that recovers from the source reads it. A key that only a repair gives a
// meaning is none that the old job could use.
func (o *observer) targetKey(r *rewrite.Record) (key []byte, repaired bool, err error) {
	decision, err := o.decider.Decide(r, r.Offset)
	if err != nil || decision.Parsed == nil {
		return nil, false, err
	}
	if leftOut(&o.rules, &decision) {
		return nil, false, errLeftOut
	}
	o.encoded, err = o.rules.To.Append(o.encoded[:0], decision.Parsed)
	return o.encoded, decision.Problem != nil, err
}

// leftOut says whether a plan for release 0.4 leaves out a record that the
// comparison must not miss: of a run whose state gave way to that of another run
// of the same action, or with a value that this release cannot read.
func leftOut(rules *rewrite.Rules, d *rewrite.Decision) bool {
	return rules.Actions != nil && (d.Reason == rewrite.LostCollision || d.Reason == rewrite.IncompatibleValue)
}

var errLeftOut = errors.New("left out by the plan")

// examplesOfEachKind bounds what a rehearsal shows of lost, different and
// confusable states.
const examplesOfEachKind = 20

// examples reads both topics once more, to show the first few states of each
// kind of failure: the tables hold no keys. Partitions are read one after the
// other, so that the same topics give the same examples.
func (p *pass) examples(ctx context.Context, source, target []Span) error {
	found := map[fingerprint]*report.StateDifference{}
	room := map[string]int{}
	for _, kind := range []string{report.KindLost, report.KindDifferent, report.KindConfusable} {
		room[kind] = examplesOfEachKind
	}
	for i := range p.out.Examples { // of the parts before
		room[p.out.Examples[i].Kind]--
	}
	look := func(from Source, spans []Span, onTarget bool) error {
		o, err := newObserver(p, onTarget)
		if err != nil {
			return err
		}
		for _, span := range spans {
			_, err := from.Read(ctx, span, func(records []rewrite.Record) error {
				for i := range records {
					o.reset()
					if err := o.observe(&records[i]); err != nil {
						return err
					}
					if len(o.seen) == 0 {
						continue
					}
					p.example(found, room, o, &records[i], onTarget)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := look(p.stage.source, source, false); err != nil {
		return err
	}
	if err := look(p.stage.target, target, true); err != nil {
		return err
	}
	for _, example := range found {
		p.out.Examples = append(p.out.Examples, *example)
	}
	slices.SortFunc(p.out.Examples, compareExamples)
	return nil
}

// example notes where a record stands if its state is one to show.
func (p *pass) example(found map[fingerprint]*report.StateDifference, room map[string]int, o *observer, r *rewrite.Record, onTarget bool) {
	seen := &o.seen[0]
	state := p.states.get(seen.state)
	kind, text := explain(p.compare(state))
	if kind == "" {
		return
	}
	example := found[seen.state]
	if example == nil {
		if room[kind] == 0 {
			return
		}
		room[kind]--
		example = &report.StateDifference{Kind: kind, Key: report.Printable(r.Key), BusinessKey: report.Printable(businessKeyOf(&o.key)), Sequence: seen.sequence, Text: text}
		found[seen.state] = example
	}
	at := &report.Position{Partition: r.Partition, Offset: r.Offset}
	if onTarget {
		example.Target = at
	} else {
		example.Source = at
	}
}

// explain names a failure; "" for what is none.
func explain(d difference) (kind, text string) {
	switch d {
	case lost:
		return report.KindLost, "a recovery from the old topic has this state, one from the new topic has not"
	case different:
		return report.KindDifferent, "the bytes of the value differ"
	case undeleted:
		return report.KindDifferent, "the old topic deletes this state, the new one brings it back"
	case confusable:
		return report.KindConfusable, "a recovery from the old topic does not have this state, but has others of its business key with the same or a lower sequence number"
	case confusableTrace:
		return report.KindConfusable, "a tombstone that a recovery from the old topic does not read: the runtime keeps an entry for it, and takes two entries of one business key and sequence number for a divergence"
	}
	return "", ""
}

func compareExamples(a, b report.StateDifference) int {
	place := func(d report.StateDifference) report.Position {
		if d.Source != nil {
			return *d.Source
		}
		return *d.Target
	}
	rank := func(d report.StateDifference) int {
		return slices.Index([]string{report.KindLost, report.KindDifferent, report.KindConfusable}, d.Kind)
	}
	x, y := place(a), place(b)
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
}

// translate gives, for each marker, the lowest position of each target
// partition that holds a record from at or after the marker: its end if there
// is none. So whatever lies at or after the marker in the source lies at or
// after that position in the target. It is exact, because each target record
// says where it came from.
func (s *stage) translate(ctx context.Context, markers []marker) ([]marker, error) {
	const unknown = -1
	positions := make([][]int64, len(s.targetLog)) // by target partition and marker
	var spans []Span
	for partition, log := range s.targetLog {
		positions[partition] = slices.Repeat([]int64{unknown}, len(markers))
		if log.start < log.end {
			spans = append(spans, Span{int32(partition), log.start, log.end})
		}
	}
	err := eachSpan(ctx, s.readers, spans, func(ctx context.Context, span Span) error {
		found := positions[span.Partition]
		position := span.From
		_, err := s.target.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				r := &records[i]
				source, _, problem := splitProvenance(r)
				if problem != "" || source.Padding {
					continue
				}
				for m := range markers {
					if offset, named := markers[m][source.Partition]; named && found[m] == unknown && source.Offset >= offset {
						found[m] = r.Offset
					}
				}
			}
			if len(records) == 0 {
				return nil
			}
			next := records[len(records)-1].Offset + 1
			s.count.add(next - position)
			position = next
			return nil
		})
		s.count.add(max(0, span.To-position))
		return err
	})
	if err != nil {
		return nil, err
	}
	translated := make([]marker, len(markers))
	for m := range markers {
		translated[m] = marker{}
		for partition, log := range s.targetLog {
			translated[m][int32(partition)] = log.end
			if at := positions[partition][m]; at != unknown {
				translated[m][int32(partition)] = at
			}
		}
	}
	return translated, nil
}
