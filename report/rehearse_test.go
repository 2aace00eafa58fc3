package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func sampleRehearse() *Rehearse {
	v := sampleVerify()
	return &Rehearse{Schema: SchemaVersion, Tool: "rekey 0.1.0", PlanID: v.PlanID, Source: v.Source, Target: v.Target,
		StartedAt: sampleTime, FinishedAt: sampleTime.Add(70 * time.Second), Passed: true, Translated: "translated-markers.json",
		Rehearsals: []Rehearsal{{
			Runtime: "0.3", Marker: "savepoint.json", Markers: 4, Offsets: []Position{{0, 150_000}, {1, 149_000}}, Passed: true,
			Summary: "a 0.3 job that restores this savepoint will see the same 2,034 states, and 11,727 older ones that it is past",
			Source: Replay{Records: 5_120, States: 2_035, Malformed: 4_800, Effects: []Effect{{Code: EffectMalformed,
				Text: "the keys of 4800 records do not split into four fields: runtime 0.3 loads them, and its lookups throw"}}},
			Target: Replay{Records: 1_204_300, States: 13_761},
			Same:   2_034, Older: 11_727, Unparseable: 1,
		}},
		Next:     []string{"point the job at action-state-2 (kafkaActionStateTopic) and start it from its savepoint"},
		Rollback: rollback}
}

func failedRehearse() *Rehearse {
	r := sampleRehearse()
	partition := int32(3)
	key := Printable([]byte("order%5F17_4_" + evt + "_" + act))
	failed := Rehearsal{
		Runtime: "0.4-strict", Marker: "/var/lib/flink/savepoints/savepoint-1-with-a-rather-long-name/markers.json", Markers: 1,
		Offsets: []Position{{3, 150_000}}, Summary: "a 0.4-strict job that restores this savepoint does not start on the new topic",
		Source: Replay{Records: 12, States: 10, Effects: []Effect{{Code: EffectSkip, Partition: &partition, Text: "the marker does not name partition 3"}}},
		Target: Replay{Records: 9, States: 7, Effects: []Effect{
			{Code: EffectRefuse, Partition: &partition, Text: "partition 3: the offset 150000 lies outside of the log, 0 to 120000"},
			{Code: EffectRestart, Partition: &partition, Text: "x"}, {Code: EffectRestart, Text: "y"}, {Code: EffectRestart, Text: "<b>\u202Ez"}}},
		Same: 3, Lost: 2, Different: 1, Confusable: 3, Older: 7, Restarted: 2, Undefined: 1, Repaired: 1,
		Examples: []StateDifference{
			{KindLost, key, Printable([]byte("order_17")), 4, &Position{5, 44_102}, nil, "the new topic does not have it"},
			{KindDifferent, key, Printable([]byte("order_17")), 5, &Position{5, 44_103}, &Position{2, 150_201}, "the bytes of the value differ"},
			{KindConfusable, Printable([]byte("<b>\u202Ex")), Printable([]byte("<b>\u202Ex")), 6, nil, &Position{1, 9}, "the job may ask for sequence number 6"},
		},
	}
	r.Passed = false
	r.Rehearsals = append(r.Rehearsals, failed)
	r.Findings = []Finding{finding(Warning, "confusable", "3 states could be taken for the job's own", "Text.", "take the exact way")}
	r.Next = []string{"do not start the job on action-state-2"}
	return r
}

func rehearseTexts() map[string]writer {
	return map[string]writer{
		"rehearse.txt":         sampleRehearse().WriteText,
		"rehearse-failed.txt":  failedRehearse().WriteText,
		"rehearse-summary.txt": failedRehearse().WriteSummary,
	}
}

// TestRehearseSentence: the sentence that an operator waits for stands in the
// first screen, in one piece.
func TestRehearseSentence(t *testing.T) {
	var b bytes.Buffer
	if err := sampleRehearse().WriteSummary(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	if !strings.Contains(text, "A 0.3 job that restores this savepoint will see the same 2,034 states") || strings.Count(b.String(), "\n") > 40 {
		t.Error(b.String())
	}
}

func TestRehearseJSON(t *testing.T) {
	r := failedRehearse()
	golden(t, "rehearse.json", toJSON(t, r))
	back, err := ReadRehearse(bytes.NewReader(toJSON(t, r)))
	if err != nil || !cmp.Equal(r, back, cmpopts.EquateEmpty()) {
		t.Errorf("%v %s", err, cmp.Diff(r, back, cmpopts.EquateEmpty()))
	}
	if _, err := ReadRehearse(strings.NewReader(`{"schema_version":1,"pass":true}`)); err == nil {
		t.Error("an unknown field is not refused")
	}
}
