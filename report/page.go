package report

import (
	"fmt"
	"io"
	"strings"
)

// The colours of a terminal, as SGR codes. Colour only repeats what the words
// say.
const (
	bold   = "1"
	dim    = "2"
	red    = "1;31"
	green  = "1;32"
	yellow = "33"
	cyan   = "36"
)

// pairWidth is the column at which the values of a list start: a plan id, 64
// digits, ends exactly with the line then.
const pairWidth = 14

// page collects lines of text. No line is wider than width, except for a command
// with a single word that is: a command is there to be copied, and a broken word
// would make it another command.
type page struct {
	b     strings.Builder
	width int
	color bool
}

func newPage(st Style) *page {
	w := st.Width
	if w == 0 {
		w = 80
	}
	return &page{width: max(w, 60), color: st.Color}
}

func (p *page) flush(w io.Writer) error {
	_, err := io.WriteString(w, p.b.String())
	return err
}

func (p *page) paint(code, s string) string {
	if !p.color || s == "" || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p *page) line(s string) {
	p.b.WriteString(strings.TrimRight(s, " "))
	p.b.WriteByte('\n')
}

func (p *page) blank() { p.b.WriteByte('\n') }

// title is the first line: what this is on the left, which release on the right.
func (p *page) title(left, right string) {
	right = plain(right)
	gap := p.width - Width(left) - Width(right)
	if gap < 2 {
		p.para(0, left)
		p.line(right)
		return
	}
	p.line(p.paint(bold, left) + strings.Repeat(" ", gap) + p.paint(dim, right))
}

func (p *page) verdict(v Verdict, explain bool) {
	word, _ := v.label()
	code := red
	switch v.Code {
	case Ready:
		code = green
	case Review:
		code = "1;" + yellow
	}
	p.banner(word, code, v.Summary)
	if s := v.explain(); explain && s != "" {
		p.hang(0, "", Width(word)+2, s)
	}
}

func (p *page) banner(word, code, text string) {
	p.blank()
	p.hangColor(0, word, len(word)+2, code, sentence(plain(text)))
}

func (p *page) heading(s string) {
	p.blank()
	for _, l := range wrap(s, p.width) {
		p.line(p.paint(bold, l))
	}
}

// para writes wrapped text.
func (p *page) para(indent int, s string) { p.hang(indent, "", 0, s) }

// pair writes a name and its value.
func (p *page) pair(name, value string) {
	if value != "" {
		p.hang(2, name, pairWidth, plain(value))
	}
}

func (p *page) bullet(s string) { p.hang(2, "*", 2, capital(plain(s))) }

// hang writes a label and, from the column after it on, wrapped text.
func (p *page) hang(indent int, label string, column int, s string) {
	p.hangColor(indent, label, column, "", s)
}

func (p *page) hangColor(indent int, label string, column int, code, s string) {
	pad := strings.Repeat(" ", indent)
	if Width(label) >= column && label != "" {
		column = Width(label) + 1
	}
	for i, l := range wrap(s, p.width-indent-column) {
		first := strings.Repeat(" ", column)
		if i == 0 {
			first = p.paint(code, label) + strings.Repeat(" ", column-Width(label))
		}
		p.line(pad + first + l)
	}
}

// commands writes what to do next: a step in words as it is, and a command to
// copy, which goes on in the next line the way a shell reads it.
func (p *page) commands(cmds []string) {
	for _, c := range cmds {
		if !strings.HasPrefix(c, "rekey ") {
			p.bullet(c)
			continue
		}
		for i, l := range continued(plain(c), p.width-4) {
			if i == 0 {
				p.line("  " + p.paint(dim, "$") + " " + p.paint(bold, l))
			} else {
				p.line("    " + p.paint(bold, l))
			}
		}
	}
}

func (p *page) rollback(s string) {
	if s != "" {
		p.hang(2, "To go back:", 12, plain(s))
	}
}

func (p *page) findings(fs []Finding) {
	if len(fs) == 0 {
		return
	}
	p.heading("FINDINGS")
	for _, f := range fs {
		p.finding(f, true)
	}
}

func (p *page) finding(f Finding, full bool) {
	code := ""
	switch f.Severity {
	case Refusal:
		code = red
	case Warning:
		code = "1;" + yellow
	}
	title := plain(f.Title)
	if full && f.Code != "" {
		title += "  [" + plain(f.Code) + "]"
	}
	p.hangColor(2, plain(string(f.Severity)), 9, code, title)
	if !full {
		return
	}
	if f.Text != "" {
		p.hang(2, "", 9, plain(f.Text))
	}
	if f.Do != "" {
		p.hang(2, "", 9, "Do: "+plain(f.Do))
	}
}

// named writes a table of counts.
func (p *page) named(title, name, unit string, ns []NamedCount, all int64) {
	if len(ns) == 0 {
		return
	}
	p.heading(title)
	t := table{cols: []column{{head: name, max: 48}, {head: unit, right: true}}}
	shown := min(len(ns), textMore)
	for _, n := range ns[:shown] {
		t.add(plain(n.Name), thousands(n.Count))
	}
	if rest := all - int64(shown); rest > 0 {
		t.more = fmt.Sprintf("and %s more", thousands(rest))
	}
	p.table(t)
}

// column is one column of a table. The wrap column, if there is one, is the last
// and takes what is left of the line.
type column struct {
	head  string
	right bool
	wrap  bool
	max   int // widest cell; longer ones are cut
}

// table is rows of cells, and notes that stand under the row before them.
type table struct {
	cols []column
	rows []row
	more string
}

type row struct {
	cells []string
	notes []string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, row{cells: cells}) }

func (t *table) note(s string) {
	if n := len(t.rows); n > 0 {
		t.rows[n-1].notes = append(t.rows[n-1].notes, s)
	}
}

func (p *page) table(t table) {
	widths := make([]int, len(t.cols))
	heads := false
	used := 2
	for i, c := range t.cols {
		widths[i] = Width(c.head)
		heads = heads || c.head != ""
		for _, r := range t.rows {
			widths[i] = max(widths[i], Width(r.cells[i]))
		}
		if c.max > 0 {
			widths[i] = min(widths[i], c.max)
		}
		if !c.wrap {
			used += widths[i] + 2
		}
	}
	last := len(t.cols) - 1
	room := p.width + 2 // the last column needs no gap behind it
	if t.cols[last].wrap {
		room = p.width - 24
	}
	for used > room {
		widest := -1
		for i, c := range t.cols {
			if c.max > 0 && widths[i] > 10 && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		used--
	}
	if t.cols[last].wrap {
		widths[last] = max(p.width-used, 20)
	}
	if heads {
		cells := make([]string, len(t.cols))
		for i, c := range t.cols {
			cells[i] = c.head
		}
		p.line(p.paint(dim, strings.TrimRight(t.layout(cells, widths, used)[0], " ")))
	}
	for _, r := range t.rows {
		for _, l := range t.layout(r.cells, widths, used) {
			p.line(l)
		}
		for _, n := range r.notes {
			p.para(6, n)
		}
	}
	if t.more != "" {
		p.para(2, t.more)
	}
}

// layout makes the lines of one row.
func (t *table) layout(cells []string, widths []int, used int) []string {
	var b strings.Builder
	b.WriteString("  ")
	for i, c := range t.cols {
		if c.wrap {
			break
		}
		cell := cut(cells[i], widths[i])
		pad := strings.Repeat(" ", max(widths[i]-Width(cell), 0))
		if c.right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
		b.WriteString("  ")
	}
	lines := []string{b.String()}
	if last := len(t.cols) - 1; t.cols[last].wrap {
		ws := wrap(cells[last], widths[last])
		lines[0] += ws[0]
		for _, w := range ws[1:] {
			lines = append(lines, strings.Repeat(" ", used)+w)
		}
	}
	return lines
}

// cut shortens any text to a width.
func cut(s string, width int) string {
	if Width(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// wrap breaks text into lines at spaces; a word that is too long is broken where
// it must be. Runs of spaces inside a line stay, since keys may hold them.
func wrap(s string, width int) []string {
	width = max(width, 10)
	var lines []string
	line, n := "", 0
	for i, word := range strings.Split(s, " ") {
		w := Width(word)
		switch {
		case i == 0:
			line, n = word, w
		case n+1+w <= width:
			line, n = line+" "+word, n+1+w
		default:
			lines = append(lines, line)
			line, n = word, w
		}
		for n > width {
			head := breakAt(line, width)
			lines = append(lines, line[:head])
			n -= Width(line[:head]) // not all of the rest again: words can be long
			line = line[head:]
		}
	}
	return append(lines, line)
}

// breakAt is the byte at which to break a word: the last that fits.
func breakAt(s string, width int) int {
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > width && i > 0 {
			return i
		}
	}
	return len(s)
}

// continued breaks a command between its words, with the backslash that makes a
// shell read on. Spaces inside of quotes are part of a word.
func continued(cmd string, width int) []string {
	var words []string
	start, quote := 0, byte(0)
	for i := 0; i < len(cmd); i++ {
		switch c := cmd[i]; {
		case quote == 0 && c == '\\':
			i++
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		case quote == '"' && c == '\\':
			i++
		case quote == 0 && c == ' ':
			words = append(words, cmd[start:i])
			start = i + 1
		}
	}
	words = append(words, cmd[start:])
	var lines []string
	line := words[0]
	for i, w := range words[1:] {
		room := width
		if i < len(words)-2 {
			room -= 2 // for the backslash
		}
		if Width(line)+1+Width(w) > room {
			lines = append(lines, line+` \`)
			line = "  " + w
			continue
		}
		line += " " + w
	}
	return append(lines, line)
}
