package keycodec

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The fields that the formats are built of. Each has a fast reader that says only yes or no, because
// nearly every key of a topic is good, and a slow one that tells a person what is wrong with the
// others.

const (
	uuidLen = 36
	tailLen = 2 * (1 + uuidLen) // "_event_action"
)

var separator = []byte{'_'}

// hexValue maps '0'-'9' and 'a'-'f' to their value, all else to 0xff: upper case is not canonical.
var hexValue = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i, c := range []byte(hexDigits) {
		table[c] = byte(i)
	}
	return table
}()

const hexDigits = "0123456789abcdef"

// uuidPairs holds where each byte of a UUID stands in its text.
var uuidPairs = [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// parseUUID reads the canonical form alone. uuid.Parse also takes upper case, braces, URNs and
// undashed digits, each of which would turn two different keys into one.
func parseUUID(u *uuid.UUID, text []byte) bool {
	if len(text) != uuidLen {
		return false
	}
	t := (*[uuidLen]byte)(text)
	if t[8] != '-' || t[13] != '-' || t[18] != '-' || t[23] != '-' {
		return false
	}
	var seen byte
	for i, at := range uuidPairs {
		high, low := hexValue[t[at]], hexValue[t[at+1]]
		seen |= high | low
		u[i] = high<<4 | low
	}
	return seen < 16
}

func appendUUID(dst []byte, u *uuid.UUID) []byte {
	n := len(dst)
	dst = append(dst, "00000000-0000-0000-0000-000000000000"...)
	t := (*[uuidLen]byte)(dst[n:])
	for i, at := range uuidPairs {
		t[at], t[at+1] = hexDigits[u[i]>>4], hexDigits[u[i]&15]
	}
	return dst
}

// faultInUUID returns where text stops being a canonical UUID, and how; text must not be one.
func faultInUUID(text []byte) (int, string) {
	for i, c := range text[:min(len(text), uuidLen)] {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return i, "expected '-', found " + found(text, i)
			}
		case hexValue[c] == 0xff:
			return i, "expected a lower-case hexadecimal digit, found " + found(text, i)
		}
	}
	if len(text) > uuidLen {
		return uuidLen, "expected the UUID to end after 36 characters, found " + found(text, uuidLen)
	}
	return len(text), fmt.Sprintf("expected 36 characters, found %d", len(text))
}

// parseDecimal reads a canonical decimal up to limit: digits only, no leading zero.
func parseDecimal(text []byte, limit int64) (int64, bool) {
	if len(text) == 0 || len(text) > 19 || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	var n uint64 // 19 digits always fit
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return int64(n), n <= uint64(limit)
}

// faultInDecimal returns where text stops being a canonical decimal, and how; text must not be one.
func faultInDecimal(text []byte, limit int64) (int, string) {
	if len(text) == 0 {
		return 0, "expected a decimal number, found nothing"
	}
	for i, c := range text {
		if c < '0' || c > '9' {
			return i, "expected a decimal digit, found " + found(text, i)
		}
	}
	if text[0] == '0' {
		return 0, "expected no leading zero"
	}
	return 0, fmt.Sprintf("expected a number of at most %d", limit)
}

func expectedKeyGroup(maxParallelism int32) string {
	return fmt.Sprintf("expected a key group from 0 to %d", maxParallelism-1)
}

// parseTail reads "_seq_event_action" from the right end of key, where no field can contain the
// separator, and returns the length of what stands before it: the business key.
func parseTail(k *Key, key []byte) (int, bool) {
	n := len(key) - tailLen
	if n < 0 || key[n] != '_' || key[n+1+uuidLen] != '_' {
		return 0, false
	}
	if !parseUUID(&k.Event, key[n+1:n+1+uuidLen]) || !parseUUID(&k.Action, key[n+2+uuidLen:]) {
		return 0, false
	}
	at := bytes.LastIndexByte(key[:n], '_')
	if at < 0 {
		return 0, false
	}
	var ok bool
	k.Sequence, ok = parseDecimal(key[at+1:n], math.MaxInt64)
	return at, ok
}

func appendTail(dst []byte, k *Key) []byte {
	dst = append(dst, '_')
	dst = strconv.AppendInt(dst, k.Sequence, 10)
	return appendUUIDs(append(dst, '_'), k, '_')
}

func appendUUIDs(dst []byte, k *Key, separator byte) []byte {
	dst = appendUUID(dst, &k.Event)
	return appendUUID(append(dst, separator), &k.Action)
}

// parseHead reads "keyGroup_seq_event_action_" from the left end of key, where no field can contain
// the separator, and returns the rest.
func parseHead(k *Key, key []byte, maxParallelism int32) ([]byte, bool) {
	group, rest, _ := bytes.Cut(key, separator)
	sequence, rest, _ := bytes.Cut(rest, separator)
	if len(rest) < 2*(uuidLen+1) || rest[uuidLen] != '_' || rest[2*uuidLen+1] != '_' {
		return nil, false
	}
	if !parseUUID(&k.Event, rest[:uuidLen]) || !parseUUID(&k.Action, rest[uuidLen+1:2*uuidLen+1]) {
		return nil, false
	}
	g, ok := parseDecimal(group, int64(maxParallelism)-1)
	if !ok {
		return nil, false
	}
	k.KeyGroup = int32(g)
	k.Sequence, ok = parseDecimal(sequence, math.MaxInt64)
	return rest[2*uuidLen+2:], ok
}

func appendHead(dst []byte, k *Key) []byte {
	dst = strconv.AppendInt(dst, int64(k.KeyGroup), 10)
	return append(appendTail(dst, k), '_')
}

// found names the character at text[i] so that nobody can misread it.
func found(text []byte, i int) string {
	if i >= len(text) {
		return "the end"
	}
	r, size := utf8.DecodeRune(text[i:])
	if r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("byte 0x%02x", text[i])
	}
	return strconv.QuoteRuneToASCII(r)
}
