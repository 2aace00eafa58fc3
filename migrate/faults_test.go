package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/proxy"
	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/torture"
	"rekey/rewrite"
)

// Attacks on the protocol: every error code that Kafka documents, in the answer
// to every kind of request that the phases send, at the first, a middle and the
// last of them, once and for ever. A phase gets over it and is right, or it ends
// with an error of a defined kind, the target an exact prefix, and the same
// command goes on when the fault is lifted.
//
// By default a sample of them, in seconds. REKEY_TORTURE, REKEY_TORTURE_N,
// REKEY_TORTURE_SEED and REKEY_TORTURE_OUT mean what they mean for the attacks on
// the whole program: see torture_test.go at the top.

// faultPhase is what is attacked.
type faultPhase string

const (
	faultPlan    faultPhase = "plan"
	faultApply   faultPhase = "apply"
	faultResume  faultPhase = "apply that resumes"
	faultVerify  faultPhase = "verify"
	faultDamaged faultPhase = "verify of a damaged target"
)

// faultPoint is a place for an error code in the answers to one kind of request.
type faultPoint struct {
	name     string
	key      kmsg.Key
	topLevel bool // the answer's own code rather than that of a topic in it
}

// Of the kinds with a code for the whole answer and one for each topic, both.
var faultPoints = []faultPoint{
	{"Produce", kmsg.Produce, false},
	{"Fetch", kmsg.Fetch, false},
	{"Fetch, whole answer", kmsg.Fetch, true},
	{"ListOffsets", kmsg.ListOffsets, false},
	{"Metadata", kmsg.Metadata, false},
	{"CreateTopics", kmsg.CreateTopics, false},
	{"InitProducerId", kmsg.InitProducerID, false},
	{"DescribeConfigs", kmsg.DescribeConfigs, false},
	{"IncrementalAlterConfigs", kmsg.IncrementalAlterConfigs, false},
	{"FindCoordinator", kmsg.FindCoordinator, false},
	{"ApiVersions", kmsg.ApiVersions, false},
}

// faultCodes are all codes that the protocol defines, and one that it does not.
func faultCodes() []*kerr.Error {
	var codes []*kerr.Error
	for code := int16(-1); code < 1000; code++ {
		if e := kerr.TypedErrorForCode(code); e != nil && e.Code == code {
			codes = append(codes, e)
		}
	}
	return append(codes, &kerr.Error{Message: "A_CODE_OF_THE_FUTURE", Code: 31_000})
}

// faultCase is one attack: on the answer, with a code, or on the connection.
type faultCase struct {
	phase    faultPhase
	point    faultPoint
	code     *kerr.Error // nil: the connection
	broken   proxy.Break
	position int // 0: the first request of the kind, 1: one in the middle, 2: the last
	at       int // if not 0, the number of the request instead of its position
	forever  bool
}

func (c faultCase) String() string {
	often := "once"
	if c.forever {
		often = "for ever"
	}
	what := fmt.Sprintf("%v (%d bytes, %s)", c.broken.How, c.broken.Bytes, c.broken.Pause)
	if c.code != nil {
		what = "answered with " + c.code.Message
	}
	at := []string{"the first", "a middle", "the last"}[c.position]
	if c.at > 0 {
		at = strconv.Itoa(c.at)
	}
	return fmt.Sprintf("%s: %s %s, at %s request, %s", c.phase, c.point.name, what, at, often)
}

// mustBeCured says whether waiting helps, by Kafka's own word. That a topic is
// unknown is the answer to the question whether it exists.
func (c faultCase) mustBeCured() bool {
	if c.code == nil {
		return !c.forever
	}
	unknown := c.point.key == kmsg.Metadata && c.code == kerr.UnknownTopicOrPartition
	return c.code.Retriable && !c.forever && !unknown
}

// faultBench is a broker with what the phases need, for one case after another.
type faultBench struct {
	cluster  *testcluster.Cluster
	proxy    *proxy.Proxy // nil: the broker is asked without one
	options  PlanOptions
	planned  string // a run directory as plan leaves it
	verified string // one whose target is right
	damaged  string // one whose target has a record too many
	wanted   *plan
	source   []reader.Record
	demand   torture.Demand
	requests map[faultPhase]map[kmsg.Key]int // of a phase that nothing hits

	mu    sync.Mutex
	count map[kmsg.Key]int
	runs  int
}

// Patience with what passes by itself, when it must pass and when it does not.
const (
	faultPatient   = testcluster.Deadline
	faultImpatient = 120 * time.Millisecond
)

func newFaultBench(t testing.TB, brokers int, through *proxy.Proxy) *faultBench {
	t.Helper()
	o := testcluster.Options{Brokers: brokers}
	b := &faultBench{proxy: through, options: DefaultPlanOptions(), requests: map[faultPhase]map[kmsg.Key]int{}, count: map[kmsg.Key]int{}}
	if through != nil {
		t.Cleanup(through.Close)
		o.Fake = []kfake.Opt{kfake.ListenFn(through.Listen)}
		// What is not answered is asked again soon.
		b.options.Connections.Source.Properties = writeFile(t, "client.properties", "request.timeout.ms=1000\n")
	}
	b.cluster = testcluster.StartWith(t, o)
	b.fill(t)
	return b
}

// fill makes the topics and the run directories.
func (b *faultBench) fill(t testing.TB) {
	t.Helper()
	ctx := testcluster.Context(t)
	o := seed.Options{Seed: 9, Partitions: 2, Records: 40, Keys: 6, Tombstones: 4, Unparseable: 3, Headers: 4, ValueBytes: 200}
	if _, err := seed.Write(ctx, b.cluster.Addrs(), "source", o, nil); err != nil {
		t.Fatal(err)
	}
	b.source = b.cluster.Read(t, "source")
	b.demand = torture.Demand{Partitions: 2, Align: true, Captures: [][]int64{make([]int64, 2)}}
	for _, r := range b.source {
		b.demand.Captures[0][r.Partition] = r.Offset + 1
	}
	fake := b.cluster.Fake().Cluster()
	fake.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		b.mu.Lock()
		b.count[kmsg.Key(r.Key())]++
		b.mu.Unlock()
		return nil, nil, false
	})
	b.options.Connections.Source.Bootstrap = b.cluster.Addrs()
	b.options.OnUnparseable = rewrite.PolicyQuarantine
	b.options.Source = "source"
	// Small batches make several requests, so that there is a middle.
	b.options.TargetConfig = map[string]string{"max.message.bytes": "4096"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	prepare := func(target string) string {
		b.options.Target, b.options.RunDir = target, filepath.Join(t.TempDir(), "run")
		b.counted()
		must(b.run(faultPlan, b.options.RunDir, faultPatient))
		b.requests[faultPlan] = b.counted()
		return b.options.RunDir
	}
	b.verified = prepare("verified")
	b.damaged = prepare("damaged")
	for _, dir := range []string{b.verified, b.damaged} {
		must(b.run(faultApply, dir, faultPatient))
		b.requests[faultApply] = b.counted()
		must(b.run(faultVerify, dir, faultPatient))
		b.requests[faultVerify] = b.counted()
	}
	b.requests[faultDamaged] = b.requests[faultVerify]
	whole := b.cluster.Read(t, "damaged")
	last := whole[len(whole)-1]
	_, err := seed.ProduceBatch(ctx, b.cluster.Client(t), "damaged", last.Partition, seed.Batch{Records: []seed.Record{last}})
	must(err)
	b.planned = prepare("target")
	b.wanted, err = onDisk(b.planned).readPlan()
	must(err)
	dir, err := b.half(t.TempDir())
	must(err)
	b.counted()
	must(b.run(faultResume, dir, faultPatient))
	b.requests[faultResume] = b.counted()
	must(fake.DeleteTopic("target"))
}

// counted gives the requests since it was called last.
func (b *faultBench) counted() map[kmsg.Key]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.count
	b.count = map[kmsg.Key]int{}
	return n
}

// errHung is a phase that outlives every patience.
var errHung = errors.New("it hangs")

// run carries out a phase on a run directory.
func (b *faultBench) run(phase faultPhase, dir string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*testcluster.Deadline)
	defer cancel()
	env := Environment{Version: "test", Now: time.Now, Progress: NoProgress{}, Logf: func(string, ...any) {}, Patience: patience}
	run := RunOptions{Connections: b.options.Connections, RunDir: dir}
	ended := make(chan error, 1)
	go func() {
		var err error
		switch phase {
		case faultPlan:
			o := b.options
			o.RunDir = dir
			_, err = Plan(ctx, o, env)
		case faultApply, faultResume:
			_, err = Apply(ctx, run, env)
		case faultVerify, faultDamaged:
			_, err = Verify(ctx, run, env)
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if ctx.Err() != nil {
			return errHung
		}
		return err
	case <-ctx.Done():
		return errHung
	}
}

// half makes a run directory whose apply was ended by its last Produce request.
func (b *faultBench) half(parent string) (string, error) {
	dir := filepath.Join(parent, "run")
	if err := os.CopyFS(dir, os.DirFS(b.planned)); err != nil {
		return "", err
	}
	_, lift := b.lay(faultCase{phase: faultApply, point: faultPoints[0], code: kerr.InvalidRecord, position: 2, forever: true})
	defer lift()
	if err := b.run(faultApply, dir, faultPatient); !errors.Is(err, sarama.KError(kerr.InvalidRecord.Code)) {
		return "", fmt.Errorf("an apply that is to be resumed ends with %v", err)
	}
	return dir, nil
}

// lay lays the fault of a case. It gives functions that count what it hit and that
// lift it.
func (b *faultBench) lay(c faultCase) (hits func() int, lift func()) {
	n := b.requests[c.phase][c.point.key]
	at := c.at
	if at == 0 {
		at = []int{1, (n + 1) / 2, n}[c.position]
	}
	if c.code == nil {
		var hit atomic.Int32
		b.proxy.Break(func(r proxy.Request) proxy.Break {
			if r.Key != c.point.key || r.Nth < at || r.Nth > at && !c.forever {
				return proxy.Break{}
			}
			hit.Add(1)
			return c.broken
		})
		return func() int { return int(hit.Load()) }, func() { b.proxy.Break(nil) }
	}
	// A request is asked about once for each topic and partition in it.
	number := map[kmsg.Request]int{}
	fault := kfake.Fault{Keys: []kmsg.Key{c.point.key}, TopLevel: c.point.topLevel, Err: c.code, When: func(r kmsg.Request) bool {
		if number[r] == 0 {
			number[r] = len(number) + 1
		}
		return number[r] >= at
	}}
	if c.forever {
		fault.Count = -1
	}
	handle := b.cluster.Fake().Cluster().Fault(fault)
	return handle.Hits, handle.Remove
}

// faultOutcome is what became of a case.
type faultOutcome struct {
	met          bool // the fault was
	cured        bool
	falseSuccess bool
	problem      string // "" if it is as it must be
}

func wrong(format string, args ...any) faultOutcome {
	return faultOutcome{met: true, problem: fmt.Sprintf(format, args...)}
}

// attack carries out one case.
func (b *faultBench) attack(c faultCase, parent string) (out faultOutcome) {
	b.runs++
	dir := map[faultPhase]string{faultVerify: b.verified, faultDamaged: b.damaged}[c.phase]
	if dir == "" {
		parent = filepath.Join(parent, strconv.Itoa(b.runs))
		dir = filepath.Join(parent, "run")
		defer func() {
			err := os.RemoveAll(parent)
			if fake := b.cluster.Fake().Cluster(); fake.TopicInfo("target") != nil {
				err = errors.Join(err, fake.DeleteTopic("target"))
			}
			if err != nil && out.problem == "" {
				out.problem = err.Error()
			}
		}()
	}
	var err error
	switch c.phase {
	case faultApply:
		err = os.CopyFS(dir, os.DirFS(b.planned))
	case faultResume:
		dir, err = b.half(parent)
	}
	if err != nil {
		return wrong("prepare: %v", err)
	}
	patience := faultPatient
	if c.forever {
		patience = faultImpatient
	}
	hits, lift := b.lay(c)
	err = b.run(c.phase, dir, patience)
	met := hits() > 0
	lift()
	out = b.judge(c, dir, err)
	out.met = met
	switch {
	case out.met || out.problem != "":
	case err == nil && c.position == 0 && c.at == 0:
		out.problem = "the first request was never met"
	case err != nil && c.phase != faultDamaged && !(c.forever && b.proxy != nil):
		// On a busy machine an answer may take longer than impatience allows, before
		// the request comes that the case is about.
		out.problem = fmt.Sprintf("nothing hit it: %v", err)
	}
	return out
}

// judge says whether a phase may end like that, and whether it goes on.
func (b *faultBench) judge(c faultCase, dir string, err error) faultOutcome {
	if err != nil {
		if problem := c.undefined(err); problem != "" {
			return wrong("%s: %v", problem, err)
		}
		if c.mustBeCured() && !(c.phase == faultDamaged && errors.Is(err, ErrDifferent)) {
			return wrong("waiting helps, but: %v", err)
		}
	}
	switch c.phase {
	case faultPlan:
		return b.judgePlan(dir, err)
	case faultApply, faultResume:
		return b.judgeApply(dir, err)
	case faultDamaged:
		if err == nil {
			return faultOutcome{falseSuccess: true, problem: "the damage is not seen"}
		}
		if errors.Is(err, ErrDifferent) {
			return faultOutcome{cured: true}
		}
		if err := b.run(c.phase, dir, faultPatient); !errors.Is(err, ErrDifferent) {
			return wrong("afterwards: %v", err)
		}
		return faultOutcome{}
	}
	if err == nil {
		return faultOutcome{cured: true}
	}
	if err := b.run(c.phase, dir, faultPatient); err != nil {
		return wrong("afterwards: %v", err)
	}
	return faultOutcome{}
}

// undefined says what is wrong with an error as such.
func (c faultCase) undefined(err error) string {
	if errors.Is(err, errHung) {
		return "hangs"
	}
	codes := []int{1, 2, 4, 6}
	if c.phase == faultDamaged {
		codes = append(codes, 5)
	}
	if !slices.Contains(codes, ExitCode(err)) {
		return fmt.Sprintf("exit code %d", ExitCode(err))
	}
	var failure *Failure
	if errors.As(err, &failure) {
		return ""
	}
	if c.code != nil && !errors.Is(err, sarama.KError(c.code.Code)) {
		return "the broker's code is not in the error"
	}
	for _, name := range []string{"source", "target", "verified", "damaged", "lock", "127.0.0.1"} {
		if strings.Contains(err.Error(), name) {
			return ""
		}
	}
	return "the error does not say what failed"
}

func (b *faultBench) judgePlan(dir string, err error) faultOutcome {
	cured := err == nil
	if !cured {
		if err := b.run(faultPlan, dir, faultPatient); err != nil {
			return wrong("afterwards: %v", err)
		}
	}
	got, err := onDisk(dir).readPlan()
	if err != nil {
		return wrong("%v", err)
	}
	if diff := samePlan(b.wanted, got); diff != "" {
		return faultOutcome{falseSuccess: cured, problem: "the plan is wrong: " + diff}
	}
	return faultOutcome{cured: cured}
}

// samePlan compares what two plans say but for when they were made.
func samePlan(want, got *plan) string {
	timeless := func(p *plan) string {
		out := *p
		out.ID, out.CreatedAt, out.Captures = "", time.Time{}, slices.Clone(p.Captures)
		for i := range out.Captures {
			out.Captures[i].At = time.Time{}
		}
		text, err := json.MarshalIndent(out, "", " ")
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	return cmp.Diff(timeless(want), timeless(got))
}

func (b *faultBench) judgeApply(dir string, err error) faultOutcome {
	cured := err == nil
	there, readErr := b.target()
	switch {
	case readErr != nil:
		return wrong("%v", readErr)
	case cured:
		if problems := b.demand.Problems(b.source, there); len(problems) > 0 {
			return faultOutcome{falseSuccess: true, problem: strings.Join(problems, "; ")}
		}
		if configs := b.cluster.Fake().Cluster().TopicInfo("target").Configs; configs["segment.ms"] != nil {
			return faultOutcome{falseSuccess: true, problem: "the settings of the copy are still in force"}
		}
		return faultOutcome{cured: true}
	}
	if problems := b.demand.PrefixProblems(b.source, there); len(problems) > 0 {
		return wrong("no prefix: %s", strings.Join(problems, "; "))
	}
	for _, phase := range []faultPhase{faultApply, faultVerify} {
		if err := b.run(phase, dir, faultPatient); err != nil {
			return wrong("%s afterwards: %v", phase, err)
		}
	}
	if there, err = b.target(); err != nil {
		return wrong("%v", err)
	}
	if problems := b.demand.Problems(b.source, there); len(problems) > 0 {
		return faultOutcome{falseSuccess: true, problem: "afterwards: " + strings.Join(problems, "; ")}
	}
	return faultOutcome{}
}

// target is what the target holds; nothing if there is none.
func (b *faultBench) target() ([]reader.Record, error) {
	if b.cluster.Fake().Cluster().TopicInfo("target") == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), testcluster.Deadline)
	defer cancel()
	return reader.Read(ctx, b.cluster.Addrs(), "target")
}

// faultCases are all cases, in random order.
func faultCases(b *faultBench, random *rand.Rand) []faultCase {
	var cases []faultCase
	for _, phase := range []faultPhase{faultPlan, faultApply, faultResume, faultVerify, faultDamaged} {
		for _, point := range faultPoints {
			n := b.requests[phase][point.key]
			for _, code := range faultCodes() {
				for position := range min(n, 3) {
					if n == 2 && position == 1 {
						position = 2
					}
					c := faultCase{phase: phase, point: point, code: code, position: position}
					cases = append(cases, c)
					c.forever = true
					cases = append(cases, c)
				}
			}
		}
	}
	random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	return cases
}

// faultSeries carries out cases, at most as many as asked for, on several benches
// side by side: most of their time they wait.
func faultSeries(t *testing.T, attack string, usual int, bench func(t testing.TB, i int) *faultBench,
	cases func(*faultBench, *rand.Rand) []faultCase, kind func(faultCase) string) {
	testcluster.RequireFake(t, "requests are made to fail")
	// Thousands of short runs leave much behind, and little of it is kept.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	before := runtime.NumGoroutine()
	t.Run("cases", func(t *testing.T) {
		result := newFaultResult(t, attack)
		random := rand.New(rand.NewPCG(result.Seed, 0))
		var benches []*faultBench
		// Benches take their time, too.
		atOnce := 6
		if os.Getenv("REKEY_TORTURE") != "" {
			atOnce = 16
		}
		for i := range atOnce {
			benches = append(benches, bench(t, i))
		}
		all := cases(benches[0], random)
		chosen := all[:min(len(all), faultNumber(t, usual, len(all)))]
		t.Logf("%d of %d cases", len(chosen), len(all))
		next := make(chan faultCase)
		var workers sync.WaitGroup
		for _, b := range benches {
			parent := t.TempDir()
			workers.Go(func() {
				for c := range next {
					result.add(t, kind(c), c, b.attack(c, parent))
				}
			})
		}
		for _, c := range chosen {
			next <- c
		}
		close(next)
		workers.Wait()
	})
	noneLeft(t, before)
}

func TestTortureFaults(t *testing.T) {
	faultSeries(t, "error codes", 200, func(t testing.TB, i int) *faultBench { return newFaultBench(t, 1+i%3, nil) },
		faultCases, func(c faultCase) string { return c.point.name })
}

// Every kind of request is lost, or carried out and its answer lost, at once or
// when the time for an answer is up.
func TestTortureUnacknowledged(t *testing.T) {
	faultSeries(t, "lost requests and lost answers", 40, func(t testing.TB, i int) *faultBench { return newFaultBench(t, 1+i%3, proxy.New()) },
		func(b *faultBench, random *rand.Rand) []faultCase {
			return brokenCases(b, random, []proxy.How{proxy.CutRequest, proxy.CutAnswer, proxy.StallRequest, proxy.StallAnswer}, 1)
		},
		func(c faultCase) string { return c.point.name })
}

// Connections break in the middle of a request or of an answer, are slow, stall in
// one direction, are half closed, throttled or refused for a while.
func TestTortureConnections(t *testing.T) {
	var hows []proxy.How
	for how := proxy.CutRequest; how <= proxy.Refuse; how++ {
		if how != proxy.Edit {
			hows = append(hows, how)
		}
	}
	faultSeries(t, "connections", 50, func(t testing.TB, i int) *faultBench { return newFaultBench(t, 1+i%3, proxy.New()) },
		func(b *faultBench, random *rand.Rand) []faultCase { return brokenCases(b, random, hows, 2) },
		func(c faultCase) string { return c.broken.How.String() })
}

// An answer says that the client is throttled for a minute. It waits, as a client
// must, and loses neither patience nor anything else.
func TestTortureThrottledForAMinute(t *testing.T) {
	if os.Getenv("REKEY_TORTURE") == "" {
		t.Skip("minutes: set REKEY_TORTURE=1")
	}
	faultSeries(t, "connections throttled for a minute", 0, func(t testing.TB, _ int) *faultBench { return newFaultBench(t, 1, proxy.New()) },
		func(b *faultBench, random *rand.Rand) []faultCase {
			cases := brokenCases(b, random, []proxy.How{proxy.Throttle}, 1)
			for i := range cases {
				cases[i].broken.Pause = time.Minute
			}
			return slices.DeleteFunc(cases, func(c faultCase) bool { return c.position > 0 })
		},
		func(c faultCase) string { return c.point.name })
}

// The answer to the first question on a connection, for the versions that the
// broker knows, comes when it is not waited for any more. The client library then
// takes it for the next one's, and all that follow on the connection are mixed up.
func TestLateAnswersAreNotMixedUp(t *testing.T) {
	faultSeries(t, "first answers of a connection that come late", 20, func(t testing.TB, _ int) *faultBench { return newFaultBench(t, 1, proxy.New()) },
		func(b *faultBench, random *rand.Rand) []faultCase {
			var cases []faultCase
			for _, phase := range []faultPhase{faultPlan, faultApply, faultResume, faultVerify} {
				for at := 1; at <= b.requests[phase][kmsg.ApiVersions]; at++ {
					cases = append(cases, faultCase{phase: phase, point: faultPoint{name: "ApiVersions", key: kmsg.ApiVersions}, at: at,
						broken: proxy.Break{How: proxy.Late, Pause: 1200 * time.Millisecond}})
				}
			}
			random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
			return cases
		},
		func(c faultCase) string { return string(c.phase) })
}

// brokenCases are attacks on connections, several of each: where in a request or
// in an answer is random.
func brokenCases(b *faultBench, random *rand.Rand, hows []proxy.How, each int) []faultCase {
	var cases []faultCase
	for _, phase := range []faultPhase{faultPlan, faultApply, faultResume, faultVerify, faultDamaged} {
		for _, point := range faultPoints {
			if point.topLevel {
				continue
			}
			for _, how := range hows {
				for position := range min(b.requests[phase][point.key], 3) {
					for n := range each {
						c := faultCase{phase: phase, point: point, position: position, broken: proxy.Break{How: how}}
						c.broken.Bytes = []int{0, random.IntN(16), random.IntN(400), random.IntN(20_000), 1 << 30}[random.IntN(5)]
						switch how {
						case proxy.Dribble:
							c.broken.Bytes, c.broken.Pause = 1+random.IntN(200), time.Millisecond
						case proxy.Late: // about as long as an answer is waited for, and longer
							c.broken.Pause = time.Duration(800+random.IntN(600)) * time.Millisecond
						case proxy.Throttle, proxy.Refuse:
							c.broken.Pause = time.Duration(random.IntN(300)) * time.Millisecond
						}
						// What is slow or throttled gets there in the end, however often.
						c.forever = n > 0 && !slices.Contains([]proxy.How{proxy.Dribble, proxy.Late, proxy.Throttle}, how)
						cases = append(cases, c)
					}
				}
			}
		}
	}
	random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	return cases
}

// noneLeft waits until no goroutine is left that was not there before.
func noneLeft(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(testcluster.Deadline)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, there were %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// What Kafka calls retriable is retried, and nothing else that a broker answers
// but two codes of which experience says the same.
func TestTransientCodes(t *testing.T) {
	for _, code := range faultCodes() {
		want := code.Retriable || code == kerr.ReassignmentInProgress || code == kerr.ConcurrentTransactions
		if got := transient(fmt.Errorf("somewhere: %w", sarama.KError(code.Code))); got != want {
			t.Errorf("%s: transient is %v", code.Message, got)
		}
	}
}

// faultResult counts outcomes.
type faultResult struct {
	torture.Result
	mu    sync.Mutex
	shown map[string]int
}

func faultNumber(t testing.TB, usual, long int) int {
	if text := os.Getenv("REKEY_TORTURE_N"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("REKEY_TORTURE_N=%q: want a positive number", text)
		}
		return n
	}
	if os.Getenv("REKEY_TORTURE") == "" {
		return usual
	}
	return long
}

func newFaultResult(t testing.TB, attack string) *faultResult {
	t.Helper()
	number := rand.Uint64N(1 << 32)
	if text := os.Getenv("REKEY_TORTURE_SEED"); text != "" {
		var err error
		if number, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("REKEY_TORTURE_SEED=%q: want a number", text)
		}
	}
	t.Logf("REKEY_TORTURE_SEED=%d", number)
	stamped, err := torture.NewResult(attack, number, "..")
	if err != nil {
		t.Fatal(err)
	}
	r := &faultResult{shown: map[string]int{}, Result: stamped}
	r.Kinds = map[string]*torture.Kind{}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(r.Kinds)) {
			t.Logf("%s: %+v", name, *r.Kinds[name])
		}
		if path := os.Getenv("REKEY_TORTURE_OUT"); path != "" && !t.Skipped() {
			if err := torture.Save(path, r.Result); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func (r *faultResult) add(t *testing.T, kind string, c fmt.Stringer, o faultOutcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.problem != "" {
		first, _, _ := strings.Cut(o.problem, ":")
		group := fmt.Sprint(kind, first)
		if r.shown[group]++; r.shown[group] <= 10 {
			t.Errorf("%v: %s", c, o.problem)
		}
	}
	if r.Kinds[kind] == nil {
		r.Kinds[kind] = &torture.Kind{}
	}
	k := r.Kinds[kind]
	switch {
	case o.falseSuccess:
		k.FalseSuccess++
	case o.problem != "":
		k.Wrong++
	case !o.met:
		k.Unmet++
		return
	case o.cured:
		k.Cured++
	default:
		k.Refused++
	}
	k.Cases++
}
