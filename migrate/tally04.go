package migrate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
	"rekey/statevalue"
)

const (
	keysShown       = 3    // business keys that a report shows with what they become
	mostEventTypes  = 20   // of one action that are told apart
	actionUsesShown = 1000 // old action UUIDs in a report; the template has all that were counted
)

// tally04 sums up what only the target format flink-agents-0.4 asks of records:
// what their keys look like, which actions they are of, and who wrote their
// values.
type tally04 struct {
	rules rewrite.Rules
	key   keycodec.Key     // of the record that was added last
	value statevalue.Value // likewise

	shapes   keyShapes
	examples []report.KeyExample
	actions  map[uuid.UUID]*actionUse
	layouts  map[statevalue.Layout]int64
	problems map[statevalue.Problem]*report.ProblemCount
	envelope int64 // records with memory values that only the same major version of Flink reads
	refused  int64 // records whose value the policy refuses

	// Where the source's keys have key groups, they are evidence of key type and
	// max parallelism.
	grouped, elsewhere int64
}

type actionUse struct {
	records     int64
	first, last int64 // timestamps; only with timed
	timed       bool
	events      map[string]int64
}

// newTally04 is nil for another target format.
func newTally04(rules rewrite.Rules) *tally04 {
	if rules.To.Name() != keycodec.NameFlinkAgents04 {
		return nil
	}
	return &tally04{rules: rules, actions: map[uuid.UUID]*actionUse{}, layouts: map[statevalue.Layout]int64{}, problems: map[statevalue.Problem]*report.ProblemCount{}}
}

// add counts a record and its decision.
func (t *tally04) add(r *rewrite.Record, d *rewrite.Decision, at report.Position) {
	t.value = statevalue.Value{}
	if r.Value != nil {
		t.value = statevalue.Look(r.Value)
		if d.Action == rewrite.Omit || d.Action == rewrite.Drop {
			t.value.Problem = "" // nobody will read it
		}
		t.countValue(at)
	}
	if d.Reason == rewrite.IncompatibleValue && d.Action == rewrite.Refuse {
		t.refused++
	}
	if t.rules.From.Parse(&t.key, r.Key) == nil {
		t.shapes.add(t.key.BusinessKey)
		t.example(d, at)
		t.keyGroup(d)
		t.countAction(r)
	}
}

func (t *tally04) countValue(at report.Position) {
	t.layouts[t.value.Layout]++
	if t.value.Envelope {
		t.envelope++
	}
	problem := t.value.Problem
	if problem == "" {
		return
	}
	count := t.problems[problem]
	if count == nil {
		count = &report.ProblemCount{Problem: string(problem), Meaning: problem.Meaning(), First: at}
		t.problems[problem] = count
	}
	count.Records++
}

// refusesValue says whether release 0.4 cannot read the value of the record that
// was added last, or not whole.
func (t *tally04) refusesValue() bool { return t != nil && t.value.Problem != "" }

// incompatible is the line of that record.
func (t *tally04) incompatible(r *rewrite.Record, d *rewrite.Decision) report.IncompatibleValue {
	return report.IncompatibleValue{Partition: r.Partition, Offset: r.Offset, KeyBase64: base64OrNull(r.Key), Key: report.Printable(r.Key),
		Layout: string(t.value.Layout), Problem: string(t.value.Problem), Decision: d.Action.String()}
}

// example keeps the first few business keys with what they become.
func (t *tally04) example(d *rewrite.Decision, at report.Position) {
	if len(t.examples) == keysShown || d.Reason == rewrite.AlreadyMigrated {
		return
	}
	businessKey := report.Printable(t.key.BusinessKey)
	if slices.ContainsFunc(t.examples, func(e report.KeyExample) bool { return e.BusinessKey == businessKey }) {
		return
	}
	example := report.KeyExample{BusinessKey: businessKey, At: at}
	encoded, err := t.rules.To.Append(nil, &t.key)
	var target keycodec.Key
	if err == nil && t.rules.To.Parse(&target, encoded) == nil {
		example.Becomes = fmt.Sprintf("%d_%s", target.KeyGroup, target.Digest)
		example.Partition = t.rules.Partitioner.Partition(t.rules.To, encoded, &target, at.Partition, t.rules.TargetPartitions)
	}
	t.examples = append(t.examples, example)
}

// keyGroup compares the key group that the source has with that of the target.
func (t *tally04) keyGroup(d *rewrite.Decision) {
	if t.key.KeyGroup == keycodec.NoKeyGroup || d.Key == nil || d.Action == rewrite.Copy {
		return
	}
	t.grouped++
	digits := d.Key[:slices.Index(d.Key, '_')]
	if string(digits) != strconv.Itoa(int(t.key.KeyGroup)) {
		t.elsewhere++
	}
}

func (t *tally04) countAction(r *rewrite.Record) {
	use := t.actions[t.key.Action]
	if use == nil {
		if len(t.actions) == mostActions {
			return
		}
		use = &actionUse{events: map[string]int64{}}
		t.actions[t.key.Action] = use
	}
	use.records++
	if r.Timestamp != -1 {
		if !use.timed || r.Timestamp < use.first {
			use.first = r.Timestamp
		}
		if !use.timed || r.Timestamp > use.last {
			use.last = r.Timestamp
		}
		use.timed = true
	}
	event := t.value.EventType
	if event == nil {
		return
	}
	if _, known := use.events[string(event)]; known || len(use.events) < mostEventTypes {
		use.events[string(event)]++
	}
}

// merge adds the tally of another partition.
func (t *tally04) merge(o *tally04) {
	if t == nil || o == nil {
		return
	}
	t.shapes.merge(&o.shapes)
	for _, example := range o.examples {
		if len(t.examples) < keysShown && !slices.ContainsFunc(t.examples, func(e report.KeyExample) bool { return e.BusinessKey == example.BusinessKey }) {
			t.examples = append(t.examples, example)
		}
	}
	for id, use := range o.actions {
		have := t.actions[id]
		if have == nil {
			t.actions[id] = use
			continue
		}
		have.records += use.records
		if use.timed {
			if !have.timed || use.first < have.first {
				have.first = use.first
			}
			if !have.timed || use.last > have.last {
				have.last = use.last
			}
			have.timed = true
		}
		for event, n := range use.events {
			have.events[event] += n
		}
	}
	for layout, n := range o.layouts {
		t.layouts[layout] += n
	}
	for problem, count := range o.problems {
		if have := t.problems[problem]; have != nil {
			have.Records += count.Records
		} else {
			t.problems[problem] = count
		}
	}
	t.envelope += o.envelope
	t.refused += o.refused
	t.grouped += o.grouped
	t.elsewhere += o.elsewhere
}

// report is what a plan says of it; nil for another target format.
func (t *tally04) report(p *planRelease04) *report.Release04 {
	if t == nil {
		return nil
	}
	out := &report.Release04{KeyType: p.KeyType, MaxParallelism: p.MaxParallelism, OnIncompatible: string(p.OnIncompatible),
		KeyLooks: t.shapes.String(), Keys: t.examples}
	for id, use := range t.actions {
		line := report.ActionUse{UUID: id.String(), Records: use.records, First: -1, Last: -1, Events: counted(use.events)}
		if use.timed {
			line.First, line.Last = use.first, use.last
		}
		if name, known := p.Actions[line.UUID]; known {
			line.Name, line.NewUUID = name, keycodec.NameUUID([]byte(name)).String()
		}
		out.Actions = append(out.Actions, line)
	}
	slices.SortFunc(out.Actions, func(a, b report.ActionUse) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.UUID, b.UUID))
	})
	out.Layouts = counted(t.layouts)
	for _, problem := range statevalue.Problems() {
		if count := t.problems[problem]; count != nil {
			out.Problems = append(out.Problems, *count)
		}
	}
	return out
}

// counted lists counts by name, most first.
func counted[Name ~string](counts map[Name]int64) []report.NamedCount {
	var out []report.NamedCount
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, report.NamedCount{Name: string(name), Count: counts[name]})
	}
	slices.SortStableFunc(out, func(a, b report.NamedCount) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// addEarlier04 adds what the captures before an extension found.
func addEarlier04(r, earlier *report.Release04) {
	if r == nil || earlier == nil {
		return
	}
	r.KeyLooks, r.Keys = earlier.KeyLooks, earlier.Keys
	for _, use := range earlier.Actions {
		i := slices.IndexFunc(r.Actions, func(a report.ActionUse) bool { return a.UUID == use.UUID })
		if i < 0 {
			r.Actions = append(r.Actions, use)
			continue
		}
		have := &r.Actions[i]
		have.Records += use.Records
		if use.First != -1 && (have.First == -1 || use.First < have.First) {
			have.First = use.First
		}
		have.Last = max(have.Last, use.Last)
		have.Events = mergeNamed(have.Events, use.Events)
	}
	r.Layouts = mergeNamed(r.Layouts, earlier.Layouts)
	for _, count := range earlier.Problems {
		if i := slices.IndexFunc(r.Problems, func(p report.ProblemCount) bool { return p.Problem == count.Problem }); i >= 0 {
			count.Records += r.Problems[i].Records
			r.Problems[i] = count
		} else {
			r.Problems = append(r.Problems, count)
		}
	}
}

// writeActionsTemplate writes what is to be filled in for --actions.
func (pl *planner) writeActionsTemplate(r *report.Release04) error {
	if r == nil {
		return nil
	}
	err := pl.dir.write(actionsTemplateName, func(w io.Writer) error { return report.WriteActionsTemplate(w, r.Actions) })
	r.Actions = r.Actions[:min(len(r.Actions), actionUsesShown)]
	return err
}

// unnamedActions says how many of the keys that cannot be parsed only lack the
// name of their action, or nothing.
func unnamedActions(r *report.Report) string {
	i := slices.IndexFunc(r.Unparseable, func(c report.ReasonCount) bool { return c.Reason == string(keycodec.UnknownAction) })
	if i < 0 {
		return ""
	}
	unnamed := 0
	for _, use := range r.Release04.Actions {
		if use.Name == "" {
			unnamed++
		}
	}
	return fmt.Sprintf("; keys that only lack a name for their action: %d (actions without a name: %d). Fill in %s, leave out what nobody knows, and give it with --actions",
		r.Unparseable[i].Keys, unnamed, actionsTemplateName)
}

// refusals04 are the reasons of release 0.4 why apply must not run.
func (pl *planner) refusals04(t *tally04) {
	if t == nil || t.refused == 0 {
		return
	}
	var first report.ProblemCount
	for _, problem := range statevalue.Problems() {
		if count := t.problems[problem]; count != nil && (first.Records == 0 || before(count.First.Partition, count.First.Offset, first.First.Partition, first.First.Offset)) {
			first = *count
		}
	}
	pl.refuse("incompatible-values", 6, "%d records have a value that release 0.4 cannot read or not whole, the first at %s (%s), and the policy is to fail", t.refused, first.First, first.Problem)
}

// The findings that speak against a key type.
const (
	findingKeyType   = "key-type-evidence"
	findingKeyGroups = "key-groups-differ"
)

// keyTypeFindings repeat what a plan found out about its key type. A wrong one
// passes every other rehearsal: the states are there, under keys for which no job
// will ask.
func (r *rehearser) keyTypeFindings() []report.Finding {
	if r.plan.Release04 == nil {
		return nil
	}
	planned, _, err := r.dir.readReport(r.plan)
	if err != nil || planned.Release04 == nil {
		r.env.Logf("what the plan found out about its key type is not repeated: %v", err)
		return nil
	}
	var out []report.Finding
	for _, found := range planned.Findings {
		if found.Code == findingKeyType || found.Code == findingKeyGroups {
			out = append(out, found)
		}
	}
	var examples []string
	for _, k := range planned.Release04.Keys {
		if k.Becomes != "" {
			examples = append(examples, fmt.Sprintf("%s becomes %s on partition %d", report.Shorten(k.BusinessKey, 60), k.Becomes, k.Partition))
		}
	}
	return append(out, report.Finding{Severity: report.Note, Code: "key-type", Title: fmt.Sprintf("The keys were written as type %s, max parallelism %d", r.plan.Release04.KeyType, r.plan.Release04.MaxParallelism),
		Text: strings.Join(examples, "; "), Do: "compare them with what the job of release 0.4 logs or writes for these keys; a rehearsal cannot tell whether the type is right"})
}

// findings04 are what a person should look at before release 0.4 reads the copy.
func (pl *planner) findings04(t *tally04) {
	if t == nil {
		return
	}
	find := func(severity report.Severity, code, title, text, do string) {
		pl.findings = append(pl.findings, report.Finding{Severity: severity, Code: code, Title: title, Text: text, Do: do})
	}
	keyType := keycodec.KeyType(pl.plan.Release04.KeyType)
	if t.shapes.doubts(keyType) {
		find(report.Warning, findingKeyType, fmt.Sprintf("Every business key could be of another type than %s: %s", keyType, t.shapes.fits()),
			"Look at them: "+t.shapes.String()+". A job whose keys are of another type than the plan says finds none of its states, and no error tells.",
			"make sure of the type of the job's keyBy before apply")
	}
	if t.elsewhere > 0 {
		find(report.Warning, findingKeyGroups, fmt.Sprintf("Records whose key group in the old topic is another one than %s keys have at max parallelism %d: %d of %d", keyType, pl.plan.Release04.MaxParallelism, t.elsewhere, t.grouped),
			"The old keys hold the key group that the job itself computed. With the right key type and max parallelism all are equal.",
			"check --key-type and --max-parallelism")
	}
	var lost int64
	for _, count := range t.problems {
		lost += count.Records
	}
	if lost > 0 && pl.rules.OnIncompatible == rewrite.PolicyCopy {
		find(report.Warning, "incompatible-copied", fmt.Sprintf("Records that are copied with a value that release 0.4 cannot read or not whole: %d", lost),
			"Recovery of release 0.4 fails at the first value that it cannot read.", "prefer --on-incompatible-value quarantine")
	}
	if t.envelope > 0 {
		find(report.Note, "kryo-values", fmt.Sprintf("Records with memory values that only the same major version of Flink reads: %d", t.envelope),
			"Release 0.3.1 wrote them with the serializer of its Flink version.", "keep the major version of Flink when going to release 0.4")
	}
}
