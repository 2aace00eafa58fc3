package rewrite

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"testing"

	"rekey/keycodec"
)

func TestParseProvenance(t *testing.T) {
	for _, c := range []struct {
		text string
		want Provenance
	}{
		{"0:0", Provenance{}},
		{"3:12345", Provenance{Partition: 3, Offset: 12345}},
		{"2147483647:9223372036854775807", Provenance{Partition: math.MaxInt32, Offset: math.MaxInt64}},
		{"3:12345:1", Provenance{Partition: 3, Offset: 12345, Round: 1}},
		{"2147483647:9223372036854775807:2147483647", Provenance{Partition: math.MaxInt32, Offset: math.MaxInt64, Round: math.MaxInt32}},
		{"padding", Provenance{Padding: true}},
		{"padding:0/1", Provenance{Padding: true, Writer: Division{0, 1}}},
		{"padding:3/4", Provenance{Padding: true, Writer: Division{3, 4}}},
		{"padding:2147483646/2147483647", Provenance{Padding: true, Writer: Division{math.MaxInt32 - 1, math.MaxInt32}}},
	} {
		got, err := ParseProvenance([]byte(c.text))
		if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.text, got, err, c.want)
		}
		back := PaddingProvenance(c.want.Writer)
		if IsPadding([]byte(c.text)) != c.want.Padding {
			t.Errorf("%q: IsPadding is %t", c.text, !c.want.Padding)
		}
		if !c.want.Padding {
			back = AppendProvenance(nil, c.want.Partition, c.want.Offset, c.want.Round)
		}
		if string(back) != c.text {
			t.Errorf("%+v is written as %q, want %q", c.want, back, c.text)
		}
	}
}

// One source position has one spelling. Everything else is refused, so that no
// two headers mean the same and a forged one cannot pass as another.
func TestParseProvenanceRefuses(t *testing.T) {
	for _, text := range []string{
		"", ":", "0", "0:", ":0", "0:0:", "0:0:0", "0:0:01", "0:0:1:", "0:0:1:1", "0::1", ":0:1", "0:0:-1", "0:0:2147483648", "00:0", "0:00", "01:2", "1:02", "+1:2", "1:+2", "-1:2", "1:-2",
		" 1:2", "1:2 ", "1: 2", "1 :2", "1:2\n", "1,2", "0x1:2", "1:2e3", "1.0:2", "1_000:2", "1:2_000",
		"2147483648:0", "4294967296:0", "18446744073709551616:0", "0:9223372036854775808", "0:18446744073709551615",
		"0:18446744073709551616", "0:99999999999999999999", "99999999999999999999:0", "10000000000000000000:0", "0:10000000000000000000",
		"Padding", "padding ", "PADDING", "padding:0", "padding:", "padding:/", "padding:4/4", "padding:0/0", "padding:00/4", "padding:0/04", "padding:-1/4",
		"padding:0/4 ", "padding:0/4:0", "padding::0/4", "padding/0/4", "Padding:0/4", "padding:0/2147483648", "١:2", "1:２", "\x00:0", "0\x00:0", "0:0\x00",
	} {
		if got, err := ParseProvenance([]byte(text)); err == nil {
			t.Errorf("%q is accepted as %+v", text, got)
		}
		if IsPadding([]byte(text)) {
			t.Errorf("%q is padding", text)
		}
	}
	if got, err := ParseProvenance(nil); err == nil {
		t.Errorf("a null value is accepted as %+v", got)
	}
}

// FuzzProvenance holds the two round trips together: what is written is read
// back, and what is read is written back byte for byte.
func FuzzProvenance(f *testing.F) {
	f.Add(int32(0), int64(0), []byte("0:0"))
	f.Add(int32(math.MaxInt32), int64(math.MaxInt64), []byte("padding"))
	f.Add(int32(1), int64(1e18), []byte("01:1"))
	f.Add(int32(2), int64(3), []byte("padding:3/4"))
	f.Add(int32(2), int64(3), []byte("padding:4/4"))
	f.Add(int32(1), int64(2), []byte("1:2:3"))
	f.Add(int32(9), int64(99), []byte("2147483648:9223372036854775808"))
	f.Fuzz(func(t *testing.T, partition int32, offset int64, text []byte) {
		if partition >= 0 && offset >= 0 {
			for _, round := range []int32{0, 1 + partition>>1} {
				value := AppendProvenance([]byte("x"), partition, offset, round)
				want := "x" + strconv.Itoa(int(partition)) + ":" + strconv.FormatInt(offset, 10)
				if round > 0 {
					want += ":" + strconv.Itoa(int(round))
				}
				if string(value) != want {
					t.Fatalf("%d, %d, %d is written as %q, want %q", partition, offset, round, value, want)
				}
				got, err := ParseProvenance(value[1:])
				if err != nil || got != (Provenance{Partition: partition, Offset: offset, Round: round}) {
					t.Fatalf("%q: %+v, %v", value[1:], got, err)
				}
			}
		}
		got, err := ParseProvenance(text)
		if err != nil {
			return
		}
		back := PaddingProvenance(got.Writer)
		if !got.Padding {
			if got.Partition < 0 || got.Offset < 0 {
				t.Fatalf("%q is read as %+v", text, got)
			}
			back = AppendProvenance(nil, got.Partition, got.Offset, got.Round)
		}
		if !bytes.Equal(back, text) {
			t.Fatalf("%q is accepted, its canonical form is %q", text, back)
		}
	})
}

func TestCanonicalDecimal(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit uint64
		want  uint64
		ok    bool
	}{
		{"0", 0, 0, true},
		{"1", 0, 0, false},
		{"9", 9, 9, true},
		{"10", 9, 0, false},
		{"9223372036854775807", math.MaxInt64, math.MaxInt64, true},
		{"9223372036854775808", math.MaxInt64, 0, false},
		{"9999999999999999999", math.MaxInt64, 0, false},
		{"10000000000000000000", math.MaxUint64, 0, false}, // 20 digits: no offset has them
		{"00", 9, 0, false},
		{"", 9, 0, false},
		{"/", 99, 0, false}, // one below '0'
		{":", 99, 0, false}, // one above '9'
	} {
		got, ok := canonicalDecimal([]byte(c.text), c.limit)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%q up to %d: %d, %t; want %d, %t", c.text, c.limit, got, ok, c.want, c.ok)
		}
	}
}

func TestFindProvenance(t *testing.T) {
	h := func(pairs ...string) (headers []Header) {
		for i := 0; i < len(pairs); i += 2 {
			headers = append(headers, Header{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
		}
		return headers
	}
	for _, c := range []struct {
		name    string
		headers []Header
		want    string
		found   bool
	}{
		{"none", nil, "", false},
		{"others only", h("a", "1", "rekey-source2", "2", "", "3"), "", false},
		{"alone", h(ProvenanceHeader, "1:2"), "1:2", true},
		{"last", h("a", "1", ProvenanceHeader, "1:2"), "1:2", true},
		{"first", h(ProvenanceHeader, "1:2", "a", "1"), "1:2", true},
		{"twice, the last counts", h(ProvenanceHeader, "1:2", ProvenanceHeader, "3:4"), "3:4", true},
		{"another case", h("Rekey-Source", "1:2"), "", false},
	} {
		value, found := FindProvenance(c.headers)
		if found != c.found || string(value) != c.want {
			t.Errorf("%s: %q, %t; want %q, %t", c.name, value, found, c.want, c.found)
		}
	}
	if value, found := FindProvenance([]Header{{Key: []byte(ProvenanceHeader)}}); !found || value != nil {
		t.Errorf("a header with a null value: %v, %t", value, found)
	}
}

// The reserved key is part of the contract with people who read the target.
func TestPaddingKey(t *testing.T) {
	const nilUUID = "00000000-0000-0000-0000-000000000000"
	for _, c := range []struct {
		to   keycodec.Format
		want string
	}{
		{keycodec.Escaped, "rekey-padding_0_" + nilUUID + "_" + nilUUID},
		{keycodec.LengthPrefixed, "lp1:13:rekey-padding:0:" + nilUUID + ":" + nilUUID},
	} {
		got, err := PaddingKey(c.to)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.to.Name(), got, err, c.want)
		}
	}
	if _, err := PaddingKey(failing{keycodec.Escaped, errTest}); err == nil {
		t.Error("a format that cannot express the key gives no error")
	}
}

var errTest = errors.New("cannot be expressed")
