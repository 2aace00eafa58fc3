package rewrite

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/uuid"

	"rekey/keycodec"
)

func repairTo(businessKey string, sequence int64) *Repair {
	return &Repair{Action: RepairRewrite, Key: keycodec.Key{BusinessKey: []byte(businessKey), Sequence: sequence,
		Event: uuid.MustParse(eventText), Action: uuid.MustParse(actionText), KeyGroup: keycodec.NoKeyGroup}}
}

// The lines of the decision table that rest on repairs, prune rules and
// collisions. The record lies in partition 1 at offset 11; its key's last record
// at 11 or 16.
func TestDecideTableOfRules(t *testing.T) {
	const repairedKey = "x%5Fy_3_" + eventText + "_" + actionText
	null, value := []byte(nil), []byte("v")
	rewrites := func(r *Rules) { r.Repairs = map[string]*Repair{badKey: repairTo("x_y", 3)} }
	drops := func(r *Rules) { r.Repairs = map[string]*Repair{badKey: {Action: RepairDrop}} }
	copies := func(r *Rules) { r.Repairs = map[string]*Repair{badKey: {Action: RepairCopy}} }
	prune := func(key string, n int64) func(*Rules) {
		return func(r *Rules) { r.Prunes = map[string]int64{key: n} }
	}
	before := func(offset int64) func(*Rules) {
		return func(r *Rules) { r.PruneBefore = []int64{1000, offset} }
	}
	omit := func(r *Rules) { r.Pruned = PrunedOmit }
	loses := func(key string) func(*Rules) { return func(r *Rules) { r.Losers = map[string]bool{key: true} } }
	with := func(changes ...func(*Rules)) func(*Rules) {
		return func(r *Rules) {
			for _, change := range changes {
				change(r)
			}
		}
	}
	rows := []struct {
		line    string
		key     string
		value   []byte
		policy  Policy // "": any
		history History
		last    string // "yes", "no", "": any
		rules   func(*Rules)
		want    Action
		reason  Reason
		wantKey string
	}{
		{line: "repair drop", key: badKey, value: value, rules: drops, want: Drop, reason: Repaired},
		{line: "repair drop, tombstone", key: badKey, value: null, rules: drops, want: Drop, reason: Repaired},
		{line: "repair drop wins over a collision", key: badKey, value: value, rules: with(drops, loses(badKey)), want: Drop, reason: Repaired},
		{line: "repair copy, lost a collision", key: badKey, value: value, rules: with(copies, loses(badKey)), want: Omit, reason: LostCollision},
		{line: "policy copy, lost a collision", key: badKey, value: value, policy: PolicyCopy, rules: loses(badKey), want: Omit, reason: LostCollision},
		{line: "repair copy", key: badKey, value: value, rules: copies, want: Copy, reason: Repaired, wantKey: badKey},
		{line: "repair copy, tombstone", key: badKey, value: null, rules: copies, want: Copy, reason: Repaired, wantKey: badKey},
		{line: "repair copy is not pruned", key: badKey, value: value, rules: with(copies, before(1000)), want: Copy, reason: Repaired, wantKey: badKey},
		{line: "policy fail", key: badKey, value: value, policy: PolicyFail, want: Refuse, reason: Unparseable},
		{line: "policy quarantine", key: badKey, value: value, policy: PolicyQuarantine, want: Quarantine, reason: Unparseable},
		{line: "policy copy", key: badKey, value: value, policy: PolicyCopy, want: Copy, reason: Unparseable, wantKey: badKey},
		{line: "a repair of another key", key: badKey + "0", value: value, policy: PolicyFail, rules: rewrites, want: Refuse, reason: Unparseable},

		{line: "lost a collision", key: goodKey, value: value, rules: loses(goodKey), want: Omit, reason: LostCollision},
		{line: "lost a collision, repaired", key: badKey, value: value, rules: with(rewrites, loses(badKey)), want: Omit, reason: LostCollision},
		{line: "lost a collision wins over prune", key: goodKey, value: value, rules: with(loses(goodKey), prune("user_1", 9)), want: Omit, reason: LostCollision},

		{line: "pruned, omit, last", key: goodKey, value: value, rules: with(prune("user_1", 7), omit), want: Omit, reason: Pruned},
		{line: "pruned before, omit", key: goodKey, value: value, rules: with(before(17), omit), want: Omit, reason: PrunedBefore},
		{line: "pruned, earlier", key: goodKey, value: value, last: "no", rules: prune("user_1", 7), want: Omit, reason: Pruned},
		{line: "pruned, last", key: goodKey, value: value, last: "yes", rules: prune("user_1", 7), want: Tombstone, reason: Pruned, wantKey: escapedKey},
		{line: "pruned, last, tombstone", key: goodKey, value: null, last: "yes", rules: prune("user_1", 7), want: Tombstone, reason: Pruned, wantKey: escapedKey},
		{line: "pruned up to a higher number", key: goodKey, value: value, last: "yes", rules: prune("user_1", 8), want: Tombstone, reason: Pruned, wantKey: escapedKey},
		{line: "pruned up to a lower number", key: goodKey, value: value, history: HistoryAll, rules: prune("user_1", 6), want: Write, wantKey: escapedKey},
		{line: "a prune of the text before the separator", key: goodKey, value: value, history: HistoryAll, rules: prune("user", 100), want: Write, wantKey: escapedKey},
		{line: "a prune of the escaped text", key: goodKey, value: value, history: HistoryAll, rules: prune("user%5F1", 100), want: Write, wantKey: escapedKey},
		{line: "pruned, repaired", key: badKey, value: value, last: "yes", rules: with(rewrites, prune("x_y", 3)), want: Tombstone, reason: Pruned, wantKey: repairedKey},
		{line: "both rules: the list is named", key: goodKey, value: value, last: "yes", rules: with(before(1000), prune("user_1", 7)), want: Tombstone, reason: Pruned, wantKey: escapedKey},
		{line: "pruned before, earlier", key: goodKey, value: value, last: "no", rules: before(17), want: Omit, reason: PrunedBefore},
		{line: "pruned before, last", key: goodKey, value: value, last: "yes", rules: before(12), want: Tombstone, reason: PrunedBefore, wantKey: escapedKey},
		{line: "last record at the marker", key: goodKey, value: value, history: HistoryAll, last: "yes", rules: before(11), want: Write, wantKey: escapedKey},
		{line: "earlier record before the marker, last one behind it", key: goodKey, value: value, history: HistoryAll, last: "no", rules: before(12), want: Write, wantKey: escapedKey},

		{line: "superseded", key: goodKey, value: value, history: HistoryLatest, last: "no", want: Omit, reason: Superseded},
		{line: "superseded, repaired", key: badKey, value: value, history: HistoryLatest, last: "no", rules: rewrites, want: Omit, reason: Superseded},
		{line: "null value", key: goodKey, value: null, history: HistoryAll, want: Tombstone, reason: NullValue, wantKey: escapedKey},
		{line: "null value, repaired", key: badKey, value: null, history: HistoryAll, rules: rewrites, want: Tombstone, reason: NullValue, wantKey: repairedKey},
		{line: "repair rewrite", key: badKey, value: value, history: HistoryAll, rules: rewrites, want: Write, reason: Repaired, wantKey: repairedKey},
		{line: "plain", key: goodKey, value: value, history: HistoryAll, rules: rewrites, want: Write, wantKey: escapedKey},
	}
	for _, row := range rows {
		cases := 0
		for _, policy := range []Policy{PolicyFail, PolicyQuarantine, PolicyCopy} {
			for _, history := range []History{HistoryAll, HistoryLatest} {
				for _, last := range []bool{false, true} {
					if row.policy != "" && row.policy != policy || row.history != "" && row.history != history ||
						row.last != "" && (row.last == "yes") != last {
						continue
					}
					cases++
					t.Run(fmt.Sprintf("%s/%s/%s/last=%t", row.line, policy, history, last), func(t *testing.T) {
						r := rules(t, keycodec.Escaped, policy, history)
						if row.rules != nil {
							row.rules(&r)
						}
						record := &Record{Partition: 1, Offset: 11, Key: []byte(row.key), Value: row.value}
						got, err := NewDecider(r).Decide(record, lastOffset(record, last))
						if err != nil {
							t.Fatal(err)
						}
						if got.Action != row.want || got.Reason != row.reason {
							t.Fatalf("got %v, %v; want %v, %v", got.Action, got.Reason, row.want, row.reason)
						}
						if string(got.Key) != row.wantKey {
							t.Errorf("key %q, want %q", got.Key, row.wantKey)
						}
						if (got.Problem != nil) != (row.key != goodKey) {
							t.Errorf("problem: %v", got.Problem)
						}
						if want := r.NeedsLast() && last && got.Parsed != nil; got.Last != want {
							t.Errorf("Last is %t, want %t", got.Last, want)
						}
						if got.Action == Tombstone && got.Value(record) != nil || got.Action == Write && got.Value(record) == nil {
							t.Errorf("%v with value %q", got.Action, got.Value(record))
						}
					})
				}
			}
		}
		if cases == 0 {
			t.Errorf("%s: no policy and history fits", row.line)
		}
	}
}

// The null key names no state: it can be dropped and nothing else, and it is
// not the empty key.
func TestRepairOfNullAndEmptyKeys(t *testing.T) {
	r := rules(t, keycodec.Escaped, PolicyCopy, HistoryAll)
	r.NullKey = &Repair{Action: RepairDrop}
	r.Repairs = map[string]*Repair{"": repairTo("e", 0)}
	decider := NewDecider(r)
	for _, c := range []struct {
		key  []byte
		want Action
	}{{nil, Drop}, {[]byte{}, Write}} {
		if got, err := decider.Decide(&Record{Key: c.key, Value: []byte("v")}, 0); err != nil || got.Action != c.want {
			t.Errorf("%#v: %v, %v; want %v", c.key, got.Action, err, c.want)
		}
	}
	if r.Copies(nil) || r.Copies([]byte{}) || !r.Copies([]byte("x")) {
		t.Error("a null key and a repaired key are not copied, others are")
	}
}

// Whoever asks for the whole history gets every record that has a place on the
// target, whatever the rules leave out.
func TestWholeHistory(t *testing.T) {
	r := rules(t, keycodec.Escaped, PolicyFail, HistoryLatest)
	r.Prunes, r.PruneBefore, r.Pruned = map[string]int64{"user_1": 9}, []int64{100}, PrunedOmit
	r = r.WholeHistory()
	if r.NeedsLast() {
		t.Error("it needs the last record")
	}
	if got, err := NewDecider(r).Decide(&Record{Key: []byte(goodKey), Value: []byte("v")}, 50); err != nil || got.Action != Write {
		t.Errorf("%v, %v; want rewrite", got.Action, err)
	}
}

func TestReasonWords(t *testing.T) {
	words := map[string]bool{}
	for reason := Plain; reason <= IncompatibleValue; reason++ {
		words[reason.String()] = true
	}
	if len(words) != int(IncompatibleValue)+1 || (IncompatibleValue+1).String() != "reason 10" {
		t.Errorf("%v, %v", slices.Sorted(maps.Keys(words)), IncompatibleValue+1)
	}
}
