package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/report"
)

// TestHostileKeys runs thousands of generated keys, most of them spoilt in some
// way, through plan, apply and verify, once for each source format. What must
// become of each key is said by oracle, which shares nothing with keycodec.
func TestHostileKeys(t *testing.T) {
	const size = 2500
	corpus := hostileKeys(size)
	for _, from := range []string{"legacy", "keygroup-first", "keygroup-last"} {
		t.Run(from, func(t *testing.T) {
			runCorpus(t, from, corpus)
		})
	}
}

// fate is what must become of a key.
type fate struct {
	reason string // why it cannot be parsed; "" if it can
	key    string // then: its escaped form
}

func runCorpus(t *testing.T, from string, corpus [][]byte) {
	const partitions = 4
	random := rand.New(rand.NewPCG(5, 6))
	var records []seed.Record
	fates := map[string]fate{} // by the key in base64, "null" for the null key
	wantBad := map[string]badCount{}
	wantReasons := map[string]badCount{}
	wantTarget := map[string][]string{} // values by "partition key", in order
	for i, key := range corpus {
		f := oracle(from, key)
		name := keyName(key)
		if _, twice := fates[name]; twice {
			t.Fatalf("the key %q is in the corpus twice", key)
		}
		fates[name] = f
		bad := badCount{reason: f.reason, keys: 1}
		for n := range 1 + random.IntN(3) {
			r := seed.Record{Partition: seed.Partition(key, partitions), Timestamp: 1700000000000 + int64(i), Key: key, Value: fmt.Appendf(nil, "%d.%d", i, n)}
			if random.IntN(5) == 0 {
				r.Value = nil
				bad.tombstones++
			}
			bad.records++
			records = append(records, r)
			if f.reason == "" {
				at := fmt.Sprintf("%d %q", seed.Partition([]byte(f.key), partitions), f.key)
				wantTarget[at] = append(wantTarget[at], fmt.Sprintf("%q %t", r.Value, r.Value == nil))
			}
		}
		if f.reason != "" {
			wantBad[name] = bad
			sum := wantReasons[f.reason]
			wantReasons[f.reason] = badCount{reason: f.reason, keys: sum.keys + 1, records: sum.records + bad.records}
		}
	}
	// A corpus that stopped to reach a reason would prove nothing about it.
	reach := map[string]int{"null-key": 1, "empty-key": 1, "invalid-utf8": 50, "already-encoded": 20, "dashed": 20, "too-few-fields": 20,
		"bad-action-uuid": 40, "bad-event-uuid": 50, "bad-sequence": 50, "foreign": 50}
	if from != "legacy" {
		reach["bad-key-group"] = 50
	}
	for reason, least := range reach {
		if wantReasons[reason].keys < least {
			t.Errorf("the corpus has %d keys of reason %s, want at least %d", wantReasons[reason].keys, reason, least)
		}
	}
	if good := len(corpus) - len(wantBad); good < 50 {
		t.Errorf("the corpus has only %d keys that parse", good)
	}

	c := testcluster.Start(t)
	source := c.Seed(t, "source", fmt.Sprintf("partitions %d\nconfig cleanup.policy=compact\n%s", partitions, seed.Format(records)))
	target, dir := c.Topic(t, "target"), filepath.Join(t.TempDir(), "run")
	phase := func(args ...string) string {
		t.Helper()
		var out, failure bytes.Buffer
		args = append(append([]string{"rekey"}, args...), "--bootstrap-server", c.Bootstrap(), "--run-dir", dir, "--quiet", "--output", "json")
		if code := run(args, strings.NewReader(""), &out, &failure); code != 0 {
			t.Fatalf("%s exits %d: %s", args[1], code, failure.String())
		}
		return out.String()
	}
	var planned report.Report
	if err := json.Unmarshal([]byte(phase("plan", "--source", source, "--target", target, "--from", from, "--on-unparseable", "quarantine")), &planned); err != nil {
		t.Fatal(err)
	}
	gotReasons := map[string]badCount{}
	for _, n := range planned.Unparseable {
		gotReasons[n.Reason] = badCount{reason: n.Reason, keys: int(n.Keys), records: int(n.Records)}
	}
	if diff := cmp.Diff(wantReasons, gotReasons, cmp.AllowUnexported(badCount{})); diff != "" {
		t.Errorf("counts by reason (-want +got)\n%s", diff)
	}
	file, err := os.Open(filepath.Join(dir, "unparseable.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	gotBad := map[string]badCount{}
	for bad, err := range report.ReadBadKeys(file) {
		if err != nil {
			t.Fatal(err)
		}
		name := "null"
		if bad.KeyBase64 != nil {
			name = *bad.KeyBase64
		}
		if _, twice := gotBad[name]; twice {
			t.Errorf("%s is listed twice", bad.Key)
		}
		gotBad[name] = badCount{reason: bad.Reason, keys: 1, records: int(bad.Records), tombstones: int(bad.Tombstones)}
	}
	wrong := 0
	for name, want := range wantBad {
		if got := gotBad[name]; got != want {
			if wrong++; wrong <= 10 {
				t.Errorf("%s: got %+v, want %+v", shown(name), got, want)
			}
		}
	}
	for name, got := range gotBad {
		if _, want := wantBad[name]; !want {
			if wrong++; wrong <= 10 {
				t.Errorf("%s parses, but is listed as %+v", shown(name), got)
			}
		}
	}
	if wrong > 0 {
		t.Fatalf("%d of %d keys are wrong", wrong, len(corpus))
	}
	phase("apply")
	phase("verify")
	gotTarget := map[string][]string{}
	for _, r := range withoutPadding(c.Read(t, target)) {
		at := fmt.Sprintf("%d %q", r.Partition, r.Key)
		gotTarget[at] = append(gotTarget[at], fmt.Sprintf("%q %t", r.Value, r.Value == nil))
	}
	if diff := cmp.Diff(wantTarget, gotTarget); diff != "" {
		t.Errorf("records by partition and key on the target (-want +got)\n%s", diff)
	}
}

// badCount is what a report counts of a key, or of all keys of a reason.
type badCount struct {
	reason                    string
	keys, records, tombstones int
}

func keyName(key []byte) string {
	if key == nil {
		return "null"
	}
	return base64.StdEncoding.EncodeToString(key)
}

func shown(name string) string {
	key, err := base64.StdEncoding.DecodeString(name)
	if err != nil {
		return name
	}
	return strconv.Quote(string(key))
}

const (
	reUUID     = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	reSequence = `(?:0|[1-9][0-9]*)`
)

var (
	aUUID       = regexp.MustCompile(`^` + reUUID + `$`)
	anyUUID     = regexp.MustCompile(`(?i)` + reUUID)
	aDecimal    = regexp.MustCompile(`^` + reSequence + `$`)
	aDashed     = regexp.MustCompile(`-` + reUUID + `-` + reUUID + `$`)
	aLegacy     = regexp.MustCompile(`(?s)^(.*)_(` + reSequence + `)_` + reUUID + `_` + reUUID + `$`)
	aGroupFirst = regexp.MustCompile(`(?s)^(` + reSequence + `)_(.*)_(` + reSequence + `)_` + reUUID + `_` + reUUID + `$`)
	aGroupLast  = regexp.MustCompile(`(?s)^(` + reSequence + `)_(` + reSequence + `)_(` + reUUID + `_` + reUUID + `)_(.*)$`)
	aDigest     = regexp.MustCompile(`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`)
	aLength     = regexp.MustCompile(`^lp1:[0-9]+:`)
)

func below(text string, limit uint64) bool {
	n, err := strconv.ParseUint(text, 10, 64)
	return err == nil && n < limit
}

func isSequence(text string) bool { return aDecimal.MatchString(text) && below(text, 1<<63) }
func isGroup(text string) bool    { return aDecimal.MatchString(text) && below(text, 1<<15) }

// oracle says what must become of a key: the grammar of the formats as regular
// expressions, and the reasons in the order in which they are documented.
func oracle(from string, stateKey []byte) fate {
	key := string(stateKey)
	switch {
	case stateKey == nil:
		return fate{reason: "null-key"}
	case key == "":
		return fate{reason: "empty-key"}
	case !utf8.ValidString(key):
		return fate{reason: "invalid-utf8"}
	}
	legacy := aLegacy.FindStringSubmatch(key)
	if legacy != nil && !isSequence(legacy[2]) {
		legacy = nil
	}
	first := aGroupFirst.FindStringSubmatch(key)
	if first != nil && !(isGroup(first[1]) && isSequence(first[3])) {
		first = nil
	}
	last := aGroupLast.FindStringSubmatch(key)
	if last != nil && !(isGroup(last[1]) && isSequence(last[2])) {
		last = nil
	}
	tail := func(n int) string { // the last n fields, which need no escape
		fields := strings.Split(key, "_")
		return strings.Join(fields[len(fields)-n:], "_")
	}
	escape := strings.NewReplacer("%", "%25", "_", "%5F").Replace
	switch {
	case from == "legacy" && legacy != nil:
		return fate{key: escape(legacy[1]) + "_" + tail(3)}
	case from == "keygroup-first" && first != nil:
		return fate{key: escape(first[2]) + "_" + tail(3)}
	case from == "keygroup-last" && last != nil:
		return fate{key: escape(last[4]) + "_" + last[2] + "_" + last[3]}
	case last != nil && aDigest.MatchString(last[4]), aLength.MatchString(key):
		return fate{reason: "already-encoded"}
	case aDashed.MatchString(key):
		return fate{reason: "dashed"}
	case from != "keygroup-last" && last != nil, from == "keygroup-last" && legacy != nil:
		return fate{reason: "foreign"} // whole, in another format
	}
	if from == "keygroup-first" && legacy != nil {
		if strings.Contains(legacy[1], "_") {
			return fate{reason: "bad-key-group"}
		}
		return fate{reason: "too-few-fields"}
	}
	least := map[string]int{"legacy": 4, "keygroup-first": 4, "keygroup-last": 5}[from]
	fields := strings.Split(key, "_")
	switch {
	case !anyUUID.MatchString(key):
		return fate{reason: "foreign"}
	case len(fields) < least:
		return fate{reason: "too-few-fields"}
	}
	type check struct {
		field  string
		good   bool
		reason string
	}
	n := len(fields)
	checks := []check{ // from the right
		{fields[n-1], aUUID.MatchString(fields[n-1]), "bad-action-uuid"},
		{fields[n-2], aUUID.MatchString(fields[n-2]), "bad-event-uuid"},
		{fields[n-3], isSequence(fields[n-3]), "bad-sequence"},
	}
	if from == "keygroup-last" { // from the left
		checks = []check{
			{fields[0], isGroup(fields[0]), "bad-key-group"},
			{fields[1], isSequence(fields[1]), "bad-sequence"},
			{fields[2], aUUID.MatchString(fields[2]), "bad-event-uuid"},
			{fields[3], aUUID.MatchString(fields[3]), "bad-action-uuid"},
		}
	}
	for _, c := range checks {
		if !c.good {
			return fate{reason: c.reason}
		}
	}
	panic(fmt.Sprintf("the oracle finds nothing wrong with %q as %s, and cannot read it", key, from))
}

// hostileKeys generates n different keys, the null key and the empty key among
// them; the same n gives the same keys.
func hostileKeys(n int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	good := func() string {
		return pick("a2622b55-28e2-3a3c-9bde-7164cf05dbea", "caa2da48-5fe7-3ce2-8106-de90c978d448", "00000000-0000-0000-0000-000000000000",
			"ffffffff-ffff-ffff-ffff-ffffffffffff", "9f1c2d3e-4b5a-4c6d-8e7f-1a2b3c4d5e6f")
	}
	uuid := func() string {
		u := good()
		if random.IntN(10) < 7 {
			return u
		}
		return pick(strings.ToUpper(u), "{"+u+"}", "urn:uuid:"+u, strings.ReplaceAll(u, "-", ""), u[:35], u+"0", "g"+u[1:], "",
			" "+u, u+" ", strings.Replace(u, "-", "_", 1), strings.Replace(u, "-", "\u2010", 1), "٣"+u[1:], u[:8]+"\x00"+u[9:], u+u, "null")
	}
	sequence := func() string {
		if random.IntN(10) < 7 {
			return strconv.Itoa(random.IntN(20))
		}
		return pick("9223372036854775807", "9223372036854775808", "18446744073709551616", "99999999999999999999999", "01", "00", "+1", "-1", "-0", "",
			" 1", "1 ", "1.0", "1e3", "0x1", "١", "１", "1\x00", "null", "_")
	}
	text := func() string {
		var b strings.Builder
		for range random.IntN(4) {
			b.WriteString(pick("user", "a", "_", "__", "%", "%5F", "%25", "7", "12", "0", "-", ":", "lp1:", "lp1:3:", " ", "\n", "\r", "\t", "\x00", "\"", "\\", "'",
				"null", "é", "日本", "😀", "\u202e", "\ufeff", "\ufffd", "e\u0301", "[B@1a2b3c", "Foo@1a", "+I[a, 1]", good(), "_3_"+good()+"_"+good(), "\xff", "\xc3", "\xed\xa0\x80",
				strings.Repeat("x", 300)))
		}
		return b.String()
	}
	group := func() string {
		if random.IntN(10) < 7 {
			return strconv.Itoa(random.IntN(1 << 15))
		}
		return pick("32767", "32768", "012", "-1", "+1", "", "x", "99999999999999999999", "１")
	}
	separator := func() string {
		if random.IntN(40) > 0 {
			return "_"
		}
		return pick("-", ".", "", "__", ":", " ", "/")
	}
	key := func() string {
		s := separator
		switch random.IntN(14) {
		case 0, 1, 2, 3, 4:
			return text() + s() + sequence() + s() + uuid() + s() + uuid()
		case 5, 6:
			return group() + s() + text() + s() + sequence() + s() + uuid() + s() + uuid()
		case 7, 8:
			return group() + s() + sequence() + s() + uuid() + s() + uuid() + s() + text()
		case 9:
			return text() + "-" + uuid() + "-" + uuid()
		case 10:
			businessKey := text()
			return "lp1:" + pick(strconv.Itoa(len(businessKey)), "0", "08", "-1", "", "7") + ":" + businessKey + ":" + sequence() + ":" + uuid() + ":" + uuid()
		case 11:
			digest := pick("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=", "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU", "=")
			return group() + s() + sequence() + s() + uuid() + s() + uuid() + s() + digest
		case 12: // a part of a key
			return strings.Join([]string{sequence(), uuid(), uuid(), text()}[random.IntN(3):1+2+random.IntN(2)], "_")
		}
		return text()
	}
	spoil := func(key string) string {
		switch random.IntN(24) {
		case 0:
			return key + pick("\n", " ", "\r\n", "\x00", "\x00\x00", "\t", "\ufeff", "_", "\u00a0")
		case 1:
			return pick("\n", " ", "\x00", "\ufeff", "_", "\"") + key
		case 2:
			return strconv.Quote(key)
		case 3:
			return url.QueryEscape(key)
		case 4:
			return strings.ReplaceAll(url.PathEscape(key), "_", "%5F")
		case 5: // cut off
			return key[:random.IntN(len(key)+1)]
		case 6: // one byte is another
			if len(key) > 0 {
				at := random.IntN(len(key))
				return key[:at] + string([]byte{byte(random.IntN(256))}) + key[at+1:]
			}
		case 7:
			return key + key
		case 8:
			return strings.ToUpper(key)
		}
		return key
	}
	keys := [][]byte{nil, {}}
	seen := map[string]bool{"": true}
	for len(keys) < n {
		key := spoil(key())
		if !seen[key] {
			seen[key] = true
			keys = append(keys, []byte(key))
		}
	}
	return keys
}

// TestOracle holds the oracle itself to keys whose fate is plain to see, lest it
// agrees with the product in a mistake.
func TestOracle(t *testing.T) {
	const e, a = "a2622b55-28e2-3a3c-9bde-7164cf05dbea", "caa2da48-5fe7-3ce2-8106-de90c978d448"
	for key, want := range map[string]fate{
		"a_b_0_" + e + "_" + a:                {key: "a%5Fb_0_" + e + "_" + a},
		"%_7_" + e + "_" + a:                  {key: "%25_7_" + e + "_" + a},
		"_0_" + e + "_" + a:                   {key: "_0_" + e + "_" + a},
		"a_00_" + e + "_" + a:                 {reason: "bad-sequence"},
		"a_0_" + strings.ToUpper(e) + "_" + a: {reason: "bad-event-uuid"},
		"a_0_" + e + "_" + a + "\n":           {reason: "bad-action-uuid"},
		"a-" + e + "-" + a:                    {reason: "dashed"},
		"3_" + e + "_" + a:                    {reason: "too-few-fields"},
		"3_4_" + e + "_" + a + "_x":           {reason: "foreign"},
		"lp1:1:a:0:" + e + ":" + a:            {reason: "already-encoded"},
		"hello":                               {reason: "foreign"},
		"\xff_0_" + e + "_" + a:               {reason: "invalid-utf8"},
	} {
		if got := oracle("legacy", []byte(key)); got != want {
			t.Errorf("%q: %+v, want %+v", key, got, want)
		}
	}
	if keys := hostileKeys(200); !slices.EqualFunc(keys, hostileKeys(200), bytes.Equal) {
		t.Error("the corpus is not the same each time")
	}
}
