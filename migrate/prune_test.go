package migrate

import (
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"rekey/keycodec"
	"rekey/rewrite"
)

// memory is a Source of records in memory, in order of their offsets.
type memory []rewrite.Record

func (m memory) Read(_ context.Context, span Span, fn func([]rewrite.Record) error) (ReadStats, error) {
	var batch []rewrite.Record
	for _, r := range m {
		if r.Partition == span.Partition && r.Offset >= span.From && r.Offset < span.To {
			batch = append(batch, r)
		}
	}
	if len(batch) == 0 {
		return ReadStats{}, nil
	}
	return ReadStats{Records: int64(len(batch))}, fn(batch)
}

const historyIDs = "a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448"

// entryKey is what the model knows of a key: it never looks at its text.
type entryKey struct {
	business string
	sequence int64
}

func (k entryKey) source() string { return fmt.Sprintf("%s_%d_%s", k.business, k.sequence, historyIDs) }

func (k entryKey) target() string {
	business := strings.NewReplacer("%", "%25", "_", "%5F").Replace(k.business)
	return fmt.Sprintf("%s_%d_%s", business, k.sequence, historyIDs)
}

// history is a source of a few partitions and what is to be forgotten of it.
type history struct {
	records  []rewrite.Record
	keys     []entryKey // of each record
	ends     []int64    // by partition
	prunes   map[string]int64
	before   []int64
	omit     bool
	latest   bool
	repaired map[string]entryKey // spoilt source keys
}

// Business keys that a careless prune would take for each other.
var lookAlikes = []string{"a", "a_1", "a_1_0", "a_", "_", "", "a%5F1", "a%", "1", "ä_1"}

func randomHistory(random *rand.Rand) history {
	h := history{ends: make([]int64, 1+random.IntN(3)), prunes: map[string]int64{}, latest: random.IntN(2) == 0, omit: random.IntN(2) == 0, repaired: map[string]entryKey{}}
	for range random.IntN(40) {
		partition := random.IntN(len(h.ends))
		h.ends[partition] += int64(random.IntN(3)) // holes
		key := entryKey{lookAlikes[random.IntN(len(lookAlikes))], int64(random.IntN(3))}
		text := key.source()
		if random.IntN(6) == 0 {
			// A spoilt key has a repaired one of its own, so that nothing collides.
			key.business = "spoilt " + key.business
			text = key.source() + " "
			h.repaired[text] = key
		}
		r := rewrite.Record{Partition: int32(partition), Offset: h.ends[partition], Timestamp: int64(len(h.records)), Key: []byte(text)}
		if random.IntN(3) > 0 {
			r.Value = fmt.Appendf(nil, "v%d", len(h.records))
		}
		h.ends[partition]++
		h.records, h.keys = append(h.records, r), append(h.keys, key)
	}
	if random.IntN(4) > 0 {
		for range 1 + random.IntN(4) {
			key := lookAlikes[random.IntN(len(lookAlikes))]
			if random.IntN(4) == 0 {
				key = "spoilt " + key
			}
			h.prunes[key] = int64(random.IntN(4)) - 1
		}
	}
	if random.IntN(3) == 0 {
		for _, end := range h.ends {
			h.before = append(h.before, random.Int64N(end+2))
		}
	}
	return h
}

// demandedEntry is a record that belongs on the target; a tombstone has the
// value "null".
type demandedEntry struct {
	offset     int64
	key, value string
}

// demanded is the model: what belongs on the target of one source partition, by
// the words of the design and nothing else.
func (h *history) demanded(partition int32) []demandedEntry {
	last := map[entryKey]int64{}
	for i, r := range h.records {
		if r.Partition == partition {
			last[h.keys[i]] = r.Offset
		}
	}
	var out []demandedEntry
	for i, r := range h.records {
		key := h.keys[i]
		if r.Partition != partition {
			continue
		}
		upTo, listed := h.prunes[key.business]
		pruned := listed && key.sequence <= upTo || h.before != nil && last[key] < h.before[partition]
		value := "null"
		if r.Value != nil {
			value = string(r.Value)
		}
		switch {
		case pruned && (h.omit || last[key] != r.Offset):
			continue
		case pruned:
			value = "null"
		case h.latest && last[key] != r.Offset:
			continue
		}
		out = append(out, demandedEntry{r.Offset, key.target(), value})
	}
	return out
}

func (h *history) rules(t *testing.T) rewrite.Rules {
	t.Helper()
	o := DefaultPlanOptions()
	if h.latest {
		o.History = rewrite.HistoryLatest
	}
	if h.omit {
		o.Pruned = rewrite.PrunedOmit
	}
	rules, err := o.rules(3)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.prunes) > 0 {
		rules.Prunes = h.prunes
	}
	rules.PruneBefore = h.before
	ids := strings.Split(historyIDs, "_")
	rules.Repairs = map[string]*rewrite.Repair{}
	for text, key := range h.repaired {
		rules.Repairs[text] = &rewrite.Repair{Action: rewrite.RepairRewrite, Key: keycodec.Key{BusinessKey: []byte(key.business), Sequence: key.sequence,
			Event: uuid.MustParse(ids[0]), Action: uuid.MustParse(ids[1]), KeyGroup: keycodec.NoKeyGroup}}
	}
	return rules
}

// What is demanded of 10,000 random histories is what the model says, from the
// beginning and from any offset that a resumed apply goes on from.
func TestPruneAgainstModel(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 4))
	lines := map[string]int{}
	for n := range 10_000 {
		h := randomHistory(random)
		ask := demand{source: memory(h.records), rules: h.rules(t), prints: newFingerprinter(), count: &counter{progress: NoProgress{}}}
		for partition, end := range h.ends {
			want := h.demanded(int32(partition))
			from := int64(0)
			if random.IntN(2) == 0 && end > 0 {
				from = random.Int64N(end)
				want = slices.DeleteFunc(want, func(d demandedEntry) bool { return d.offset < from })
			}
			var got []demandedEntry
			_, err := ask.each(t.Context(), Span{int32(partition), 0, end}, from, func(r *rewrite.Record, d rewrite.Decision) error {
				lines[fmt.Sprintf("%v, %v", d.Action, d.Reason)]++
				if !d.Action.OnTarget() {
					return nil
				}
				value := "null"
				if v := d.Value(r); v != nil {
					value = string(v)
				}
				got = append(got, demandedEntry{r.Offset, string(d.Key), value})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(demandedEntry{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("history %d, partition %d from %d (-want +got)\n%s\nprunes %v, before %v, omit %t, latest %t", n, partition, from, diff, h.prunes, h.before, h.omit, h.latest)
			}
		}
	}
	// An oracle that sees no case proves nothing.
	for _, line := range []string{"rewrite, plain", "rewrite, repaired", "tombstone, null-value", "tombstone, pruned", "tombstone, pruned-before",
		"omit, pruned", "omit, pruned-before", "omit, superseded"} {
		if lines[line] < 1000 {
			t.Errorf("%s: only %d times; met are %v", line, lines[line], slices.Sorted(maps.Keys(lines)))
		}
	}
}

func TestParsePruneList(t *testing.T) {
	var quoted strings.Builder
	out := csv.NewWriter(&quoted)
	if err := out.WriteAll([][]string{{"business_key", "sequence"}, {"a,\"1\"\nb", "7"}, {"", "0"}, {" x ", "9223372036854775807"}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content string
		want    pruneList
		err     string
	}{
		"JSON lines":           {content: "{\"business_key\":\"a_1\",\"sequence\":7}\n\n{\"sequence\":0,\"business_key\":\"\"}", want: pruneList{"a_1": 7, "": 0}},
		"the higher number":    {content: "{\"business_key\":\"a\",\"sequence\":7}\n{\"business_key\":\"a\",\"sequence\":3}\n", want: pruneList{"a": 7}},
		"CSV":                  {content: quoted.String(), want: pruneList{"a,\"1\"\nb": 7, "": 0, " x ": 9223372036854775807}},
		"CSV, Windows":         {content: "business_key,sequence\r\na,1\r\n", want: pruneList{"a": 1}},
		"CSV, only a header":   {content: "business_key,sequence\n", want: pruneList{}},
		"empty":                {content: " \n", err: "it is empty"},
		"no header":            {content: "a,1\n", err: "line 1: it begins neither"},
		"other header":         {content: "key,sequence\na,1\n", err: "line 1: it begins neither"},
		"header with blanks":   {content: "business_key, sequence\na,1\n", err: "line 1: it begins neither"},
		"too many fields":      {content: "business_key,sequence\na,1,2\n", err: "line 2"},
		"no number":            {content: "business_key,sequence\na,one\n", err: "line 2: sequence \"one\""},
		"blank before number":  {content: "business_key,sequence\na, 1\n", err: "line 2: sequence \" 1\""},
		"leading zero":         {content: "business_key,sequence\nb,1\na,01\n", err: "line 3: sequence \"01\""},
		"negative":             {content: "business_key,sequence\na,-1\n", err: "it is negative"},
		"beyond 63 bits":       {content: "business_key,sequence\na,9223372036854775808\n", err: "line 2"},
		"not UTF-8":            {content: "business_key,sequence\n\xff,1\n", err: "not UTF-8"},
		"ambiguous line break": {content: "business_key,sequence\r\n\"a\r\nb\",1\r\n", err: "use JSON lines"},
		"JSON, negative":       {content: "{\"business_key\":\"a\",\"sequence\":-1}", err: "line 1: the sequence number -1 is negative"},
		"JSON, second line":    {content: "{\"business_key\":\"a\",\"sequence\":1}\n{\"business_key\":\"a\"}", err: "line 2: sequence is missing"},
		"JSON array":           {content: "[{\"business_key\":\"a\",\"sequence\":1}]", err: "line 1"},
	} {
		got, err := parsePruneList([]byte(c.content))
		switch {
		case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", name, err, c.err)
		case c.err == "":
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
		}
	}
}

// A list in its normal form reads back as it was, whatever its keys hold.
func TestPruneListNormalForm(t *testing.T) {
	list := pruneList{"": 0, "a\r\nb": 1, "\"": 2, "\u202e\u0000": 3, "\U0001f600": 9223372036854775807, "\ufffd": 4}
	dir := onDisk(t.TempDir())
	if err := dir.writePruneList(pruneFileName, list); err != nil {
		t.Fatal(err)
	}
	got, err := readPruneList(dir.path(pruneFileName))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, got); diff != "" {
		t.Error(diff)
	}
	content, err := os.ReadFile(dir.path(pruneFileName))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(strings.Split(strings.TrimSpace(string(content)), "\n")[1:3]) {
		t.Errorf("not in order:\n%s", content)
	}
}
