package keycodec

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestLookup(t *testing.T) {
	if diff := cmp.Diff([]string{"legacy", "keygroup-first", "keygroup-last"}, SourceNames()); diff != "" {
		t.Errorf("sources (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"escaped", "length-prefixed", "flink-agents-0.4"}, TargetNames()); diff != "" {
		t.Errorf("targets (-want +got)\n%s", diff)
	}
	for _, name := range slices.Concat(SourceNames(), TargetNames()[:2]) {
		if f, err := Lookup(name); err != nil || f.Name() != name {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	for name, want := range map[string]string{
		"flink-agents-0.4": "needs a key type",
		"dashed":           "no sequence number",
		"Legacy":           "legacy, keygroup-first, keygroup-last, escaped, length-prefixed, flink-agents-0.4",
		"":                 "legacy, keygroup-first, keygroup-last, escaped, length-prefixed, flink-agents-0.4",
	} {
		if _, err := Lookup(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a word of %q", name, err, want)
		}
	}
}

func TestNewFlinkAgents04(t *testing.T) {
	for _, tt := range []struct {
		keyType        KeyType
		maxParallelism int32
		want           string
	}{
		{"", 128, "string, long, int, double, boolean, row-string, row-long, row-int, row-pickled"},
		{"String", 128, "unknown key type"},
		{KeyString, 0, "expected 1 to 32768"},
		{KeyString, 32769, "expected 1 to 32768"},
	} {
		if _, err := NewFlinkAgents04(tt.keyType, tt.maxParallelism); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q, %d: %v, want a word of %q", tt.keyType, tt.maxParallelism, err, tt.want)
		}
	}
	if _, err := NewFlinkAgents04(KeyString, 32768); err != nil {
		t.Error(err)
	}
}

// TestAppendRefuses has the Keys that a format cannot express.
func TestAppendRefuses(t *testing.T) {
	change := func(f func(*Key)) Key {
		k := testKey("a")
		k.KeyGroup = 12
		f(&k)
		return k
	}
	negative := change(func(k *Key) { k.Sequence = -1 })
	invalid := change(func(k *Key) { k.BusinessKey = []byte("ab\xff") })
	noGroup := change(func(k *Key) { k.KeyGroup = NoKeyGroup })
	highGroup := change(func(k *Key) { k.KeyGroup = MaxMaxParallelism })
	digestOnly := change(func(k *Key) { k.BusinessKey, k.Digest = nil, []byte(digestText) })
	badDigest := change(func(k *Key) { k.BusinessKey, k.Digest = nil, []byte("u3es") })
	digestHighGroup := change(func(k *Key) { k.BusinessKey, k.Digest, k.KeyGroup = nil, []byte(digestText), 128 })
	f04 := flinkAgents04Of(t, KeyString)

	for _, tt := range []struct {
		name   string
		format Format
		key    Key
		reason Reason
		field  string
		offset int
	}{
		{"no key group", KeyGroupFirst, noGroup, BadKeyGroup, FieldKeyGroup, 0},
		{"no key group", KeyGroupLast, noGroup, BadKeyGroup, FieldKeyGroup, 0},
		{"high key group", KeyGroupFirst, highGroup, BadKeyGroup, FieldKeyGroup, 0},
		{"high key group", KeyGroupLast, highGroup, BadKeyGroup, FieldKeyGroup, 0},
		{"negative", f04, negative, BadSequence, FieldSequence, 0},
		{"invalid", f04, invalid, InvalidUTF8, FieldBusinessKey, 2},
		{"bad digest", f04, badDigest, Foreign, FieldDigest, 4},
		{"digest, high key group", f04, digestHighGroup, BadKeyGroup, FieldKeyGroup, 0},
		{"wrong type", flinkAgents04Of(t, KeyLong), testKey("01"), Foreign, FieldBusinessKey, 0},
	} {
		checkRefused(t, tt.name, tt.format, tt.key, tt.reason, tt.field, tt.offset)
	}
	for _, f := range []Format{Legacy, KeyGroupFirst, KeyGroupLast, Escaped, LengthPrefixed} {
		checkRefused(t, "negative", f, negative, BadSequence, FieldSequence, 0)
		checkRefused(t, "invalid", f, invalid, InvalidUTF8, FieldBusinessKey, 2)
		checkRefused(t, "digest only", f, digestOnly, Foreign, FieldBusinessKey, 0)
	}
}

func checkRefused(t *testing.T, name string, f Format, k Key, reason Reason, field string, offset int) {
	t.Helper()
	text, err := f.Append([]byte("before"), &k)
	var pe *ParseError
	if !errors.As(err, &pe) {
		t.Errorf("%s %s: %q, %v", f.Name(), name, text, err)
		return
	}
	if string(text) != "before" {
		t.Errorf("%s %s: dst became %q", f.Name(), name, text)
	}
	if pe.Format != f.Name() || pe.Reason != reason || pe.Field != field || pe.Offset != offset {
		t.Errorf("%s %s: %#v, want %s at %s, byte %d", f.Name(), name, pe, reason, field, offset)
	}
}

func TestParseErrorText(t *testing.T) {
	err := Legacy.Parse(new(Key), []byte("a_07_"+eventText+"_"+actionText))
	const want = "bad-sequence: not in legacy format: sequence, byte 2: expected no leading zero"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestCloneIsDeep overwrites the memory that a Key borrowed.
func TestCloneIsDeep(t *testing.T) {
	for _, f := range allFormats(t) {
		source := testKey("user_123%")
		source.KeyGroup = 12
		text, err := f.Append(nil, &source)
		if err != nil {
			t.Fatal(err)
		}
		var k, want Key
		if err := f.Parse(&k, text); err != nil {
			t.Fatal(err)
		}
		kept := k.Clone()
		if err := f.Parse(&want, bytes.Clone(text)); err != nil {
			t.Fatal(err)
		}
		for i := range text {
			text[i] = '#'
		}
		for i := range k.scratch {
			k.scratch[i] = '#'
		}
		if diff := diffKeys(want, kept); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", f.Name(), diff)
		}
	}
}

// TestKeyIsReusable parses every format into one Key: nothing of an earlier key may show through.
func TestKeyIsReusable(t *testing.T) {
	var k Key
	for range 2 {
		for _, f := range allFormats(t) {
			for _, businessKey := range []string{"user_123%", "", "a"} {
				source := testKey(businessKey)
				source.KeyGroup = 12
				text, err := f.Append(nil, &source)
				if err != nil {
					t.Fatal(err)
				}
				var fresh Key
				if err := errors.Join(f.Parse(&k, text), f.Parse(&fresh, text)); err != nil {
					t.Fatal(err)
				}
				if diff := diffKeys(fresh, k); diff != "" {
					t.Errorf("%s %q: (-fresh +re-used)\n%s", f.Name(), text, diff)
				}
				_ = Legacy.Parse(&k, []byte("no key")) // a failure must not show through either
			}
		}
	}
}

// TestAppendFromScratch converts an escaped key whose business key lives in the Key's own scratch.
func TestAppendFromScratch(t *testing.T) {
	var k Key
	if err := Escaped.Parse(&k, []byte(expand("a%5Fb_7_{E}_{A}"))); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Format{Escaped, LengthPrefixed, Legacy, flinkAgents04Of(t, KeyString)} {
		want := testKey("a_b")
		wantText, _ := f.Append(nil, &want)
		got, err := f.Append(nil, &k)
		if err != nil || !bytes.Equal(got, wantText) {
			t.Errorf("%s: %q, %v, want %q", f.Name(), got, err, wantText)
		}
	}
}

func TestPartitionText(t *testing.T) {
	f04 := flinkAgents04Of(t, KeyString)
	for _, tt := range []struct {
		format        Format
		stateKey, txt string
	}{
		{Legacy, "user_123_7_{E}_{A}", "user"},
		{Legacy, "_7_{E}_{A}", ""},
		{KeyGroupFirst, "12_foo_7_{E}_{A}", "12"},
		{KeyGroupLast, "12_7_{E}_{A}_foo", "12"},
		{Escaped, "user%5F123_7_{E}_{A}", "user%5F123"},
		{LengthPrefixed, "lp1:8:user_123:7:{E}:{A}", "user_123"},
		{f04, "54_7_{E}_{A}_{D}", digestText},
	} {
		stateKey := []byte(expand(tt.stateKey))
		var k Key
		if err := tt.format.Parse(&k, stateKey); err != nil {
			t.Fatal(err)
		}
		if got := tt.format.PartitionText(stateKey, &k); string(got) != tt.txt {
			t.Errorf("%s %s: %q, want %q", tt.format.Name(), stateKey, got, tt.txt)
		}
	}
	for _, f := range allFormats(t) {
		for stateKey, want := range map[string]string{"no-key": "no-key", "no_key": "no", "": ""} {
			if got := f.PartitionText([]byte(stateKey), nil); string(got) != want {
				t.Errorf("%s: %q of the unparseable %q, want %q", f.Name(), got, stateKey, want)
			}
		}
	}
}

func TestPartitioners(t *testing.T) {
	if diff := cmp.Diff([]string{"flink-agents", "java-default", "source"}, PartitionerNames()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := LookupPartitioner("murmur2"); err == nil || !strings.Contains(err.Error(), "flink-agents, java-default, source") {
		t.Errorf("unknown partitioner: %v", err)
	}
	k := testKey("1")
	for name, want := range map[string]int32{"flink-agents": 54, "source": 99, "java-default": JavaMurmur2([]byte("1")) & math.MaxInt32 % 64} {
		p, err := LookupPartitioner(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Partition(Legacy, []byte("1"), &k, 99, 64); p.Name() != name || got != want {
			t.Errorf("%s: %d, want %d", p.Name(), got, want)
		}
	}
}

func TestRuntimeRefuses(t *testing.T) {
	for stateKey, want := range map[string]bool{"": true, "_": true, "__7_e_a": true, "a_7_e_a": false, "a": false, "lp1:0::7": false} {
		if got := RuntimeRefuses([]byte(stateKey)); got != want {
			t.Errorf("%q: %v", stateKey, got)
		}
	}
	if !RuntimeRefuses(nil) {
		t.Error("accepts a null key")
	}
}

// The numbers are what Kafka's own Utils.murmur2 returns; its UtilsTest has most of them.
func TestJavaMurmur2(t *testing.T) {
	for text, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := JavaMurmur2([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestHashes(t *testing.T) {
	for text, want := range map[string]int32{"": 0, "a": 97, "Aa": 2112, "BB": 2112, "polygenelubricants": math.MinInt32,
		"𝄞": 31*0xd834 + 0xdd1e, "\xff": 0xfffd} {
		if got := JavaHash([]byte(text)); got != want {
			t.Errorf("JavaHash(%q) = %d, want %d", text, got, want)
		}
	}
	// Long 1 and String "1" at max parallelism 128: confirmed in public by those who run them.
	if long, text := AssignKeyGroup(1, 128), AssignKeyGroup(JavaHash([]byte("1")), 128); long != 86 || text != 54 {
		t.Errorf("key groups %d and %d, want 86 and 54", long, text)
	}
	// The two codes whose hash, before it is made non-negative, is -2^31 and -2^30. The first is the one
	// number without a positive counterpart; Flink makes it 0.
	for code, want := range map[int32]int32{-2089875627: 0, 2091824235: 1 << 30} {
		if got := FlinkMurmur(code); got != want {
			t.Errorf("FlinkMurmur(%d) = %d, want %d", code, got, want)
		}
	}
}

func TestTraits(t *testing.T) {
	v4 := uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
	for _, tt := range []struct {
		businessKey string
		want        Traits
	}{
		{"", 0}, {"user", 0}, {"user@example.com", 0}, {"@1a2b", 0}, {"[@1a2b", 0},
		{"[B@1a2b3c", UnstableIdentity}, {"[[I@7", UnstableIdentity}, {"Foo@1a2b", UnstableIdentity}, {"com.x.Foo@1a2b", UnstableIdentity},
		{"[Ljava.lang.String;@0", UnstableIdentity}, {"a.B$$Lambda$14/0x0000000800066840@5e9f23b4", UnstableIdentity}, {"Schlüssel@1a2b", UnstableIdentity},
		{"Foo@01a2", 0}, {"Foo@1A2B", 0}, {"Foo@123456789", 0}, {"Foo@", 0}, {"Foo Bar@1a2b", 0}, {"Foo<Bar>@1a2b", 0}, {"Foo:Bar@1a2b", 0}, {"Foo{@1a2b", 0}, {"Foo\x7f@1a2b", 0}, {"A@1a2b", UnstableIdentity}, {"Foo[@1a2b", 0}, {"1Foo@1a2b", 0},
		{"0", TypeAmbiguous}, {"42", TypeAmbiguous}, {"-42", TypeAmbiguous}, {"9223372036854775807", TypeAmbiguous}, {"-9223372036854775808", TypeAmbiguous},
		{"007", 0}, {"+1", 0}, {"-0", 0}, {"-", 0}, {"1.0", 0}, {"9223372036854775808", 0}, {"-9223372036854775809", 0},
	} {
		k := testKey(tt.businessKey)
		if got := k.Traits(); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.businessKey, got.Names(), tt.want.Names())
		}
	}
	k := testKey("42")
	k.Event, k.Action = v4, uuid.Nil
	want := []string{"type-ambiguous", "event-not-v3", "action-not-v3"}
	if diff := cmp.Diff(want, k.Traits().Names()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if all := UnstableIdentity | TypeAmbiguous | EventNotV3 | ActionNotV3; len(all.Names()) != 4 || !all.Has(EventNotV3) || Traits(0).Has(EventNotV3) {
		t.Errorf("%v", all.Names())
	}
}

// TestForeignTexts has texts that no value of the type prints, with the byte where that shows.
func TestForeignTexts(t *testing.T) {
	for keyType, texts := range map[KeyType]map[string]int{
		KeyLong:      {"": 0, "01": 0, "+1": 0, "-0": 0, "-": 0, "1 ": 0, "1.0": 0, "9223372036854775808": 0, "-9223372036854775809": 0, "٧": 0},
		KeyInt:       {"": 0, "01": 0, "2147483648": 0, "-2147483649": 0, "1L": 0},
		KeyBoolean:   {"": 0, "True": 0, "1": 0, "true ": 0},
		KeyDouble:    {"": 0, "1": 0, "01.0": 0, "1e5": 0, "NaN ": 0},
		KeyRowString: {"": 0, "a": 0, "-U[a]": 0, "+I[a": 4, "+I(a)": 0},
		KeyRowLong:   {"+I[01]": 3, "+I[null]": 3, "+I[1, 2]": 3, "+I[]": 3},
		KeyRowInt:    {"+I[2147483648]": 3},
		KeyRowPickled: {"+I[]": 3, "+I[1]": 3, "+I[[1,2]]": 4, "+I[[1, 128]]": 7, "+I[[1, -129]]": 7, "+I[[1, ]]": 7, "+I[[ 1]]": 4, "+I[[1]": 3,
			"+I[[1, -0]]": 7},
	} {
		for text, offset := range texts {
			serialized, _, err := keyType.Serialize([]byte("before"), []byte(text))
			var pe *ParseError
			if !errors.As(err, &pe) || pe.Reason != Foreign || pe.Field != FieldBusinessKey {
				t.Errorf("%s %q: %x, %v", keyType, text, serialized, err)
				continue
			}
			if pe.Offset != offset || !strings.HasSuffix(pe.Detail, "as a key of type "+string(keyType)+" prints it") {
				t.Errorf("%s %q: byte %d, %q, want byte %d", keyType, text, pe.Offset, pe.Detail, offset)
			}
		}
	}
	if _, _, err := KeyType("float").Serialize(nil, nil); err == nil {
		t.Error("serializes an unknown type")
	}
}

func TestJavaDouble(t *testing.T) {
	for _, text := range []string{
		"1", "1.", ".5", "0.50", "00.5", "1.00", "+1.0", "1e7", "1.0e7", "1.0E+7", "1.0E07", "1E7", "10.0E7", "0.1E-5",
		"1.0E6", "1.0E-3", "10000000.0", "12345678.9", "0.0001", "0.0009999999999999999", "9999999.99999999999", // wrong side of a bound
		"1.0E309", "1.0E-400", "0.00", "-0", "0.0E7", "inf", "Inf", "nan", "-NaN", "+Infinity", "0x1.0p3", "1_000.0",
		"1.000000000000000000001", "0.1000000000000000055", // more digits than any JDK prints
	} {
		if d, ok := parseJavaDouble([]byte(text)); ok {
			t.Errorf("%q: accepted as %v", text, d)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 200_000 {
		d := math.Float64frombits(random.Uint64())
		if i%2 == 0 {
			d = float64(random.IntN(1e9)-5e8) / 1000
		}
		if math.IsNaN(d) || math.IsInf(d, 0) {
			continue
		}
		text := printDouble(d)
		if got, ok := parseJavaDouble([]byte(text)); !ok || math.Float64bits(got) != math.Float64bits(d) {
			t.Fatalf("%s: read as %v, %v", text, got, ok)
		}
	}
}

// printDouble prints as Double.toString of JDK 19 and later does; earlier ones are in
// testdata/flink-classes.tsv, which JDK 17 printed.
func printDouble(d float64) string {
	if d == 0 {
		return map[bool]string{false: "0.0", true: "-0.0"}[math.Signbit(d)]
	}
	if abs := math.Abs(d); 1e-3 <= abs && abs < 1e7 {
		text := strconv.FormatFloat(d, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	text := strconv.FormatFloat(d, 'E', -1, 64)
	mantissa, exponent, _ := strings.Cut(text, "E")
	if !strings.Contains(mantissa, ".") { // Java prefers the nearest of two digits, as in 4.9E-324
		mantissa, _, _ = strings.Cut(strconv.FormatFloat(d, 'E', 1, 64), "E")
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}

// IsEscaped and the parser must not disagree about one grammar.
func TestIsEscaped(t *testing.T) {
	for _, text := range []string{"", "a", "%", "%2", "%25", "%5F", "%5f", "%5", "100%", "100%25", "a%5Fb%25c", "a_b", "a_b%25", "%%25", "%25%", "%2525", "%25_", "\xff", "%25\xff", "日本語%5F"} {
		parses := Escaped.Parse(new(Key), []byte(text+"_7_"+eventText+"_"+actionText)) == nil
		if IsEscaped([]byte(text)) != parses {
			t.Errorf("%q: %v, but parsed: %v", text, !parses, parses)
		}
	}
}
