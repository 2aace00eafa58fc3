package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"rekey/keycodec"
)

const (
	eventText  = "a2622b55-28e2-3a3c-9bde-7164cf05dbea"
	actionText = "30e6b546-354f-3cf6-a60e-7956be205a13"
	goodKey    = "user_1_7_" + eventText + "_" + actionText
	escapedKey = "user%5F1_7_" + eventText + "_" + actionText
	badKey     = "user_1_07_" + eventText + "_" + actionText
)

func rules(t *testing.T, to keycodec.Format, policy Policy, history History) Rules {
	t.Helper()
	partitioner, err := keycodec.LookupPartitioner("flink-agents")
	if err != nil {
		t.Fatal(err)
	}
	r := Rules{From: keycodec.Legacy, To: to, Partitioner: partitioner, TargetPartitions: 5, OnUnparseable: policy, History: history}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// Each line of the decision table, under every policy and history, for the last
// record of a key and for an earlier one. A test row names the line; where a
// policy is empty, the line holds for all of them.
func TestDecideTable(t *testing.T) {
	provenance := []Header{{Key: []byte("trace"), Value: []byte("1")}, {Key: []byte(ProvenanceHeader), Value: []byte("0:5")}}
	notLast := []Header{provenance[1], provenance[0]}
	damaged := []Header{{Key: []byte(ProvenanceHeader)}}
	null, empty, value := []byte(nil), []byte{}, []byte("null")
	rows := []struct {
		line    string
		key     []byte
		value   []byte
		headers []Header
		policy  Policy  // "": any
		history History // "": any
		last    string  // "yes", "no", "": any
		want    Action
		wantKey string // of what goes to the target
		migrate bool
		reason  keycodec.Reason
	}{
		{line: "provenance header", key: []byte(goodKey), value: value, headers: provenance, want: Refuse, migrate: true},
		{line: "provenance header, not the last one", key: []byte(goodKey), value: value, headers: notLast, want: Refuse, migrate: true},
		{line: "provenance header without a value", key: []byte(goodKey), value: value, headers: damaged, want: Refuse, migrate: true},
		{line: "provenance header on a tombstone", key: []byte(goodKey), value: null, headers: provenance, want: Refuse, migrate: true},
		{line: "provenance header wins over a bad key", key: []byte(badKey), value: value, headers: provenance, want: Refuse, migrate: true},
		{line: "provenance header wins over a null key", key: nil, value: value, headers: provenance, want: Refuse, migrate: true},

		{line: "bad key, fail", key: []byte(badKey), value: value, policy: PolicyFail, want: Refuse, reason: keycodec.BadSequence},
		{line: "bad key, fail, tombstone", key: []byte(badKey), value: null, policy: PolicyFail, want: Refuse, reason: keycodec.BadSequence},
		{line: "null key, fail", key: nil, value: value, policy: PolicyFail, want: Refuse, reason: keycodec.NullKey},
		{line: "empty key, fail", key: []byte{}, value: value, policy: PolicyFail, want: Refuse, reason: keycodec.EmptyKey},

		{line: "bad key, quarantine", key: []byte(badKey), value: value, policy: PolicyQuarantine, want: Quarantine, reason: keycodec.BadSequence},
		{line: "bad key, quarantine, tombstone", key: []byte(badKey), value: null, policy: PolicyQuarantine, want: Quarantine, reason: keycodec.BadSequence},
		{line: "null key, quarantine", key: nil, value: value, policy: PolicyQuarantine, want: Quarantine, reason: keycodec.NullKey},

		{line: "null key, copy", key: nil, value: value, policy: PolicyCopy, want: Quarantine, reason: keycodec.NullKey},
		{line: "null key, copy, tombstone", key: nil, value: null, policy: PolicyCopy, want: Quarantine, reason: keycodec.NullKey},
		{line: "empty key, copy", key: []byte{}, value: value, policy: PolicyCopy, want: Copy, wantKey: "", reason: keycodec.EmptyKey},
		{line: "bad key, copy", key: []byte(badKey), value: value, policy: PolicyCopy, want: Copy, wantKey: badKey, reason: keycodec.BadSequence},
		{line: "bad key, copy, tombstone", key: []byte(badKey), value: null, policy: PolicyCopy, want: Copy, wantKey: badKey, reason: keycodec.BadSequence},
		{line: "invalid UTF-8, copy", key: []byte("\xff" + goodKey), value: value, policy: PolicyCopy, want: Copy, wantKey: "\xff" + goodKey, reason: keycodec.InvalidUTF8},

		{line: "earlier record, latest", key: []byte(goodKey), value: value, history: HistoryLatest, last: "no", want: Omit},
		{line: "earlier tombstone, latest", key: []byte(goodKey), value: null, history: HistoryLatest, last: "no", want: Omit},

		{line: "tombstone, all", key: []byte(goodKey), value: null, history: HistoryAll, want: Tombstone, wantKey: escapedKey},
		{line: "tombstone, latest", key: []byte(goodKey), value: null, history: HistoryLatest, last: "yes", want: Tombstone, wantKey: escapedKey},

		{line: "value, all", key: []byte(goodKey), value: value, history: HistoryAll, want: Write, wantKey: escapedKey},
		{line: "value, latest", key: []byte(goodKey), value: value, history: HistoryLatest, last: "yes", want: Write, wantKey: escapedKey},
		{line: "empty value is a value", key: []byte(goodKey), value: empty, history: HistoryAll, want: Write, wantKey: escapedKey},
		{line: "other headers do not matter", key: []byte(goodKey), value: value, headers: []Header{{Key: []byte("rekey-sourc")}, {Key: []byte("Rekey-Source"), Value: []byte("0:1")}},
			history: HistoryAll, want: Write, wantKey: escapedKey},
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
						decider := NewDecider(r)
						record := &Record{Partition: 7, Offset: 11, Timestamp: -1, Key: row.key, Value: row.value, Headers: row.headers}
						got, err := decider.Decide(record, lastOffset(record, last))
						if err != nil {
							t.Fatal(err)
						}
						if got.Action != row.want || got.Reason == AlreadyMigrated != row.migrate {
							t.Fatalf("got %v, already migrated %t; want %v, %t", got.Action, got.Reason == AlreadyMigrated, row.want, row.migrate)
						}
						checkProblem(t, got, row.reason)
						if parses := row.reason == "" && !row.migrate; parses != (got.Parsed != nil) {
							t.Errorf("Parsed is %v, key parses: %t", got.Parsed, parses)
						}
						if !row.want.OnTarget() {
							if got.Key != nil || got.Partition != 0 {
								t.Errorf("what is not copied has key %q and partition %d", got.Key, got.Partition)
							}
							return
						}
						if string(got.Key) != row.wantKey {
							t.Errorf("key %q, want %q", got.Key, row.wantKey)
						}
						want := keycodec.FlinkMurmur(keycodec.JavaHash([]byte("user%5F1"))) % 5
						if row.want == Copy {
							want = 7 % 5
						}
						if got.Partition != want {
							t.Errorf("partition %d, want %d", got.Partition, want)
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

// lastOffset is the offset of the last record of r's key: its own, or a later one.
func lastOffset(r *Record, last bool) int64 {
	if last {
		return r.Offset
	}
	return r.Offset + 5
}

func checkProblem(t *testing.T, got Decision, want keycodec.Reason) {
	t.Helper()
	switch {
	case want == "" && got.Problem != nil:
		t.Errorf("unexpected problem: %v", got.Problem)
	case want != "" && got.Problem == nil:
		t.Errorf("no problem, want %s", want)
	case want != "" && got.Problem.Reason != want:
		t.Errorf("reason %s, want %s", got.Problem.Reason, want)
	}
}

// Without prune rules the argument last is for history latest alone, and
// unparseable keys are never omitted: what cannot be read cannot be known to be
// superseded.
func TestDecideNeedsLast(t *testing.T) {
	for _, history := range []History{HistoryAll, HistoryLatest} {
		r := rules(t, keycodec.Escaped, PolicyCopy, history)
		if want := history == HistoryLatest; r.NeedsLast() != want {
			t.Errorf("history %s: NeedsLast is %t", history, r.NeedsLast())
		}
		decision, err := NewDecider(r).Decide(&Record{Key: []byte(badKey)}, 1)
		if err != nil || decision.Action != Copy {
			t.Errorf("history %s: an earlier record of a bad key: %v, %v; want copy", history, decision.Action, err)
		}
	}
}

// A Decider is used for millions of records: no decision may leak into the next.
func TestDeciderForgets(t *testing.T) {
	decider := NewDecider(rules(t, keycodec.LengthPrefixed, PolicyCopy, HistoryAll))
	long := &Record{Key: []byte("a_much_longer_business_key_100%_1_" + eventText + "_" + actionText), Value: []byte("v")}
	short := &Record{Key: []byte("k_2_" + eventText + "_" + actionText)}
	bad := &Record{Key: []byte("nothing")}
	want := map[*Record]string{
		long:  "lp1:31:a_much_longer_business_key_100%:1:" + eventText + ":" + actionText,
		short: "lp1:1:k:2:" + eventText + ":" + actionText,
		bad:   "nothing",
	}
	for _, r := range []*Record{long, short, bad, long, bad, short, short, long} {
		decision, err := decider.Decide(r, r.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if string(decision.Key) != want[r] {
			t.Fatalf("%q became %q, want %q", r.Key, decision.Key, want[r])
		}
		if (r == bad) != (decision.Problem != nil) || (r == bad) != (decision.Parsed == nil) {
			t.Fatalf("%q: problem %v, parsed %v", r.Key, decision.Problem, decision.Parsed)
		}
	}
	if string(long.Key) != "a_much_longer_business_key_100%_1_"+eventText+"_"+actionText || string(bad.Key) != "nothing" {
		t.Error("Decide changed its input")
	}
}

// Deciding costs no allocation for keys that parse: it is asked three times for
// each record of a migration.
func TestDecideDoesNotAllocate(t *testing.T) {
	for _, to := range []keycodec.Format{keycodec.Escaped, keycodec.LengthPrefixed} {
		decider := NewDecider(rules(t, to, PolicyFail, HistoryAll))
		record := &Record{Key: []byte(goodKey), Value: []byte("v"), Headers: []Header{{Key: []byte("trace")}}}
		got := testing.AllocsPerRun(100, func() {
			if _, err := decider.Decide(record, record.Offset); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations per record", to.Name(), got)
		}
	}
}

// failing is a target format that cannot express a key, and a source format
// whose error is not one of the known reasons.
type failing struct {
	keycodec.Format
	err error
}

func (f failing) Append(dst []byte, _ *keycodec.Key) ([]byte, error) { return dst, f.err }
func (f failing) Parse(*keycodec.Key, []byte) error                  { return f.err }

func TestDecideReportsWhatItCannotExpress(t *testing.T) {
	broken := errors.New("cannot be expressed")
	r := rules(t, keycodec.Escaped, PolicyCopy, HistoryAll)
	r.To = failing{keycodec.Escaped, broken}
	_, err := NewDecider(r).Decide(&Record{Partition: 3, Offset: 99, Key: []byte(goodKey)}, 99)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "partition 3, offset 99") {
		t.Errorf("got %v; want the cause and where", err)
	}
	r = rules(t, keycodec.Escaped, PolicyCopy, HistoryAll)
	r.From = failing{keycodec.Legacy, broken}
	_, err = NewDecider(r).Decide(&Record{Partition: 3, Offset: 99, Key: []byte(goodKey)}, 99)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "partition 3, offset 99") {
		t.Errorf("got %v; want the cause and where", err)
	}
	r = rules(t, keycodec.Escaped, PolicyCopy, HistoryAll)
	r.To = failing{keycodec.Escaped, broken}
	r.Repairs = map[string]*Repair{badKey: repairTo("x", 1)}
	_, err = NewDecider(r).Decide(&Record{Partition: 3, Offset: 99, Key: []byte(badKey)}, 99)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "partition 3, offset 99") || !strings.Contains(err.Error(), "repaired") {
		t.Errorf("got %v; want the cause and where", err)
	}
}

func TestRulesValidate(t *testing.T) {
	good := rules(t, keycodec.Escaped, PolicyFail, HistoryAll)
	for _, c := range []struct {
		name   string
		change func(*Rules)
		want   string
	}{
		{"no source format", func(r *Rules) { r.From = nil }, "source format"},
		{"no target format", func(r *Rules) { r.To = nil }, "target format"},
		{"no partitioner", func(r *Rules) { r.Partitioner = nil }, "partitioner"},
		{"no partitions", func(r *Rules) { r.TargetPartitions = 0 }, "0 target partitions"},
		{"negative partitions", func(r *Rules) { r.TargetPartitions = -1 }, "-1 target partitions"},
		{"no policy", func(r *Rules) { r.OnUnparseable = "" }, `policy ""`},
		{"wrong policy", func(r *Rules) { r.OnUnparseable = "Fail" }, `policy "Fail"`},
		{"no history", func(r *Rules) { r.History = "" }, `history ""`},
		{"wrong history", func(r *Rules) { r.History = "last" }, `history "last"`},
		{"wrong form of pruned keys", func(r *Rules) { r.Pruned = "drop" }, `form "drop"`},
	} {
		r := good
		c.change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want something about %q", c.name, err, c.want)
		}
	}
}

// The words of the actions appear in reports.
func TestActionWords(t *testing.T) {
	want := map[Action]string{Write: "rewrite", Tombstone: "tombstone", Copy: "copy", Omit: "omit", Drop: "drop", Quarantine: "quarantine", Refuse: "refuse", Refuse + 1: "action 7"}
	for action, word := range want {
		if action.String() != word {
			t.Errorf("action %d is %q, want %q", action, action.String(), word)
		}
		if on := action == Write || action == Tombstone || action == Copy; action.OnTarget() != on {
			t.Errorf("%s: on the target: %t", word, action.OnTarget())
		}
	}
}

func TestRecordSize(t *testing.T) {
	r := Record{Key: []byte("key"), Value: []byte("value"), Headers: []Header{{Key: []byte("ab"), Value: []byte("c")}, {Key: []byte("d")}, {}}}
	if got := r.Size(); got != 12 {
		t.Errorf("size %d, want 12", got)
	}
	if got := new(Record).Size(); got != 0 {
		t.Errorf("size %d of nothing", got)
	}
}

// A copied record keeps its partition number as far as the target has it, so
// that all records of a key share one partition and stay in order.
func TestCopiedPartition(t *testing.T) {
	r := rules(t, keycodec.Escaped, PolicyCopy, HistoryAll)
	for source := range int32(12) {
		decision, err := NewDecider(r).Decide(&Record{Partition: source, Key: []byte("x")}, 0)
		if err != nil || decision.Partition != source%5 || !bytes.Equal(decision.Key, []byte("x")) {
			t.Errorf("source partition %d: %+v, %v", source, decision, err)
		}
	}
}
