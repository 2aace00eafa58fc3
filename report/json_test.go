package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestJSON: every document is written as it should be, read back as the same
// value, and written again as the same bytes.
func TestJSON(t *testing.T) {
	for name, r := range sampleReports() {
		doc := toJSON(t, r)
		golden(t, name+".json", doc)
		back, err := ReadReport(bytes.NewReader(doc))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(r, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: read back (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(string(doc), string(toJSON(t, back))); diff != "" {
			t.Errorf("%s: written again:\n%s", name, diff)
		}
	}
	a := sampleApply()
	golden(t, "apply.json", toJSON(t, a))
	if back, err := ReadApply(bytes.NewReader(toJSON(t, a))); err != nil || !cmp.Equal(a, back, cmpopts.EquateEmpty()) {
		t.Errorf("apply: %v", err)
	}
	v := differentVerify()
	golden(t, "verify.json", toJSON(t, v))
	if back, err := ReadVerify(bytes.NewReader(toJSON(t, v))); err != nil || !cmp.Equal(v, back, cmpopts.EquateEmpty()) {
		t.Errorf("verify: %v", err)
	}
}

// TestJSONShape: the promises of WriteJSON, on values that strain them.
func TestJSONShape(t *testing.T) {
	zone := time.FixedZone("somewhere", 3600)
	doc := string(toJSON(t, &Report{CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, zone), RunDir: "a<b>&\u202E\u009b\U000E0041…é"}))
	for _, want := range []string{`"bad_keys": []`, `"findings": []`, `"next": []`, `"timeline": []`, `2026-01-02T02:04:05Z`,
		`"a<b>&\u202e\u009b\udb40\udc41…é"`} {
		if !strings.Contains(doc, want) {
			t.Errorf("no %s in\n%s", want, doc)
		}
	}
	if doc := string(toJSON(t, []string{"run\xff"})); doc != "[\n  \"run\\\\xFF\"\n]\n" {
		t.Errorf("not UTF-8: %s", doc)
	}
	if strings.Contains(doc, "null") || !strings.HasSuffix(doc, "}\n") || strings.HasSuffix(doc, "\n\n") {
		t.Errorf("a null, or not exactly one line feed at the end:\n%s", doc)
	}
	// Elsewhere: null bytes stay null, nested nil lists do not, and the value
	// that was given is not touched.
	v := map[string]any{"l": [][]string{nil, {"x"}}, "b": []byte(nil), "p": (*int)(nil), "n": nil}
	if got, want := string(toJSON(t, v)), "{\n  \"b\": null,\n  \"l\": [\n    [],\n    [\n      \"x\"\n    ]\n  ],\n  \"n\": null,\n  \"p\": null\n}\n"; got != want {
		t.Errorf("got %s", got)
	}
	if v["l"].([][]string)[0] != nil {
		t.Error("the value was changed")
	}
	type loop struct{ Next *loop }
	l := &loop{}
	l.Next = l
	if err := WriteJSON(&bytes.Buffer{}, l); err == nil {
		t.Error("a loop is not refused")
	}
	if got := string(toJSON(t, nil)); got != "null\n" {
		t.Errorf("nil: %q", got)
	}
}

func TestReadRefuses(t *testing.T) {
	good := string(toJSON(t, cleanReport()))
	for name, c := range map[string]struct{ doc, want string }{
		"unknown field": {strings.Replace(good, `"tool":`, `"tol": 1, "tool":`, 1), "tol"},
		"nested":        {strings.Replace(good, `"log_start":`, `"x": 1, "log_start":`, 1), `"x"`},
		"twice":         {strings.Replace(good, `"tool":`, `"tool": "a", "tool":`, 1), "twice"},
		"other case":    {strings.Replace(good, `"tool":`, `"Tool": "a", "tool":`, 1), "twice"},
		"second":        {good + "{}", "after"},
		"newer":         {strings.Replace(good, `"schema_version": 1`, `"schema_version": 2, "new": 1`, 1), "newer release"},
		"older":         {strings.Replace(good, `"schema_version": 1`, `"schema_version": -1`, 1), "older release"},
		"no version":    {"{}", "no schema_version"},
		"cut off":       {good[:len(good)/2], "unexpected end"},
		"empty":         {"", "unexpected end"},
		"list":          {"[]", "cannot unmarshal"},
		"deep":          {`{"schema_version":1,"next":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", "nested too deep"},
	} {
		r, err := ReadReport(strings.NewReader(c.doc))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
		if r != nil {
			t.Errorf("%s: a report beside the error", name)
		}
	}
	var v *VersionError
	_, err := ReadVerify(strings.NewReader(`{"schema_version":7}`))
	if !errors.As(err, &v) || v.Got != 7 {
		t.Errorf("got %v, want a VersionError", err)
	}
}

func TestBadKeyLines(t *testing.T) {
	var want []BadKey
	var b bytes.Buffer
	for _, r := range sampleReports() {
		for _, k := range r.Examples {
			want = append(want, k)
			if err := WriteBadKey(&b, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := bytes.Count(b.Bytes(), []byte("\n")); n != len(want) {
		t.Errorf("%d lines for %d keys", n, len(want))
	}
	// The last line needs no line feed, and empty lines are no lines.
	doc := "\n" + strings.TrimSuffix(b.String(), "\n")
	var got []BadKey
	for k, err := range ReadBadKeys(strings.NewReader(doc)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, k)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for range ReadBadKeys(strings.NewReader(doc)) {
		break // must not go on after that
	}
}

func TestBadKeyLinesRefuse(t *testing.T) {
	var b bytes.Buffer
	k := badKey([]byte("ab"), "foreign", "", 1, Position{}, Position{})
	if err := WriteBadKey(&b, k); err != nil {
		t.Fatal(err)
	}
	good := b.String()
	for name, c := range map[string]struct{ doc, want string }{
		"unknown":       {good + strings.Replace(good, `"key":`, `"x":1,"key":`, 1), "line 2"},
		"twice":         {strings.Replace(good, `"key":`, `"key":"","key":`, 1), "twice"},
		"other key":     {strings.Replace(good, `\"ab\"`, `\"ac\"`, 1), "key_base64 is"},
		"null key":      {strings.Replace(good, `"YWI="`, `null`, 1), "key_base64 is null"},
		"base64":        {strings.Replace(good, `YWI=`, `YW!=`, 1), "illegal base64"},
		"loose bits":    {strings.Replace(good, `YWI=`, `YWJ=`, 1), "illegal base64"},
		"two on one":    {strings.TrimSuffix(good, "\n") + good, "after the end"},
		"cut off":       {good[:20], "line 1"},
		"not an object": {"[]\n", "line 1"},
	} {
		n := 0
		var last error
		for _, err := range ReadBadKeys(strings.NewReader(c.doc)) {
			n++
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, last, c.want)
		}
	}
	if diff := cmp.Diff("broken", func() string {
		for _, err := range ReadBadKeys(failing{}) {
			return errors.Unwrap(err).Error()
		}
		return ""
	}()); diff != "" {
		t.Error(diff)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestRepairFor(t *testing.T) {
	demo := demoReport().Examples
	null, plainKey, fixable := demo[0], demo[6], demo[2]
	for _, c := range []struct {
		b        BadKey
		decision string
		want     string // "" for an error
	}{
		{null, "drop", `{"decision":"drop","key_base64":null,"key":"null"}`},
		{null, "copy", ""},
		{plainKey, "copy", `{"decision":"copy","key_base64":"aGVhcnRiZWF0","key":"\"heartbeat\""}`},
		{plainKey, "rewrite", ""},
		{plainKey, "other", ""},
		{fixable, "rewrite", `"business_key":"order_17","sequence":4,"event_uuid":"` + evt + `","action_uuid":"` + act + `"}`},
	} {
		r, err := RepairFor(c.b, c.decision)
		if (err != nil) != (c.want == "") {
			t.Errorf("%s %s: %v", c.b.Key, c.decision, err)
		}
		if err != nil {
			continue
		}
		line, err := r.Line()
		if err != nil || !strings.HasSuffix(line, c.want) {
			t.Errorf("got %s, %v, want %s", line, err, c.want)
		}
		var back Repair
		if err := json.Unmarshal([]byte(line), &back); err != nil || !cmp.Equal(r, back) {
			t.Errorf("%s: read back: %v", line, err)
		}
		if _, err := back.Bytes(); err != nil {
			t.Error(err)
		}
	}
	fixable.Suggestion = &Suggestion{BusinessKey: "\xff"}
	if _, err := RepairFor(fixable, "rewrite"); err == nil {
		t.Error("a business key that JSON cannot hold is not refused")
	}
	// An empty business key is a field, not a missing one.
	fixable.Suggestion = &Suggestion{}
	r, err := RepairFor(fixable, "rewrite")
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := r.Line(); !strings.Contains(line, `"business_key":"","sequence":0`) {
		t.Error(line)
	}
}

func TestReasons(t *testing.T) {
	want := strings.Fields("null-key empty-key invalid-utf8 too-few-fields bad-sequence bad-event-uuid bad-action-uuid dashed already-encoded foreign unknown-action")
	codes := fmt.Sprint(ReasonCodes())
	for _, code := range want {
		if !strings.Contains(codes, code) || Meaning(code) == "" {
			t.Errorf("%s is not explained", code)
		}
	}
	for _, code := range ReasonCodes() {
		if m := Meaning(code); !strings.HasSuffix(m, ".") || strings.Count(m, ".") > 3 {
			t.Errorf("%s: %q is not one sentence", code, m)
		}
	}
	if Meaning("what") != "" {
		t.Error("an unknown code has a meaning")
	}
}
