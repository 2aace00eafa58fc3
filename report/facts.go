package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// What text and HTML both say is made here, so that they say the same.

// thousands writes a count with separators.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// plural is a count with its noun.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

func records(n int64) string { return plural(n, "record", "records") }

// size writes a number of bytes for people.
func size(n int64) string {
	if n < 1024 {
		return plural(n, "byte", "bytes")
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if f /= 1024; f < 1023.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// percent never rounds something to nothing or nearly all to all: "100 %" of
// the records is a promise.
func percent(part, whole int64) string {
	switch {
	case whole <= 0 || part <= 0:
		return "0%"
	case part >= whole:
		return "100%"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case p < 0.1:
		return "<0.1%"
	case p > 99.9:
		return ">99.9%"
	}
	return fmt.Sprintf("%.1f%%", p)
}

// clock writes a duration the way people say it.
func clock(d time.Duration) string {
	switch {
	case d < 0:
		return "unknown"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%s h %02d min", thousands(int64(d/time.Hour)), int(d.Minutes())%60)
}

// moment writes a raw timestamp as UTC. Timestamps may be any 64-bit number;
// what is no date of a four-digit year is said to be none.
func moment(ms int64) string {
	if ms < -62135596800000 || ms > 253402300799999 {
		return "not a date"
	}
	layout := "2006-01-02 15:04:05.000 UTC"
	if ms%1000 == 0 {
		layout = "2006-01-02 15:04:05 UTC"
	}
	return time.UnixMilli(ms).UTC().Format(layout)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// String is the position as people copy it: without separators.
func (p Position) String() string { return fmt.Sprintf("p%d@%d", p.Partition, p.Offset) }

// label is the word that a verdict is shown with, and what follows from it.
func (v Verdict) label() (word, means string) {
	switch v.Code {
	case Ready:
		return "READY", "apply may run."
	case Review:
		return "REVIEW", "apply may run; read the warnings first."
	case Refused:
		return "REFUSED", "apply will not run until this is settled."
	}
	return strings.ToUpper(plain(string(v.Code))), "an unknown verdict; do not run apply."
}

// Sum is what Records must be: every record has exactly one decision.
func (c *Counts) Sum() int64 {
	return c.Rewritten + c.Tombstones + c.Omitted + c.Quarantined + c.Copied + c.Dropped + c.Undecided
}

// fact is one line of a table of figures.
type fact struct {
	Name  string
	N     int64
	Means string
	Bad   bool // deserves a colour
}

// decided lists what happens to the records; together they are all of them.
// What did not happen is left out, but for the two usual decisions.
func (r *Report) decided() []fact {
	c := &r.Counts
	omitted := "superseded by a later record of the same key, or pruned"
	if r.Options.History == "all" {
		omitted = "pruned; nothing of them is on the target"
	}
	return keep(2, []fact{
		{"rewritten", c.Rewritten, "copied under the new key", false},
		{"tombstones", c.Tombstones, "null value, copied under the new key as a null value", false},
		{"omitted", c.Omitted, omitted, false},
		{"quarantined", c.Quarantined, "cannot be parsed; saved to quarantine.jsonl, not copied", true},
		{"copied as is", c.Copied, "cannot be parsed; copied with the key byte for byte", true},
		{"dropped", c.Dropped, "cannot be parsed; a repair says drop", true},
		{"undecided", c.Undecided, "cannot be parsed; apply will not run", true},
	})
}

// noted lists what else is known about the records.
func (r *Report) noted() []fact {
	c := &r.Counts
	return keep(0, []fact{
		{"cannot be parsed", c.Unparseable, "the key has no meaning to any release", true},
		{"of those, null value", c.UnparseableTombstones, "deletions that delete nothing known", true},
		{"key changes", c.ChangedKeys, "the key on the target has other bytes", false},
		{"partition changes", c.Moved, "lands in another partition number", false},
		{"misplaced", c.Misplaced, "not where the releases would have put it; another writer, or a custom partitioner", true},
		{"aborted", c.Aborted, "of aborted transactions, so nobody should see them", true},
		{"with headers", c.Headers, "headers are carried over unchanged", false},
		{"empty value", c.EmptyValues, "empty is not null: these are not deletions", false},
	})
}

func keep(always int, fs []fact) []fact {
	var out []fact
	for i, f := range fs {
		if i < always || f.N != 0 {
			out = append(out, f)
		}
	}
	return out
}

// side is how the records spread over the partitions of one topic.
type side struct {
	Total      int64
	Most       int64 // on the fullest partition
	Fullest    int32
	Partitions int
}

// hot reports whether n records are far too many for one partition: twice an even
// share. Below ten records a partition, chance alone does that.
func (s *side) hot(n int64) bool {
	even := s.Total / int64(max(s.Partitions, 1))
	return s.Partitions > 1 && even >= 10 && n/2 >= even
}

// spread sums up both sides.
func (r *Report) spread() (before, after side) {
	before.Partitions, after.Partitions = int(r.Source.Count), int(r.Target.Count)
	for _, l := range r.Spread {
		before.add(l.Partition, l.Before)
		after.add(l.Partition, l.After)
	}
	for _, s := range []*side{&before, &after} {
		if s.Partitions <= 0 {
			s.Partitions = max(len(r.Spread), 1)
		}
	}
	return before, after
}

func (s *side) add(p int32, n int64) {
	s.Total += n
	if n > s.Most {
		s.Most, s.Fullest = n, p
	}
}

// times is how many even shares the fullest partition holds.
func (s *side) times() float64 {
	if s.Total == 0 {
		return 0
	}
	return float64(s.Most) * float64(s.Partitions) / float64(s.Total)
}

func (s *side) sentence() string {
	switch {
	case s.Total == 0:
		return "No records."
	case s.Partitions == 1:
		return "One partition holds everything."
	case s.hot(s.Most):
		return fmt.Sprintf("Partition %d is hot: %s of the records, %.1f times an even share.",
			s.Fullest, percent(s.Most, s.Total), s.times())
	}
	return fmt.Sprintf("Fullest is partition %d: %s of the records, %.1f times an even share.",
		s.Fullest, percent(s.Most, s.Total), s.times())
}

// grammar shows the fields of a key format, as people write them.
func grammar(name string) string {
	switch name {
	case "legacy":
		return "businessKey_sequence_eventUUID_actionUUID"
	case "keygroup-first":
		return "keyGroup_businessKey_sequence_eventUUID_actionUUID"
	case "keygroup-last":
		return "keyGroup_sequence_eventUUID_actionUUID_businessKey"
	case "dashed":
		return "businessKey-eventUUID-actionUUID"
	case "escaped":
		return "businessKey_sequence_eventUUID_actionUUID, in the business key % as %25 and _ as %5F"
	case "length-prefixed":
		return "lp1:length:businessKey:sequence:eventUUID:actionUUID"
	case "flink-agents-0.4":
		return "keyGroup_sequence_eventUUID_actionUUID_base64(SHA-256(key))"
	}
	return ""
}

// chosen lists the options in plain words.
func (r *Report) chosen() [][3]string {
	o := &r.Options
	var out [][3]string
	add := func(name, value, means string) {
		if value != "" {
			out = append(out, [3]string{name, value, means})
		}
	}
	add("old key format", o.From, grammar(o.From))
	add("new key format", o.To, grammar(o.To))
	add("partitioner", o.Partitioner, map[string]string{
		"flink-agents": "as the job itself will write",
		"java-default": "as Kafka's Java producer does by default",
		"source":       "same partition number as before",
	}[o.Partitioner])
	add("bad keys", o.OnUnparseable, map[string]string{
		"fail":       "apply refuses while one remains",
		"quarantine": "saved to a file, not copied",
		"copy":       "copied with the key byte for byte",
	}[o.OnUnparseable])
	add("collisions", o.OnCollision, map[string]string{
		"fail":   "apply refuses while two keys become one",
		"latest": "the key with the latest record is kept",
	}[o.OnCollision])
	add("pruned keys", o.Pruned, map[string]string{
		"tombstone": "a tombstone in the place of the last record",
		"omit":      "left out completely",
	}[o.Pruned])
	add("history", o.History, map[string]string{
		"all":    "every record, in order",
		"latest": "only the last record of each key",
	}[o.History])
	add("align", o.Align, map[string]string{
		"source-end": "every old recovery marker lies before the first copied record",
		"none":       "old recovery markers do not fit the new topic",
	}[o.Align])
	add("compression", o.Compression, "")
	add("isolation", o.Isolation, map[string]string{
		"read_uncommitted": "reads what the job's own recovery reads",
		"read_committed":   "leaves out aborted transactions",
	}[o.Isolation])
	return out
}

// cost says what padding is for and how long it takes.
func (p *Padding) cost() string {
	if p.Records == 0 {
		return "None needed."
	}
	s := fmt.Sprintf("%s on %s before the first copied record, so that every old recovery marker of the job stays valid. Compaction removes them later.",
		plural(p.Records, "harmless tombstone", "harmless tombstones"),
		plural(int64(p.Partitions), "partition", "partitions"))
	if p.EstimateMS > 0 {
		s += " Takes about " + clock(time.Duration(min(p.EstimateMS, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond) + "."
	}
	return s
}

// dated reports whether any record has a timestamp.
func (r *Report) dated() bool {
	return r.Counts.Records > r.Times.Unset
}

// remedies are the things to do before any command: what the refusals ask for,
// or else the warnings.
func remedies(fs []Finding, s Severity) []Finding {
	var out []Finding
	for _, f := range fs {
		if f.Severity == s && f.Do != "" {
			out = append(out, f)
		}
	}
	return out
}

func (r *Report) meaning(c ReasonCount) string {
	if c.Meaning != "" {
		return capital(c.Meaning)
	}
	if m := Meaning(c.Reason); m != "" {
		return m
	}
	return "No explanation is known."
}

// advice is the suggestion in words.
func (s *Suggestion) advice() string {
	switch {
	case s.Text == "":
		return plain(s.Cause)
	case s.Cause == "":
		return plain(s.Text)
	}
	return plain(s.Text) + " (" + plain(s.Cause) + ")"
}

// repaired shows what a suggestion would make of the key.
func (s *Suggestion) repaired() string {
	return fmt.Sprintf("business key %s, sequence %d", Printable([]byte(s.BusinessKey)), s.Sequence)
}

// decisionWords says what happens to a bad key as things stand.
func decisionWords(d string) string {
	switch d {
	case "refuse":
		return "apply refuses"
	case "quarantine":
		return "quarantined"
	case "copy":
		return "copied as is"
	case "drop":
		return "dropped"
	case "rewrite":
		return "repaired"
	}
	return plain(d)
}

// capital starts a sentence with a capital letter, unless its first word is a
// command, a flag or a file, which has to stay as it is typed.
func capital(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if word == "" || word[0] < 'a' || word[0] > 'z' || word == "rekey" || strings.ContainsAny(word, "-_./=0123456789") {
		return s
	}
	return string(word[0]-'a'+'A') + s[1:]
}

// sentence is capital with a full stop where no other sign ends the text.
func sentence(s string) string {
	s = capital(strings.TrimRight(s, " "))
	if s == "" || strings.ContainsRune(".!?:;", rune(s[len(s)-1])) {
		return s
	}
	return s + "."
}

// explain is what follows from the verdict, "" where its summary says so itself.
func (v Verdict) explain() string {
	_, means := v.label()
	if v.Code != Refused && strings.Contains(strings.ToLower(v.Summary), "apply may run") {
		return ""
	}
	return "This means: " + means
}
