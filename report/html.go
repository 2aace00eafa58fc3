package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"sync"
)

// The page is one file that asks nobody for anything: style and script stand in
// it, and its Content-Security-Policy allows exactly these two, by their hash,
// and nothing else. So even markup that got past the template's escaping could
// not run, load or send anything. For the same reason there are no style
// attributes; bars are SVG.

//go:embed report.gohtml
var pageHTML string

//go:embed report.css
var pageCSS string

//go:embed report.js
var pageJS string

var pageTemplate = sync.OnceValues(func() (*template.Template, error) {
	return template.New("report").Funcs(template.FuncMap{
		"n":        thousands,
		"int":      func(n int) int64 { return int64(n) },
		"records":  records,
		"plural":   plural,
		"size":     size,
		"plain":    plain,
		"keyform":  keyParts,
		"bytes":    func(s string) string { return Printable([]byte(s)) },
		"percent":  percent,
		"moment":   moment,
		"stamp":    stamp,
		"place":    func(p Position) string { return p.String() },
		"decided":  decisionWords,
		"text":     func(s Severity) string { return string(s) },
		"fullest":  func(s side) string { return s.sentence() },
		"sentence": func(s string) string { return sentence(plain(s)) },
		"capital":  func(s string) string { return capital(plain(s)) },
		"advice":   func(s *Suggestion) string { return cut(capital(s.advice()), cellText) },
		"detail":   func(s string) string { return cut(plain(s), cellText) },
		"total":    func(t RepairTotal) string { return capital(t.total()) },
		"unused":   func(r *Repairs) string { return r.unused() },
		"used":     func(a ActionUse) string { return a.span() + "; " + a.events() },
		"unsafe":   func(p *Pruned) string { return p.UnsafeText() },
		"outcome":  func(c Collision, k CollidingKey) string { return c.outcome(k) },
		"words":    func(s string) []string { return strings.Split(plain(s), " ") },
	}).Parse(pageHTML)
})

// htmlPage is what the template sees: the report, and what is derived from it.
type htmlPage struct {
	*Report
	CSP         string
	Style       template.HTML
	Script      template.HTML
	Word, Means string
	Todo        []Finding
	Decided     []fact
	Noted       []fact
	Sum         int64
	Chosen      [][3]string
	Before      side
	After       side
	BeforeChart chart
	AfterChart  chart
	Times       times
	Reasons     []ReasonCount // with their meanings
	Keys        []htmlKey
	PaddingCost string
	NotCopied   int64
	Unlisted    int64 // collisions
}

type times struct {
	TimeRange
	Dated bool
	Chart chart
}

// htmlKey is one row of the table of bad keys.
type htmlKey struct {
	*BadKey
	Repairs []htmlRepair
}

// htmlRepair is a line for repairs.jsonl and what it would do.
type htmlRepair struct{ Does, Line string }

// WriteHTML writes the report as one page for a browser: report.html. It needs no
// network and no script; the script only adds search and copy buttons.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := pageTemplate()
	if err != nil {
		return err
	}
	p := htmlPage{
		Report:      r,
		CSP:         fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; base-uri 'none'; form-action 'none'", hashSource(pageJS), hashSource(pageCSS)),
		Style:       template.HTML("<style>" + pageCSS + "</style>"),
		Script:      template.HTML("<script>" + pageJS + "</script>"),
		Decided:     r.decided(),
		Noted:       r.noted(),
		Sum:         r.Counts.Sum(),
		Chosen:      r.chosen(),
		PaddingCost: r.Padding.cost(),
		NotCopied:   r.Counts.Omitted + r.Counts.Quarantined + r.Counts.Dropped + r.Counts.Undecided,
		Unlisted:    r.collided() - int64(len(r.Collisions)),
	}
	p.Word, _ = r.Verdict.label()
	p.Means = r.Verdict.explain()
	if p.Todo = remedies(r.Findings, Refusal); len(p.Todo) == 0 && r.Verdict.Code == Review {
		p.Todo = remedies(r.Findings, Warning)
	}
	p.Before, p.After = r.spread()
	p.BeforeChart, p.AfterChart = r.spreadCharts(p.Before, p.After)
	p.Times = times{r.Times, r.dated(), r.timeChart()}
	for _, c := range r.Unparseable {
		c.Meaning = r.meaning(c)
		p.Reasons = append(p.Reasons, c)
	}
	for i := range r.Examples {
		k, err := newHTMLKey(&r.Examples[i])
		if err != nil {
			return err
		}
		p.Keys = append(p.Keys, k)
	}
	// A page is rendered in full before any of it is written, so that a failure
	// leaves no half of one.
	var b strings.Builder
	if err := t.Execute(&b, p); err != nil {
		return err
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// hashSource is the source expression by which a policy allows one inline text.
func hashSource(s string) string {
	h := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(h[:])
}

func newHTMLKey(b *BadKey) (htmlKey, error) {
	k := htmlKey{BadKey: b}
	for _, d := range [][2]string{{"rewrite", "repair"}, {"drop", "drop"}, {"copy", "copy as is"}} {
		r, err := RepairFor(*b, d[0])
		if err != nil {
			continue // not possible for this key
		}
		line, err := r.Line()
		if err != nil {
			return k, err
		}
		k.Repairs = append(k.Repairs, htmlRepair{d[1], line})
	}
	return k, nil
}

// part is a piece of a key: as it is, or an escape, which the page colours.
type part struct {
	Text   string
	Escape bool
}

// A key can have a megabyte. What a cell of the page shows of it is bounded; the
// lines to copy hold all of it.
const (
	cellKey  = 320
	cellText = 400
)

// keyParts splits a printable form for the page.
func keyParts(s string) []part {
	s = Shorten(s, cellKey)
	if s == PrintableNull {
		return []part{{s, true}}
	}
	parts := []part{{Text: `"`}}
	for _, u := range units(s) {
		// Each escape is a piece of its own: a row of them is hard to read.
		if last := &parts[len(parts)-1]; !last.Escape && !u.escape {
			last.Text += u.text
		} else {
			parts = append(parts, part{u.text, u.escape})
		}
	}
	if last := &parts[len(parts)-1]; !last.Escape {
		last.Text += `"`
		return parts
	}
	return append(parts, part{Text: `"`})
}

// chart is a column chart, in the units of its SVG view box.
type chart struct {
	Bars   []chartBar
	Ticks  []chartTick
	Labels []chartLabel
	Even   string // height of the line of the even share, "" for none
	W, H   int    // of the view box
	L, B   int    // left end and bottom of the plot
	R      int    // right end
}

type chartBar struct {
	X, Y, W, H string
	Hot        bool
	Title      string
}

type chartTick struct {
	Y    string
	Text string
}

type chartLabel struct {
	X     string
	Text  string
	Class string // first and last keep labels that are wider than a column inside
}

func coord(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }

// plot fills a chart with columns over a scale from 0 to top.
func (c *chart) plot(ns []int64, top int64, title func(i int) string, label func(i int) string, hot func(n int64) bool) {
	const head = 12
	c.B, c.R = c.H-22, c.W-8
	step := niceStep(top)
	for v := int64(0); v <= top; v += step {
		c.Ticks = append(c.Ticks, chartTick{coord(c.y(v, top, head)), compact(v)})
		if v > top-step { // the next one might not fit the type
			break
		}
	}
	c.L = 8
	for _, t := range c.Ticks {
		c.L = max(c.L, 14+7*len(t.Text))
	}
	if len(ns) == 0 {
		return
	}
	slot := float64(c.R-c.L) / float64(len(ns))
	width := min(slot*0.72, 56)
	every := max(1, int(float64(9*len(label(len(ns)-1))+8)/slot)+1)
	if slot >= float64(8*len(label(len(ns)-1))+4) {
		every = 1
	}
	for i, n := range ns {
		mid := float64(c.L) + slot*(float64(i)+0.5)
		if n > 0 {
			y := c.y(n, top, head)
			h := max(float64(c.B)-y, 1.5) // anything at all can be seen
			c.Bars = append(c.Bars, chartBar{coord(mid - width/2), coord(float64(c.B) - h), coord(width), coord(h), hot(n), title(i)})
		}
		if i%every == 0 {
			if s := label(i); s != "" {
				c.Labels = append(c.Labels, chartLabel{X: coord(mid), Text: s})
			}
		}
	}
}

func (c *chart) y(n, top int64, head int) float64 {
	if top <= 0 {
		return float64(c.B)
	}
	return float64(c.B) - float64(n)/float64(top)*float64(c.B-head)
}

// niceStep is a round distance for three to six lines.
func niceStep(top int64) int64 {
	step := int64(1)
	for i := 0; top/step > 5; i++ {
		if i%3 == 1 {
			step = step / 2 * 5
		} else {
			step *= 2
		}
	}
	return step
}

// compact writes a round number short.
func compact(n int64) string {
	switch {
	case n >= 1_000_000_000 && n%100_000_000 == 0:
		return strconv.FormatFloat(float64(n)/1e9, 'f', -1, 64) + "G"
	case n >= 1_000_000 && n%100_000 == 0:
		return strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64) + "M"
	case n >= 1_000 && n%100 == 0:
		return strconv.FormatFloat(float64(n)/1e3, 'f', -1, 64) + "k"
	}
	return strconv.FormatInt(n, 10)
}

// spreadCharts draws both sides to one scale: the point is to compare them.
func (r *Report) spreadCharts(before, after side) (b, a chart) {
	top := max(before.Most, after.Most)
	for _, x := range []struct {
		c     *chart
		s     side
		count func(Load) int64
	}{{&b, before, func(l Load) int64 { return l.Before }}, {&a, after, func(l Load) int64 { return l.After }}} {
		c := x.c
		c.W, c.H = 480, 210
		ns := make([]int64, len(r.Spread))
		for i, l := range r.Spread {
			ns[i] = x.count(l)
		}
		c.plot(ns, top,
			func(i int) string {
				return fmt.Sprintf("partition %d: %s, %s", r.Spread[i].Partition, records(ns[i]), percent(ns[i], x.s.Total))
			},
			func(i int) string { return strconv.Itoa(int(r.Spread[i].Partition)) }, x.s.hot)
		if x.s.Partitions > 1 && x.s.Total > 0 {
			c.Even = coord(c.y(x.s.Total/int64(x.s.Partitions), top, 12))
		}
	}
	return b, a
}

// maxGap is how many empty buckets a chart of times shows before it leaves them
// out: one record from 1970 must not push all others into one column.
const maxGap = 12

// timeChart draws the timeline.
func (r *Report) timeChart() chart {
	c := chart{W: 980, H: 170}
	var ns []int64
	var titles, labels []string
	var top, prev int64
	for i, b := range r.Timeline {
		if width := b.To - b.From; i > 0 && width > 0 && b.From > prev {
			gap := (b.From - prev) / width
			if b.From-prev < 0 || gap > maxGap {
				ns, titles, labels = append(ns, 0, 0, 0), append(titles, "", "", ""), append(labels, "", "⋯", "")
			} else {
				for range gap {
					ns, titles, labels = append(ns, 0), append(titles, ""), append(labels, "")
				}
			}
		}
		ns = append(ns, b.Records)
		titles = append(titles, fmt.Sprintf("%s to %s: %s", moment(b.From), moment(b.To), records(b.Records)))
		labels = append(labels, "")
		top, prev = max(top, b.Records), b.To
	}
	if len(ns) > 0 {
		labels[0] = day(r.Timeline[0].From)
		labels[len(ns)-1] = day(r.Timeline[len(r.Timeline)-1].From)
	}
	c.plot(ns, top, func(i int) string { return titles[i] }, func(int) string { return "" }, func(int64) bool { return false })
	slot := float64(c.R-c.L) / float64(max(len(ns), 1))
	for i, text := range labels {
		l := chartLabel{X: coord(float64(c.L) + slot*(float64(i)+0.5)), Text: text}
		switch {
		case text == "":
			continue
		case len(ns) == 1:
		case i == 0:
			l.X, l.Class = coord(float64(c.L)), "first"
		case i == len(labels)-1:
			l.X, l.Class = coord(float64(c.R)), "last"
		}
		c.Labels = append(c.Labels, l)
	}
	return c
}

func day(ms int64) string {
	s := moment(ms)
	if len(s) < 10 || s[4] != '-' {
		return s
	}
	return s[:10]
}
