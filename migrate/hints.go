package migrate

import (
	"bytes"
	"fmt"

	"rekey/keycodec"
	"rekey/report"
)

// likelyParallelisms are max parallelisms that jobs use: Flink's default, and
// what it derives from higher parallelisms.
var likelyParallelisms = [...]int32{128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}

// fewRecords is below what a share of says anything about a topic.
const fewRecords = 10

// hints counts what a topic looks like as a whole. No format is ever guessed
// from it; it only becomes findings.
type hints struct {
	numbered  int64                          // legacy keys that begin with a number and the separator
	keyGroups [len(likelyParallelisms)]int64 // of those, by max parallelism: the number is the key group of the rest
	escaped   int64                          // legacy keys that are escaped keys, too, and hold an escape
}

// add looks at a legacy key.
func (h *hints) add(k *keycodec.Key) {
	text := k.BusinessKey
	if digits, rest, found := bytes.Cut(text, []byte{'_'}); found {
		number, ok := keyGroup(digits)
		if !ok {
			return
		}
		h.numbered++
		hash := keycodec.JavaHash(rest)
		for i, parallelism := range likelyParallelisms {
			if keycodec.AssignKeyGroup(hash, parallelism) == number {
				h.keyGroups[i]++
			}
		}
		return
	}
	if bytes.IndexByte(text, '%') >= 0 && keycodec.IsEscaped(text) {
		h.escaped++
	}
}

// keyGroup parses a canonical key group. It runs for most records of a topic, so
// it makes no error.
func keyGroup(digits []byte) (int32, bool) {
	if len(digits) == 0 || len(digits) > 5 || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	var n int32
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int32(c-'0')
	}
	return n, n < keycodec.MaxMaxParallelism
}

func (h *hints) merge(o *hints) {
	h.numbered += o.numbered
	h.escaped += o.escaped
	for i := range h.keyGroups {
		h.keyGroups[i] += o.keyGroups[i]
	}
}

// hintFindings say what the topic looks like, where that is not what it was
// said to be.
func (pl *planner) hintFindings(t *tally, r *report.Report) {
	warn := func(code, title, text, do string) {
		pl.findings = append(pl.findings, report.Finding{Severity: report.Warning, Code: code, Title: title, Text: text, Do: do})
	}
	parsed := r.Counts.Records - r.Counts.Unparseable - t.migrated
	if parallelism, n := t.hints.bestParallelism(); n >= 3 && 2*n >= t.hints.numbered {
		warn("looks-keygroup-first", fmt.Sprintf("The topic looks like --from keygroup-first: %s of its keys begin with their own key group", share(n, parsed)),
			fmt.Sprintf("%d records; at max parallelism %d the number in front is the key group of the rest as a String key. In format legacy that number is part of the business key.", n, parallelism),
			"find out which version of Flink Agents wrote the topic; if it was a snapshot of August 2026, plan again with --from keygroup-first")
	}
	causes, foreign := map[string]int64{}, int64(0)
	for _, reason := range r.Unparseable {
		if reason.Reason == string(keycodec.Foreign) {
			foreign = reason.Records - pl.causes[keycodec.CauseOtherFormat]
		}
		causes[reason.Reason] = reason.Records
	}
	if other := pl.causes[keycodec.CauseOtherFormat]; other > 0 {
		title := fmt.Sprintf("Records whose key is whole in another source format: %d", other)
		if parsed > 0 {
			title = fmt.Sprintf("The topic mixes formats: %d records parse as %s, %d are whole in another source format", parsed, pl.plan.From, other)
		}
		warn("mixed-formats", title, "unparseable.jsonl names the format of each key.", "if most keys are in the other format, plan again with that --from; otherwise repair or quarantine them")
	}
	if encoded := causes[string(keycodec.AlreadyEncoded)]; encoded > 0 {
		warn("looks-migrated", fmt.Sprintf("Records whose key is in a target format already: %d", encoded),
			"They have no provenance header, so it was not this migration that wrote them, or something copied the topic since.", "check --source: is this the original topic?")
	} else if t.hints.escaped > 0 && t.separator == 0 {
		warn("looks-migrated", fmt.Sprintf("The topic looks migrated: %d records have the escapes of format escaped, and no business key has a raw separator", t.hints.escaped),
			"If so, their escapes would be escaped once more.", "check --source: is this the original topic?")
	}
	if foreign >= fewRecords && 2*foreign > r.Counts.Records {
		warn("wrong-topic", fmt.Sprintf("This looks like another topic: %s of its records have keys that are none of Flink Agents", share(foreign, r.Counts.Records)),
			"", "check --source and --bootstrap-server")
	}
}

// bestParallelism is the max parallelism at which most numbers are key groups,
// the lowest of several.
func (h *hints) bestParallelism() (parallelism int32, n int64) {
	for i, matches := range h.keyGroups {
		if matches > n {
			parallelism, n = likelyParallelisms[i], matches
		}
	}
	return parallelism, n
}

func share(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}
