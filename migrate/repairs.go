package migrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/google/uuid"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// repairSet are decisions on keys that cannot be parsed, each checked against
// the formats of a plan.
type repairSet struct {
	rules rewrite.Rules
	lines []repairLine
	byKey map[string]int // place in lines, by mapKey
}

type repairLine struct {
	report.Repair
	key    []byte // nil is the null key
	number int    // in the file
	repair *rewrite.Repair
}

// mapKey is a key for maps and for sorting, in which null and empty differ.
func mapKey(key []byte) string {
	if key == nil {
		return ""
	}
	return "=" + string(key)
}

func newRepairSet(rules rewrite.Rules) *repairSet {
	return &repairSet{rules: rules, byKey: map[string]int{}}
}

// readRepairsFile reads the file of --repairs or --edit. What is wrong is
// ErrUsage and names file and line.
func readRepairsFile(path string, rules rewrite.Rules) (*repairSet, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, &Failure{Kind: ErrUsage, What: "cannot read the repairs", Cause: err, Do: "name a file as rekey repair writes it, with one JSON line for each key"}
	}
	set, err := readRepairs(file, path, rules)
	return set, errors.Join(err, file.Close())
}

func readRepairs(in io.Reader, path string, rules rewrite.Rules) (*repairSet, error) {
	set := newRepairSet(rules)
	if err := report.ReadRepairs(in, set.add); err != nil {
		return nil, &Failure{Kind: ErrUsage, What: path, Cause: err, Do: "correct that line; docs/report-schema.md says what a line of a repairs file holds"}
	}
	return set, nil
}

// add takes a line into the set, or says what is wrong with it.
func (s *repairSet) add(number int, r report.Repair) error {
	line, err := s.check(r)
	if err != nil {
		return err
	}
	line.number = number
	if have, again := s.byKey[mapKey(line.key)]; again {
		other := s.lines[have]
		if other.Decision != r.Decision {
			return fmt.Errorf("key %s: line %d says %s, this one %s", report.Shorten(r.Key, 60), other.number, other.Decision, r.Decision)
		}
		return fmt.Errorf("key %s: line %d decides on it already", report.Shorten(r.Key, 60), other.number)
	}
	s.byKey[mapKey(line.key)] = len(s.lines)
	s.lines = append(s.lines, line)
	return nil
}

// check says what a line means.
func (s *repairSet) check(r report.Repair) (repairLine, error) {
	key, err := r.Bytes()
	if err != nil {
		return repairLine{}, err
	}
	line := repairLine{Repair: r, key: key, repair: &rewrite.Repair{Action: rewrite.RepairAction(r.Decision)}}
	if _, err := s.rules.Translate(nil, new(keycodec.Key), key); err == nil {
		return line, fmt.Errorf("key %s: it can be parsed as %s, so there is nothing to repair", report.Shorten(r.Key, 60), s.rules.From.Name())
	}
	given := r.BusinessKey != nil || r.Sequence != nil || r.EventUUID != "" || r.ActionUUID != ""
	switch line.repair.Action {
	case rewrite.RepairRewrite:
		if key == nil {
			return line, errors.New("the null key names no state: it can only be dropped")
		}
		line.repair.Key, err = s.target(r)
		return line, err
	case rewrite.RepairCopy:
		if key == nil {
			return line, errors.New("the null key cannot be copied: a compacted topic refuses it")
		}
	case rewrite.RepairDrop:
	default:
		return line, fmt.Errorf("decision %s is unknown; known: rewrite, drop, copy", report.Printable([]byte(r.Decision)))
	}
	if given {
		return line, fmt.Errorf("a key that says %s has no fields of a state key", r.Decision)
	}
	return line, nil
}

// target is the key that a line rewrites to. It must be one that the target's
// format writes in exactly this form.
func (s *repairSet) target(r report.Repair) (keycodec.Key, error) {
	key := keycodec.Key{KeyGroup: keycodec.NoKeyGroup}
	switch {
	case r.BusinessKey == nil:
		return key, errors.New("business_key is missing")
	case r.Sequence == nil:
		return key, errors.New("sequence is missing")
	}
	key.BusinessKey, key.Sequence = []byte(*r.BusinessKey), *r.Sequence
	for _, id := range []struct {
		name, text string
		into       *uuid.UUID
	}{{"event_uuid", r.EventUUID, &key.Event}, {"action_uuid", r.ActionUUID, &key.Action}} {
		parsed, err := uuid.Parse(id.text)
		if err != nil || parsed.String() != id.text {
			return key, fmt.Errorf("%s is %s, want 36 characters of lower-case hex and dashes", id.name, report.Printable([]byte(id.text)))
		}
		*id.into = parsed
	}
	if err := nameAction(&s.rules, &key); err != nil {
		return key, err
	}
	encoded, err := s.rules.To.Append(nil, &key)
	if err != nil {
		return key, fmt.Errorf("as %s: %w", s.rules.To.Name(), err)
	}
	padding, err := rewrite.PaddingKey(s.rules.To)
	if err != nil {
		return key, err
	}
	if bytes.Equal(encoded, padding) {
		return key, errors.New("the target key is the one that is reserved for padding")
	}
	return key, nil
}

// nameAction gives a repaired key the action UUID that the target knows. A line
// may have the old one, as the source key has it, or already the new one.
func nameAction(rules *rewrite.Rules, key *keycodec.Key) error {
	if rules.Actions == nil {
		return nil
	}
	if named, known := rules.Actions[key.Action]; known {
		key.Action = named
		return nil
	}
	for _, named := range rules.Actions {
		if key.Action == named {
			return nil
		}
	}
	return fmt.Errorf("action_uuid %s is none that --actions or --agent-plan names", key.Action)
}

// into puts the decisions into rules.
func (s *repairSet) into(rules *rewrite.Rules) {
	if len(s.lines) == 0 {
		return
	}
	rules.Repairs = make(map[string]*rewrite.Repair, len(s.lines))
	for _, line := range s.lines {
		rules.Replays = max(rules.Replays, line.repair.Round)
		if line.key == nil {
			rules.NullKey = line.repair
			continue
		}
		rules.Repairs[string(line.key)] = line.repair
	}
}

// sorted are the lines as a plan holds them.
func (s *repairSet) sorted() []report.Repair {
	lines := slices.Clone(s.lines)
	slices.SortFunc(lines, func(a, b repairLine) int { return cmp.Compare(mapKey(a.key), mapKey(b.key)) })
	var out []report.Repair
	for _, line := range lines {
		out = append(out, line.Repair)
	}
	return out
}

// repairSet are the decisions that a plan holds, those of its replays included.
func (p *plan) repairSet(rules rewrite.Rules) (*repairSet, error) {
	set := newRepairSet(rules)
	for i, r := range p.Repairs {
		if err := set.add(i+1, r); err != nil {
			return nil, fmt.Errorf("repair %d: %w", i+1, err)
		}
	}
	for round, replay := range p.Replays {
		for i, r := range replay.Repairs {
			if err := set.add(i+1, r); err != nil {
				return nil, fmt.Errorf("repair %d of replay %d: %w", i+1, round+1, err)
			}
			set.lines[len(set.lines)-1].repair.Round = int32(round + 1)
		}
	}
	return set, nil
}

// chooseRepairs puts the repairs of the options into the plan.
func (pl *planner) chooseRepairs() error {
	if pl.options.Repairs == "" {
		return nil
	}
	rules, err := pl.plan.formats()
	if err != nil {
		return err
	}
	if pl.repairs, err = readRepairsFile(pl.options.Repairs, rules); err != nil {
		return err
	}
	pl.plan.Repairs = pl.repairs.sorted()
	return nil
}

// checkRepairsUsed refuses decisions on keys that the scan did not meet: they
// were made for another topic, or on a key that was copied wrongly.
func (pl *planner) checkRepairsUsed(bad *badKeys) error {
	if pl.repairs == nil || pl.options.AllowUnusedRepairs {
		return nil
	}
	for _, line := range pl.repairs.lines {
		if bad.table.get(bad.prints.of(line.key)) == nil {
			return usage(fmt.Sprintf("%s: line %d: key %s is not in %s", pl.options.Repairs, line.number, report.Shorten(line.Key, 60), pl.plan.Source.Topic),
				"take the line out, or accept such lines with --allow-unused-repairs")
		}
	}
	return nil
}

// repairsReport says what the repairs do to the keys that were met.
func (pl *planner) repairsReport(r *report.Report, entries []report.BadKey) error {
	decided := len(pl.plan.Repairs)
	for _, replay := range pl.plan.Replays {
		decided += len(replay.Repairs)
	}
	if decided == 0 {
		return nil
	}
	out := &report.Repairs{Totals: []report.RepairTotal{}, Unused: int64(decided - len(entries))}
	byDecision := map[string]*report.RepairTotal{}
	for _, decision := range []rewrite.RepairAction{rewrite.RepairRewrite, rewrite.RepairDrop, rewrite.RepairCopy} {
		byDecision[string(decision)] = &report.RepairTotal{Decision: string(decision)}
	}
	for _, entry := range entries {
		total := byDecision[entry.Decision]
		total.Keys++
		total.Records += entry.Records
		if len(out.Keys) == examplesInReport {
			continue
		}
		after, err := pl.repaired(entry)
		if err != nil {
			return err
		}
		out.Keys = append(out.Keys, report.RepairedKey{Decision: entry.Decision, Before: entry.Key, After: after, Records: entry.Records, First: entry.First, Last: entry.Last})
	}
	for _, decision := range []rewrite.RepairAction{rewrite.RepairRewrite, rewrite.RepairDrop, rewrite.RepairCopy} {
		if total := byDecision[string(decision)]; total.Keys > 0 {
			out.Totals = append(out.Totals, *total)
		}
	}
	r.Repairs = out
	return nil
}

// repaired is the printable target key of a repaired key, "" for a dropped one.
func (pl *planner) repaired(entry report.BadKey) (string, error) {
	key, err := entry.Bytes()
	if err != nil {
		return "", err
	}
	switch repair := pl.rules.Repair(key); repair.Action {
	case rewrite.RepairRewrite:
		encoded, err := pl.rules.To.Append(nil, &repair.Key)
		return report.Printable(encoded), err
	case rewrite.RepairCopy:
		return entry.Key, nil
	}
	return "", nil
}

// readRepairs reads repairs.jsonl.
func (d runDir) readRepairs(rules rewrite.Rules) (set *repairSet, err error) {
	err = d.readFrom(repairsFileName, func(in io.Reader) error {
		set, err = readRepairs(in, d.path(repairsFileName), rules)
		return err
	})
	return set, err
}

// writeRepairs writes a repairs file.
func (d runDir) writeRepairs(lines []report.Repair) error {
	return d.write(repairsFileName, func(w io.Writer) error {
		for _, line := range lines {
			if err := report.WriteRepair(w, line); err != nil {
				return err
			}
		}
		return nil
	})
}
