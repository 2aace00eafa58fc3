package report

import (
	"bytes"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the files under testdata")

// golden compares got with a file under testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); if it is right, run with -update:\n%s", file, diff)
	}
}

type writer func(io.Writer, Style) error

func texts() map[string]writer {
	m := map[string]writer{
		"apply.txt":            sampleApply().WriteText,
		"verify.txt":           sampleVerify().WriteText,
		"verify-different.txt": differentVerify().WriteText,
		"verify-summary.txt":   differentVerify().WriteSummary,
	}
	maps.Copy(m, rehearseTexts())
	for name, r := range sampleReports() {
		m[name+".txt"] = r.WriteText
		m[name+"-summary.txt"] = r.WriteSummary
	}
	return m
}

func TestText(t *testing.T) {
	for name, write := range texts() {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b, Style{}); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.Bytes())
		})
	}
}

// sgr is all that colour may add to a text.
var sgr = regexp.MustCompile("\x1b\\[[0-9;]+m")

// TestTextSafe holds every text, at every width and with colour, to what a
// terminal needs: no line too wide, no character that moves or hides others.
func TestTextSafe(t *testing.T) {
	for name, write := range texts() {
		for _, st := range []Style{{}, {Color: true}, {Width: 60}, {Width: 133}} {
			var b bytes.Buffer
			if err := write(&b, st); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			if !st.Color && strings.Contains(text, "\x1b") {
				t.Errorf("%s: colour that nobody asked for", name)
			}
			text = sgr.ReplaceAllString(text, "")
			width := newPage(st).width
			for i, line := range strings.Split(text, "\n") {
				// Commands are never broken inside of a word.
				command := strings.HasPrefix(line, "  $ ") || strings.HasPrefix(line, "    ")
				if n := Width(line); n > width && !(command && width == 60) {
					t.Errorf("%s:%d: %d columns, want at most %d: %s", name, i+1, n, width, line)
				}
				if !utf8.ValidString(line) {
					t.Errorf("%s:%d: not UTF-8", name, i+1)
				}
				for _, r := range line {
					if r != '…' && !visible(r) {
						t.Errorf("%s:%d: %U is shown as itself: %q", name, i+1, r, line)
					}
				}
				if strings.HasSuffix(line, " ") {
					t.Errorf("%s:%d: spaces at the end", name, i+1)
				}
			}
		}
	}
}

func TestSummaryFitsAScreen(t *testing.T) {
	for name, r := range sampleReports() {
		var b bytes.Buffer
		if err := r.WriteSummary(&b, Style{}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "\n"); n > 48 || (name != "hostile" && n > 44) {
			t.Errorf("%s: the summary has %d lines", name, n)
		}
	}
}

// TestColourSaysNothing: without its colour a text is the text without colour.
func TestColourSaysNothing(t *testing.T) {
	for name, write := range texts() {
		var with, without bytes.Buffer
		if err := write(&with, Style{Color: true}); err != nil {
			t.Fatal(err)
		}
		if err := write(&without, Style{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(without.String(), sgr.ReplaceAllString(with.String(), "")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
