package report

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The printable form is read by a person who decides what happens to a key, so
// these hold for every input:
//
//   - It is injective: Unprintable gives back exactly the bytes, and refuses
//     everything that Printable would not have written.
//   - What a terminal or browser draws, from left to right, is the order of the
//     bytes. That is why letters of right-to-left scripts are escaped too, not
//     only the marks: next to them the "_" and the digits of a state key would
//     be drawn in another order than they have.
//   - Each character stands alone. Nothing that joins with, hides behind or
//     draws over its neighbour is shown as itself.
//   - The ellipsis is escaped, so that one in a form always means that Shorten
//     left something out.
//
// What it cannot do: letters that merely look alike (Latin a, Cyrillic а) are
// shown as they are. The base64 beside it tells them apart.

// PrintableNull is the printable form of a null key. It has no quotes, so that
// it differs from the key "null".
const PrintableNull = "null"

// maxMarks is how many combining marks in a row are shown on one letter. Thai
// and Indic scripts need two or three; more than that is a tower that covers
// the lines above.
const maxMarks = 3

// Printable shows a key, or any other bytes, in one line that cannot mislead.
//
//	nil                       null
//	empty                     ""
//	user_1                    "user_1"
//	quote, backslash          \"  \\
//	line feed, tab, return    \n  \t  \r
//	other ASCII controls      \x00 … \x1F, \x7F
//	a byte of invalid UTF-8   \xFF
//	invisible, reordering,    \u{202E}
//	joining, unassigned
//
// The result consists of printable characters only, is valid UTF-8, and never
// contains a line break.
func Printable(key []byte) string {
	if key == nil {
		return PrintableNull
	}
	return string(appendPrintable(make([]byte, 0, len(key)+2), key))
}

func appendPrintable(dst, key []byte) []byte {
	dst = append(dst, '"')
	// marks counts the combining marks on the character just written. It is
	// maxMarks where there is nothing for a mark to stand on: after the quote, an
	// escape, a digit or a sign.
	marks := maxMarks
	for len(key) > 0 {
		r, n := utf8.DecodeRune(key)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = appendByte(dst, key[0])
			marks = maxMarks
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
			marks = maxMarks
		case !visible(r):
			dst = appendEscape(dst, r)
			marks = maxMarks
		case unicode.Is(unicode.M, r):
			if marks >= maxMarks {
				dst = appendEscape(dst, r)
			} else {
				dst = append(dst, key[:n]...)
				marks++
			}
		default:
			dst = append(dst, key[:n]...)
			marks = maxMarks
			if unicode.IsLetter(r) {
				marks = 0
			}
		}
		key = key[n:]
	}
	return append(dst, '"')
}

// appendEscape writes the escape of a character that is not shown as itself.
func appendEscape(dst []byte, r rune) []byte {
	switch {
	case r == '\n':
		return append(dst, `\n`...)
	case r == '\r':
		return append(dst, `\r`...)
	case r == '\t':
		return append(dst, `\t`...)
	case r < 0x80:
		return appendByte(dst, byte(r))
	}
	dst = append(dst, `\u{`...)
	dst = append(dst, strings.ToUpper(strconv.FormatInt(int64(r), 16))...)
	return append(dst, '}')
}

func appendByte(dst []byte, b byte) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '\\', 'x', hex[b>>4], hex[b&15])
}

var errNotPrintable = errors.New("not a printable form of a key")

// Unprintable turns a printable form back into the bytes it stands for: nil for
// null. A text that Printable would not have written is an error, so that one
// key never has two forms.
func Unprintable(form string) ([]byte, error) {
	if form == PrintableNull {
		return nil, nil
	}
	if len(form) < 2 || form[0] != '"' || form[len(form)-1] != '"' {
		return nil, fmt.Errorf("%w: it has to be null or stand in quotes", errNotPrintable)
	}
	body := form[1 : len(form)-1]
	key := make([]byte, 0, len(body))
	for i := 0; i < len(body); {
		if body[i] != '\\' {
			key = append(key, body[i])
			i++
			continue
		}
		var n int
		if key, n = unescape(key, body[i:]); n == 0 {
			return nil, fmt.Errorf("%w: unknown escape at byte %d", errNotPrintable, i+1)
		}
		i += n
	}
	if !bytes.Equal(appendPrintable(make([]byte, 0, len(form)), key), []byte(form)) {
		return nil, fmt.Errorf("%w: not written the one way that the key has", errNotPrintable)
	}
	return key, nil
}

// unescape appends what the escape at the start of s stands for and returns how
// long the escape is, 0 if it is none.
func unescape(dst []byte, s string) ([]byte, int) {
	n := escapeLen(s)
	if n == 0 {
		return dst, 0
	}
	switch s[1] {
	case '"', '\\':
		return append(dst, s[1]), n
	case 'n':
		return append(dst, '\n'), n
	case 'r':
		return append(dst, '\r'), n
	case 't':
		return append(dst, '\t'), n
	case 'x':
		b, err := strconv.ParseUint(s[2:4], 16, 8)
		if err != nil {
			return dst, 0
		}
		return append(dst, byte(b)), n
	}
	r, err := strconv.ParseUint(s[3:n-1], 16, 32)
	if err != nil || r > unicode.MaxRune || !utf8.ValidRune(rune(r)) {
		return dst, 0
	}
	return utf8.AppendRune(dst, rune(r)), n
}

// escapeLen is the length of the escape at the start of s, 0 if there is none.
func escapeLen(s string) int {
	if len(s) < 2 || s[0] != '\\' {
		return 0
	}
	switch s[1] {
	case '"', '\\', 'n', 'r', 't':
		return 2
	case 'x':
		if len(s) >= 4 {
			return 4
		}
	case 'u':
		if end := strings.IndexByte(s, '}'); end > 3 && end <= 9 && s[2] == '{' {
			return end + 1
		}
	}
	return 0
}

// visible reports whether r may be shown as itself: it has a shape, stands
// alone, and does not change the order in which its neighbours are drawn.
func visible(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= ' ' && r < 0x7F
	}
	// IsPrint leaves out controls, format characters (all bidi marks and
	// zero-width ones among them), private use, surrogates, non-characters,
	// unassigned code points, and every space but U+0020.
	return unicode.IsPrint(r) && !inRanges(misleading, r) &&
		!unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) &&
		!unicode.Is(unicode.Variation_Selector, r) &&
		// Marks that belong to no script: they would make e + accent look
		// exactly like the letter é.
		!unicode.Is(unicode.Inherited, r)
}

// misleading lists what unicode.IsPrint lets through although it has no shape of
// its own, joins with its neighbours, or is written from right to left. Sorted.
var misleading = []runeRange{
	{0x0590, 0x08FF},   // right to left: Hebrew, Arabic, Syriac, Thaana, NKo and others
	{0x1100, 0x11FF},   // Hangul jamo, join to syllables; two fillers without a shape
	{0x2026, 0x2026},   // ellipsis, the sign of Shorten
	{0x2800, 0x2800},   // Braille blank
	{0x3164, 0x3164},   // Hangul filler
	{0xA960, 0xA97F},   // Hangul jamo
	{0xD7B0, 0xD7FF},   // Hangul jamo
	{0xFB1D, 0xFDFF},   // right to left: Hebrew and Arabic presentation forms
	{0xFE70, 0xFEFF},   // right to left: Arabic presentation forms
	{0xFFA0, 0xFFA0},   // half-width Hangul filler
	{0xFFFC, 0xFFFD},   // object replacement; replacement, which looks like damage
	{0x10800, 0x10FFF}, // right to left: the historic scripts
	{0x1D159, 0x1D159}, // null notehead
	{0x1E800, 0x1EFFF}, // right to left: Mende Kikakui, Adlam, Arabic mathematics
	{0x1F1E6, 0x1F1FF}, // regional indicators, join to flags
	{0x1F3FB, 0x1F3FF}, // skin tones, join with the sign before
}

// runeRange is a range of characters, both ends included.
type runeRange struct{ first, last rune }

// inRanges searches a sorted table.
func inRanges(table []runeRange, r rune) bool {
	lo, hi := 0, len(table)
	for lo < hi {
		mid := (lo + hi) / 2
		switch {
		case r < table[mid].first:
			hi = mid
		case r > table[mid].last:
			lo = mid + 1
		default:
			return true
		}
	}
	return false
}

// plain makes any other text safe to show in a line: what Printable would escape
// as invisible or reordering is escaped, the rest stays. It is for names and
// sentences, which are not meant to be read back.
func plain(s string) string {
	clean := true
	for _, r := range s {
		if !visible(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	dst := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = appendByte(dst, s[i])
		case r == 0x2026 || visible(r): // an ellipsis is harmless in a sentence
			dst = append(dst, s[i:i+n]...)
		default:
			dst = appendEscape(dst, r)
		}
		i += n
	}
	return string(dst)
}

// form makes sure that a text from a document is a printable form before it is
// shown as one. Documents can be edited; a page must be safe even then.
func form(s string) string {
	if _, err := Unprintable(s); err != nil {
		return Printable([]byte(s))
	}
	return s
}

// minShort is the least width to which Shorten cuts: below it there would be no
// room for both the count of left-out bytes and a piece of the key.
const minShort = 20

// Shorten cuts a printable form to a display width and says how many bytes of
// the key it left out:
//
//	"tenant_4711_order…57 bytes…9a0c"
//
// Both ends stay, because the business key stands at the front of a state key
// and what tells two states of one key apart at the back. Escapes are never cut.
// A width below 20 counts as 20.
func Shorten(printable string, width int) string {
	s := form(printable)
	if Width(s) <= width {
		return s
	}
	width = max(width, minShort)
	us := units(s)
	total := 0
	for _, u := range us {
		total += u.bytes
	}
	room := width - Width(leftOut(total)) - 2 // the quotes
	head := fit(us, room*2/3)
	rest := us[len(head):]
	tail := 0
	for used := 0; tail < len(rest); tail++ {
		if used += rest[len(rest)-1-tail].width; used > room-unitsWidth(head) {
			break
		}
	}
	middle, end := rest[:len(rest)-tail], rest[len(rest)-tail:]
	n := 0
	for _, u := range middle {
		n += u.bytes
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, u := range head {
		b.WriteString(u.text)
	}
	if n > 0 {
		b.WriteString(leftOut(n))
	}
	for _, u := range end {
		b.WriteString(u.text)
	}
	b.WriteByte('"')
	return b.String()
}

func leftOut(n int) string {
	if n == 1 {
		return "…1 byte…"
	}
	return "…" + thousands(int64(n)) + " bytes…"
}

// unit is a piece of a printable form that must not be cut: an escape, or a
// character with its marks.
type unit struct {
	text   string
	width  int
	bytes  int // of the key
	escape bool
}

// units splits what stands between the quotes of a printable form.
func units(form string) []unit {
	if len(form) < 2 || form[0] != '"' {
		return nil
	}
	var us []unit
	for s := form[1 : len(form)-1]; s != ""; {
		n := escapeLen(s)
		u := unit{escape: n > 0}
		if u.escape {
			key, _ := unescape(nil, s)
			u.text, u.width, u.bytes = s[:n], n, len(key)
		} else {
			var r rune
			r, n = utf8.DecodeRuneInString(s)
			u.text, u.width, u.bytes = s[:n], runeWidth(r), n
			if unicode.Is(unicode.M, r) && len(us) > 0 && !us[len(us)-1].escape {
				last := &us[len(us)-1]
				last.text += u.text
				last.width += u.width
				last.bytes += u.bytes
				s = s[n:]
				continue
			}
		}
		us = append(us, u)
		s = s[n:]
	}
	return us
}

// fit is the longest start of us that is at most width wide.
func fit(us []unit, width int) []unit {
	used := 0
	for i, u := range us {
		if used += u.width; used > width {
			return us[:i]
		}
	}
	return us
}

func unitsWidth(us []unit) int {
	n := 0
	for _, u := range us {
		n += u.width
	}
	return n
}
