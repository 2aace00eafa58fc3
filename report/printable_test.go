package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ name, key, want string }{
		{"empty", "", `""`},
		{"plain", "user_1", `"user_1"`},
		{"the text null", "null", `"null"`},
		{"quote and backslash", `a"b\c`, `"a\"b\\c"`},
		{"white space", "a\n\r\t b", `"a\n\r\t b"`},
		{"controls", "\x00\x1b\x7f", `"\x00\x1B\x7F"`},
		{"C1 control", "\u009b", `"\u{9B}"`},
		{"bidi mark", "a\u202Eb\u2066\u200F", `"a\u{202E}b\u{2066}\u{200F}"`},
		{"zero width", "\u200B\u200D\u2060\uFEFF\u00AD", `"\u{200B}\u{200D}\u{2060}\u{FEFF}\u{AD}"`},
		{"spaces that are not one", "\u00A0\u2003\u3000\u2028", `"\u{A0}\u{2003}\u{3000}\u{2028}"`},
		{"fillers", "\u3164\u115F\uFFA0\u2800", `"\u{3164}\u{115F}\u{FFA0}\u{2800}"`},
		{"tag and variation selector", "\U000E0041\uFE0F", `"\u{E0041}\u{FE0F}"`},
		{"private use", "\uE000\U0010FFFD", `"\u{E000}\u{10FFFD}"`},
		{"non-character", "\uFFFE\U0010FFFF\uFDD0", `"\u{FFFE}\u{10FFFF}\u{FDD0}"`},
		{"unassigned", "\u0378", `"\u{378}"`},
		{"replacement character", "\uFFFD", `"\u{FFFD}"`},
		{"broken UTF-8", "caf\xe9", `"caf\xE9"`},
		{"surrogate in UTF-8", "\xed\xa0\x80", `"\xED\xA0\x80"`},
		{"overlong", "\xc0\x80", `"\xC0\x80"`},
		{"right to left", "\u05D0_1", `"\u{5D0}_1"`},
		{"Arabic digits", "\u0661", `"\u{661}"`},
		{"composed and not", "\u00E9e\u0301", "\"\u00E9e\\u{301}\""},
		{"mark at the start", "\u0E31", `"\u{E31}"`},
		{"marks on a letter", "\u0E17\u0E35\u0E48", "\"\u0E17\u0E35\u0E48\""},
		{"tower of marks", "\u0E17" + strings.Repeat("\u0E35", 5), "\"\u0E17\u0E35\u0E35\u0E35\\u{E35}\\u{E35}\""},
		{"mark after an escape", "\n\u0E35", `"\n\u{E35}"`},
		{"mark on a digit", "1\u0E35", `"1\u{E35}"`},
		{"jamo", "\u1100\u1161", `"\u{1100}\u{1161}"`},
		{"flag and skin tone", "\U0001F1E9\U0001F3FB", `"\u{1F1E9}\u{1F3FB}"`},
		{"ellipsis", "…", `"\u{2026}"`},
		{"other scripts", "注文_клиент_🙂", `"注文_клиент_🙂"`},
	} {
		if got := Printable([]byte(c.key)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	if got := Printable(nil); got != "null" {
		t.Errorf("nil: got %s", got)
	}
	if got, err := Unprintable("null"); got != nil || err != nil {
		t.Errorf("null: got %v, %v", got, err)
	}
	if got, err := Unprintable(`""`); got == nil || len(got) != 0 || err != nil {
		t.Errorf("empty: got %v, %v", got, err)
	}
}

func TestUnprintableRefuses(t *testing.T) {
	for _, s := range []string{"", `"`, `a`, `"a`, `a"`, `"""`, `"\"`, `"\q"`, `"\x4"`, `"\x41"`, `"\xe9"`, `"\x0a"`, `"\u{}"`, `"\u{41}"`,
		`"\u{00AD}"`, `"\u{ad}"`, `"\u{D800}"`, `"\u{110000}"`, `"\u{200B"`, `"\xE2\x80\xAE"`, "\"\u202E\"", "\"a\nb\"", "\"\xff\"", `NULL`, `null `,
		`"\u{+AD}"`, `"a…5 bytes…b"`, "\"\u0301\""} {
		if got, err := Unprintable(s); err == nil {
			t.Errorf("%q: got %q, want an error", s, got)
		}
	}
}

// TestEveryCharacter walks through all of Unicode: alone, at the start, after a
// letter and before one, each is shown safely and read back.
func TestEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		key := []byte(string([]rune{r, 'a', r, r}))
		checkForm(t, key)
		if r%61 == 0 || r < 0x3000 {
			checkShort(t, key)
		}
	}
}

func checkForm(t *testing.T, key []byte) {
	t.Helper()
	f := Printable(key)
	back, err := Unprintable(f)
	if err != nil || !bytes.Equal(back, key) || (back == nil) != (key == nil) {
		t.Fatalf("%q: form %s reads back as %q, %v", key, f, back, err)
	}
	if !utf8.ValidString(f) {
		t.Fatalf("%q: form %q is not UTF-8", key, f)
	}
	for _, r := range f {
		if r >= utf8.RuneSelf && (!unicode.IsPrint(r) || unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Bidi_Control, unicode.Inherited) || r == '…') || r < ' ' {
			t.Fatalf("%q: form %q shows %U", key, f, r)
		}
	}
	if w := unitsWidth(units(f)); f != PrintableNull && w+2 != Width(f) {
		t.Fatalf("%q: units are %d wide, the form %d", key, w+2, Width(f))
	}
}

func checkShort(t *testing.T, key []byte) {
	t.Helper()
	f := Printable(key)
	for _, width := range []int{0, 20, 33, 80} {
		s := Shorten(f, width)
		if w := Width(s); w > max(width, minShort) {
			t.Fatalf("%q: shortened to %d: %d wide: %s", key, width, w, s)
		}
		if (s == f) != (Width(f) <= max(width, minShort)) && Width(f) > minShort {
			t.Fatalf("%q: shortened to %d: %s", key, width, s)
		}
		checkLeftOut(t, key, s)
	}
}

// checkLeftOut: what a shortened form shows and what it says it left out are the
// key together.
func checkLeftOut(t *testing.T, key []byte, s string) {
	t.Helper()
	head, rest, cut := strings.Cut(s, "…")
	if !cut {
		return
	}
	count, tail, _ := strings.Cut(rest, "…")
	n := 0
	for _, d := range count {
		if d >= '0' && d <= '9' {
			n = n*10 + int(d-'0')
		}
	}
	var shown []byte
	for _, us := range [][]unit{units(head + `"`), units(`"` + tail)} {
		for _, u := range us {
			if u.escape {
				shown, _ = unescape(shown, u.text)
			} else {
				shown = append(shown, u.text...)
			}
		}
	}
	if len(shown)+n != len(key) {
		t.Fatalf("%q: %s shows %d bytes and leaves out %d of %d", key, s, len(shown), n, len(key))
	}
	if !bytes.HasPrefix(key, shown[:len(shown)-tailLen(tail)]) || !bytes.HasSuffix(key, shown[len(shown)-tailLen(tail):]) {
		t.Fatalf("%q: %s shows something else", key, s)
	}
}

func tailLen(tail string) int {
	n := 0
	for _, u := range units(`"` + tail) {
		n += u.bytes
	}
	return n
}

func TestShorten(t *testing.T) {
	long := Printable([]byte("order_17_4_" + evt + "_" + act + "\n"))
	for _, c := range []struct {
		form  string
		width int
		want  string
	}{
		{`"short"`, 40, `"short"`},
		{"null", 4, "null"},
		{long, 40, `"order_17_4_3f2c8a1…58 bytes…60718293\n"`},
		{long, 20, `"order…78 bytes…3\n"`},
		{Printable(bytes.Repeat([]byte("注"), 30)), 30, `"注注注注注注…63 bytes…注注注"`},
		{Printable(bytes.Repeat([]byte{0xff}, 30)), 30, `"\xFF\xFF\xFF…26 bytes…\xFF"`},
		{`not a form`, 40, `"not a form"`},
	} {
		if got := Shorten(c.form, c.width); got != c.want {
			t.Errorf("Shorten(%s, %d) = %s, want %s", c.form, c.width, got, c.want)
		}
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "注文": 4, "한글": 4, "ﾊﾝ": 2, "ｆ": 2, "🙂": 2, "é": 1, "ที่": 1, "…": 1, "█": 1, "клиент": 6} {
		if got := Width(s); got != want {
			t.Errorf("Width(%q) = %d, want %d", s, got, want)
		}
	}
	for name, table := range map[string][]runeRange{"wide": wide, "misleading": misleading} {
		for i, r := range table {
			if r.first > r.last || i > 0 && r.first <= table[i-1].last {
				t.Errorf("%s: range %d is not in order", name, i)
			}
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, k := range hostileKeys() {
		f.Add(k)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, key []byte) {
		if key == nil {
			key = []byte{}
		}
		checkForm(t, key)
		checkShort(t, key)
		// What is read as a form, whatever it is, is the form of what was read.
		if back, err := Unprintable(string(key)); err == nil && Printable(back) != string(key) {
			t.Fatalf("%q reads as %q, whose form is %s", key, back, Printable(back))
		}
		p := plain(string(key))
		if !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool { return r != '…' && !visible(r) }) {
			t.Fatalf("%q: plain %q", key, p)
		}
		for _, l := range wrap(p, 30) {
			if Width(l) > 30 {
				t.Fatalf("%q: line %q", p, l)
			}
		}
		if w := Width(cut(p, 12)); w > 12 {
			t.Fatalf("%q: cut to %d", p, w)
		}
		continued(p, 40)
	})
}

// TestInjective: no two keys of a tricky set have the same form.
func TestInjective(t *testing.T) {
	keys := [][]byte{nil, {}, []byte("null"), []byte(`""`), []byte("\\n"), []byte("\n"), []byte(`\x00`), []byte("\x00"), []byte("\u202e"),
		[]byte(`\u{202E}`), []byte("\xe2\x80"), []byte("\ufffd"), []byte("\xff"), []byte(`\xFF`), []byte("e\u0301"), []byte("\u00e9")}
	var forms []string
	for _, k := range append(keys, hostileKeys()...) {
		f := Printable(k)
		if f != Printable([]byte("null")) && slices.Contains(forms, f) {
			t.Errorf("%q: %s twice", k, f)
		}
		forms = append(forms, f)
	}
}
