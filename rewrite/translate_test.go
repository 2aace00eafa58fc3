package rewrite

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/uuid"

	"rekey/keycodec"
)

func format04(t *testing.T, keyType keycodec.KeyType) keycodec.Format {
	t.Helper()
	f, err := keycodec.NewFlinkAgents04(keyType, 128)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func rules04(t *testing.T, keyType keycodec.KeyType, policy, values Policy) Rules {
	t.Helper()
	r := rules(t, format04(t, keyType), policy, HistoryAll)
	r.OnIncompatible = values
	r.Actions = map[uuid.UUID]uuid.UUID{uuid.MustParse(actionText): keycodec.NameUUID([]byte("think"))}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// What has no place on the target is told by its field and its byte in the
// source key, whatever the source's format.
func TestTranslateProblems(t *testing.T) {
	const unnamed = "8da9f90a-54cc-3791-9b96-ee006ca295e2"
	for _, c := range []struct {
		name   string
		from   keycodec.Format
		key    string
		reason keycodec.Reason
		field  string
		at     string // what stands at the offset
	}{
		{"named", keycodec.Legacy, "7_7_" + eventText + "_" + actionText, "", "", ""},
		{"named, keygroup-first", keycodec.KeyGroupFirst, "12_7_7_" + eventText + "_" + actionText, "", "", ""},
		{"named, keygroup-last", keycodec.KeyGroupLast, "12_7_" + eventText + "_" + actionText + "_7", "", "", ""},
		{"unnamed", keycodec.Legacy, "7_7_" + eventText + "_" + unnamed, keycodec.UnknownAction, keycodec.FieldAction, unnamed},
		{"unnamed, keygroup-first", keycodec.KeyGroupFirst, "12_7_7_" + eventText + "_" + unnamed, keycodec.UnknownAction, keycodec.FieldAction, unnamed},
		{"unnamed, keygroup-last", keycodec.KeyGroupLast, "12_7_" + eventText + "_" + unnamed + "_7", keycodec.UnknownAction, keycodec.FieldAction, unnamed + "_7"},
		{"no long", keycodec.Legacy, "07_7_" + eventText + "_" + actionText, keycodec.Foreign, keycodec.FieldBusinessKey, "07_7_" + eventText + "_" + actionText},
		{"no long, keygroup-first", keycodec.KeyGroupFirst, "0_x_7_" + eventText + "_" + actionText, keycodec.Foreign, keycodec.FieldBusinessKey, "x_7_" + eventText + "_" + actionText},
		{"no long, keygroup-last", keycodec.KeyGroupLast, "7_7_" + eventText + "_" + actionText + "_x7", keycodec.Foreign, keycodec.FieldBusinessKey, "x7"},
		{"cannot be parsed", keycodec.Legacy, badKey, keycodec.BadSequence, keycodec.FieldSequence, "07_" + eventText + "_" + actionText},
	} {
		r := rules04(t, keycodec.KeyLong, PolicyFail, PolicyFail)
		r.From = c.from
		var k keycodec.Key
		got, err := r.Translate([]byte("before"), &k, []byte(c.key))
		if c.reason == "" {
			if err != nil || k.Action != keycodec.NameUUID([]byte("think")) || !bytes.Contains(got, []byte("_"+k.Action.String()+"_")) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
			continue
		}
		problem, ok := errors.AsType[*keycodec.ParseError](err)
		if !ok || problem.Reason != c.reason || problem.Field != c.field || c.key[problem.Offset:] != c.at || string(got) != "before" {
			t.Errorf("%s: %q, %+v", c.name, got, problem)
		}
	}
}

// Without names, actions stay as they are: other targets have the same ones.
func TestTranslateKeepsActions(t *testing.T) {
	r := rules(t, keycodec.Escaped, PolicyFail, HistoryAll)
	var k keycodec.Key
	got, err := r.Translate(nil, &k, []byte(goodKey))
	if err != nil || string(got) != escapedKey || k.Action.String() != actionText {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDecideIncompatibleValues(t *testing.T) {
	const readable, unreadable = `{"taskEvent":{"type":"x"},"outputEvents":[]}`, `{"taskEvent":{"type":"x"},"memoryUpdates":[]}`
	for _, c := range []struct {
		values Policy
		value  string
		want   Action
		reason Reason
	}{
		{PolicyFail, readable, Write, Plain}, {PolicyQuarantine, readable, Write, Plain}, {PolicyCopy, readable, Write, Plain},
		{PolicyFail, unreadable, Refuse, IncompatibleValue}, {PolicyQuarantine, unreadable, Quarantine, IncompatibleValue},
		{PolicyCopy, unreadable, Write, Plain}, {"", unreadable, Write, Plain},
		{PolicyFail, "", Refuse, IncompatibleValue}, {PolicyFail, "null", Refuse, IncompatibleValue},
	} {
		for _, onKeys := range []Policy{PolicyFail, PolicyQuarantine, PolicyCopy} {
			r := rules04(t, keycodec.KeyString, onKeys, PolicyFail)
			r.OnIncompatible = c.values
			record := &Record{Key: []byte(goodKey), Value: []byte(c.value)}
			got, err := NewDecider(r).Decide(record, 0)
			if err != nil || got.Action != c.want || got.Reason != c.reason || (got.Key != nil) != c.want.OnTarget() {
				t.Errorf("values %q, %q: %v, %v, key %q, %v; want %v, %v", c.values, c.value, got.Action, got.Reason, got.Key, err, c.want, c.reason)
			}
			record.Value = nil
			if got, err := NewDecider(r).Decide(record, 0); err != nil || got.Action != Tombstone {
				t.Errorf("values %q, tombstone: %v, %v", c.values, got.Action, err)
			}
			r.Losers = map[string]bool{goodKey: true}
			record.Value = []byte(c.value)
			if got, err := NewDecider(r).Decide(record, 0); err != nil || got.Action != Omit || got.Reason != LostCollision {
				t.Errorf("values %q, lost a collision: %v, %v, %v", c.values, got.Action, got.Reason, err)
			}
		}
	}
	r := rules04(t, keycodec.KeyString, PolicyFail, PolicyFail)
	r.OnIncompatible = "keep"
	if r.Validate() == nil {
		t.Error("an unknown policy for values is accepted")
	}
}

// The padding key is well-formed for every target, also for jobs whose keys do
// not print as its business key, and the same for all of them.
func TestPaddingKeyOfRelease04(t *testing.T) {
	var first []byte
	for _, keyType := range keycodec.KeyTypes() {
		to := format04(t, keyType)
		key, err := PaddingKey(to)
		if err != nil {
			t.Fatalf("%s: %v", keyType, err)
		}
		var parsed keycodec.Key
		if err := to.Parse(&parsed, key); err != nil || parsed.KeyGroup != 0 || parsed.Event != uuid.Nil || parsed.Action != uuid.Nil || parsed.Sequence != 0 {
			t.Errorf("%s: %q, %v", keyType, key, err)
		}
		if first == nil {
			first = key
		}
		if !bytes.Equal(key, first) {
			t.Errorf("%s: %q, others have %q", keyType, key, first)
		}
	}
	own, err := format04(t, keycodec.KeyString).Append(nil, &keycodec.Key{BusinessKey: []byte(PaddingBusinessKey)})
	if err != nil || bytes.Equal(own, first) {
		t.Errorf("a job's own key %q is the padding key: %v", own, err)
	}
}

// Deciding for release 0.4 takes a digest and a look at the value, and still no
// allocation.
func TestDecideForRelease04DoesNotAllocate(t *testing.T) {
	decider := NewDecider(rules04(t, keycodec.KeyString, PolicyFail, PolicyFail))
	record := &Record{Key: []byte(goodKey), Value: []byte(`{"taskEvent":{"type":"x"},"outputEvents":[]}`)}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := decider.Decide(record, 0); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	value := []byte(`{"taskEvent":{"@class":"org.apache.flink.agents.api.InputEvent","id":"a2622b55-28e2-3a3c-9bde-7164cf05dbea","type":"_input_event","attributes":{"input":"` +
		string(bytes.Repeat([]byte("some text "), 30)) + `"}},"sensoryMemoryUpdates":[],"shortTermMemoryUpdates":[{"path":"count","value":null}],"outputEvents":[],"callResults":[],"completed":false}`)
	to04, err := keycodec.NewFlinkAgents04(keycodec.KeyString, 128)
	if err != nil {
		b.Fatal(err)
	}
	partitioner, err := keycodec.LookupPartitioner("flink-agents")
	if err != nil {
		b.Fatal(err)
	}
	actions := map[uuid.UUID]uuid.UUID{uuid.MustParse(actionText): keycodec.NameUUID([]byte("think"))}
	for name, r := range map[string]Rules{
		"escaped":          {To: keycodec.Escaped},
		"flink-agents-0.4": {To: to04, Actions: actions, OnIncompatible: PolicyFail},
	} {
		r.From, r.Partitioner, r.TargetPartitions, r.OnUnparseable, r.History = keycodec.Legacy, partitioner, 64, PolicyFail, HistoryAll
		b.Run(name, func(b *testing.B) {
			decider := NewDecider(r)
			record := &Record{Key: []byte(goodKey), Value: value}
			for b.Loop() {
				if d, err := decider.Decide(record, 0); err != nil || d.Action != Write {
					b.Fatal(d.Action, err)
				}
			}
		})
	}
}
