package keycodec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// KeyType is the type of a job's Flink keys. The state keys of releases before 0.4 hold only the text
// of the key, and several types share a text, so the type cannot be inferred.
type KeyType string

const (
	KeyString     KeyType = "string"      // java.lang.String
	KeyLong       KeyType = "long"        // java.lang.Long
	KeyInt        KeyType = "int"         // java.lang.Integer
	KeyDouble     KeyType = "double"      // java.lang.Double
	KeyBoolean    KeyType = "boolean"     // java.lang.Boolean
	KeyRowString  KeyType = "row-string"  // Row of one String
	KeyRowLong    KeyType = "row-long"    // Row of one Long
	KeyRowInt     KeyType = "row-int"     // Row of one Integer
	KeyRowPickled KeyType = "row-pickled" // Row of one byte array: a pickled Python object, the default of Python jobs
)

var keyTypes = [...]KeyType{
	KeyString, KeyLong, KeyInt, KeyDouble, KeyBoolean, KeyRowString, KeyRowLong, KeyRowInt, KeyRowPickled,
}

// KeyTypes lists all key types.
func KeyTypes() []KeyType { return slices.Clone(keyTypes[:]) }

// ParseKeyType returns the key type of that name.
func ParseKeyType(name string) (KeyType, error) {
	if t := KeyType(name); slices.Contains(keyTypes[:], t) {
		return t, nil
	}
	known := make([]string, len(keyTypes))
	for i, t := range keyTypes {
		known[i] = string(t)
	}
	return "", fmt.Errorf("unknown key type %q: expected one of %s", name, strings.Join(known, ", "))
}

// Serialize takes the text of a key back to the value that printed it, appends that value to dst as
// Flink's serializer for the type writes it, and returns the value's Java hashCode as well. Text that
// no value of the type prints is a *ParseError with reason foreign; its Offset counts from the start
// of text.
//
// Two texts are read in the one way that can be right for most jobs: a row of one String may hold
// ", ", which two fields would also print, and the text "null", which a null field would also print.
func (t KeyType) Serialize(dst, text []byte) (serialized []byte, hash int32, err error) {
	field, inRow := text, false
	switch t {
	case KeyRowString, KeyRowLong, KeyRowInt, KeyRowPickled:
		if field, err = t.cutRow(text); err != nil {
			return dst, 0, err
		}
		inRow = true
		dst = append(dst, 0) // the mask: two bits for the row kind, +I, then one for each null field
	}
	switch t {
	case KeyString, KeyRowString:
		if !utf8.Valid(text) {
			return dst, 0, invalidUTF8(NameFlinkAgents04, FieldBusinessKey, text)
		}
		dst, hash = appendString(dst, field), JavaHash(field)
	case KeyLong, KeyRowLong:
		n, ok := parseSigned(field, 64)
		if !ok {
			return dst, 0, t.foreign(rowOffset(inRow), expectedSigned(64))
		}
		dst, hash = binary.BigEndian.AppendUint64(dst, uint64(n)), foldLong(uint64(n))
	case KeyInt, KeyRowInt:
		n, ok := parseSigned(field, 32)
		if !ok {
			return dst, 0, t.foreign(rowOffset(inRow), expectedSigned(32))
		}
		dst, hash = binary.BigEndian.AppendUint32(dst, uint32(n)), int32(n)
	case KeyDouble:
		d, ok := parseJavaDouble(field)
		if !ok {
			return dst, 0, t.foreign(0, "expected a number as Double.toString writes it, such as 0.5, 100.0 or 1.0E-5")
		}
		bits := math.Float64bits(d)
		dst, hash = binary.BigEndian.AppendUint64(dst, bits), foldLong(bits)
	case KeyBoolean:
		switch string(field) {
		case "true":
			dst, hash = append(dst, 1), 1231
		case "false":
			dst, hash = append(dst, 0), 1237
		default:
			return dst, 0, t.foreign(0, "expected true or false")
		}
	case KeyRowPickled:
		length := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		dst, hash, err = t.appendByteArray(dst, field)
		if err != nil {
			return dst, 0, err
		}
		binary.BigEndian.PutUint32(dst[length:], uint32(len(dst)-length-4))
	default:
		return dst, 0, fmt.Errorf("unknown key type %q", string(t))
	}
	if inRow {
		// Row.hashCode is 31 * kind + the hash of its field array, and a field is hashed as an array of
		// one: 31*1 + (31*1 + hash), with kind 0.
		hash += 31 + 31
	}
	return dst, hash, nil
}

func (t KeyType) foreign(offset int, detail string) *ParseError {
	return &ParseError{NameFlinkAgents04, Foreign, FieldBusinessKey, offset,
		fmt.Sprintf("%s, as a key of type %s prints it", detail, string(t))}
}

const rowOpen, rowClose = "+I[", "]"

// cutRow returns what a row of one field prints between its brackets. Flink keys are always rows of
// kind +I.
func (t KeyType) cutRow(text []byte) ([]byte, error) {
	field, ok := bytes.CutPrefix(text, []byte(rowOpen))
	if !ok {
		return nil, t.foreign(0, `expected "+I["`)
	}
	field, ok = bytes.CutSuffix(field, []byte(rowClose))
	if !ok {
		return nil, t.foreign(len(text), `expected "]" at the end`)
	}
	return field, nil
}

func rowOffset(inRow bool) int {
	if inRow {
		return len(rowOpen)
	}
	return 0
}

// appendByteArray reads what Arrays.toString prints of a byte[], "[-128, 4]", and appends the bytes.
func (t KeyType) appendByteArray(dst, text []byte) ([]byte, int32, error) {
	start := len(dst)
	list, opened := bytes.CutPrefix(text, []byte("["))
	list, closed := bytes.CutSuffix(list, []byte("]"))
	if !opened || !closed {
		return dst, 0, t.foreign(len(rowOpen), "expected a list of bytes such as [-128, 4]")
	}
	hash := int32(1) // Arrays.hashCode
	offset := len(rowOpen) + 1
	for more := len(list) > 0; more; {
		var item []byte
		item, list, more = bytes.Cut(list, []byte(", "))
		n, ok := parseSigned(item, 8)
		if !ok {
			return dst[:start], 0, t.foreign(offset, expectedSigned(8))
		}
		dst = append(dst, byte(n))
		hash = 31*hash + int32(n)
		offset += len(item) + len(", ")
	}
	return dst, hash, nil
}

// appendString writes text as Flink's StringSerializer does: the length in UTF-16 code units plus one
// (zero stands for null), then the units, each in groups of 7 bits, the lowest first, the high bit
// set on all but the last.
func appendString(dst, text []byte) []byte {
	units := 0
	for range utf16Units(text) {
		units++
	}
	dst = binary.AppendUvarint(dst, uint64(units)+1)
	for unit := range utf16Units(text) {
		dst = binary.AppendUvarint(dst, uint64(unit))
	}
	return dst
}

// foldLong is Long.hashCode, and that of a Double over its bits.
func foldLong(bits uint64) int32 { return int32(bits ^ bits>>32) }

// parseSigned reads what Java prints of an integer of so many bits.
func parseSigned(text []byte, bits uint) (int64, bool) {
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	if !negative {
		return parseDecimal(digits, 1<<(bits-1)-1)
	}
	if bits == 64 && string(digits) == "9223372036854775808" { // the one magnitude beyond int64
		return math.MinInt64, true
	}
	limit := int64(math.MaxInt64)
	if bits < 64 {
		limit = 1 << (bits - 1)
	}
	n, ok := parseDecimal(digits, limit)
	return -n, ok && n > 0
}

func expectedSigned(bits uint) string {
	return fmt.Sprintf("expected a decimal number of %d bits without leading zero or plus sign", bits)
}
