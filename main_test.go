package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
//	json FILE PATH[=VALUE]...
//	                         FILE (or stdout) is one JSON document and nothing else,
//	                         and the field at each PATH (names joined by dots) is
//	                         VALUE in JSON, or anything but null where none is given
//	replace FILE OLD NEW     replace the one OLD in FILE
//	writes-fail N            from the N-th on, the embedded broker refuses every write
//	                         with an error that passes by itself; 0 ends that
//	interrupt SIGNAL rekey ARGS...
//	                         run the program, send it INT or TERM as soon as a write was
//	                         refused (see writes-fail), and expect exit code 7
//
// BROKER is the address of a broker and ALIAS another spelling of it; SOURCE and
// TARGET are names of topics that no other script uses. The condition [fake] is
// true on the embedded broker.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			t := e.T().(testing.TB)
			c := testcluster.Start(t)
			e.Setenv("BROKER", c.Bootstrap())
			e.Setenv("ALIAS", strings.ReplaceAll(c.Bootstrap(), "127.0.0.1", "localhost"))
			// A real broker is shared by all scripts, so names differ.
			e.Setenv("SOURCE", c.Topic(t, "source"))
			e.Setenv("TARGET", c.Topic(t, "target"))
			e.Values["cluster"] = &scriptCluster{Cluster: c, t: t}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"seed":    seedTopic,
			"append":  appendTopic,
			"records": printRecords,
			"ends":    printEnds,

			"json":        checkJSON,
			"replace":     replaceInFile,
			"writes-fail": writesFail,
			"interrupt":   interrupt,
		},
		Condition: func(condition string) (bool, error) {
			if condition != "fake" {
				return false, fmt.Errorf("unknown condition %q", condition)
			}
			return os.Getenv(testcluster.EnvBroker) != "kafka", nil
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

	refused chan struct{} // gets a value when writes-fail refused a write
	mend    func()        // ends writes-fail
}

func cluster(ts *testscript.TestScript) *scriptCluster {
	return ts.Value("cluster").(*scriptCluster)
}

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

func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: json FILE PATH[=VALUE]...")
	}
	var document any
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		ts.Fatalf("%s is not JSON: %v", args[0], err)
	}
	if rest, err := decoder.Token(); !errors.Is(err, io.EOF) {
		ts.Fatalf("%s: %v, %v follows the document", args[0], rest, err)
	}
	for _, check := range args[1:] {
		path, want, given := strings.Cut(check, "=")
		at := document
		for name := range strings.SplitSeq(path, ".") {
			object, _ := at.(map[string]any)
			field, found := object[name]
			if !found {
				ts.Fatalf("%s has no field %s", args[0], path)
			}
			at = field
		}
		got, err := json.Marshal(at)
		ts.Check(err)
		if given && string(got) != want || !given && at == nil {
			ts.Fatalf("%s: %s is %s, want %s", args[0], path, got, cmp.Or(want, "a value"))
		}
	}
}

func replaceInFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	content := ts.ReadFile(args[0])
	if n := strings.Count(content, args[1]); n != 1 {
		ts.Fatalf("%s holds %q %d times, not once", args[0], args[1], n)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(content, args[1], args[2], 1)), 0o644))
}

func writesFail(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: writes-fail N")
	}
	from, err := strconv.Atoi(args[0])
	ts.Check(err)
	c := cluster(ts)
	if c.mend != nil {
		c.mend()
		c.mend = nil
	}
	if from == 0 {
		return
	}
	var lock sync.Mutex // of the two below
	broken, writes := true, 0
	refused := make(chan struct{}, 1)
	c.refused = refused
	c.mend = func() {
		lock.Lock()
		defer lock.Unlock()
		broken = false
	}
	c.Fake().Cluster().ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().Cluster().KeepControl()
		lock.Lock()
		defer lock.Unlock()
		writes++
		if !broken || writes < from {
			return nil, nil, false
		}
		produce := request.(*kmsg.ProduceRequest)
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range produce.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
			for _, partition := range topic.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode = partition.Partition, kerr.NotEnoughReplicas.Code
				answer.Partitions = append(answer.Partitions, p)
			}
			response.Topics = append(response.Topics, answer)
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		return response, nil, true
	})
}

func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM}
	if neg || len(args) < 2 || signals[args[0]] == nil {
		ts.Fatalf("usage: interrupt INT|TERM COMMAND ARGS...")
	}
	c := cluster(ts)
	ctx := testcluster.Context(c.t)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	command := exec.CommandContext(ctx, path, args[2:]...)
	command.Args[0] = args[1] // the test binary knows by its name what to be
	command.Dir, command.Env = ts.MkAbs("."), os.Environ()
	command.Stdout, command.Stderr = ts.Stdout(), ts.Stderr()
	ts.Check(command.Start())
	select {
	case <-c.refused:
		ts.Check(command.Process.Signal(signals[args[0]]))
	case <-ctx.Done():
	}
	err = command.Wait()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 7 {
		ts.Fatalf("ended with %v, want exit code 7", err)
	}
}
