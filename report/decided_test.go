package report

import (
	"bytes"
	"strings"
	"testing"
)

func samplePrune(key string, sequence int64) Prune { return Prune{&key, &sequence} }

// decidedReport is a report of a plan with repairs, prune rules and a collision.
func decidedReport() *Report {
	r := demoReport()
	r.Options.OnCollision, r.Options.Pruned = "latest", "tombstone"
	r.Repairs = &Repairs{
		Totals: []RepairTotal{{Decision: "rewrite", Keys: 2, Records: 5}, {Decision: "drop", Keys: 1, Records: 1}},
		Keys: []RepairedKey{
			{Decision: "rewrite", Before: Printable([]byte("a_1_X ")), After: Printable([]byte("a_1_X")), Records: 4, First: Position{0, 3}, Last: Position{0, 9}},
			{Decision: "drop", Before: Printable([]byte("junk\n")), Records: 1, First: Position{1, 3}, Last: Position{1, 3}},
		},
		Unused: 3,
	}
	r.Pruned = &Pruned{
		Rules: []PruneRule{{Rule: RulePrune, Entries: 2, Records: 7, Bytes: 7000}, {Rule: RulePruneBefore, Entries: 1, Records: 0, Bytes: 20}},
		Lines: 5, Unmatched: 1, Examples: []Prune{samplePrune("gone\x1b", 9)},
		Unsafe: []Position{{0, 41}, {3, 17}}, UnsafeKeys: 2,
		Keys: []PrunedKey{{Rule: RulePrune, BusinessKey: Printable([]byte("a_1")), Sequence: 7, Last: Position{0, 41}, State: true}},
	}
	r.Collisions = []Collision{{Target: Printable([]byte("a_1_X")), Keys: []CollidingKey{
		{KeyBase64: encodeKey([]byte("a_1_X ")), Key: Printable([]byte("a_1_X ")), Records: 4, First: Position{0, 3}, Last: Position{0, 9}, LastTime: 17, Wins: true},
		{KeyBase64: encodeKey([]byte("a_1_X")), Key: Printable([]byte("a_1_X")), Records: 1, First: Position{0, 4}, Last: Position{0, 4}, LastTime: 18},
	}}}
	r.Collided = 1500
	r.Release04 = &Release04{
		KeyType: "string", MaxParallelism: 128, OnIncompatible: "fail", KeyLooks: "of 3 records' business keys, 100 % are other text",
		Keys:     []KeyExample{{BusinessKey: Printable([]byte("a_1")), At: Position{0, 3}, Becomes: "17_GiRWNt", Partition: 5}, {BusinessKey: Printable([]byte("\x1b"))}},
		Actions:  []ActionUse{{UUID: "caa2da48-5fe7-3ce2-8106-de90c978d448", Name: "think\x1b", NewUUID: "38a6dc64-3b4e-35b2-bd05-0e03844da812", Records: 2, First: 1000, Last: 2000, Events: []NamedCount{{Name: "_input_event", Count: 2}}}, {UUID: "8da9f90a-54cc-3791-9b96-ee006ca295e2", Records: 1, First: -1, Last: -1}},
		Layouts:  []NamedCount{{Name: "0.3.1", Count: 2}, {Name: "unknown", Count: 1}},
		Problems: []ProblemCount{{Problem: "not-a-state", Meaning: "The value is no state.", Records: 1, First: Position{0, 9}}},
	}
	return r
}

// What was decided by hand stands in both forms for people.
func TestDecidedReport(t *testing.T) {
	var text, page bytes.Buffer
	r := decidedReport()
	if err := r.WriteText(&text, Style{}); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"REPAIRS", "2 keys", `"a_1_X "`, "becomes", `"junk\n"`, "3 repairs are of keys that are not in the topic",
		"PRUNED", "prune-before", `"gone\x1B"`, "p0@41, p3@17", "KEYS THAT COLLIDE", "wins", "gives way",
		"WHAT RELEASE 0.4 WILL FIND", "becomes 17_GiRWNt on partition 5", "cannot be a key of this type", "nobody named it", "_input_event (2)", "no timestamps", "not-a-state",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("report.txt has no %q\n%s", want, text.String())
		}
	}
	for _, want := range []string{"Repairs", "a_1_X", "Pruned", "prune-before", "collide", "And 1,499 more", "What release 0.4 will find", "nobody named it"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("report.html has no %q", want)
		}
	}
}

// A list that the decoder would read in another way than it is meant.
func TestPruneLinesAreExact(t *testing.T) {
	for line, want := range map[string]string{
		`{"business_key":"a","sequence":1}`:                   "",
		`{"business_key":"\u00e4\ud83d\ude00","sequence":1}`:  "",
		`{"business_key":"\\ud83d","sequence":1}`:             "",
		`{"business_key":"\ufffd","sequence":1}`:              "",
		`{"business_key":"a"}`:                                "line 1: sequence is missing",
		`{"sequence":1}`:                                      "line 1: business_key is missing",
		`{"business_key":null,"sequence":1}`:                  "line 1: business_key is missing",
		`{"business_key":"a","sequence":1.5}`:                 "line 1: ",
		`{"business_key":"a","sequence":"1"}`:                 "line 1: ",
		`{"business_key":"a","sequence":1,"sequence":2}`:      "line 1: field",
		`{"business_key":"a","sequence":1,"Sequence":2}`:      "line 1: field",
		`{"business_key":"a","sequence":1,"why":""}`:          "line 1: ",
		`{"business_key":"\ud83d","sequence":1}`:              "surrogate",
		`{"business_key":"\ud83d\u0041","sequence":1}`:        "surrogate",
		`{"business_key":"\ude00\ud83d","sequence":1}`:        "surrogate",
		"{\"business_key\":\"\xff\",\"sequence\":1}":          "UTF-8",
		`{"business_key":"a","sequence":1} {}`:                "line 1: ",
		`{"business_key":"a","sequence":9223372036854775808}`: "line 1: ",
	} {
		got := ""
		if err := ReadPrunes(strings.NewReader(line+"\n"), func(string, int64) error { return nil }); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
