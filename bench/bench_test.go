package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

// TestMain is the bench itself where the bench starts it as a process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "seed") {
		main()
		return
	}
	os.Exit(m.Run())
}

// measured is a table with the given seconds of each contestant, run by run.
func measured(seconds map[string][]float64) Table {
	t := Table{Broker: "embedded broker", Records: 1000, Partitions: 8, Codec: "lz4", Size: 500, MeanSize: 498, Skew: 1.1}
	for _, id := range contestantIDs {
		for run, s := range seconds[id] {
			t.Measurements = append(t.Measurements, Measurement{Contestant: id, Run: run, Seconds: s, Own: s / 2, PeakKiB: 100 << 10})
		}
	}
	return t
}

func TestRatiosAreMediansRunByRun(t *testing.T) {
	table := measured(map[string][]float64{
		consumeOnly: {1, 2, 3}, produceOnly: {8, 8, 8}, handWritten: {4, 8, 30}, rekeyPlan: {2, 2, 4}, rekeyApply: {2, 4, 5}, rekeyVerify: {4, 4, 4}, mirrorMaker: {40, 40, 40},
	})
	check := func(what string, got, want float64) {
		t.Helper()
		if got != want && !(math.Abs(got-want) <= 1e-9) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("apply to copy", ratio(table.seconds(handWritten), table.seconds(rekeyApply)), 2)
	plan, _ := table.share(rekeyPlan)
	check("plan", plan, 0.75)
	apply, _ := table.share(rekeyApply)
	check("apply", apply, 1) // produce only counts its own time, which is half
	verify, _ := table.share(rekeyVerify)
	check("verify", verify, 1)
	check("mirror, own time", ratio(table.times(mirrorMaker, true), table.seconds(rekeyApply)), 5)
	table.Measurements = append(table.Measurements, Measurement{Contestant: kcatPipe, Run: 0, Seconds: 8},
		Measurement{Contestant: kcatPipe, Run: 1, Failed: "lost records"}, Measurement{Contestant: kcatPipe, Run: 2, Failed: "lost records"})
	check("failed more often than not", ratio(table.seconds(kcatPipe), table.seconds(rekeyApply)), math.Inf(1))
	var out strings.Builder
	printComparison(&out, &table)
	if want := "| kcat pipe (keys unchanged), failed in 2 of 3 runs | 0 | 0 | 125 |"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
	check("nothing measured", ratio(table.seconds(producerPerf), table.seconds(rekeyApply)), 0)
}

func TestFit(t *testing.T) {
	l := fit([]float64{0, 1, 2, 3}, []float64{1, 3, 5, 7})
	if l.slope != 2 || l.intercept != 1 || l.r2 != 1 {
		t.Errorf("%+v", l)
	}
	if l := fit([]float64{0, 1, 2, 3}, []float64{0, 1, 1, 0}); l.r2 != 0 {
		t.Errorf("no line: %+v", l)
	}
	if l := fit([]float64{2}, []float64{5}); l.at(9) != 5 {
		t.Errorf("one point: %+v", l)
	}
}

func growthTables() []Table {
	var out []Table
	for _, series := range seriesNames {
		for n := range 4 {
			s := float64(n + 1)
			table := measured(map[string][]float64{rekeyPlan: {s}, rekeyApply: {2 * s}, rekeyVerify: {1.5 * s}})
			table.Series, table.X = series, float64(n)*1e6
			out = append(out, table)
		}
	}
	return out
}

func TestPlotIsWellFormed(t *testing.T) {
	content, err := plot(growthTables())
	if err != nil {
		t.Fatal(err)
	}
	circles := 0
	for decoder := xml.NewDecoder(strings.NewReader(string(content))); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "circle" {
			circles++
		}
	}
	if want := 3 + 4*2*3*4; circles != want { // the legend; series, panels, phases, points
		t.Errorf("%d dots, want %d", circles, want)
	}
	if strings.Contains(string(content), "NaN") || strings.Contains(string(content), "Inf") {
		t.Error("a coordinate is no number")
	}
	if _, err := plot(nil); err == nil {
		t.Error("nothing was drawn without an error")
	}
}

func TestRender(t *testing.T) {
	all := map[string][]*Results{
		"comparison": {{Kind: "comparison", Tables: []Table{measured(map[string][]float64{
			consumeOnly: {1}, produceOnly: {4}, handWritten: {4.4}, rekeyPlan: {1.2}, rekeyApply: {4}, rekeyVerify: {3}})}}},
		"growth": {{Kind: "growth", Tables: growthTables()}},
	}
	const document = "before\n<!-- bench: goals -->\nold\n<!-- end of bench -->\nbetween\n<!-- bench: comparisons -->\n<!-- end of bench -->\n" +
		"<!-- bench: memory -->\nkept\n<!-- end of bench -->\n<!-- bench: growth -->\n<!-- end of bench -->\nafter\n"
	content, err := renderInto([]byte(document), all)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, want := range []string{"before\n", "\nbetween\n", "\nkept\n", "\nafter\n", "| apply against the hand-written copy | 1.20 | **1.10**, missed |",
		"| plan of consume only | 75 % | 83 % |", "### embedded broker, 1,000 records of 498 bytes, 8 partitions, lz4, Zipf 1.1; 1 run",
		"| rekey apply | 250 | 250 | 250 | 1.10 | 50 % of the floor | 100 MiB |", "| records | 0 | 3,000,000 | apply |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\nold\n") {
		t.Error("what stood there before is still there")
	}
	if again, err := renderInto(content, all); err != nil || string(again) != text {
		t.Errorf("rendering twice changes the document: %v", err)
	}
	if _, err := renderInto([]byte("nothing"), all); err == nil {
		t.Error("a document without marks was accepted")
	}
}

func TestResultsComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results", "r.json")
	r := newResults(t.Context(), "comparison", []string{"-runs", "1"})
	r.Tables = []Table{measured(map[string][]float64{rekeyApply: {2, 3}})}
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), `{"contestant": "apply", "run": 1, "seconds": 3,`) {
		t.Errorf("measurements do not stand on lines of their own:\n%s", content)
	}
	back, err := loadResults(path)
	if err != nil || len(back.Tables) != 1 || len(back.Tables[0].Measurements) != 2 || back.Command != "go run . -runs 1" {
		t.Errorf("%+v, %v", back, err)
	}
}

// The perf tools print figures for people.
func TestPerfToolsAreRead(t *testing.T) {
	consumed, err := parseConsumerPerf([]byte("WARN: something\n2026-12-01 10:00:00:000, 2026-12-01 10:00:02:500, 95.3674, 38.1470, 200000, 80000.0000, 312, 2188, 43.5866, 91407.6782\n"))
	if err != nil || consumed != (told{Records: 200_000, Seconds: 2.188}) {
		t.Errorf("%+v, %v", consumed, err)
	}
	produced, err := parseProducerPerf([]byte("100 records sent, 20.0 records/sec (1 MB/sec)\n5000 records sent, 2500.0 records/sec (1.19 MB/sec), 12.3 ms avg latency, 50.0 ms max latency.\n"))
	if err != nil || produced != (told{Records: 5000, Seconds: 2}) {
		t.Errorf("%+v, %v", produced, err)
	}
	for _, output := range []string{"", "no figures"} {
		if _, err := parseConsumerPerf([]byte(output)); err == nil {
			t.Errorf("consumer: %q was accepted", output)
		}
		if _, err := parseProducerPerf([]byte(output)); err == nil {
			t.Errorf("producer: %q was accepted", output)
		}
	}
}

func TestContestants(t *testing.T) {
	for _, test := range []struct {
		asked     []string
		realKafka bool
		ok        bool
	}{
		{[]string{rekeyPlan}, false, true},
		{[]string{rekeyPlan, rekeyApply, rekeyVerify}, false, true},
		{[]string{rekeyApply}, false, false},
		{[]string{rekeyPlan, rekeyVerify}, false, false},
		{[]string{mirrorMaker}, false, false},
		{[]string{mirrorMaker}, true, true},
	} {
		got, err := available(test.asked, test.realKafka)
		if (err == nil) != test.ok || test.ok && len(got) != len(test.asked) {
			t.Errorf("%v, Kafka %v: %v, %v", test.asked, test.realKafka, got, err)
		}
	}
}

// A contestant that deals with too few records has no figures.
func TestWrongCountFails(t *testing.T) {
	l, err := newLab(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	source, err := l.seed(t.Context(), "source", seed.Options{Records: 100, Partitions: 2, RecordBytes: 200, Codec: wire.LZ4})
	if err != nil {
		t.Fatal(err)
	}
	lazy := contestant{id: handWritten, args: []string{"true"}, check: func(ctx context.Context, _ []byte) (told, error) { return l.counted(ctx, told{}, "source", source) }}
	if _, err := l.take(t.Context(), lazy, source, 0); err != nil {
		t.Errorf("all records are there: %v", err)
	}
	source.Options.Records++
	if _, err := l.take(t.Context(), lazy, source, 0); err == nil || !strings.Contains(err.Error(), "100 records instead of 101") {
		t.Errorf("a record is missing: %v", err)
	}
	lazy.check = func(ctx context.Context, _ []byte) (told, error) {
		return l.counted(ctx, told{Records: 101}, "source", source)
	}
	if _, err := l.take(t.Context(), lazy, source, 0); err == nil || !strings.Contains(err.Error(), "it says 101 records and 100 are on its target") {
		t.Errorf("it says more than there is: %v", err)
	}
	if _, err := l.untilCopied(t.Context(), "source", source, 0); err == nil || !strings.Contains(err.Error(), "100 of 101") {
		t.Errorf("a copy that stopped: %v", err)
	}
}
