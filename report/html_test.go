package report

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func renderHTML(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHTML(t *testing.T) {
	for name, r := range sampleReports() {
		golden(t, name+".html", []byte(renderHTML(t, r)))
	}
}

// The elements and attributes that our own template uses. Anything else in a
// page came from a key or from another string of the report.
var (
	ownElements = strings.Fields(`html head meta title style body a header main section footer p h1 h2 h3 div span strong em code br ol ul li dl dt dd
		table thead tbody tr th td figure figcaption details summary label input select option output button svg line text rect script`)
	ownAttributes = strings.Fields(`lang charset http-equiv content name class href id aria-label aria-live scope hidden type autocomplete spellcheck
		placeholder value data-reason viewBox role x x1 x2 y y1 y2 dx dy width height`)
	tag       = regexp.MustCompile(`<(/?)([a-zA-Z][^\s/>]*)((?:[^>"']|"[^"]*"|'[^']*')*)>`)
	attribute = regexp.MustCompile(`([^\s=/]+)(?:="([^"]*)")?`)
)

// elements reads a page the way a browser does at its simplest and returns how
// often each element starts. Everything that is not a tag of ours fails.
func elements(t *testing.T, page string) map[string]int {
	t.Helper()
	page = strings.TrimPrefix(page, "<!DOCTYPE html>")
	// Style and script end at their first end tag, whatever they hold.
	for _, raw := range []string{"style", "script"} {
		page = regexp.MustCompile(`(?s)<`+raw+`>.*?</`+raw+`>`).ReplaceAllString(page, "<"+raw+"></"+raw+">")
	}
	count := map[string]int{}
	var open []string
	end := 0
	for _, m := range tag.FindAllStringSubmatchIndex(page, -1) {
		if text := page[end:m[0]]; strings.ContainsAny(text, "<>") {
			t.Fatalf("a bare angle bracket: %.100q", text[strings.IndexAny(text, "<>"):])
		}
		end = m[1]
		closing, name, attrs := m[3] > m[2], page[m[4]:m[5]], page[m[6]:m[7]]
		if !slices.Contains(ownElements, name) {
			t.Fatalf("element %q is not ours", name)
		}
		if closing {
			if len(open) == 0 || open[len(open)-1] != name {
				t.Fatalf("</%s> closes %v", name, open)
			}
			open = open[:len(open)-1]
			continue
		}
		count[name]++
		for _, a := range attribute.FindAllStringSubmatch(strings.TrimSuffix(attrs, "/"), -1) {
			if !slices.Contains(ownAttributes, a[1]) {
				t.Fatalf("attribute %q of %s is not ours", a[1], name)
			}
		}
		if strings.HasSuffix(attrs, "/") || slices.Contains([]string{"meta", "br", "input"}, name) {
			continue
		}
		if name == "title" && len(open) > 0 && open[len(open)-1] == "rect" {
			count["rect-title"]++
		}
		open = append(open, name)
	}
	if len(open) != 0 {
		t.Fatalf("left open: %v", open)
	}
	return count
}

// TestHTMLHostile: keys and other strings never become markup. The page of
// hostile keys has exactly the elements of the same page with harmless ones.
func TestHTMLHostile(t *testing.T) {
	hostile, harmless := hostileReport(), hostileReport()
	for i := range harmless.Examples {
		k := NewBadKey(fmt.Appendf(nil, "key%d", i))
		b := &harmless.Examples[i]
		b.KeyBase64, b.Key, b.Detail = k.KeyBase64, k.Key, "x"
		if b.Suggestion != nil {
			b.Suggestion.Text, b.Suggestion.BusinessKey = "x", "x"
		}
	}
	got, want := elements(t, renderHTML(t, hostile)), elements(t, renderHTML(t, harmless))
	// Escapes are coloured and commands are split into words; these are ours.
	for _, m := range []map[string]int{got, want} {
		delete(m, "span")
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("elements:\nhostile  %v\nharmless %v", got, want)
	}
	if got["script"] != 1 || got["style"] != 1 || got["a"] != 1 {
		t.Errorf("scripts, styles or links that are not ours: %v", got)
	}
	for name, r := range sampleReports() {
		page := renderHTML(t, r)
		elements(t, page)
		for _, ch := range page {
			if ch != '\n' && ch != '…' && !visible(ch) {
				t.Errorf("%s: %U is in the page as itself", name, ch)
			}
		}
	}
}

// TestHTMLEditedDocument: report.json can be edited; the page has to be safe even
// with a key that is not a printable form.
func TestHTMLEditedDocument(t *testing.T) {
	r := demoReport()
	r.Examples[0].Key = "<script>alert(1)</script>\u202E"
	r.Examples[1].Key = ""
	page := renderHTML(t, r)
	elements(t, page)
	if !strings.Contains(page, `&lt;script&gt;alert(1)&lt;/script&gt;</span>`) && !strings.Contains(page, `&lt;script&gt;alert(1)&lt;/script&gt;`) {
		t.Error("the key is not shown")
	}
}

// TestHTMLPolicy: the policy allows exactly the style and the script in the page,
// and the page asks for nothing else.
func TestHTMLPolicy(t *testing.T) {
	page := renderHTML(t, demoReport())
	part := func(name string) string {
		m := regexp.MustCompile(`(?s)<`+name+`>(.*?)</`+name+`>`).FindAllStringSubmatch(page, -1)
		if len(m) != 1 {
			t.Fatalf("%d elements %s", len(m), name)
		}
		return m[0][1]
	}
	for _, want := range []string{"default-src &#39;none&#39;", "script-src &#39;" + hashSource(part("script")) + "&#39;", "style-src &#39;" + hashSource(part("style")) + "&#39;",
		"base-uri &#39;none&#39;", "form-action &#39;none&#39;"} {
		// The template escapes + in attributes; a browser reads it back.
		if !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), want) {
			t.Errorf("no %s in the policy", want)
		}
	}
	for _, bad := range []string{"http:", "https:", "src=", "@import", "url(", " style=", " onclick=", "unsafe-inline"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

// TestHTMLSize: a few thousand keys, some of them huge, still make a page.
func TestHTMLSize(t *testing.T) {
	r := demoReport()
	r.Examples = nil
	for i := range 3000 {
		r.Examples = append(r.Examples, badKey(fmt.Appendf(nil, "key_%d_<b>", i), "foreign", "d", 1, Position{1, int64(i)}, Position{1, int64(i)}))
	}
	r.Examples[7] = badKey(bytes.Repeat([]byte{0}, 100_000), "foreign", strings.Repeat("x", 100_000), 1, Position{}, Position{})
	r.BadKeys = 5000
	page := renderHTML(t, r)
	if !strings.Contains(page, "The first 3,000 of 5,000") {
		t.Error("it does not say how many are missing")
	}
	if n := len(page); n > 8_000_000 {
		t.Errorf("%d bytes", n)
	}
}

func TestEmptyReport(t *testing.T) {
	// A report of nothing is no reason to fail or to divide by zero.
	r := &Report{}
	elements(t, renderHTML(t, r))
	for _, write := range []writer{r.WriteText, r.WriteSummary, (&Apply{}).WriteText, (&Verify{}).WriteText} {
		var b bytes.Buffer
		if err := write(&b, Style{}); err != nil || b.Len() == 0 {
			t.Errorf("%v, %d bytes", err, b.Len())
		}
	}
}
