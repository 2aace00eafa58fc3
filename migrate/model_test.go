package migrate

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
)

// A second opinion on a finished target. It is written from the design alone and
// shares no code with keycodec, rewrite and migrate: another way to read keys,
// another escape function, another partitioner, another client. It holds both
// topics in memory, so it can afford to be obvious.

// model says what was asked for.
type model struct {
	to      string  // "escaped" or "length-prefixed"
	history string  // "all" or "latest"
	policy  string  // "quarantine" or "copy"; "fail" is as quarantine: nothing may be left
	align   []int64 // by target partition: no migrated record may lie before this offset; nil for none
	// compacted allows that superseded records, padding and the holes they leave
	// are gone from the target: then only the last record of each key counts.
	compacted bool
}

// modelCheck reads both topics and fails the test if the target is not what the
// model demands of the source.
func modelCheck(t testing.TB, c *testcluster.Cluster, source, target string, m model) {
	t.Helper()
	ranges, err := reader.Ranges(testcluster.Context(t), c.Addrs(), target)
	if err != nil {
		t.Fatal(err)
	}
	problems := m.problems(c.Read(t, source), c.Read(t, target), int32(len(ranges)))
	for _, problem := range problems[:min(len(problems), 20)] {
		t.Error("model:", problem)
	}
	if len(problems) > 20 {
		t.Errorf("model: and %d more", len(problems)-20)
	}
}

// modelRecord is what the target should hold for one source record.
type modelRecord struct {
	source    reader.Record
	key       string
	partition int32
}

// problems lists all that is wrong with a target.
func (m model) problems(source, target []reader.Record, partitions int32) []string {
	var problems []string
	bad := func(r reader.Record, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("target %d:%d key %q: ", r.Partition, r.Offset, r.Key)+fmt.Sprintf(format, args...))
	}
	demanded := m.demanded(source, partitions)
	type position struct {
		partition int32
		offset    int64
	}
	at := map[position]modelRecord{}
	for _, d := range demanded {
		at[position{d.source.Partition, d.source.Offset}] = d
	}
	seen := map[position]bool{}
	previous := map[[2]int32]int64{} // by source and target partition
	for _, r := range target {
		n := len(r.Headers) - 1
		if n < 0 || r.Headers[n].Key != "rekey-source" {
			bad(r, "the last header is not the provenance")
			continue
		}
		if slices.ContainsFunc(r.Headers[:n], func(h reader.Header) bool { return h.Key == "rekey-source" }) {
			bad(r, "two provenance headers")
			continue
		}
		text := string(r.Headers[n].Value)
		if text == "padding" || strings.HasPrefix(text, "padding:") {
			if n != 0 || r.Value != nil || string(r.Key) != m.paddingKey() {
				bad(r, "padding that is not the plain tombstone of the reserved key")
			}
			continue
		}
		p, ok := readPosition(text)
		if !ok {
			bad(r, "provenance %q", text)
			continue
		}
		from := position{p.Partition, p.Offset}
		d, ok := at[from]
		switch {
		case !ok:
			bad(r, "no such record is demanded of source %s", text)
			continue
		case seen[from]:
			bad(r, "source %s is there twice", text)
			continue
		}
		seen[from] = true
		pair := [2]int32{p.Partition, r.Partition}
		if last, ok := previous[pair]; ok && last >= p.Offset {
			bad(r, "source %s follows offset %d", text, last)
		}
		previous[pair] = p.Offset
		switch {
		case r.Key == nil || string(r.Key) != d.key:
			bad(r, "the key of source %s becomes %q", text, d.key)
		case r.Partition != d.partition:
			bad(r, "it belongs in partition %d", d.partition)
		case (r.Value == nil) != (d.source.Value == nil) || !bytes.Equal(r.Value, d.source.Value):
			bad(r, "value %s, want %s", show(r.Value), show(d.source.Value))
		case r.Timestamp != d.source.Timestamp:
			bad(r, "timestamp %d, want %d", r.Timestamp, d.source.Timestamp)
		case !sameHeaders(r.Headers[:n], d.source.Headers):
			bad(r, "headers %v, want %v", r.Headers[:n], d.source.Headers)
		case m.align != nil && r.Offset < m.align[r.Partition]:
			bad(r, "it lies before offset %d", m.align[r.Partition])
		}
	}
	problems = append(problems, m.missing(demanded, func(d modelRecord) bool {
		return seen[position{d.source.Partition, d.source.Offset}]
	})...)
	if !m.compacted {
		problems = append(problems, holes(target)...)
	}
	return problems
}

// missing lists what is demanded and not there. On a compacted target a record
// may be gone if a later one of its key from the same source partition is there.
func (m model) missing(demanded []modelRecord, there func(modelRecord) bool) []string {
	var problems []string
	type identity struct {
		source int32
		key    string
	}
	latest := map[identity]int64{}
	for _, d := range demanded {
		if there(d) {
			latest[identity{d.source.Partition, d.key}] = d.source.Offset
		}
	}
	for _, d := range demanded {
		if there(d) {
			continue
		}
		if last, ok := latest[identity{d.source.Partition, d.key}]; m.compacted && ok && last > d.source.Offset {
			continue
		}
		problems = append(problems, fmt.Sprintf("source %d:%d is missing: key %q of partition %d", d.source.Partition, d.source.Offset, d.key, d.partition))
	}
	return problems
}

// holes lists gaps in the target's offsets: a copy leaves none.
func holes(target []reader.Record) []string {
	var problems []string
	next := map[int32]int64{}
	for _, r := range target {
		if r.Offset != next[r.Partition] {
			problems = append(problems, fmt.Sprintf("target %d: offset %d follows %d", r.Partition, r.Offset, next[r.Partition]-1))
		}
		next[r.Partition] = r.Offset + 1
	}
	return problems
}

// demanded lists what belongs on the target, by source partition and offset.
func (m model) demanded(source []reader.Record, partitions int32) []modelRecord {
	type identity struct {
		partition int32
		key       string
	}
	last := map[identity]int64{}
	for _, r := range source {
		last[identity{r.Partition, string(r.Key)}] = r.Offset
	}
	var out []modelRecord
	for _, r := range source {
		legacy := readLegacy(r.Key)
		switch {
		case legacy == nil && (m.policy != "copy" || r.Key == nil):
		case legacy == nil:
			out = append(out, modelRecord{r, string(r.Key), r.Partition % partitions})
		case m.history == "latest" && last[identity{r.Partition, string(r.Key)}] != r.Offset:
		case m.to == "length-prefixed":
			key := fmt.Sprintf("lp1:%d:%s:%s:%s:%s", len(legacy[0]), legacy[0], legacy[1], legacy[2], legacy[3])
			out = append(out, modelRecord{r, key, javaPartition(legacy[0], partitions)})
		default:
			key := escapeText(legacy[0]) + "_" + legacy[1] + "_" + legacy[2] + "_" + legacy[3]
			out = append(out, modelRecord{r, key, seed.Partition([]byte(key), partitions)})
		}
	}
	return out
}

const modelUUID = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// The first group is greedy: the last three fields are as short as they can be.
var modelLegacy = regexp.MustCompile(`(?s)^(.*)_(0|[1-9][0-9]{0,18})_(` + modelUUID + `)_(` + modelUUID + `)$`)

// readLegacy gives business key, sequence, event and action, or nil.
func readLegacy(key []byte) []string {
	if key == nil || !utf8.Valid(key) {
		return nil
	}
	found := modelLegacy.FindStringSubmatch(string(key))
	if found == nil {
		return nil
	}
	if n, err := strconv.ParseUint(found[2], 10, 64); err != nil || n > math.MaxInt64 {
		return nil
	}
	return found[1:]
}

// escapeText goes over runes where the product goes over bytes.
func escapeText(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch r {
		case '_', '%':
			fmt.Fprintf(&out, "%%%02X", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// javaPartition is Flink's murmur hash of Java's hash of a whole text. With no
// underscore in the text, seed.Partition is the same; TestModel compares them.
func javaPartition(text string, partitions int32) int32 {
	var hash int32
	for _, unit := range utf16.Encode([]rune(text)) {
		hash = 31*hash + int32(unit)
	}
	k := uint32(hash) * 0xcc9e2d51
	k = (k<<15 | k>>17) * 0x1b873593
	k = (k<<13 | k>>19)
	k = k*5 + 0xe6546b64
	k ^= 4
	k ^= k >> 16
	k *= 0x85ebca6b
	k ^= k >> 13
	k *= 0xc2b2ae35
	k ^= k >> 16
	switch n := int32(k); {
	case n >= 0:
		return n % partitions
	case n != math.MinInt32:
		return -n % partitions
	}
	return 0
}

func (m model) paddingKey() string {
	const nilUUID = "00000000-0000-0000-0000-000000000000"
	if m.to == "length-prefixed" {
		return "lp1:13:rekey-padding:0:" + nilUUID + ":" + nilUUID
	}
	return "rekey-padding_0_" + nilUUID + "_" + nilUUID
}

var modelPosition = regexp.MustCompile(`^(0|[1-9][0-9]*):(0|[1-9][0-9]*)$`)

func readPosition(text string) (reader.Record, bool) {
	found := modelPosition.FindStringSubmatch(text)
	if found == nil {
		return reader.Record{}, false
	}
	partition, err := strconv.ParseInt(found[1], 10, 32)
	if err != nil {
		return reader.Record{}, false
	}
	offset, err := strconv.ParseInt(found[2], 10, 64)
	return reader.Record{Partition: int32(partition), Offset: offset}, err == nil
}

func sameHeaders(a, b []reader.Header) bool {
	return slices.EqualFunc(a, b, func(a, b reader.Header) bool {
		return a.Key == b.Key && (a.Value == nil) == (b.Value == nil) && bytes.Equal(a.Value, b.Value)
	})
}

func show(value []byte) string {
	if value == nil {
		return "null"
	}
	return fmt.Sprintf("%q", value)
}

// The model itself: an oracle that finds nothing proves nothing.
func TestModel(t *testing.T) {
	for i := range 300 {
		text := seed.BusinessKey(i)
		if strings.Contains(text, "_") {
			text = strings.ReplaceAll(text, "_", "-")
		}
		for _, n := range []int32{1, 3, 16, 128} {
			if got, want := javaPartition(text, n), seed.Partition([]byte(text+"_0"), n); got != want {
				t.Fatalf("%q of %d: partition %d, seed says %d", text, n, got, want)
			}
		}
	}
	const ids = "_a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13"
	for key, want := range map[string]string{
		"a_1" + ids: "a 1", "a_1_2" + ids: "a_1 2", "__0" + ids: "_ 0", "_0" + ids: " 0", "a\nb_3" + ids: "a\nb 3",
		"a_3" + ids + "_4" + ids: "a_3" + ids + " 4", "a_9223372036854775807" + ids: "a 9223372036854775807",
		"a_01" + ids: "", "a_+1" + ids: "", "a_9223372036854775808" + ids: "", "\xff_1" + ids: "", "1" + ids: "",
		"a_1" + strings.ToUpper(ids): "", "a_1" + ids + "\n": "", "": "",
	} {
		got := readLegacy([]byte(key))
		if want == "" {
			if got != nil {
				t.Errorf("%q is read as %q", key, got)
			}
			continue
		}
		if got == nil || got[0]+" "+got[1] != want {
			t.Errorf("%q is read as %q, want %q", key, got, want)
		}
	}
	for _, kind := range seed.Unparseable() {
		if got := readLegacy(seed.BadKey(kind, 7)); got != nil {
			t.Errorf("%s is read as %q", kind, got)
		}
	}
	if got := escapeText("a_%5F%_é"); got != "a%5F%255F%25%5Fé" {
		t.Errorf("escaped: %q", got)
	}
}
