package migrate

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"rekey/report"
	"rekey/rewrite"
)

// pruneList says up to which sequence number each business key is forgotten, as
// the job itself prunes: the exact business key, this number and all below.
// Two lines for one key mean the higher number, which includes the lower.
type pruneList map[string]int64

func (l pruneList) add(businessKey string, sequence int64) error {
	switch {
	case !utf8.ValidString(businessKey):
		return errors.New("the business key is not UTF-8")
	case sequence < 0:
		return fmt.Errorf("the sequence number %d is negative", sequence)
	}
	if known, ok := l[businessKey]; !ok || sequence > known {
		l[businessKey] = sequence
	}
	return nil
}

// readPruneList reads the file of --prune: JSON lines, or CSV with a header.
func readPruneList(path string) (pruneList, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, &Failure{Kind: ErrUsage, What: "cannot read the prune list", Cause: err,
			Do: `name a file with lines such as {"business_key": "user_1", "sequence": 7}, or CSV with the header business_key,sequence`}
	}
	list, err := parsePruneList(content)
	if err != nil {
		return nil, &Failure{Kind: ErrUsage, What: path + " is no prune list", Cause: err,
			Do: `each line is {"business_key": "user_1", "sequence": 7}; or the file is CSV with the header business_key,sequence`}
	}
	return list, nil
}

func parsePruneList(content []byte) (pruneList, error) {
	list := pruneList{}
	if start := bytes.TrimSpace(content); len(start) == 0 {
		return nil, errors.New("it is empty: leave the flag out to prune nothing")
	} else if start[0] == '{' {
		return list, report.ReadPrunes(bytes.NewReader(content), list.add)
	}
	return list, list.readCSV(content)
}

const pruneHeader = "business_key,sequence"

func (l pruneList) readCSV(content []byte) error {
	reader := csv.NewReader(bytes.NewReader(content))
	reader.FieldsPerRecord = 2
	header, err := reader.Read()
	if err != nil || strings.Join(header, ",") != pruneHeader {
		return fmt.Errorf("line 1: it begins neither with { nor with the header %s", pruneHeader)
	}
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err // names line and column
		}
		line, _ := reader.FieldPos(0)
		sequence, err := decimal(fields[1], 1<<63-1)
		if err != nil {
			return fmt.Errorf("line %d: sequence %s: %w", line, report.Printable([]byte(fields[1])), err)
		}
		// The reader turns a carriage return before a line feed into nothing.
		if strings.Contains(fields[0], "\n") && bytes.Contains(content, []byte("\r\n")) {
			return fmt.Errorf("line %d: a business key with a line break cannot be told from a CSV line break in this file: use JSON lines", line)
		}
		if err := l.add(fields[0], sequence); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// writePruneList writes a list in its normal form: one JSON line for each
// business key, in order.
func (d runDir) writePruneList(name string, list pruneList) error {
	return d.write(name, func(w io.Writer) error {
		for _, key := range slices.Sorted(maps.Keys(list)) {
			if err := report.WritePrune(w, key, list[key]); err != nil {
				return err
			}
		}
		return nil
	})
}

// prunes is the list that a plan was made with, or nil.
func (p *plan) prunes(dir runDir) (pruneList, error) {
	sealed := func(f sealedFile) bool { return f.Name == pruneFileName }
	if !slices.ContainsFunc(p.Files, sealed) {
		return nil, nil
	}
	content, err := dir.read(pruneFileName)
	if err != nil {
		return nil, err
	}
	list, err := parsePruneList(content)
	if err != nil {
		return nil, &Failure{Kind: ErrChanged, What: "cannot read the prune list of the plan", Cause: err,
			Do: "restore it from a copy of the run directory, or plan again with a new --run-dir"}
	}
	return list, nil
}

// pruneBefore are the offsets of --prune-before by source partition. Of several
// markers the lowest offset counts, since a restore may need what lies behind
// it. A partition that no marker names is not pruned.
func (o PlanOptions) pruneBefore(p *plan) (offsets []int64, unnamed []int32, err error) {
	set, err := readMarkers(o.PruneBefore)
	if err != nil {
		return nil, nil, err
	}
	if err := set.checkSource(p); err != nil {
		return nil, nil, err
	}
	offsets = make([]int64, p.Source.Partitions)
	lowest := set.merged()
	for partition := range offsets {
		offset, named := lowest[int32(partition)]
		if !named {
			unnamed = append(unnamed, int32(partition))
		}
		offsets[partition] = offset
	}
	return offsets, unnamed, nil
}

// choosePrunes puts the prune rules of the options into the plan.
func (pl *planner) choosePrunes() error {
	p, o := pl.plan, pl.options
	if o.Prune != "" {
		list, err := readPruneList(o.Prune)
		if err != nil {
			return err
		}
		if err := pl.dir.writePruneList(pruneFileName, list); err != nil {
			return err
		}
		if err := pl.sealFile(pruneFileName, int64(len(list))); err != nil {
			return err
		}
	}
	if o.PruneBefore == "" {
		return nil
	}
	var unnamed []int32
	var err error
	if p.PruneBefore, unnamed, err = o.pruneBefore(p); err != nil {
		return err
	}
	if len(unnamed) > 0 {
		pl.findings = append(pl.findings, report.Finding{Severity: report.Warning, Code: "prune-before-partitions",
			Title: fmt.Sprintf("Partitions that the marker of --prune-before does not name: %d", len(unnamed)),
			Text:  fmt.Sprintf("Nothing on them is pruned: %s.", joinNumbers(unnamed)),
			Do:    "give the markers of all subtasks of the checkpoint"})
	}
	return nil
}

// checkPruneBefore refuses a marker that points past the captured end: it is of
// another topic, and would prune everything.
func (pl *planner) checkPruneBefore() error {
	for partition, offset := range pl.plan.PruneBefore {
		if end := pl.plan.ends()[partition]; offset > end {
			return usage(fmt.Sprintf("%s has offset %d of partition %d, the log of %s ends at %d", pl.options.PruneBefore, offset, partition, pl.plan.Source.Topic, end),
				"the marker is of another topic or of a later state of this one; give the marker of the oldest checkpoint to keep")
		}
	}
	return nil
}

func joinNumbers(numbers []int32) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(int(n))
	}
	return strings.Join(words, ", ")
}

// pruneTally counts what the prune rules do to one source partition, then to all
// of them.
type pruneTally struct {
	byRule     [2]report.PruneRule
	matched    map[string]bool // business keys of the list that pruned an entry
	keys       []report.PrunedKey
	unsafe     []report.Position // by partition: the last record of an entry that had a state
	unsafeKeys int64
}

// prunedInReport bounds the entries and the lines that a report lists.
const prunedInReport = 100

func (t *pruneTally) add(r *rewrite.Record, d *rewrite.Decision) {
	rule := &t.byRule[0]
	rule.Rule = report.RulePrune
	if d.Reason == rewrite.PrunedBefore {
		rule = &t.byRule[1]
		rule.Rule = report.RulePruneBefore
	} else if !t.matched[string(d.Parsed.BusinessKey)] {
		if t.matched == nil {
			t.matched = map[string]bool{}
		}
		t.matched[string(d.Parsed.BusinessKey)] = true
	}
	if d.Action == rewrite.Omit {
		rule.Records++
		rule.Bytes += int64(r.Size())
	} else {
		rule.Bytes += int64(len(r.Value))
	}
	if !d.Last {
		return
	}
	rule.Entries++
	at := report.Position{Partition: r.Partition, Offset: r.Offset}
	if r.Value != nil {
		t.unsafeKeys++
		t.unsafe = append(t.unsafe[:0], at) // offsets rise
	}
	if len(t.keys) < prunedInReport {
		t.keys = append(t.keys, report.PrunedKey{Rule: rule.Rule, BusinessKey: report.Printable(d.Parsed.BusinessKey),
			Sequence: d.Parsed.Sequence, Last: at, State: r.Value != nil})
	}
}

// merge adds the tally of a later source partition.
func (t *pruneTally) merge(o *pruneTally) {
	for i := range t.byRule {
		addPruneRule(&t.byRule[i], o.byRule[i])
	}
	if t.matched == nil {
		t.matched = map[string]bool{}
	}
	maps.Copy(t.matched, o.matched)
	t.keys = append(t.keys, o.keys...)
	t.keys = t.keys[:min(len(t.keys), prunedInReport)]
	t.unsafe = append(t.unsafe, o.unsafe...)
	t.unsafeKeys += o.unsafeKeys
}

func addPruneRule(sum *report.PruneRule, more report.PruneRule) {
	sum.Rule = cmp.Or(sum.Rule, more.Rule)
	sum.Entries += more.Entries
	sum.Records += more.Records
	sum.Bytes += more.Bytes
}

// reportPruned says what the rules forgot, and writes which lines of the list
// matched nothing, so that an extension can go on from there.
func (pl *planner) reportPruned(t *pruneTally, r *report.Report) error {
	if pl.rules.Prunes == nil && pl.rules.PruneBefore == nil {
		return nil
	}
	r.Options.Pruned = string(pl.rules.Pruned)
	out := &report.Pruned{Lines: int64(len(pl.rules.Prunes)), Keys: t.keys, Unsafe: t.unsafe, UnsafeKeys: t.unsafeKeys}
	names := [2]string{report.RulePrune, report.RulePruneBefore}
	for i, given := range [2]bool{pl.rules.Prunes != nil, pl.rules.PruneBefore != nil} {
		if given {
			t.byRule[i].Rule = names[i]
			out.Rules = append(out.Rules, t.byRule[i])
		}
	}
	if pl.earlier != nil && pl.earlier.Pruned != nil {
		addEarlierPruned(out, pl.earlier.Pruned)
	}
	r.Pruned = out
	if pl.rules.Prunes == nil {
		return nil
	}
	unmatched := pruneList(maps.Clone(pl.rules.Prunes))
	if pl.earlier != nil {
		var err error
		if unmatched, err = pl.dir.readUnmatched(); err != nil {
			return err
		}
	}
	maps.DeleteFunc(unmatched, func(key string, _ int64) bool { return t.matched[key] })
	out.Unmatched = int64(len(unmatched))
	for _, key := range slices.Sorted(maps.Keys(unmatched)) {
		if len(out.Examples) == prunedInReport {
			break
		}
		sequence := unmatched[key]
		out.Examples = append(out.Examples, report.Prune{BusinessKey: &key, Sequence: &sequence})
	}
	if err := pl.dir.writePruneList(unmatchedFileName, unmatched); err != nil {
		return err
	}
	return pl.sealFile(unmatchedFileName, out.Unmatched)
}

// readUnmatched reads the lines of the list that matched nothing so far.
func (d runDir) readUnmatched() (pruneList, error) {
	content, err := d.read(unmatchedFileName)
	if err != nil {
		return nil, err
	}
	list := pruneList{}
	if err := report.ReadPrunes(bytes.NewReader(content), list.add); err != nil {
		return nil, fmt.Errorf("%s: %w", d.path(unmatchedFileName), err)
	}
	return list, nil
}

// addEarlierPruned adds what the captures before an extension pruned.
func addEarlierPruned(sum, earlier *report.Pruned) {
	for i := range sum.Rules {
		for _, rule := range earlier.Rules {
			if rule.Rule == sum.Rules[i].Rule {
				addPruneRule(&sum.Rules[i], rule)
			}
		}
	}
	sum.Keys = append(slices.Clone(earlier.Keys), sum.Keys...)
	sum.Keys = sum.Keys[:min(len(sum.Keys), prunedInReport)]
	sum.UnsafeKeys += earlier.UnsafeKeys
	for _, at := range earlier.Unsafe {
		if !slices.ContainsFunc(sum.Unsafe, func(p report.Position) bool { return p.Partition == at.Partition }) {
			sum.Unsafe = append(sum.Unsafe, at) // a later capture has higher offsets
		}
	}
	slices.SortFunc(sum.Unsafe, func(a, b report.Position) int { return cmp.Compare(a.Partition, b.Partition) })
}

// pruneFindings warn of what pruning gives up.
func (pl *planner) pruneFindings(p *report.Pruned) {
	if p == nil {
		return
	}
	var entries int64
	for _, rule := range p.Rules {
		entries += rule.Entries
	}
	if entries > 0 {
		finding := report.Finding{Severity: report.Warning, Code: "pruned", Title: fmt.Sprintf("Entries that the given rules forget: %d", entries),
			Text: "All of them were deleted on the source already, so no checkpoint loses a state."}
		if p.UnsafeKeys > 0 {
			finding.Text = p.UnsafeText() + affected(p)
			finding.Do = "restore no checkpoint older than that on the new topic; or plan without the prune rule"
		}
		pl.findings = append(pl.findings, finding)
	}
	if p.Unmatched > 0 {
		pl.findings = append(pl.findings, report.Finding{Severity: report.Note, Code: "prune-unmatched",
			Title: fmt.Sprintf("Lines of the prune list that match no key of the topic: %d of %d", p.Unmatched, p.Lines),
			Text:  "See prune-unmatched.jsonl. The business key is compared byte for byte; an entry with a higher sequence number is no match."})
	}
}

// affected names the first keys whose states older checkpoints lose.
func affected(p *report.Pruned) string {
	const most = 3
	var names []string
	for _, k := range p.Keys {
		if k.State && len(names) < most {
			names = append(names, fmt.Sprintf("%s sequence %d", report.Shorten(k.BusinessKey, 40), k.Sequence))
		}
	}
	if more := p.UnsafeKeys - int64(len(names)); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return " The states are of " + strings.Join(names, ", ") + "."
}
