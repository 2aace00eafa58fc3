package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Style is how text is laid out. The zero value is 80 columns without colour,
// which is right for files. Whether a terminal wants colour is for the caller to
// decide, by what the output is and by NO_COLOR.
type Style struct {
	Color bool
	Width int // columns, 80 if zero; below 60 counts as 60
}

// The full text shows at most this many lines of one table; the files that hold
// everything are named under it.
const (
	textKeys       = 100
	textPartitions = 200
	textMore       = 20 // actions, codecs, differences
)

// WriteText writes the whole report: report.txt.
func (r *Report) WriteText(w io.Writer, st Style) error {
	p := newPage(st)
	p.title("rekey plan report", r.Tool)
	p.verdict(r.Verdict, true)
	r.whatToDo(p, false)
	p.findings(r.Findings)
	r.topics(p)
	r.recordsText(p)
	r.badKeysText(p)
	r.repairsText(p)
	r.collisionsText(p)
	r.prunedText(p)
	r.release04Text(p)
	r.breaksText(p)
	r.spreadText(p, textPartitions)
	r.traitsText(p)
	r.timesText(p)
	p.named("COMPRESSION OF THE OLD TOPIC", "codec", "batches", r.Codecs, int64(len(r.Codecs)))
	p.named("ACTIONS", "action UUID", "records", r.Actions, r.ActionCount)
	r.configText(p)
	if r.Padding.Records > 0 {
		p.heading("PADDING")
		p.para(2, r.Padding.cost())
	}
	p.heading("THIS REPORT")
	p.pair("plan id", r.PlanID)
	p.pair("made", stamp(r.CreatedAt))
	p.pair("run directory", r.RunDir)
	p.para(2, "The same in other forms: report.json for programs, report.html for a browser. unparseable.jsonl lists every bad key.")
	return p.flush(w)
}

// WriteSummary writes what fits a screen: the verdict, what to do, and the few
// figures that decide. The other files say the rest.
func (r *Report) WriteSummary(w io.Writer, st Style) error {
	p := newPage(st)
	p.title(fmt.Sprintf("rekey plan  %s -> %s", plain(r.Source.Name), plain(r.Target.Name)), r.Tool)
	p.verdict(r.Verdict, false)
	r.whatToDo(p, true)

	p.heading("RECORDS")
	parts := make([]string, 0, 7)
	for _, f := range r.decided() {
		if f.N > 0 {
			parts = append(parts, thousands(f.N)+" "+f.Name)
		}
	}
	total := records(r.Counts.Records) + ", " + size(r.Counts.Bytes)
	if len(parts) > 0 {
		total += ": " + strings.Join(parts, ", ")
	}
	p.para(2, total+".")
	p.para(2, fmt.Sprintf("Keys %s -> %s, %s changed; history %s.", plain(r.Options.From), plain(r.Options.To),
		thousands(r.Counts.ChangedKeys), plain(r.Options.History)))
	if r.Padding.Records > 0 {
		p.para(2, plural(r.Padding.Records, "padding record", "padding records")+" first, so that old recovery markers stay valid.")
	}

	if r.BadKeys > 0 || len(r.Unparseable) > 0 {
		p.heading(fmt.Sprintf("KEYS THAT CANNOT BE PARSED: %s in %s", thousands(r.BadKeys), records(r.Counts.Unparseable)))
		reasons := make([]string, 0, len(r.Unparseable))
		for _, c := range r.Unparseable {
			reasons = append(reasons, thousands(c.Keys)+" "+plain(c.Reason))
		}
		p.para(2, joinSome(reasons, 6)+".")
		r.keyTable(p, r.Examples[:min(len(r.Examples), 3)], false)
		if r.BadKeys > 3 {
			p.para(2, "All of them, with what to do: "+path(r.RunDir, "unparseable.jsonl"))
		}
	}
	if before, _ := r.spread(); before.Partitions > 1 && before.Total > 0 {
		r.spreadText(p, 4)
	}
	// Notes need nobody at this hour; the full report has them.
	serious := slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity == Note })
	if n := len(serious); n > 0 {
		p.heading("FINDINGS")
		for i, f := range serious {
			if i == 4 {
				p.para(2, fmt.Sprintf("and %d more in the full report", n-i))
				break
			}
			p.finding(f, false)
		}
	}
	p.para(0, "Full report: "+path(r.RunDir, "report.html")+" or report.txt beside it")
	return p.flush(w)
}

func path(dir, file string) string {
	if dir == "" {
		return file
	}
	return plain(strings.TrimRight(dir, "/")) + "/" + file
}

func joinSome(parts []string, most int) string {
	if len(parts) > most {
		rest := len(parts) - most
		parts = append(slices.Clone(parts[:most]), fmt.Sprintf("%d more reasons", rest))
	}
	return strings.Join(parts, ", ")
}

func (r *Report) whatToDo(p *page, short bool) {
	p.heading("WHAT TO DO")
	todo := remedies(r.Findings, Refusal)
	if len(todo) == 0 && r.Verdict.Code == Review {
		todo = remedies(r.Findings, Warning)
	}
	for i, f := range todo {
		if short && i == 3 {
			p.para(2, fmt.Sprintf("and %d more, see the full report", len(todo)-i))
			break
		}
		p.bullet(f.Do)
	}
	p.commands(r.Next)
	p.rollback(r.Rollback)
}

func (r *Report) topics(p *page) {
	p.heading("TOPICS")
	p.topic("old", r.Source)
	p.topic("new", r.Target)
	if r.Source.ClusterID != r.Target.ClusterID {
		p.para(2, "The topics are on different clusters.")
	}
	if len(r.Source.Partitions) > 0 {
		p.blank()
		p.para(2, "Read from the old topic, per partition: first offset, and one past the last.")
		t := table{cols: []column{{head: "partition", right: true}, {head: "log start", right: true}, {head: "log end", right: true}}}
		for i, x := range r.Source.Partitions {
			if i == textPartitions {
				t.more = fmt.Sprintf("and %d more partitions in report.json", len(r.Source.Partitions)-i)
				break
			}
			t.add(strconv.Itoa(int(x.ID)), strconv.FormatInt(x.Start, 10), strconv.FormatInt(x.End, 10))
		}
		p.table(t)
	}
}

func (p *page) topic(name string, t Topic) {
	p.pair(name+" topic", plain(t.Name))
	facts := []string{plural(int64(t.Count), "partition", "partitions")}
	if t.ID != "" {
		facts = append(facts, "topic id "+plain(t.ID))
	} else {
		facts = append(facts, "no topic id (not created yet, or the broker has none)")
	}
	if t.ClusterID != "" {
		facts = append(facts, "cluster "+plain(t.ClusterID))
	}
	p.hang(2, "", pairWidth, strings.Join(facts, ", "))
}

func (r *Report) recordsText(p *page) {
	p.heading("RECORDS AND WHAT HAPPENS TO THEM")
	p.factTable(r.decided())
	p.para(2, fmt.Sprintf("Together %s, %s of keys, values and headers; the largest has %s.",
		records(r.Counts.Records), size(r.Counts.Bytes), size(r.Counts.LargestRecord)))
	if sum := r.Counts.Sum(); sum != r.Counts.Records {
		p.para(2, fmt.Sprintf("These figures do not add up: the decisions are %s. Do not trust this report; plan again.", thousands(sum)))
	}
	if fs := r.noted(); len(fs) > 0 {
		p.blank()
		p.para(2, "Of them:")
		p.factTable(fs)
	}
	if opts := r.chosen(); len(opts) > 0 {
		p.heading("HOW THEY ARE COPIED")
		t := table{cols: []column{{}, {max: 24}, {wrap: true}}}
		for _, o := range opts {
			t.add(o[0], plain(o[1]), o[2])
		}
		p.table(t)
	}
}

func (p *page) factTable(fs []fact) {
	t := table{cols: []column{{max: 24}, {right: true}, {wrap: true}}}
	for _, f := range fs {
		t.add(f.Name, thousands(f.N), f.Means)
	}
	p.table(t)
}

func (r *Report) badKeysText(p *page) {
	if r.BadKeys == 0 && len(r.Unparseable) == 0 {
		p.heading("KEYS THAT CANNOT BE PARSED")
		p.para(2, "None. Every key has exactly one meaning.")
		return
	}
	p.heading(fmt.Sprintf("KEYS THAT CANNOT BE PARSED: %s in %s", thousands(r.BadKeys), records(r.Counts.Unparseable)))
	t := table{cols: []column{{head: "reason", max: 18}, {head: "keys", right: true}, {head: "records", right: true}, {head: "meaning", wrap: true}}}
	for _, c := range r.Unparseable {
		t.add(plain(c.Reason), thousands(c.Keys), thousands(c.Records), plain(r.meaning(c)))
	}
	p.table(t)
	shown := r.Examples[:min(len(r.Examples), textKeys)]
	if len(shown) == 0 {
		return
	}
	p.blank()
	if int64(len(shown)) < r.BadKeys {
		p.para(2, fmt.Sprintf("The first %d of them; unparseable.jsonl has all. p3@17 is partition 3, offset 17.", len(shown)))
	} else {
		p.para(2, "All of them. p3@17 is partition 3, offset 17.")
	}
	r.keyTable(p, shown, true)
}

// keyTable lists bad keys. The key comes first and may be cut; what is wrong with
// it and what could be done stand under it, where there is room.
func (r *Report) keyTable(p *page, keys []BadKey, full bool) {
	if len(keys) == 0 {
		return
	}
	var reasonW, whereW, countW int
	for _, k := range keys {
		reasonW = max(reasonW, min(Width(plain(k.Reason)), 18))
		whereW = max(whereW, min(Width(k.First.String()), 24))
		countW = max(countW, len(thousands(k.Records)))
	}
	whereW, countW = max(whereW, len("first at")), max(countW, len("records"))
	keyW := p.width - 2 - 2 - reasonW - 2 - whereW - 2 - countW
	t := table{cols: []column{{head: "key", max: keyW}, {head: "reason", max: 18}, {head: "first at", max: 24}, {head: "records", right: true}}}
	for _, k := range keys {
		t.add(Shorten(k.Key, keyW), plain(k.Reason), k.First.String(), thousands(k.Records))
		if full {
			if k.Detail != "" {
				t.note(cut(plain(k.Detail), 240))
			}
			if k.First != k.Last {
				t.note("last at " + k.Last.String() + nullValues(k))
			}
			if k.Decision != "" {
				t.note("decision: " + decisionWords(k.Decision))
			}
		}
		if s := k.Suggestion; s != nil {
			t.note(cut("suggestion: "+s.advice(), 240))
			if full {
				t.note("            gives " + Shorten(Printable([]byte(s.BusinessKey)), p.width-45) + ", sequence " + strconv.FormatInt(s.Sequence, 10))
			}
		}
	}
	p.table(t)
}

func nullValues(k BadKey) string {
	if k.Tombstones == 0 {
		return ""
	}
	return ", " + thousands(k.Tombstones) + " with a null value"
}

func (r *Report) breaksText(p *page) {
	if len(r.Breaks) == 0 {
		return
	}
	p.heading("WHAT GOES WRONG ON THE OLD TOPIC, AND WHAT THE COPY CURES")
	for _, b := range r.Breaks {
		label, code := "NOT CURED", red
		if b.Cured {
			label, code = "cured", green
		}
		p.hangColor(2, label, 12, code, fmt.Sprintf("%s (%s, %s)", plain(b.Title), plain(b.Releases), records(b.Records)))
		if b.Text != "" {
			p.hang(2, "", 12, plain(b.Text))
		}
	}
}

func (r *Report) spreadText(p *page, most int) {
	if len(r.Spread) == 0 {
		return
	}
	before, after := r.spread()
	loads := slices.Clone(r.Spread)
	if len(loads) > most {
		// The fullest are what the reader looks for; they keep their order.
		slices.SortStableFunc(loads, func(a, b Load) int { return cmp.Compare(max(b.Before, b.After), max(a.Before, a.After)) })
		loads = loads[:most]
		slices.SortFunc(loads, func(a, b Load) int { return cmp.Compare(a.Partition, b.Partition) })
	}
	title := "SPREAD OVER PARTITIONS"
	if len(loads) < len(r.Spread) {
		title += fmt.Sprintf(": THE %d FULLEST OF %d", len(loads), len(r.Spread))
	}
	p.heading(title)
	p.hangColor(2, "before", 8, hotColor(before, before.Most, yellow), before.sentence())
	p.hangColor(2, "after", 8, hotColor(after, after.Most, cyan), after.sentence())
	top := max(before.Most, after.Most, 1)
	var partW, beforeW, afterW = len("partition"), len("before"), len("after")
	for _, l := range loads {
		partW = max(partW, len(strconv.Itoa(int(l.Partition))))
		beforeW = max(beforeW, len(thousands(l.Before)))
		afterW = max(afterW, len(thousands(l.After)))
	}
	room := max((p.width-2-partW-2-beforeW-1-2-afterW-1)/2, 6)
	p.line(p.paint(dim, fmt.Sprintf("  %*s  %*s %-*s  %*s", partW, "partition", beforeW, "before", room, "", afterW, "after")))
	for _, l := range loads {
		b, a := bar(l.Before, top, room), bar(l.After, top, room)
		gap := strings.Repeat(" ", room-utf8.RuneCountInString(b))
		p.line(fmt.Sprintf("  %*d  %*s %s%s  %*s %s", partW, l.Partition, beforeW, thousands(l.Before), p.paint(hotColor(before, l.Before, yellow), b), gap,
			afterW, thousands(l.After), p.paint(hotColor(after, l.After, cyan), a)))
	}
}

// hotColor paints what is hot, and only that, red.
func hotColor(s side, n int64, normal string) string {
	if s.hot(n) {
		return red
	}
	return normal
}

// bar draws n of top in at most width columns. Anything at all is at least a
// sliver.
func bar(n, top int64, width int) string {
	if n <= 0 || top <= 0 {
		return ""
	}
	eighths := int(float64(n) / float64(top) * float64(width*8))
	eighths = min(max(eighths, 1), width*8)
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

func (r *Report) traitsText(p *page) {
	if len(r.Traits) == 0 {
		return
	}
	p.heading("KEYS THAT PARSE BUT DESERVE A LOOK")
	for _, t := range r.Traits {
		p.para(2, fmt.Sprintf("%s (%s): %s", plain(t.Trait), records(t.Records), capital(plain(t.Meaning))))
		p.para(6, "first: "+Shorten(t.Example, p.width-18-len(t.At.String()))+" at "+t.At.String())
	}
}

func (r *Report) timesText(p *page) {
	p.heading("RECORD TIMESTAMPS")
	t := &r.Times
	if r.dated() {
		p.pair("oldest", fmt.Sprintf("%s  (raw %d, at %s)", moment(t.Oldest), t.Oldest, t.OldestAt))
		p.pair("newest", fmt.Sprintf("%s  (raw %d, at %s)", moment(t.Newest), t.Newest, t.NewestAt))
	} else {
		p.para(2, "No record has a timestamp.")
	}
	if t.Unset > 0 {
		p.pair("without one", records(t.Unset)+" (raw -1)")
	}
}

func (r *Report) configText(p *page) {
	if len(r.Target.Configs) == 0 {
		return
	}
	p.heading("SETTINGS OF THE NEW TOPIC")
	t := table{cols: []column{{head: "setting", max: 36}, {head: "value", max: 20}, {head: "from", wrap: true}}}
	for _, c := range r.Target.Configs {
		origin := plain(c.Origin)
		if c.Note != "" {
			origin += ": " + plain(c.Note)
		}
		value := plain(c.Value)
		if value == "" {
			value = `""`
		}
		t.add(plain(c.Name), value, origin)
	}
	p.table(t)
}

// WriteText writes the evidence of apply. It fits a screen.
func (a *Apply) WriteText(w io.Writer, st Style) error {
	p := newPage(st)
	shard := ""
	if a.Shard != "" {
		shard = "  shard " + plain(a.Shard)
	}
	p.title(fmt.Sprintf("rekey apply  %s -> %s%s", plain(a.Source.Name), plain(a.Target.Name), shard), a.Tool)
	word, code, text := a.outcome()
	p.banner(word, code, text)
	p.heading("WHAT TO DO")
	for _, f := range remedies(a.Findings, Refusal) {
		p.bullet(f.Do)
	}
	p.commands(a.Next)
	p.rollback(a.Rollback)
	p.heading("WHAT HAPPENED")
	took := a.FinishedAt.Sub(a.StartedAt)
	p.factTable(keep(1, []fact{
		{"written", a.Written, "records, by this run", false},
		{"replayed", a.Replayed, "of those, set aside at first and repaired since", false},
		{"already there", a.Present, "records that an earlier run had written", false},
		{"padding", a.Padded, "harmless tombstones before the first record", false},
		{"not copied", a.Skipped, "quarantined, dropped or omitted, as planned", false},
	}))
	if q := a.Quarantine; q != nil {
		p.pair("quarantined", fmt.Sprintf("in the topic %s: %s written by this run, %s there before", plain(q.Topic), records(q.Written), thousands(q.Present)))
	}
	p.pair("data", size(a.Bytes))
	line := clock(took)
	if s := took.Seconds(); s > 0 && a.Written+a.Padded > 0 {
		line += fmt.Sprintf(", %s records a second", thousands(int64(float64(a.Written+a.Padded)/s)))
	}
	p.pair("took", line)
	p.pair("started", stamp(a.StartedAt))
	p.pair("plan id", a.PlanID)
	p.findings(a.Findings)
	p.heading("TOPICS")
	p.topic("old", a.Source)
	p.topic("new", a.Target)
	return p.flush(w)
}

// outcome is the verdict on a run of apply.
func (a *Apply) outcome() (word, code, text string) {
	for _, f := range a.Findings {
		if f.Severity == Refusal {
			return "STOPPED", red, f.Title
		}
	}
	switch {
	case a.LiveSource:
		return "BEHIND", yellow, "The plan is carried out, but something has written to the old topic since it was made. What came later is not in the copy."
	case a.Nothing && a.Shard != "":
		return "DONE", green, fmt.Sprintf("Nothing was left to do: the new topic already holds every record of shard %s.", plain(a.Shard))
	case a.Nothing:
		return "DONE", green, "Nothing was left to do: the new topic already holds every record of the plan."
	case a.Shard != "" && a.Resumed:
		return "DONE", green, fmt.Sprintf("Shard %s is complete: %s written now, %s were there from an earlier run.", plain(a.Shard), records(a.Written), thousands(a.Present))
	case a.Shard != "":
		return "DONE", green, fmt.Sprintf("Shard %s is complete: %s written.", plain(a.Shard), records(a.Written))
	case a.Resumed:
		return "DONE", green, fmt.Sprintf("The copy is complete: %s written now, %s were there from an earlier run.", records(a.Written), thousands(a.Present))
	}
	return "DONE", green, fmt.Sprintf("The copy is complete: %s written.", records(a.Written))
}

// WriteText writes the evidence of verify.
func (v *Verify) WriteText(w io.Writer, st Style) error { return v.write(w, st, 100) }

// WriteSummary writes what fits a screen: the first differences only.
func (v *Verify) WriteSummary(w io.Writer, st Style) error { return v.write(w, st, 6) }

func (v *Verify) write(w io.Writer, st Style, most int) error {
	p := newPage(st)
	p.title(fmt.Sprintf("rekey verify  %s -> %s", plain(v.Source.Name), plain(v.Target.Name)), v.Tool)
	if v.Equal {
		p.banner("EQUAL", green, fmt.Sprintf("The copy is right: %s demanded, %s found, no difference.", records(v.Demanded), thousands(v.Found)))
	} else {
		p.banner("DIFFERENT", red, fmt.Sprintf("The copy is not right: %s. Do not switch the job to it.", plural(v.Total, "difference", "differences")))
	}
	p.heading("WHAT TO DO")
	p.commands(v.Next)
	p.rollback(v.Rollback)
	if len(v.Differences) > 0 {
		p.heading(fmt.Sprintf("DIFFERENCES: %s", thousands(v.Total)))
		for i, d := range v.Differences {
			if i == most {
				break
			}
			place := make([]string, 0, 2)
			if d.Source != nil {
				place = append(place, "old "+d.Source.String())
			}
			if d.Target != nil {
				where := "new "
				if d.Topic != "" {
					where = plain(d.Topic) + " "
				}
				place = append(place, where+d.Target.String())
			}
			p.hangColor(2, plain(d.Kind), 12, red, Shorten(d.Key, p.width-16))
			if len(place) > 0 {
				p.hang(2, "", 12, strings.Join(place, ", "))
			}
			if d.Text != "" {
				p.hang(2, "", 12, plain(d.Text))
			}
		}
		if n := v.Total - int64(min(len(v.Differences), most)); n > 0 {
			p.para(2, fmt.Sprintf("and %s more; verify.json has the first %d", thousands(n), len(v.Differences)))
		}
	}
	p.heading("WHAT WAS COMPARED")
	p.factTable(keep(2, []fact{
		{"demanded", v.Demanded, "records that the old topic demands now", false},
		{"found", v.Found, "migrated records on the new topic", false},
		{"superseded", v.Superseded, "on one side only, rightly: compaction removed the other", false},
		{"padding", v.Padding, "harmless tombstones before the first record", false},
	}))
	method := map[string]string{
		"exact":     "every record: key, value, headers, timestamp, order, partition",
		"compacted": "every record that compaction has left: key, value, headers, timestamp, order, partition",
	}[v.Method]
	if method == "" {
		method = plain(v.Method)
	}
	p.pair("compared", method)
	if q := v.Quarantine; q != nil {
		p.pair("quarantined", fmt.Sprintf("%s demanded, %s found in the topic %s", records(q.Demanded), thousands(q.Present), plain(q.Topic)))
	}
	p.pair("took", clock(v.FinishedAt.Sub(v.StartedAt)))
	p.pair("started", stamp(v.StartedAt))
	p.pair("plan id", v.PlanID)
	p.heading("TOPICS")
	p.topic("old", v.Source)
	p.topic("new", v.Target)
	return p.flush(w)
}

// WriteSummary is WriteText: it fits a screen already.
func (a *Apply) WriteSummary(w io.Writer, st Style) error { return a.WriteText(w, st) }
