package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// render writes the tables of docs/performance.md and its plot from result files,
// each kind between its own marks. A kind without results is left as it is.
func render(_ context.Context, args []string) error {
	document, chart := "../docs/performance.md", "../docs/growth.svg"
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	flags.StringVar(&document, "document", document, "`FILE` with the marks")
	flags.StringVar(&chart, "svg", chart, "`FILE` for the plot of growth; empty for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files := flags.Args()
	if len(files) == 0 {
		var err error
		if files, err = filepath.Glob("results/*.json"); err != nil {
			return err
		}
	}
	all := map[string][]*Results{}
	for _, file := range files {
		r, err := loadResults(file)
		if err != nil {
			return err
		}
		all[r.Kind] = append(all[r.Kind], r)
	}
	content, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	if content, err = renderInto(content, all); err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	if grown := tablesOf(all["growth"]); len(grown) > 0 {
		if err := draw(chart, grown); err != nil {
			return err
		}
	}
	return os.WriteFile(document, content, 0o644)
}

// renderInto replaces what stands between the marks.
func renderInto(content []byte, all map[string][]*Results) ([]byte, error) {
	blocks := []struct {
		mark, kind string
		write      func(io.Writer, []*Results)
	}{
		{"goals", "comparison", renderGoals},
		{"comparisons", "comparison", renderComparisons},
		{"memory", "memory", renderEach(printMemory)},
		{"growth", "growth", renderGrowth},
	}
	for _, b := range blocks {
		if len(all[b.kind]) == 0 {
			continue
		}
		before, rest, begins := bytes.Cut(content, fmt.Appendf(nil, "<!-- bench: %s -->\n", b.mark))
		_, after, ends := bytes.Cut(rest, []byte("<!-- end of bench -->\n"))
		if !begins || !ends {
			return nil, fmt.Errorf("the marks around %s are missing", b.mark)
		}
		var out bytes.Buffer
		fmt.Fprintf(&out, "<!-- bench: %s -->\n\n", b.mark)
		b.write(&out, all[b.kind])
		out.WriteString("\n<!-- end of bench -->\n")
		content = slices.Concat(before, out.Bytes(), after)
	}
	return content, nil
}

func tablesOf(results []*Results) []Table {
	var out []Table
	for _, r := range results {
		out = append(out, r.Tables...)
	}
	return out
}

func renderEach(print func(io.Writer, []Table)) func(io.Writer, []*Results) {
	return func(out io.Writer, results []*Results) {
		for i, r := range results {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "%s\n\n", r.origin())
			print(out, r.Tables)
		}
	}
}

// renderGrowth shows the plot, which render draws of the same tables.
func renderGrowth(out io.Writer, results []*Results) {
	fmt.Fprint(out, "![Time and peak memory of plan, apply and verify against records, business keys, partitions and padding](growth.svg)\n\n")
	renderEach(printGrowth)(out, results)
}

// origin is where and how results were made.
func (r *Results) origin() string {
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		versions = append(versions, name+" "+strings.TrimPrefix(r.Versions[name], "v"))
	}
	return fmt.Sprintf("%s: %s, %s, %d GiB, %s, load %.2f before; %s. `%s`", r.Date, r.Machine.CPU, count(r.Machine.Cores, "core"), (r.Machine.MemoryMiB+512)>>10,
		r.Machine.System, r.Machine.Load, strings.Join(versions, ", "), r.Command)
}

// mostFullTables is how many tables of one file are written in full. Larger series
// get one row a topic.
const mostFullTables = 4

func renderComparisons(out io.Writer, results []*Results) {
	for i, r := range results {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if len(r.Tables) > mostFullTables {
			fmt.Fprintf(out, "### %s, every combination\n\n%s\n\nThousands of records a second, medians.\n\n", r.Tables[0].Broker, r.origin())
			printSeries(out, r.Tables)
			continue
		}
		for j := range r.Tables {
			t := &r.Tables[j]
			if j > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "### %s\n\n", t.title())
			if j == 0 {
				fmt.Fprintf(out, "%s\n\n", r.origin())
			}
			printComparison(out, t)
		}
	}
}

// printSeries writes one row for each topic.
func printSeries(out io.Writer, tables []Table) {
	columns := []struct{ id, name string }{{consumeOnly, "consume only"}, {produceOnly, "produce only"}, {handWritten, "hand-written copy"},
		{rekeyPlan, "plan"}, {rekeyApply, "apply"}, {rekeyVerify, "verify"}, {kcatPipe, "kcat pipe"}, {mirrorMaker, "MirrorMaker 2"}}
	columns = slices.DeleteFunc(columns, func(c struct{ id, name string }) bool {
		return !slices.ContainsFunc(tables, func(t Table) bool { return len(t.seconds(c.id)) > 0 })
	})
	fmt.Fprint(out, "| bytes | partitions | codec | records |")
	for _, c := range columns {
		fmt.Fprintf(out, " %s |", c.name)
	}
	fmt.Fprintf(out, " apply to hand-written | apply of the floor |\n|---:|---:|---|---:|%s---:|---:|\n", strings.Repeat("---:|", len(columns)))
	for i := range tables {
		t := &tables[i]
		fmt.Fprintf(out, "| %d | %d | %s | %s |", t.MeanSize, t.Partitions, t.Codec, thousands(t.Records))
		for _, c := range columns {
			cell := ""
			if seconds := t.seconds(c.id); len(seconds) > 0 {
				cell = thousands(int64(float64(t.Records) / median(seconds) / 1000))
			}
			fmt.Fprintf(out, " %s |", cell)
		}
		share, _ := t.share(rekeyApply)
		fmt.Fprintf(out, " %s | %s |\n", known("%.2f", ratio(t.seconds(handWritten), t.seconds(rekeyApply))), known("%.0f %%", 100*share))
	}
}

// known leaves empty what was not measured.
func known(format string, value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}

// goal is something that the bench is to show.
type goal struct {
	text    string
	atLeast float64 // 0: only told
	format  string
	value   func(*Table) float64
}

var goals = []goal{
	{"apply against the hand-written copy", 1.2, "%.2f", func(t *Table) float64 { return ratio(t.seconds(handWritten), t.seconds(rekeyApply)) }},
	{"apply against the kcat pipe", 2.5, "%.2f", func(t *Table) float64 { return ratio(t.seconds(kcatPipe), t.seconds(rekeyApply)) }},
	{"apply against MirrorMaker 2, whole process", 4, "%.2f", func(t *Table) float64 { return ratio(t.seconds(mirrorMaker), t.seconds(rekeyApply)) }},
	{"apply against MirrorMaker 2 from its first record on", 4, "%.2f", func(t *Table) float64 { return ratio(t.times(mirrorMaker, true), t.seconds(rekeyApply)) }},
	{"apply of the floor: the slower of consume only and produce only", 85, "%.0f %%", func(t *Table) float64 { share, _ := t.share(rekeyApply); return 100 * share }},
	{"apply of the slower of consume only and batches of ready records", 0, "%.0f %%", func(t *Table) float64 {
		return 100 * ratio(slower(t.seconds(consumeOnly), t.seconds(batchesOnly)), t.seconds(rekeyApply))
	}},
	{"plan of consume only", 75, "%.0f %%", func(t *Table) float64 { share, _ := t.share(rekeyPlan); return 100 * share }},
	{"verify of consume only over both topics", 60, "%.0f %%", func(t *Table) float64 { share, _ := t.share(rekeyVerify); return 100 * share }},
}

// renderGoals compares with the goals, which are set for 500-byte records, lz4,
// 8 and 64 partitions.
func renderGoals(out io.Writer, results []*Results) {
	var tables []*Table
	for _, r := range results {
		for i := range r.Tables {
			t := &r.Tables[i]
			if len(r.Tables) <= mostFullTables && t.Size == 500 && t.Codec == "lz4" && (t.Partitions == 8 || t.Partitions == 64) {
				tables = append(tables, t)
			}
		}
	}
	fmt.Fprint(out, "### Goals\n\nRecords of about 500 bytes, lz4.\n\n| | goal |")
	for _, t := range tables {
		fmt.Fprintf(out, " %s, %s |", t.Broker, count(t.Partitions, "partition"))
	}
	fmt.Fprintf(out, "\n|---|---:|%s\n", strings.Repeat("---:|", len(tables)))
	for _, g := range goals {
		fmt.Fprintf(out, "| %s | %s |", g.text, known(g.format, g.atLeast))
		for _, t := range tables {
			value := g.value(t)
			cell := known(g.format, value)
			if value != 0 && value < g.atLeast {
				cell = "**" + cell + "**, missed"
			}
			fmt.Fprintf(out, " %s |", cell)
		}
		fmt.Fprintln(out)
	}
}
