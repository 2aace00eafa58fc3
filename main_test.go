package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/urfave/cli/v2"

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
//	                         and the field at each PATH (names joined by dots, or
//	                         numbers of elements) is VALUE in JSON, or anything but null where none is given
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
	testscript.Main(clusterMain{m}, map[string]func(){"rekey": main, "rekey-measured": measuredMain})
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
			if list, is := at.([]any); is {
				if i, err := strconv.Atoi(name); err == nil && i < len(list) {
					field, found = list[i], true
				}
			}
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

// TestExitCodeTables holds every copy of the table of exit codes to the one that
// --help shows: the comment of migrate.ExitCode, and the README.
func TestExitCodeTables(t *testing.T) {
	want := tableOfExitCodes(t, exitCodes)
	if len(want) != 8 {
		t.Fatalf("--help lists %d exit codes, want 8", len(want))
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), "migrate/errors.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, declaration := range parsed.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Name.Name == "ExitCode" {
			found = true
			if diff := gocmp.Diff(want, tableOfExitCodes(t, f.Doc.Text())); diff != "" {
				t.Errorf("the comment of ExitCode (-help +comment)\n%s", diff)
			}
		}
	}
	if !found {
		t.Error("migrate/errors.go has no function ExitCode")
	}
	readme, err := os.ReadFile("README.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("there is no README.md to compare with")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, tableOfExitCodes(t, string(readme))); diff != "" {
		t.Errorf("README.md (-help +README)\n%s", diff)
	}
}

// tableOfExitCodes finds the lines that begin with a digit, as plain text with
// continued lines or as rows of a Markdown table.
func tableOfExitCodes(t *testing.T, text string) map[string]string {
	t.Helper()
	row := regexp.MustCompile("^[ \\t]*(?:\\| *`?)?([0-9])`?(?: *\\| *|  )(.*?)(?: *\\|)?$")
	table := map[string]string{}
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch cells := row.FindStringSubmatch(line); {
		case cells != nil:
			last = cells[1]
			if _, twice := table[last]; twice {
				t.Fatalf("exit code %s is listed twice", last)
			}
			table[last] = cells[2]
		case last != "" && (strings.HasPrefix(line, "   ") || strings.HasPrefix(line, "\t")) && !strings.Contains(line, "|"):
			table[last] += " " + strings.TrimSpace(line)
		default:
			last = ""
		}
	}
	// Where a sentence has a colon in one place and a comma in another, only the
	// words count.
	for code, text := range table {
		table[code] = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' }), " ")
	}
	return table
}

// TestHelp holds the help of every command to what a person can take in: two
// screens of 30 lines and 80 columns, an example, and every flag.
func TestHelp(t *testing.T) {
	list := commands(strings.NewReader(""))
	if len(list) == 0 {
		t.Fatal("no commands")
	}
	for _, command := range list {
		t.Run(command.Name, func(t *testing.T) {
			var out, failure bytes.Buffer
			if code := run([]string{"rekey", command.Name, "--help"}, strings.NewReader(""), &out, &failure); code != 0 || failure.Len() > 0 {
				t.Fatalf("exits %d, says %q", code, failure.String())
			}
			help := out.String()
			if n := strings.Count(help, "example: rekey "+command.Name); n != 1 {
				t.Errorf("%d examples, want 1", n)
			}
			if n := strings.Count(help, "\n"); n > 66 {
				t.Errorf("%d lines, want at most 66", n)
			}
			for line := range strings.Lines(help) {
				// The example of explain is a whole key, which nothing can break.
				if n := utf8.RuneCountInString(line) - 1; n > 80 && !strings.Contains(line, "_a2622b55-") {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			for _, flag := range command.Flags {
				if name := flag.Names()[0]; !strings.Contains(help, "   --"+name) {
					t.Errorf("--%s is not there", name)
				}
				documented := flag.(cli.DocGenerationFlag)
				if want := env(flag.Names()[0]); !slices.Equal(documented.GetEnvVars(), want) {
					t.Errorf("--%s is the environment variable %v, want %v", flag.Names()[0], documented.GetEnvVars(), want)
				}
			}
		})
	}
	var out, failure bytes.Buffer
	if code := run([]string{"rekey"}, strings.NewReader(""), &out, &failure); code != 0 || failure.Len() > 0 {
		t.Fatalf("exits %d, says %q", code, failure.String())
	}
	for _, command := range list {
		if !strings.Contains(out.String(), "\n   "+command.Name+" ") {
			t.Errorf("rekey --help does not list %s", command.Name)
		}
	}
	if !strings.Contains(out.String(), exitCodes) {
		t.Error("rekey --help does not list the exit codes")
	}
}

// TestProgressLines checks what a script's log shows: a line every few seconds,
// one at the end of each part, and what is waited for, once.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1_700_000_000, 0)
	l := &lines{out: &out, now: func() time.Time { return now }}
	l.Wait("a transaction is open")
	l.Wait("")
	l.Phase("scan a", 1000)
	now = now.Add(4 * time.Second)
	l.Add(100) // too early for a line
	now = now.Add(time.Second)
	l.Add(150)
	l.Wait("partition 0 has no leader")
	l.Wait("partition 0 has no leader")
	l.Wait("")
	now = now.Add(5 * time.Second)
	l.Add(750)
	l.Done()
	l.Done()
	want := `waiting: a transaction is open
scan a: 250 of 1000, 50 a second, 15s left
scan a: 250 of 1000, 50 a second, waiting: partition 0 has no leader
scan a: 1000 of 1000, 100 a second
scan a: 1000 of 1000, 100 a second, done
`
	if diff := gocmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestProgressBar checks that the bar names its part and what is waited for, and
// is gone from the screen at the end.
func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	b := &bar{out: &out}
	b.Wait("a transaction is open")
	b.Add(1) // before any part: nothing to draw
	if out.String() != "waiting: a transaction is open\n" {
		t.Errorf("before the first part: %q", out.String())
	}
	b.Phase("scan a", 10)
	b.Wait("partition 0 has no leader")
	if err := b.bar.RenderBlank(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "scan a (waiting: partition 0 has no leader)") {
		t.Errorf("the bar does not say what is waited for: %q", out.String())
	}
	b.Wait("")
	b.Add(10)
	b.Done()
	b.Done()
	if last := out.String()[strings.LastIndex(strings.TrimRight(out.String(), "\r"), "\r")+1:]; strings.TrimSpace(last) != "" {
		t.Errorf("the bar stays on the screen: %q", last)
	}
}
