package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// paddingRate is how many padding records a second apply writes at least, by what was
// measured on two cores (docs/performance.md); it only serves the estimate.
const paddingRate = 2_500_000

// actionsInReport bounds the action UUIDs that a report lists.
const actionsInReport = 20

// newReport puts the outcome of a scan into the words of a report. An
// extension adds to the counts of the captures before it.
func (pl *planner) newReport(t *tally) *report.Report {
	p := pl.plan
	r := &report.Report{
		Schema: report.SchemaVersion, Tool: pl.env.Version, CreatedAt: p.CreatedAt, RunDir: pl.dir.folder,
		Source: sourceReport(p), Target: targetReport(p),
		Options: report.Options{From: p.From, To: p.To, Partitioner: p.Partitioner, OnUnparseable: string(p.OnUnparseable),
			OnCollision: p.OnCollision, History: string(p.History), Align: p.Align, Compression: p.Compression, Isolation: p.Isolation},
		Counts: t.counts, Times: t.times,
	}
	r.Timeline = t.timeline.Buckets()
	if t.timed == 0 {
		r.Times.Oldest, r.Times.Newest = -1, -1
	}
	traits := slices.Sorted(maps.Keys(t.traits))
	for _, trait := range traits {
		count := *t.traits[trait]
		count.Trait = trait.Names()[0]
		count.Meaning = traitMeanings[trait]
		r.Traits = append(r.Traits, count)
	}
	for codec, n := range t.batches {
		if n > 0 {
			r.Codecs = append(r.Codecs, report.NamedCount{Name: codecName(codec), Count: n})
		}
	}
	r.ActionCount = int64(len(t.actions))
	for action, n := range t.actions {
		r.Actions = append(r.Actions, report.NamedCount{Name: action.String(), Count: n})
	}
	slices.SortFunc(r.Actions, func(a, b report.NamedCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	r.Actions = r.Actions[:min(len(r.Actions), actionsInReport)]
	r.Release04 = t.release04.report(p.Release04)
	r.Spread = p.spread()
	r.Padding = p.padding()
	r.Breaks = breaks(p, t)
	return r
}

var traitMeanings = map[keycodec.Traits]string{
	keycodec.UnstableIdentity: "the business key is the identity of a Java object, which another run of the job would not print again",
	keycodec.TypeAmbiguous:    "a number: String, Long and Integer keys look alike, so --key-type must be given for release 0.4",
	keycodec.EventNotV3:       "the event UUID is not name-based: the event had no stable content to name it by",
	keycodec.ActionNotV3:      "the action UUID is not name-based",
}

func sourceReport(p *plan) report.Topic {
	topic := report.Topic{Name: p.Source.Topic, ID: p.Source.TopicID, ClusterID: p.Source.ClusterID, Count: p.Source.Partitions}
	for partition, end := range p.ends() {
		topic.Partitions = append(topic.Partitions, report.Partition{ID: int32(partition), Start: p.starts()[partition], End: end})
	}
	return topic
}

func targetReport(p *plan) report.Topic {
	return report.Topic{Name: p.Target.Topic, ID: p.Target.TopicID, ClusterID: p.Target.ClusterID, Count: p.Target.Partitions, Configs: p.Target.Configs}
}

// spread is the number of records on each partition number, before and after.
func (p *plan) spread() []report.Load {
	loads := make([]report.Load, max(p.Source.Partitions, p.Target.Partitions))
	for i := range loads {
		loads[i].Partition = int32(i)
	}
	for _, c := range p.Captures {
		for partition, n := range c.RecordsBy {
			loads[partition].Before += n
		}
		for _, f := range c.Flows {
			loads[f.Target].After += f.Records
		}
	}
	return loads
}

// padding is what alignment will cost at most: the log positions that a target
// partition must reach before a capture's first record, less those that the
// captures before it fill anyway.
func (p *plan) padding() report.Padding {
	var padding report.Padding
	next := make([]int64, p.Target.Partitions)
	padded := make([]bool, p.Target.Partitions)
	for _, c := range p.Captures {
		for partition, goal := range c.AlignTo {
			if missing := goal - next[partition]; missing > 0 {
				padding.Records += missing
				padded[partition] = true
				next[partition] = goal
			}
		}
		for _, f := range c.Flows {
			next[f.Target] += f.Records
		}
	}
	for _, is := range padded {
		if is {
			padding.Partitions++
		}
	}
	padding.EstimateMS = padding.Records * 1000 / paddingRate
	return padding
}

// breaks says what the released runtimes do wrong on the source.
func breaks(p *plan, t *tally) []report.Break {
	readable := p.To == "escaped"
	var out []report.Break
	add := func(code string, records int64, cured bool, title, text string) {
		if records > 0 {
			out = append(out, report.Break{Code: code, Releases: "0.1-0.3", Title: title, Records: records, Cured: cured, Text: text})
		}
	}
	add(report.BreakSeparator, t.separator, true, "Business keys that hold the separator",
		"The runtime splits the state key at every _ and wants exactly four parts, so it never prunes these entries and a single one makes lookups throw.")
	add("prune", t.prunable, true, "Prunes that hit another key",
		"The business key ends in _ and a number, so forgetting it up to that number can remove states of the key without that ending.")
	add("spread", t.counts.Moved, true, "Partitions that fill unevenly",
		"The runtime places a record by the text before the first _ only, so all keys that begin alike share one partition.")
	add("unparseable", t.counts.Unparseable, t.counts.Copied == 0 && t.counts.Undecided == 0, "Keys that cannot be parsed",
		"Lookups throw as long as one such key is in the topic, and release 0.4 refuses the topic.")
	if !readable && t.counts.Rewritten > 0 {
		out = append(out, report.Break{Code: "format", Releases: "0.1-0.3", Title: "The new format", Records: t.counts.Rewritten, Cured: false,
			Text: fmt.Sprintf("The released runtimes do not read %s keys: use this target with a runtime that does.", p.To)})
	}
	return out
}

// judge adds the findings, decides whether apply may run, and says what to do
// next.
func (pl *planner) judge(t *tally, r *report.Report) {
	p := pl.plan
	p.Refusals = []refusal{}
	pl.splitFindings(&pl.strays)
	pl.refusals(t, r)
	pl.refusals04(t.release04)
	pl.warnings(t)
	pl.findings04(t.release04)
	pl.pruneFindings(r.Pruned)
	pl.hintFindings(t, r)
	pl.collisionFindings(r)
	for _, found := range p.Refusals {
		r.Findings = append(r.Findings, report.Finding{Severity: report.Refusal, Code: found.Code, Title: found.Text, Do: refusalAdvice[found.Code]})
	}
	r.Findings = append(r.Findings, pl.findings...)
	if pl.earlier != nil {
		for _, found := range pl.earlier.Findings {
			known := slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == found.Code })
			if !known && found.Code != "live-source" {
				r.Findings = append(r.Findings, found)
			}
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b report.Finding) int {
		return cmp.Compare(severityOrder[a.Severity], severityOrder[b.Severity])
	})
	r.Rollback = rollback(p)
	again := "rekey plan with other flags and a new --run-dir"
	switch {
	case len(p.Refusals) > 0:
		r.Verdict = report.Verdict{Code: report.Refused, Summary: p.Refusals[0].Text}
		if len(pl.suggested) > 0 {
			r.Next = append(r.Next, fmt.Sprintf("rekey repair --run-dir %s --accept %s", shellQuote(pl.dir.folder), strings.Join(slices.Sorted(maps.Keys(pl.suggested)), ",")))
		}
		r.Next = append(r.Next, again)
	case slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Severity == report.Warning }):
		r.Verdict = report.Verdict{Code: report.Review, Summary: "apply may run; read the warnings first"}
	default:
		r.Verdict = report.Verdict{Code: report.Ready, Summary: "apply may run"}
	}
	if len(p.Refusals) == 0 {
		r.Next = []string{pl.sides.command("apply", pl.dir.folder), pl.sides.command("verify", pl.dir.folder)}
	}
}

var severityOrder = map[report.Severity]int{report.Refusal: 0, report.Warning: 1, report.Note: 2}

var refusalAdvice = map[string]string{
	"unparseable-keys":    "read unparseable.jsonl; then decide with rekey repair, or plan again with --on-unparseable quarantine (set them aside in full) or copy (carry them over as they are)",
	"incompatible-values": "read incompatible-values.jsonl; then plan again with --on-incompatible-value quarantine (set them aside in full) or copy (carry them over as they are)",
	"already-migrated":    "this topic is the target of a migration; name the original topic with --source",
	"padding":             "raise --max-padding; or pad only as far as the savepoint's own markers with --align FILE; or give up old markers with --align none",
	"collision":           "see the collisions in report.txt; keep one key of each with --on-collision latest, or drop one with a repair if it cannot be parsed",
	"split-keys":          "use --pruned omit, which deletes nothing, or leave --prune-before out",
	"timestamps":          "copy these records to a topic with sane timestamps first, or leave them out",
}

func (pl *planner) refuse(code string, exit int, format string, args ...any) {
	pl.plan.Refusals = append(pl.plan.Refusals, refusal{Code: code, Exit: exit, Text: fmt.Sprintf(format, args...)})
}

// refusals are the reasons why apply must not run.
func (pl *planner) refusals(t *tally, r *report.Report) {
	if t.migrated > 0 {
		pl.refuse("already-migrated", 6, "%d records carry the %s header, the first at partition %d, offset %d: the topic was already migrated",
			t.migrated, rewrite.ProvenanceHeader, t.migratedAt.Partition, t.migratedAt.Offset)
	}
	if undecided := pl.undecided; undecided.keys > 0 {
		pl.refuse("unparseable-keys", 3, "%d keys (%d records) cannot be parsed, and the policy is to fail%s", undecided.keys, undecided.records, unnamedActions(r))
	}
	if n := r.Collided; n > 0 && pl.plan.OnCollision != OnCollisionLatest {
		first := r.Collisions[0].Keys
		pl.refuse("collision", 6, "target keys that would stand for several source keys: %d, the first for %s (first at %s) and %s (first at %s)", n,
			report.Shorten(first[0].Key, 100), first[0].First, report.Shorten(first[1].Key, 100), first[1].First)
	}
	if limit := pl.options.MaxPadding; limit > 0 && r.Padding.Records > limit {
		pl.refuse("padding", 6, "alignment takes %d padding records, --max-padding allows %d", r.Padding.Records, limit)
	}
	if t.late > 0 {
		pl.refuse("timestamps", 6, "%d records have a timestamp that cannot be written, the first at partition %d, offset %d: %d ms (microseconds or nanoseconds?); the range is -1 and 0 to %d",
			t.late, t.lateAt.Partition, t.lateAt.Offset, t.lateMS, newestWritable)
	}
}

// warnings are what a person should look at before apply.
func (pl *planner) warnings(t *tally) {
	find := func(severity report.Severity, code string, n int64, title, text, do string) {
		if n > 0 {
			pl.findings = append(pl.findings, report.Finding{Severity: severity, Code: code, Title: fmt.Sprintf(title, n), Text: text, Do: do})
		}
	}
	find(report.Warning, "misplaced", t.counts.Misplaced, "Records that are not where the job's partitioner would have put them: %d",
		"Another program wrote to the topic, its partition count was changed, or the job used another partitioner. If one key lies in two partitions, its order is not defined.",
		"check --partitioner and who else writes to the topic")
	find(report.Warning, "runtime-refuses", t.refusedKeys, "Records whose new key the released runtime's partitioner refuses: %d",
		"Their business key is empty. They are copied, but the running job cannot write this key.", "")
	find(report.Warning, "sequence-restart", t.fallen, "Business keys that start over with lower sequence numbers: %d",
		fmt.Sprintf("A fresh job used the topic again (%d of them start at 0), so a restored job could take a state of the old run for its own. %s.", t.restarted, strings.Join(t.falls, "; ")),
		"rehearse with the savepoint's markers. If it finds confusable states, copy only what that savepoint can still need: --align MARKER --prune-before MARKER --pruned omit")
	find(report.Warning, "aborted", t.counts.Aborted, "Records of aborted transactions: %d",
		"The job reads uncommitted data and has seen them. With --isolation-level read_uncommitted they are copied, with read_committed left out.",
		"decide with --isolation-level")
	find(report.Note, "dropped", t.counts.Dropped, "Records dropped because a repair says so: %d", "The repairs of the report list their keys.", "")
	find(report.Warning, "copied", t.counts.Copied, "Records that keep a key that cannot be parsed: %d",
		"Release 0.1-0.3 throws on lookups as long as they are there; release 0.4 refuses the topic.", "prefer --on-unparseable quarantine")
	place := quarantineFileName
	if pl.plan.Quarantine != nil {
		place = "the topic " + pl.plan.Quarantine.Topic
	}
	find(report.Note, "quarantined", t.counts.Quarantined, "Records set aside in "+strings.ReplaceAll(place, "%", "%%")+" and not copied: %d", "", "")
	if retention := pl.plan.Source.DeleteRetentionMS; retention >= 0 && milliseconds(retention) < longAway {
		deadline := pl.plan.Captures[0].At.Add(milliseconds(retention))
		pl.findings = append(pl.findings, report.Finding{Severity: report.Note, Code: "tombstone-deadline",
			Title: "Extend this plan before " + deadline.Format(time.RFC3339),
			Text: fmt.Sprintf("%s keeps tombstones for %s after the log cleaner first saw them (delete.retention.ms). A copy that goes on for longer than that after its first read may miss a deletion, so it is refused.",
				pl.plan.Source.Topic, milliseconds(retention))})
	}
}

// command is a command line of another phase of the same run.
func (s *sides) command(phase, dir string) string {
	line := "rekey " + phase + " --bootstrap-server " + s.source.addresses()
	if file := s.source.connection.Properties; file != "" {
		line += " --command-config " + shellQuote(file)
	}
	if s.target != s.source {
		line += " --target-bootstrap-server " + s.target.addresses()
		if file := s.target.connection.Properties; file != "" {
			line += " --target-command-config " + shellQuote(file)
		}
	}
	return line + " --run-dir " + shellQuote(dir) + s.env.memoryFlag()
}

// shellQuote quotes a word where a shell would take it apart.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	for _, r := range word {
		if !plain(r) {
			return "'" + string(bytes.ReplaceAll([]byte(word), []byte("'"), []byte(`'\''`))) + "'"
		}
	}
	if word == "" {
		return "''"
	}
	return word
}

func rollback(p *plan) string {
	undo := fmt.Sprintf("keep using %s: nothing was or will be written to it. Delete %s if it exists.", p.Source.Topic, p.Target.Topic)
	if p.Quarantine != nil {
		undo += fmt.Sprintf(" Delete %s, too.", p.Quarantine.Topic)
	}
	return undo
}
