package keycodec

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKeys runs testdata/keys.tsv. Each row is a key in some format and its outcome: "ok" and the
// fields, or a reason with field, offset and detail, and the suggestion. Every reason and every
// suggestion must occur.
func TestKeys(t *testing.T) {
	unseen := map[string]bool{"ok": true}
	for _, reason := range Reasons() {
		unseen[string(reason)] = true
	}
	for _, cause := range Causes() {
		unseen[cause] = true
	}
	for _, r := range readTSV(t, "keys.tsv") {
		if len(r.fields) < 3 {
			t.Fatalf("%s: too few columns", r.where)
		}
		f := formatOf(t, r.fields[0])
		var stateKey []byte
		if r.fields[1] != "null" {
			stateKey = []byte(unquote(t, r, r.fields[1]))
		}
		switch outcome := r.fields[2]; {
		case outcome == "ok":
			checkGoodKey(t, f, stateKey, r)
		case slices.Contains(Reasons(), Reason(outcome)):
			checkBadKey(t, f, stateKey, r)
			cause := r.fields[5]
			if cause != "-" && !slices.Contains(Causes(), cause) {
				t.Fatalf("%s: unknown cause %q", r.where, cause)
			}
			delete(unseen, cause)
		default:
			t.Fatalf("%s: unknown outcome %q", r.where, outcome)
		}
		delete(unseen, r.fields[2])
	}
	delete(unseen, string(UnknownAction)) // no format yields it
	for outcome := range unseen {
		t.Errorf("keys.tsv has no row for %s", outcome)
	}
}

func checkGoodKey(t *testing.T, f Format, stateKey []byte, r row) {
	t.Helper()
	r.want(t, 6)
	want := testKey(unquote(t, r, r.fields[3]))
	want.Sequence, want.KeyGroup = number[int64](t, r, r.fields[4]), number[int32](t, r, r.fields[5])
	if f.Name() == NameFlinkAgents04 {
		want.BusinessKey, want.Digest = nil, want.BusinessKey
	}
	var got Key
	if err := f.Parse(&got, stateKey); err != nil {
		t.Errorf("%s: %v", r.where, err)
		return
	}
	if diff := diffKeys(want, got); diff != "" {
		t.Errorf("%s: parsed (-want +got)\n%s", r.where, diff)
	}
	back, err := f.Append([]byte("before:"), &got)
	if err != nil || string(back) != "before:"+string(stateKey) {
		t.Errorf("%s: appended %q, %v", r.where, back, err)
	}
	if s, ok := Suggest(f, stateKey); ok {
		t.Errorf("%s: suggestion %s for a good key", r.where, s.Cause)
	}
}

func checkBadKey(t *testing.T, f Format, stateKey []byte, r row) {
	t.Helper()
	r.want(t, 8)
	want := &ParseError{f.Name(), Reason(r.fields[2]), r.fields[3], number[int](t, r, r.fields[4]), r.fields[7]}
	var got *ParseError
	if err := f.Parse(new(Key), stateKey); !errors.As(err, &got) {
		t.Errorf("%s: got %v, want a *ParseError", r.where, err)
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", r.where, diff)
	}
	cause, repaired := "-", "-"
	if s, ok := Suggest(f, stateKey); ok {
		cause = s.Cause
		spelling := Legacy
		if s.Repaired.Digest != nil {
			spelling = f
		}
		text, err := spelling.Append(nil, &s.Repaired)
		if err != nil {
			t.Errorf("%s: repaired key: %v", r.where, err)
		}
		repaired = string(text)
		if s.Text == "" {
			t.Errorf("%s: suggestion %s without text", r.where, cause)
		}
	}
	wantRepaired := "-"
	if r.fields[6] != "-" {
		wantRepaired = unquote(t, r, r.fields[6])
	}
	if cause != r.fields[5] || repaired != wantRepaired {
		t.Errorf("%s: suggestion %s %q, want %s %q", r.where, cause, repaired, r.fields[5], wantRepaired)
	}
}

// TestFlinkKeys compares with values that Java's and Flink's own code computed. One wrong bit in any
// of them would put every key of a topic where the job does not look for it.
func TestFlinkKeys(t *testing.T) {
	flinkAgents, err := LookupPartitioner("flink-agents")
	if err != nil {
		t.Fatal(err)
	}
	unseen := map[KeyType]bool{}
	for _, keyType := range KeyTypes() {
		unseen[keyType] = true
	}
	for _, r := range slices.Concat(readTSV(t, "flink-keys.tsv"), readTSV(t, "flink-classes.tsv")) {
		r.want(t, 8)
		keyType, err := ParseKeyType(r.fields[0])
		if err != nil {
			t.Fatalf("%s: %v", r.where, err)
		}
		delete(unseen, keyType)
		var text string
		if err := json.Unmarshal([]byte(`"`+r.fields[1]+`"`), &text); err != nil {
			t.Fatalf("%s: %v", r.where, err)
		}
		k := testKey(text)

		serialized, hash, err := keyType.Serialize(nil, k.BusinessKey)
		if err != nil {
			t.Errorf("%s: %v", r.where, err)
			continue
		}
		if got := hex.EncodeToString(serialized); got != r.fields[3] {
			t.Errorf("%s: serialized %s, want %s", r.where, got, r.fields[3])
		}
		if want := number[int32](t, r, r.fields[2]); hash != want {
			t.Errorf("%s: hash code %d, want %d", r.where, hash, want)
		}
		f := flinkAgents04Of(t, keyType)
		stateKey, err := f.Append(nil, &k)
		if err != nil {
			t.Errorf("%s: %v", r.where, err)
			continue
		}
		if want := r.fields[5] + expand("_7_{E}_{A}_") + r.fields[4]; string(stateKey) != want {
			t.Errorf("%s: state key %s, want %s", r.where, stateKey, want)
		}
		if got, want := flinkAgents.Partition(f, stateKey, &k, 0, 64), number[int32](t, r, r.fields[7]); got != want {
			t.Errorf("%s: partition %d, want %d", r.where, got, want)
		}

		legacyKey, err := Legacy.Append(nil, &k)
		if err != nil {
			t.Fatalf("%s: %v", r.where, err)
		}
		if refused := r.fields[6] == "-"; RuntimeRefuses(legacyKey) != refused {
			t.Errorf("%s: refused is %v, want %v", r.where, !refused, refused)
		} else if !refused {
			if got, want := flinkAgents.Partition(Legacy, legacyKey, &k, 0, 64), number[int32](t, r, r.fields[6]); got != want {
				t.Errorf("%s: legacy partition %d, want %d", r.where, got, want)
			}
		}
	}
	for keyType := range unseen {
		t.Errorf("no vector for key type %s", keyType)
	}
}

func TestNameUUID(t *testing.T) {
	for _, r := range readTSV(t, "names.tsv") {
		r.want(t, 2)
		if got := NameUUID([]byte(r.fields[0])).String(); got != r.fields[1] {
			t.Errorf("%s: %s, want %s", r.where, got, r.fields[1])
		}
	}
}

// TestDigestForms checks the strict digest reader against the standard library's strict decoder.
func TestDigestForms(t *testing.T) {
	strict := base64.StdEncoding.Strict()
	text := []byte(digestText)
	for i := range text {
		for c := range 256 {
			changed := slices.Clone(text)
			changed[i] = byte(c)
			sum, err := strict.DecodeString(string(changed))
			// The decoder skips line breaks, which a digest cannot have.
			want := err == nil && len(sum) == 32 && c != '\n' && c != '\r'
			if got := faultInDigest(changed) < 0; got != want {
				t.Errorf("%q: accepted is %v, want %v", changed, got, want)
			}
		}
	}
}
