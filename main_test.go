package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
)

// The command line is tested by scripts: testdata/script/*.txtar. Beside the
// commands of testscript itself they have
//
//	rekey ARGS...            the program, in this process's binary
//	exits CODE rekey ARGS... the same, and its exit code must be CODE
//	seed TOPIC FILE          write a topic from a seed file (see fixtures/seed)
//	append TOPIC FILE        add the records of a seed file to a topic
//	records TOPIC            print a topic's records in the form of a seed file
//	ends TOPIC               print log start and end of each partition
//
// BROKER is the address of a broker; SOURCE and TARGET are names of topics that
// no other script uses.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			t := e.T().(testing.TB)
			c := testcluster.Start(t)
			e.Setenv("BROKER", c.Bootstrap())
			// A real broker is shared by all scripts, so names differ.
			e.Setenv("SOURCE", c.Topic(t, "source"))
			e.Setenv("TARGET", c.Topic(t, "target"))
			e.Values["cluster"] = scriptCluster{c, t}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"seed":    seedTopic,
			"append":  appendTopic,
			"records": printRecords,
			"ends":    printEnds,
		},
	})
}

func TestMain(m *testing.M) {
	testscript.Main(clusterMain{m}, map[string]func(){"rekey": main})
}

// clusterMain runs the tests and then stops the real broker, if one was needed.
type clusterMain struct{ m *testing.M }

func (c clusterMain) Run() int { return testcluster.Main(c.m) }

// scriptCluster is the broker of one script.
type scriptCluster struct {
	*testcluster.Cluster
	t testing.TB
}

func cluster(ts *testscript.TestScript) scriptCluster { return ts.Value("cluster").(scriptCluster) }

// exits runs a command that must end with a code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d: %s", got, want, strings.Join(args[1:], " "))
	}
}

func seedTopic(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: seed TOPIC FILE")
	}
	s, err := seed.ParseSeed([]byte(ts.ReadFile(args[1])))
	ts.Check(err)
	c := cluster(ts)
	applied, err := seed.Apply(testcluster.Context(c.t), c.Addrs(), args[0], s)
	ts.Check(err)
	ts.Defer(func() { ts.Check(applied.Close(context.Background())) })
}

func appendTopic(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: append TOPIC FILE")
	}
	s, err := seed.ParseSeed([]byte(ts.ReadFile(args[1])))
	ts.Check(err)
	c := cluster(ts)
	client := c.Client(c.t)
	for _, record := range s.Records() {
		_, err := seed.ProduceBatch(testcluster.Context(c.t), client, args[0], record.Partition, seed.Batch{Records: []seed.Record{record}})
		ts.Check(err)
	}
}

func printRecords(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: records TOPIC")
	}
	c := cluster(ts)
	_, err := ts.Stdout().Write([]byte(seed.Format(c.Read(c.t, args[0]))))
	ts.Check(err)
}

func printEnds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ends TOPIC")
	}
	c := cluster(ts)
	ranges, err := reader.Ranges(testcluster.Context(c.t), c.Addrs(), args[0])
	ts.Check(err)
	for _, partition := range slices.Sorted(maps.Keys(ranges)) {
		fmt.Fprintf(ts.Stdout(), "%d %d %d\n", partition, ranges[partition].Start, ranges[partition].End)
	}
}
