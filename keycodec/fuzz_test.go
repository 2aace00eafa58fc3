package keycodec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"
)

// FuzzParse throws any bytes at every format. What parses must be written back the same; what does
// not must be explained; what is suggested must be a key.
func FuzzParse(f *testing.F) {
	for _, r := range readTSV(f, "keys.tsv") {
		if r.fields[1] != "null" {
			f.Add([]byte(unquote(f, r, r.fields[1])))
		}
	}
	fields := []string{FieldKey, FieldPrefix, FieldKeyGroup, FieldLength, FieldBusinessKey, FieldSequence,
		FieldEvent, FieldAction, FieldDigest}
	formats := allFormats(f)
	f.Fuzz(func(t *testing.T, stateKey []byte) {
		for _, format := range formats {
			var k Key
			err := format.Parse(&k, stateKey)
			if err == nil {
				k.Traits()
				back, err := format.Append(nil, &k)
				if err != nil || !bytes.Equal(back, stateKey) {
					t.Errorf("%s: %q came back as %q, %v", format.Name(), stateKey, back, err)
				}
				continue
			}
			var pe *ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("%s: %q: got a %T", format.Name(), stateKey, err)
			}
			if pe.Format != format.Name() || !slices.Contains(Reasons(), pe.Reason) || !slices.Contains(fields, pe.Field) ||
				pe.Offset < 0 || pe.Offset > len(stateKey) || !strings.HasPrefix(pe.Detail, "expected ") {
				t.Errorf("%s: %q: poor explanation %#v", format.Name(), stateKey, pe)
			}
			if s, ok := Suggest(format, stateKey); ok {
				checkSuggestion(t, format, stateKey, s)
			}
		}
	})
}

func checkSuggestion(t *testing.T, format Format, stateKey []byte, s Suggestion) {
	t.Helper()
	if !slices.Contains(Causes(), s.Cause) || s.Text == "" {
		t.Errorf("%s: %q: poor suggestion %q %q", format.Name(), stateKey, s.Cause, s.Text)
	}
	if s.Repaired.Digest == nil {
		format = Escaped
	}
	text, err := format.Append(nil, &s.Repaired)
	if err != nil {
		t.Fatalf("%q: repaired key: %v", stateKey, err)
	}
	var k Key
	if err := format.Parse(&k, text); err != nil {
		t.Errorf("%q: repaired key %q: %v", stateKey, text, err)
	}
	if diff := diffKeys(s.Repaired, withKeyGroup(k, s.Repaired.KeyGroup)); diff != "" {
		t.Errorf("%q: repaired key %q (-want +got)\n%s", stateKey, text, diff)
	}
}

func withKeyGroup(k Key, group int32) Key {
	k.KeyGroup = group
	return k
}

// FuzzAppend writes any Key in every format. It must be refused if it is no legal Key, else parse to
// the same.
func FuzzAppend(f *testing.F) {
	for _, businessKey := range []string{"", "a", "user_123", "%5F", "%", "_", "a:b", "日本語_𝄞", "x_3_" + eventText + "_" + actionText, "\xff"} {
		f.Add([]byte(businessKey), int64(7), eventUUID[:], actionUUID[:], int32(12))
	}
	f.Add([]byte("a"), int64(-1), eventUUID[:], actionUUID[:], int32(0))
	f.Add([]byte("a"), MaxSequence, eventUUID[:], actionUUID[:], NoKeyGroup)
	f.Add([]byte("a"), int64(0), make([]byte, 16), make([]byte, 16), MaxMaxParallelism)
	formats := []Format{Legacy, KeyGroupFirst, KeyGroupLast, Escaped, LengthPrefixed}
	f.Fuzz(func(t *testing.T, businessKey []byte, sequence int64, event, action []byte, group int32) {
		k := Key{BusinessKey: businessKey, Sequence: sequence, KeyGroup: group}
		copy(k.Event[:], event)
		copy(k.Action[:], action)
		for _, format := range formats {
			hasGroup := format == KeyGroupFirst || format == KeyGroupLast
			legal := utf8.Valid(businessKey) && sequence >= 0 && (!hasGroup || group >= 0 && group < MaxMaxParallelism)
			text, err := format.Append([]byte("before"), &k)
			if legal != (err == nil) {
				t.Fatalf("%s: legal is %v, but: %v", format.Name(), legal, err)
			}
			if err != nil {
				if string(text) != "before" {
					t.Errorf("%s: dst became %q on error", format.Name(), text)
				}
				continue
			}
			want := k
			if !hasGroup {
				want.KeyGroup = NoKeyGroup
			}
			var got Key
			if err := format.Parse(&got, text[len("before"):]); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if diff := diffKeys(want, got); diff != "" {
				t.Errorf("%q: (-want +got)\n%s", text, diff)
			}
		}
	})
}

// FuzzInjective takes two business keys. They are written as the same key only if they are the same,
// and what a target format makes of one, separator included, never begins what it makes of another:
// whoever looks up keys by prefix finds those of one business key and no others.
func FuzzInjective(f *testing.F) {
	for _, pair := range [][2]string{{"a", "a_1"}, {"a_", "a%5F"}, {"", "_"}, {"a", "a:0"}, {"1:a", "a"}, {"%", "%25"}, {"a", "a"}} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	const fields = "7_" + eventText + "_" + actionText // what follows the business key and its separator
	f.Fuzz(func(t *testing.T, one, other []byte) {
		if !utf8.Valid(one) || !utf8.Valid(other) {
			t.Skip("no business keys")
		}
		same := bytes.Equal(one, other)
		for _, format := range []Format{Escaped, LengthPrefixed} {
			a, b := testKey(string(one)), testKey(string(other))
			textA, errA := format.Append(nil, &a)
			textB, errB := format.Append(nil, &b)
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			if bytes.Equal(textA, textB) != same {
				t.Errorf("%s: %q and %q become %q and %q", format.Name(), one, other, textA, textB)
			}
			if bytes.HasPrefix(textB, textA[:len(textA)-len(fields)]) != same {
				t.Errorf("%s: %q of %q begins %q of %q", format.Name(), textA, one, textB, other)
			}
		}
	})
}

// FuzzSerialize takes any text for a key of every type. A text that is accepted must be what its
// value prints, so that two texts never become one digest.
func FuzzSerialize(f *testing.F) {
	for _, r := range slices.Concat(readTSV(f, "flink-keys.tsv"), readTSV(f, "flink-classes.tsv")) {
		f.Add([]byte(r.fields[1]))
	}
	for _, text := range []string{"01", "-0", "+1", "9223372036854775808", "-129", "+I[", "]", "+I[[1,2]]", "+I[[1, ]]", "-U[1]", "\xff", "1e5"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, keyType := range KeyTypes() {
			serialized, _, err := keyType.Serialize(nil, text)
			if err != nil {
				var pe *ParseError
				if !errors.As(err, &pe) || pe.Reason != Foreign && pe.Reason != InvalidUTF8 || pe.Offset < 0 || pe.Offset > len(text) {
					t.Errorf("%s %q: %v", keyType, text, err)
				}
				continue
			}
			if keyType == KeyDouble { // not one text a value: TestJavaDouble has its rules
				continue
			}
			if printed := printValue(t, keyType, serialized); printed != string(text) {
				t.Errorf("%s %q: prints %q", keyType, text, printed)
			}
		}
	})
}

// printValue deserializes what Serialize wrote and prints it as Java does.
func printValue(t *testing.T, keyType KeyType, serialized []byte) string {
	t.Helper()
	switch keyType {
	case KeyString:
		n, size := binary.Uvarint(serialized)
		var units []uint16
		for rest := serialized[size:]; len(rest) > 0; rest = rest[size:] {
			var unit uint64
			unit, size = binary.Uvarint(rest)
			units = append(units, uint16(unit))
		}
		if uint64(len(units))+1 != n {
			t.Fatalf("%x: length %d for %d units", serialized, n, len(units))
		}
		return string(utf16.Decode(units))
	case KeyLong:
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(serialized)), 10)
	case KeyInt:
		return strconv.FormatInt(int64(int32(binary.BigEndian.Uint32(serialized))), 10)
	case KeyBoolean:
		return strconv.FormatBool(serialized[0] == 1)
	case KeyRowString:
		return "+I[" + printValue(t, KeyString, serialized[1:]) + "]"
	case KeyRowLong:
		return "+I[" + printValue(t, KeyLong, serialized[1:]) + "]"
	case KeyRowInt:
		return "+I[" + printValue(t, KeyInt, serialized[1:]) + "]"
	case KeyRowPickled:
		var items []string
		for _, b := range serialized[5:] {
			items = append(items, strconv.Itoa(int(int8(b))))
		}
		if n := binary.BigEndian.Uint32(serialized[1:]); int(n) != len(items) {
			t.Fatalf("%x: length %d for %d bytes", serialized, n, len(items))
		}
		return "+I[[" + strings.Join(items, ", ") + "]]"
	}
	t.Fatalf("no printer for key type %s", keyType)
	return ""
}

// FuzzUUID compares the strict reader with uuid.Parse: it takes the canonical form, and only that.
func FuzzUUID(f *testing.F) {
	for _, text := range []string{eventText, strings.ToUpper(eventText), "{" + eventText + "}", "urn:uuid:" + eventText,
		strings.ReplaceAll(eventText, "-", ""), "", eventText + "0", "a2622b55-28e2-3a3c-9bde_7164cf05dbea"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, err := uuid.Parse(text)
		canonical := err == nil && want.String() == text
		var got uuid.UUID
		if ok := parseUUID(&got, []byte(text)); ok != canonical {
			t.Fatalf("%q: accepted is %v, want %v", text, ok, canonical)
		}
		if canonical && (got != want || string(appendUUID(nil, &got)) != text) {
			t.Errorf("%q: read %s", text, got)
		}
		if !canonical {
			if at, detail := faultInUUID([]byte(text)); at > len(text) || detail == "" {
				t.Errorf("%q: fault at %d, %q", text, at, detail)
			}
		}
	})
}
