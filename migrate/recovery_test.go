package migrate

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"rekey/report"
)

func TestRecoveryBegins(t *testing.T) {
	log := []logRange{{0, 100}, {50, 80}, {7, 7}}
	for name, c := range map[string]struct {
		runtime string
		marker  marker
		spans   []Span
		effects string // codes and partitions
	}{
		"inside":            {"0.3", marker{0: 10, 1: 60, 2: 7}, []Span{{0, 10, 100}, {1, 60, 80}, {2, 7, 7}}, ""},
		"at both limits":    {"0.3", marker{0: 0, 1: 50, 2: 7}, []Span{{0, 0, 100}, {1, 50, 80}, {2, 7, 7}}, ""},
		"at the end":        {"0.3", marker{0: 100, 1: 80, 2: 7}, []Span{{0, 100, 100}, {1, 80, 80}, {2, 7, 7}}, ""},
		"before the start":  {"0.2", marker{0: 0, 1: 49, 2: 6}, []Span{{0, 0, 100}, {1, 50, 80}, {2, 7, 7}}, "restart-at-beginning:1 restart-at-beginning:2"},
		"beyond the end":    {"0.3", marker{0: 101, 1: 81, 2: 8}, []Span{{0, 0, 100}, {1, 50, 80}, {2, 7, 7}}, "restart-at-beginning:0 restart-at-beginning:1 restart-at-beginning:2"},
		"missing":           {"0.4", marker{1: 60}, []Span{{1, 60, 80}}, "skip-partition:0 skip-partition:2"},
		"no such":           {"0.3", marker{0: 1, 1: 60, 2: 7, 3: 0}, []Span{{0, 1, 100}, {1, 60, 80}, {2, 7, 7}}, "skip-partition:3"},
		"strict inside":     {"0.4-strict", marker{0: 10, 1: 60, 2: 7}, []Span{{0, 10, 100}, {1, 60, 80}, {2, 7, 7}}, ""},
		"strict missing":    {"0.4-strict", marker{0: 10, 1: 60}, nil, "refuse:2"},
		"strict before":     {"0.4-strict", marker{0: 10, 1: 49, 2: 7}, nil, "refuse:1"},
		"strict beyond":     {"0.4-strict", marker{0: 101, 1: 60, 2: 7}, nil, "refuse:0"},
		"strict no such":    {"0.4-strict", marker{0: 1, 1: 60, 2: 7, 3: 0}, nil, "refuse:3"},
		"0.4 is not strict": {"0.4", marker{0: 101, 1: 60, 2: 7}, []Span{{0, 0, 100}, {1, 60, 80}, {2, 7, 7}}, "restart-at-beginning:0"},
	} {
		r, err := recoveryOf(c.runtime)
		if err != nil {
			t.Fatal(err)
		}
		spans, effects := r.begin(c.marker, log)
		if diff := cmp.Diff(c.spans, spans); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var codes []string
		texts := map[string]bool{}
		for _, e := range effects {
			codes = append(codes, e.Code+":"+string('0'+rune(*e.Partition)))
			texts[e.Text] = true
		}
		if got := strings.Join(codes, " "); got != c.effects || len(texts) != len(effects) {
			t.Errorf("%s: got effects %q, want %q, and no two alike: %v", name, got, c.effects, effects)
		}
	}
}

// TestMarkerMessages: what is wrong with a marker can be told from the message.
func TestMarkerMessages(t *testing.T) {
	missing, beyond, before := marker{}, marker{0: 11}, marker{0: 4}
	for _, r := range runtimes {
		_, a := r.begin(missing, []logRange{{5, 10}})
		_, b := r.begin(beyond, []logRange{{5, 10}})
		_, c := r.begin(before, []logRange{{5, 10}})
		if a[0].Text == b[0].Text || b[0].Text == c[0].Text || !strings.Contains(a[0].Text, "does not name partition 0") || !strings.Contains(b[0].Text, "offset 11 lies") {
			t.Errorf("%s:\n%s\n%s\n%s", r.runtime, a[0].Text, b[0].Text, c[0].Text)
		}
		if r.strict != a[0].Stops() || r.strict != b[0].Stops() {
			t.Errorf("%s: stops %v, %v", r.runtime, a[0].Stops(), b[0].Stops())
		}
	}
}

const recoveryUUIDs = "a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448"

func TestWellFormed(t *testing.T) {
	key04 := "12_7_" + recoveryUUIDs + "_" + strings.Repeat("A", 43) + "="
	for key, want := range map[string][2]bool{
		"a_1_" + recoveryUUIDs:          {true, false},
		"user_123_1_" + recoveryUUIDs:   {false, false},
		"user%5F123_1_" + recoveryUUIDs: {true, false},
		"_1_" + recoveryUUIDs:           {true, false},
		"a_b_c_d":                       {true, false}, // only the number of parts counts
		"a_b_c_d__":                     {true, false}, // Java's split drops empty parts at the end
		"a_b_c_":                        {false, false},
		"":                              {false, false},
		"lp1:1:a:1:x:y":                 {false, false},
		key04:                           {false, true},
		"0" + key04:                     {false, false},
	} {
		if got := [2]bool{splitsIntoFour([]byte(key)), hasLayout04([]byte(key))}; got != want {
			t.Errorf("%q: got %v, want %v", key, got, want)
		}
	}
	if splitsIntoFour(nil) || hasLayout04(nil) {
		t.Error("a null key is well-formed")
	}
}

// TestReplayMemory holds the promise of Rehearse: a key in a table costs its
// entry and at most 6.7 bytes of index.
func TestReplayMemory(t *testing.T) {
	if state, business := unsafe.Sizeof(keyEntry[replayed]{}), unsafe.Sizeof(keyEntry[businessKey]{}); state > 40 || business > 40 {
		t.Errorf("%d bytes for a state key, %d for a business key, want at most 40", state, business)
	}
}

// TestCompareReplays goes through every difference, one row for each.
func TestCompareReplays(t *testing.T) {
	prints := newFingerprinter()
	see := func(business, state string, sequence int64, value string, partition int32) *observation {
		o := &observation{business: prints.of([]byte(business)), state: prints.of([]byte(business + state)), sequence: sequence, partition: partition}
		o.tombstone = value == ""
		o.value = newTestDigest(value)
		return o
	}
	type steps struct{ source, target []*observation }
	one := func(o ...*observation) []*observation { return o }
	for name, c := range map[string]struct {
		runtime string
		steps
		want report.Rehearsal
	}{
		"same":             {"0.3", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1}},
		"last value":       {"0.3", steps{one(see("k", "s", 3, "u", 0), see("k", "s", 3, "v", 0)), one(see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1}},
		"lost":             {"0.3", steps{one(see("k", "s", 3, "v", 0)), nil}, report.Rehearsal{Lost: 1}},
		"lost, tombstone":  {"0.3", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "s", 3, "v", 1), see("k", "s", 3, "", 1))}, report.Rehearsal{Lost: 1}},
		"different":        {"0.3", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "s", 3, "v", 1), see("k", "s", 3, "u", 1))}, report.Rehearsal{Different: 1}},
		"undeleted":        {"0.4", steps{one(see("k", "s", 3, "", 0)), one(see("k", "s", 3, "v", 1))}, report.Rehearsal{Different: 1}},
		"both deleted":     {"0.3", steps{one(see("k", "s", 3, "", 0)), one(see("k", "s", 3, "", 1))}, report.Rehearsal{}},
		"deleted and gone": {"0.3", steps{one(see("k", "s", 3, "", 0)), nil}, report.Rehearsal{}},
		"older":            {"0.3", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "r", 2, "v", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1, Older: 1}},
		"older, idle key":  {"0.3", steps{nil, one(see("k", "r", 2, "v", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Older: 2}},
		"restarted":        {"0.3", steps{nil, one(see("k", "s", 3, "v", 1), see("k", "r", 2, "v", 1))}, report.Rehearsal{Older: 2, Restarted: 1}},
		"confusable":       {"0.4", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "r", 3, "v", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1, Confusable: 1}},
		"of another key":   {"0.4", steps{one(see("k", "s", 3, "v", 0)), one(see("l", "r", 3, "v", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1, Older: 1}},
		"trace":            {"0.3", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "r", 3, "", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1, Confusable: 1}},
		"older trace":      {"0.3", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "r", 2, "", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1}},
		"no trace in 0.4":  {"0.4", steps{one(see("k", "s", 3, "v", 0)), one(see("k", "r", 3, "", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Same: 1}},
		"two partitions":   {"0.3", steps{one(see("k", "s", 3, "v", 0), see("k", "s", 3, "u", 1)), one(see("k", "s", 3, "u", 1), see("k", "s", 3, "v", 1))}, report.Rehearsal{Undefined: 1}},
		"two, none left":   {"0.3", steps{one(see("k", "s", 3, "v", 0), see("k", "s", 3, "u", 1)), nil}, report.Rehearsal{Lost: 1}},
		"sequence 2^63-1":  {"0.3", steps{one(see("k", "s", 1<<63-1, "v", 0)), one(see("k", "r", 1<<63-1, "v", 1), see("k", "s", 1<<63-1, "v", 1))}, report.Rehearsal{Same: 1, Confusable: 1}},
	} {
		r, err := recoveryOf(c.runtime)
		if err != nil {
			t.Fatal(err)
		}
		both := replays{recovery: r}
		for _, o := range c.source {
			both.onSource(o)
		}
		both.settle()
		for _, o := range c.target {
			both.onTarget(o)
		}
		var got report.Rehearsal
		both.count(&got)
		got.Source.States, got.Target.States = 0, 0
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// newTestDigest is any function that tells short texts apart.
func newTestDigest(value string) uint64 {
	var digest uint64 = 1
	for _, c := range []byte(value) {
		digest = digest*251 + uint64(c)
	}
	return digest
}
