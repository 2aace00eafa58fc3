package keycodec

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a Key held before is no part of what is parsed into it.
func TestParseForgets(t *testing.T) {
	for _, f := range allFormats(t) {
		clean := testKey("user_1")
		clean.KeyGroup = 12
		text, err := f.Append(nil, &clean)
		if err != nil {
			t.Fatal(err)
		}
		var want Key
		if err := f.Parse(&want, text); err != nil {
			t.Fatal(err)
		}
		dirty := Key{BusinessKey: []byte("old"), Sequence: 99, Event: actionUUID, Action: eventUUID, KeyGroup: 77, Digest: []byte("old"), scratch: []byte("old")}
		if err := f.Parse(&dirty, text); err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		}
		if diff := diffKeys(want, dirty); diff != "" || (want.Digest == nil) != (dirty.Digest == nil) || (want.BusinessKey == nil) != (dirty.BusinessKey == nil) {
			t.Errorf("%s (-into a new Key +into a used one)\n%s", f.Name(), diff)
		}
	}
}

// Each character of both UUIDs matters, in every format.
func TestUUIDCharacters(t *testing.T) {
	for _, f := range allFormats(t) {
		k := testKey("a")
		k.KeyGroup = 12
		text, err := f.Append(nil, &k)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []struct{ text, name string }{{eventText, FieldEvent}, {actionText, FieldAction}} {
			begin := strings.Index(string(text), field.text)
			for i := range uuidLen {
				// The neighbours of the digits and letters, and one that a dash could be.
				for _, c := range []byte("/:@G`gA0\x00\xff-") {
					isDash := i == 8 || i == 13 || i == 18 || i == 23
					if isDash == (c == '-') && (isDash || c == '0') {
						continue // canonical, or another UUID
					}
					broken := bytes.Clone(text)
					broken[begin+i] = c
					err := f.Parse(new(Key), broken)
					var pe *ParseError
					if !errors.As(err, &pe) {
						t.Errorf("%s: %q is accepted", f.Name(), broken)
					} else if pe.Reason != InvalidUTF8 && (pe.Field != field.name || pe.Offset != begin+i) {
						t.Errorf("%s: %q: %v, want field %s, byte %d", f.Name(), broken, pe, field.name, begin+i)
					}
				}
			}
		}
	}
}

// A business key that is not UTF-8 is refused wherever it stands.
func TestParseInvalidUTF8(t *testing.T) {
	for name, text := range map[string]string{
		"legacy": "a\xffb_7_{E}_{A}", "keygroup-first": "12_a\xffb_7_{E}_{A}", "keygroup-last": "12_7_{E}_{A}_a\xffb",
		"escaped": "a\xffb_7_{E}_{A}", "length-prefixed": "lp1:3:a\xffb:7:{E}:{A}",
	} {
		stateKey := []byte(expand(text))
		var pe *ParseError
		if err := formatOf(t, name).Parse(new(Key), stateKey); !errors.As(err, &pe) || pe.Reason != InvalidUTF8 || pe.Offset != bytes.IndexByte(stateKey, 0xff) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The edges of what is said about a key that cannot be parsed.
func TestDiagnoseEdges(t *testing.T) {
	for _, tt := range []struct {
		format, key string
		reason      Reason
		field       string
		offset      int
	}{
		// The empty business key of the oldest layout, and what only looks like that layout.
		{"legacy", "-{E}-{A}", Dashed, FieldSequence, 0},
		{"legacy", "a-{E}-{AU}", TooFewFields, FieldKey, 0},
		{"legacy", "a-{EU}-{A}", TooFewFields, FieldKey, 0},
		// Nearly length-prefixed: no colon behind the length, no length, no prefix.
		{"legacy", "lp1:12", Foreign, FieldKey, 0},
		{"legacy", "lp1::a", Foreign, FieldKey, 0},
		{"legacy", "lp1:x:a", Foreign, FieldKey, 0},
		{"legacy", "12:a", Foreign, FieldKey, 0},
		{"legacy", "lp1:12:a", AlreadyEncoded, FieldKey, 0},
		{"length-prefixed", "1:a:7:{E}:{A}", Foreign, FieldPrefix, 0},
		{"length-prefixed", "lp2:1:a:7:{E}:{A}", Foreign, FieldPrefix, 0},
		// The length is what says where the business key ends.
		{"length-prefixed", "lp1:x::7:{E}:{A}", BadLength, FieldLength, 4},
		{"length-prefixed", "lp1:1:aX7:{E}:{A}", BadLength, FieldBusinessKey, 7},
		{"length-prefixed", "lp1:2:a:7:{E}:{A}", BadLength, FieldBusinessKey, 8},
		// What is good before the fault is passed over.
		{"escaped", "a%25b%5Fc%zz_7_{E}_{A}", BadEscape, FieldBusinessKey, 9},
		{"escaped", "a%5Fb%5fc_7_{E}_{A}", BadEscape, FieldBusinessKey, 5},
	} {
		var pe *ParseError
		if err := formatOf(t, tt.format).Parse(new(Key), []byte(expand(tt.key))); !errors.As(err, &pe) {
			t.Errorf("%s %s: %v", tt.format, tt.key, err)
		} else if pe.Reason != tt.reason || pe.Field != tt.field || pe.Offset != tt.offset {
			t.Errorf("%s %s: %s in %s at byte %d (%s), want %s in %s at byte %d", tt.format, tt.key, pe.Reason, pe.Field, pe.Offset, pe.Detail, tt.reason, tt.field, tt.offset)
		}
	}
}

// A Key without any business key has the empty one; only a digest stands for one
// that is not known.
func TestAppendEmptyBusinessKey(t *testing.T) {
	for _, f := range []Format{Legacy, KeyGroupFirst, KeyGroupLast, Escaped, LengthPrefixed} {
		none, empty, both := testKey(""), testKey(""), testKey("")
		none.BusinessKey, none.KeyGroup, empty.KeyGroup, both.KeyGroup = nil, 12, 12, 12
		both.Digest = []byte(digestText) // the business key is known all the same
		want, err := f.Append(nil, &empty)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []Key{none, both} {
			if got, err := f.Append(nil, &k); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %q, %v, want %q", f.Name(), got, err, want)
			}
		}
	}
	k := testKey("")
	k.BusinessKey, k.KeyGroup = nil, 12
	for _, digest := range []string{"", "=" + digestText[1:], digestText[:43], digestText + "A"} {
		k.Digest = []byte(digest)
		if text, err := flinkAgents04Of(t, KeyString).Append(nil, &k); err == nil {
			t.Errorf("the digest %q is written as %s", digest, text)
		}
	}
}

// Text is given out unit by unit to whoever wants no more than the first.
func TestUTF16UnitsStops(t *testing.T) {
	for text, want := range map[string]uint16{"ab": 'a', "éé": 'é', "𝄞𝄞": 0xd834, "\x80a": 0xfffd} {
		var first []uint16
		for unit := range utf16Units([]byte(text)) {
			first = append(first, unit)
			break
		}
		if !slices.Equal(first, []uint16{want}) {
			t.Errorf("%q: %x", text, first)
		}
	}
	units := 0
	for range utf16Units([]byte("𝄞𝄞")) {
		if units++; units == 2 {
			break
		}
	}
	if got := JavaHash([]byte("\x80")); got != 0xfffd {
		t.Errorf("a byte that is not UTF-8 hashes as %x", got)
	}
}

// The list is a copy, with all types in it.
func TestKeyTypes(t *testing.T) {
	list := KeyTypes()
	want := []KeyType{KeyString, KeyLong, KeyInt, KeyDouble, KeyBoolean, KeyRowString, KeyRowLong, KeyRowInt, KeyRowPickled}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	list[0] = "changed"
	if KeyTypes()[0] != KeyString {
		t.Error("whoever has the list can change it for all")
	}
}

// The size of a number is part of what is said about a text that is none.
func TestForeignNumberSize(t *testing.T) {
	for keyType, want := range map[KeyType]string{KeyLong: " 64 bits ", KeyInt: " 32 bits ", KeyRowLong: " 64 bits ", KeyRowInt: " 32 bits ", KeyRowPickled: " 8 bits "} {
		text := "x"
		switch keyType {
		case KeyRowLong, KeyRowInt:
			text = "+I[x]"
		case KeyRowPickled:
			text = "+I[[x]]"
		}
		if _, _, err := keyType.Serialize(nil, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", keyType, err, want)
		}
	}
}

// Repairs of single fields leave the others alone, in the formats whose UUIDs do
// not stand at the end, too.
func TestSuggestFields(t *testing.T) {
	const eventDigits, actionDigits = "a2622b5528e23a3c9bde7164cf05dbea", "30e6b546354f3cf6a60e7956be205a13"
	for _, tt := range []struct{ format, key, cause, repaired string }{
		{"keygroup-last", "12_7_{EU}_{AU}_user_1", CauseUpperCaseUUID, "12_7_{E}_{A}_user_1"},
		{"keygroup-last", "12_7_{E}_{AU}_{EU}", CauseUpperCaseUUID, "12_7_{E}_{A}_{EU}"},
		{"keygroup-last", "12_7_{" + eventText + "}_{" + actionText + "}_", CauseBracedUUID, "12_7_{E}_{A}_"},
		{"keygroup-last", "12_7_urn:uuid:{E}_{A}_a", CauseURNUUID, "12_7_{E}_{A}_a"},
		{"keygroup-last", "12_7_" + eventDigits + "_" + actionDigits + "_a_b", CauseUndashedUUID, "12_7_{E}_{A}_a_b"},
		{"flink-agents-0.4", "12_7_{EU}_{AU}_{D}", CauseUpperCaseUUID, "12_7_{E}_{A}_{D}"},
		{"keygroup-first", "12_{EU}_7_{E}_{AU}", CauseUpperCaseUUID, "12_{EU}_7_{E}_{A}"},
		{"length-prefixed", "lp1:1:a:7:{EU}:{A}", CauseUpperCaseUUID, "lp1:1:a:7:{E}:{A}"},
		{"legacy", `"user_1_7_{E}_{A} "`, CauseJSONQuoted, "user_1_7_{E}_{A}"},
		{"legacy", `"user_1_7_{E}_{A}\n"`, CauseJSONQuoted, "user_1_7_{E}_{A}"},
	} {
		f := formatOf(t, tt.format)
		got, found := Suggest(f, []byte(expand(tt.key)))
		if !found {
			t.Errorf("%s %s: nothing is suggested", tt.format, tt.key)
			continue
		}
		repaired, err := f.Append(nil, &got.Repaired)
		if want := expand(tt.repaired); err != nil || string(repaired) != want || got.Cause != tt.cause {
			t.Errorf("%s %s:\n%s %s, %v\nwant\n%s %s", tt.format, tt.key, got.Cause, repaired, err, tt.cause, want)
		}
	}
	for _, f := range allFormats(t) {
		for _, key := range []string{"", "x", "_", "{E}_{A}", "-{E}-{A}", "12_7_", "12_7__", "lp1:", "lp1:1:"} {
			if got, found := Suggest(f, []byte(expand(key))); found {
				t.Errorf("%s %q: %+v", f.Name(), key, got)
			}
		}
	}
}

// Each separator matters, in every format: another character there is another key.
func TestSeparators(t *testing.T) {
	for _, f := range allFormats(t) {
		k := testKey("a")
		k.KeyGroup, k.Sequence = 12, 5
		text, err := f.Append(nil, &k)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range text {
			if c != '_' && c != ':' {
				continue
			}
			for _, other := range []byte("-/0a\x00") {
				broken := bytes.Clone(text)
				broken[i] = other
				var got Key
				if f.Parse(&got, broken) == nil && diffKeys(k, got) == "" {
					t.Errorf("%s: %q and %q are one key", f.Name(), text, broken)
				}
				if again, err := f.Append(nil, &got); f.Parse(&got, broken) == nil && (err != nil || !bytes.Equal(again, broken)) {
					t.Errorf("%s: %q is accepted, and written as %q (%v)", f.Name(), broken, again, err)
				}
			}
		}
	}
}

// The characters next to the digits are none.
func TestDecimalNeighbours(t *testing.T) {
	for _, sequence := range []string{":", "1:", "/", "1/", "a"} {
		key := "user_" + sequence + "_" + eventText + "_" + actionText
		err := Legacy.Parse(new(Key), []byte(key))
		var pe *ParseError
		if !errors.As(err, &pe) || pe.Reason != BadSequence || pe.Offset != len("user_")+len(sequence)-1 || !strings.Contains(pe.Detail, "expected a decimal digit, found") {
			t.Errorf("%q: %+v", sequence, err)
		}
	}
}

// A replacement character is a character: what is invalid comes after it.
func TestInvalidUTF8AfterReplacement(t *testing.T) {
	err := Legacy.Parse(new(Key), []byte("\uFFFD\xff_1_"+eventText+"_"+actionText))
	var pe *ParseError
	if !errors.As(err, &pe) || pe.Reason != InvalidUTF8 || pe.Offset != len("\uFFFD") {
		t.Errorf("%+v", err)
	}
}

// A long key is no sign of a UUID.
func TestForeignLongKey(t *testing.T) {
	err := Legacy.Parse(new(Key), []byte(strings.Repeat("offset-of-a-connector ", 4)))
	var pe *ParseError
	if !errors.As(err, &pe) || pe.Reason != Foreign {
		t.Errorf("%+v", err)
	}
}

func TestIsEscapedFirstCharacter(t *testing.T) {
	for _, text := range []string{"_", "_a", "_%25"} {
		if IsEscaped([]byte(text)) {
			t.Errorf("%q is escaped", text)
		}
	}
}

// A clone does not write where its original reads.
func TestCloneParsesByItself(t *testing.T) {
	escapedKey := func(business string) []byte {
		return []byte(business + "_1_" + eventText + "_" + actionText)
	}
	var k Key
	if err := Escaped.Parse(&k, escapedKey("user%5F1")); err != nil {
		t.Fatal(err)
	}
	c := k.Clone()
	if err := Escaped.Parse(&c, escapedKey("cart%5F2")); err != nil {
		t.Fatal(err)
	}
	if string(k.BusinessKey) != "user_1" || string(c.BusinessKey) != "cart_2" {
		t.Errorf("%q, and its clone %q", k.BusinessKey, c.BusinessKey)
	}
}

// The first character that takes two units of UTF-16.
func TestHashOfFirstSupplementaryCharacter(t *testing.T) {
	if got, want := JavaHash([]byte("\U00010000")), int32(31*0xd800+0xdc00); got != want {
		t.Errorf("%d, want %d", got, want)
	}
}

func TestSmallestMaxParallelism(t *testing.T) {
	if _, err := NewFlinkAgents04(KeyString, 1); err != nil {
		t.Error(err)
	}
}

// What was there before stays there when text is refused, and there is no hash.
func TestSerializeRefusesInPeace(t *testing.T) {
	for _, c := range []struct {
		t    KeyType
		text string
	}{
		{KeyString, "\xff"}, {KeyRowString, "+I[\xff]"}, {KeyRowString, "a"}, {KeyLong, "a"}, {KeyRowLong, "+I[a]"}, {KeyInt, "a"}, {KeyRowInt, "+I[a]"},
		{KeyDouble, "a"}, {KeyBoolean, "a"}, {KeyRowPickled, "+I[a]"}, {KeyRowPickled, "+I[[1, a]]"}, {"unknown", "a"},
	} {
		got, hash, err := c.t.Serialize([]byte("before"), []byte(c.text))
		if err == nil || hash != 0 || !bytes.HasPrefix(got, []byte("before")) {
			t.Errorf("%s %q: %q, hash %d, %v", c.t, c.text, got, hash, err)
		}
	}
}

// Half a pair of braces is no cause that anybody knows.
func TestSuggestNoHalfBraces(t *testing.T) {
	for _, event := range []string{"{" + eventText, eventText + "}"} {
		if s, ok := Suggest(Legacy, []byte("user_1_"+event+"_"+actionText)); ok {
			t.Errorf("%s: %+v", event, s)
		}
	}
}

// Class names as Java allows them: not from a digit on, with any letter, and with
// what Java itself puts in.
func TestIdentityClassNames(t *testing.T) {
	for text, want := range map[string]bool{
		"0Order@1f": false, "9Order@1f": false, "Order0@1f": true, "$Proxy12@1f": true, ".Order@1f": true, "Fuzz@1f": true, "FuzzZ@1f": true,
		"\u00c0@1f": true, "Or der@1f": false, "Or{er@1f": false,
	} {
		k := testKey(text)
		if got := k.Traits()&UnstableIdentity != 0; got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
