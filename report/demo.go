package report

import (
	"fmt"
	"io"
)

// Demo is what a demonstration has to tell.
type Demo struct {
	Plan   *Report
	Apply  *Apply
	Verify *Verify
	RunDir string // where the reports were kept, or "" if they were not
}

// WriteText tells in a screenful what the demonstration did.
func (d *Demo) WriteText(w io.Writer, st Style) error {
	p := newPage(st)
	r := d.Plan
	p.title("rekey demo", r.Tool)
	p.blank()
	p.para(0, fmt.Sprintf("An embedded Kafka broker held the action-state topic %s of a Flink Agents 0.3 job: %s over %d partitions. "+
		"Its keys join four fields with _ and escape nothing, so %s hold a business key such as user_123 that the runtime cannot take apart again.",
		r.Source.Name, records(r.Counts.Records), r.Source.Count, records(d.ambiguous())))

	p.heading("1. plan: read-only")
	p.para(2, fmt.Sprintf("%s parse when read from the right, where no field can hold a _. %s (%s) cannot be parsed at all:",
		records(r.Counts.Records-r.Counts.Unparseable), plural(r.BadKeys, "key", "keys"), records(r.Counts.Unparseable)))
	r.keyTable(p, r.Examples[:min(len(r.Examples), 4)], false)
	p.para(2, "Kept in full in quarantine.jsonl, not copied. Each is explained in unparseable.jsonl.")

	p.heading("2. apply: into the new topic")
	p.para(2, fmt.Sprintf("%s written to %s, after %s that keep old recovery markers valid.",
		records(d.Apply.Written), r.Target.Name, plural(d.Apply.Padded, "padding record", "padding records")))
	p.para(2, "user_123 became user%5F123: split at every _, the key has its four fields again, and its text before the first _ is the whole business key.")
	before, after := r.spread()
	p.pair("before", before.sentence())
	p.pair("after", after.sentence())

	p.heading("3. verify: both topics read again")
	verdict := fmt.Sprintf("%s demanded, %s found: every key, value, timestamp, header, partition and order is right.",
		records(d.Verify.Demanded), records(d.Verify.Found))
	if !d.Verify.Equal {
		verdict = fmt.Sprintf("%s. This is a bug in rekey.", plural(d.Verify.Total, "difference", "differences"))
	}
	p.para(2, verdict)

	p.heading("The old topic was only read")
	p.para(2, "To go back, keep using it. On your own topic, begin with:")
	p.commands([]string{"rekey plan --bootstrap-server HOST:PORT --source TOPIC --target NEW-TOPIC --run-dir ./run"})
	if d.RunDir == "" {
		p.para(2, "To keep the reports of this demo: rekey demo --run-dir ./demo-run")
	} else {
		p.para(2, "The reports: "+path(d.RunDir, "report.html"))
	}
	return p.flush(w)
}

// ambiguous counts the records whose business key holds the separator.
func (d *Demo) ambiguous() int64 {
	for _, b := range d.Plan.Breaks {
		if b.Code == BreakSeparator {
			return b.Records
		}
	}
	return 0
}
