package rewrite

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"rekey/keycodec"
)

// Each word is one that reports use; a number that is no reason or action says so.
func TestWords(t *testing.T) {
	reasons := map[Reason]string{Plain: "plain", NullValue: "null-value", Superseded: "superseded", Pruned: "pruned", PrunedBefore: "pruned-before",
		LostCollision: "lost-collision", Repaired: "repaired", Unparseable: "unparseable", AlreadyMigrated: "already-migrated",
		IncompatibleValue: "incompatible-value", IncompatibleValue + 1: "reason 10"}
	for reason, want := range reasons {
		if got := reason.String(); got != want {
			t.Errorf("%d: %q, want %q", uint8(reason), got, want)
		}
	}
	actions := map[Action]string{Write: "rewrite", Tombstone: "tombstone", Copy: "copy", Omit: "omit", Drop: "drop", Quarantine: "quarantine",
		Refuse: "refuse", 99: "action 99"}
	for action, want := range actions {
		if got := action.String(); got != want {
			t.Errorf("%d: %q, want %q", uint8(action), got, want)
		}
	}
}

// One partition is enough.
func TestRulesOnePartition(t *testing.T) {
	r := rules(t, keycodec.Escaped, PolicyFail, HistoryAll)
	r.TargetPartitions = 1
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}

// Each rule that looks at the last record of a key asks for it by itself.
func TestNeedsLast(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Rules)
		want   bool
	}{
		"none":           {func(*Rules) {}, false},
		"history latest": {func(r *Rules) { r.History = HistoryLatest }, true},
		"prune list":     {func(r *Rules) { r.Prunes = map[string]int64{} }, true},
		"prune before":   {func(r *Rules) { r.PruneBefore = []int64{0} }, true},
	} {
		r := rules(t, keycodec.Escaped, PolicyFail, HistoryAll)
		c.change(&r)
		if got := r.NeedsLast(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if r.WholeHistory().NeedsLast() {
			t.Errorf("%s: the whole history asks for the last record", name)
		}
	}
}

// Only the keys that lost a collision give way.
func TestDecideLosers(t *testing.T) {
	r := rules(t, keycodec.Escaped, PolicyQuarantine, HistoryAll)
	r.Losers = map[string]bool{"another_1_" + eventText + "_" + actionText: true}
	for key, want := range map[string]Action{goodKey: Write, badKey: Quarantine, "another_1_" + eventText + "_" + actionText: Omit} {
		got, err := NewDecider(r).Decide(&Record{Key: []byte(key), Value: []byte("v")}, 0)
		if err != nil || got.Action != want {
			t.Errorf("%s: %v, %v, want %v", key, got.Action, err, want)
		}
	}
}

// A decision by a repair says in which round the repair came.
func TestDecideRound(t *testing.T) {
	for _, action := range []RepairAction{RepairRewrite, RepairCopy, RepairDrop} {
		r := rules(t, keycodec.Escaped, PolicyFail, HistoryAll)
		repair := &Repair{Action: action, Round: 3, Key: keycodec.Key{BusinessKey: []byte("x"), Event: uuid.MustParse(eventText),
			Action: uuid.MustParse(actionText), KeyGroup: keycodec.NoKeyGroup}}
		r.Repairs, r.NullKey = map[string]*Repair{badKey: repair}, repair
		keys := [][]byte{[]byte(badKey)}
		if action == RepairDrop {
			keys = append(keys, nil)
		}
		for _, key := range keys {
			got, err := NewDecider(r).Decide(&Record{Key: key, Value: []byte("v")}, 0)
			if err != nil || got.Round != 3 || got.Reason != Repaired {
				t.Errorf("%s of %q: %+v, %v", action, key, got, err)
			}
		}
		if got, err := NewDecider(r).Decide(&Record{Key: []byte(goodKey), Value: []byte("v")}, 0); err != nil || got.Round != 0 {
			t.Errorf("%s, a key that parses: %+v, %v", action, got, err)
		}
	}
}

// What is wrong with a provenance is named.
func TestProvenanceErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":              "neither <partition>:<offset> nor",
		"12":            "neither <partition>:<offset> nor",
		"paddings":      "neither <partition>:<offset> nor",
		"x:1":           "the partition",
		"2147483648:1":  "the partition",
		"1:":            "the offset",
		"1:x":           "the offset",
		"1:2:":          "the round",
		"1:2:0":         "the round",
		"1:2:3:4":       "the round",
		"padding:":      "0 <= i < n",
		"padding:4/4":   "0 <= i < n",
		"padding:1/4 ":  "0 <= i < n",
		"padding:0/1:2": "0 <= i < n",
	} {
		if p, err := ParseProvenance([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || p != (Provenance{}) {
			t.Errorf("%q: %+v, %v, want %q and nothing else", text, p, err, want)
		}
		if IsPadding([]byte(text)) {
			t.Errorf("%q is padding", text)
		}
	}
}
