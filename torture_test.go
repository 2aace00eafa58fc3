//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/torture"
)

// Attacks on the whole program, as processes: killed, stopped, interrupted, two
// at once, with a source that does not stand still. What counts is always the
// same: the target is what fixtures/torture demands of the source, or nothing
// claims success.
//
// By default a few of each, in seconds. The environment asks for more:
//
//	REKEY_TORTURE=1        hundreds (twenty on a real Kafka)
//	REKEY_TORTURE_N=N      N
//	REKEY_TORTURE_SEED=N   the seed; printed if not given
//	REKEY_TORTURE_OUT=FILE adds the results to FILE, which docs/reliability.md
//	                       is rendered from

// arena is a source topic, the broker it is on, and the count of what happened.
type arena struct {
	testing.TB
	*testcluster.Cluster
	rand     *rand.Rand
	wire     *wireTap
	source   string
	records  []reader.Record
	ends     []int64
	duration time.Duration  // of an apply that nothing hits
	requests map[string]int // of such an apply, by name; nil on a real broker
	result   torture.Result
}

// number is how many attacks to carry out.
func number(t testing.TB, usual, long, kafka int) int {
	if text := os.Getenv("REKEY_TORTURE_N"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("REKEY_TORTURE_N=%q: want a positive number", text)
		}
		return n
	}
	switch {
	case os.Getenv("REKEY_TORTURE") == "":
		return usual
	case os.Getenv(testcluster.EnvBroker) == "kafka":
		return kafka
	}
	return long
}

func newArena(t testing.TB, attack string) *arena {
	t.Helper()
	return newArenaOn(t, attack, testcluster.Start(t))
}

func newArenaOn(t testing.TB, attack string, on *testcluster.Cluster) *arena {
	t.Helper()
	number := rand.Uint64N(1 << 32)
	if text := os.Getenv("REKEY_TORTURE_SEED"); text != "" {
		var err error
		if number, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("REKEY_TORTURE_SEED=%q: want a number", text)
		}
	}
	t.Logf("REKEY_TORTURE_SEED=%d", number)
	a := &arena{TB: t, Cluster: on, rand: rand.New(rand.NewPCG(number, 0))}
	a.result = torture.Result{Attack: attack, Seed: number, Date: time.Now().UTC().Format(time.DateOnly),
		Version: described(), Go: runtime.Version(), Moments: map[string]int{}}
	if a.Real() {
		a.result.Broker = "Apache Kafka " + firstMatch(t, "fixtures/kafka/pom.xml", `<kafka.version>([^<]*)`)
	} else {
		a.result.Broker = "embedded, kfake " + firstMatch(t, "go.mod", `franz-go/pkg/kfake v\S*-(\w+)`)
		a.wire = tap(a.Cluster)
	}
	t.Cleanup(func() {
		r := a.result
		t.Logf("%s on %s: %d runs, %d hits, %d of them during a resume, %d late, %d refusals, %d failures, %d false successes; %v",
			r.Attack, r.Broker, r.Runs, r.Hits, r.ResumeHits, r.Late, r.Refusals, r.Failures, r.FalseSuccess, r.Moments)
		if path := os.Getenv("REKEY_TORTURE_OUT"); path != "" && !t.Skipped() {
			if err := torture.Save(path, r); err != nil {
				t.Error(err)
			}
		}
	})
	return a
}

// described is the version of the working tree.
func described() string {
	out, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func firstMatch(t testing.TB, path, pattern string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindSubmatch(content)
	if found == nil {
		t.Fatalf("%s does not match %s", path, pattern)
	}
	return string(found[1])
}

// tortured is a topic with one of everything, small enough for many runs.
func tortured(seedNumber uint64, records int) seed.Options {
	return seed.Options{Seed: seedNumber, Partitions: 4, Records: records, Keys: records / 12, Tombstones: records / 10,
		Unparseable: records / 50, EmptyValues: records / 100, NullText: records / 100, Headers: 5, ValueBytes: 150, Jitter: 5000}
}

// fill writes the source topic.
func (a *arena) fill(o seed.Options) {
	a.Helper()
	a.source = a.Topic(a, "source")
	if _, err := seed.Write(testcluster.Context(a), a.Addrs(), a.source, o, nil); err != nil {
		a.Fatal(err)
	}
	a.look()
}

// look takes down what the source holds now.
func (a *arena) look() {
	a.Helper()
	a.records = a.Read(a, a.source)
	a.ends = ends(a, a.Cluster, a.source)
}

func ends(t testing.TB, c *testcluster.Cluster, topic string) []int64 {
	t.Helper()
	ranges, err := reader.Ranges(testcluster.Context(t), c.Addrs(), topic)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int64, len(ranges))
	for partition, r := range ranges {
		out[partition] = r.End
	}
	return out
}

// migration is one run: a target and the plan for it.
type migration struct {
	*arena
	target, dir string
	demand      torture.Demand
	flags       []string // of plan
	command     []string // that carries the plan out; nil is apply
}

// carriesOut is the command line of the phase that writes.
func (m *migration) carriesOut(flags ...string) []string {
	if m.command == nil {
		return append([]string{"apply"}, flags...)
	}
	return append(slices.Clone(m.command), flags...)
}

// prepare chooses a target and options for it; plan still has to run.
func (a *arena) prepare() *migration {
	m := &migration{arena: a, target: a.Topic(a, "target"), dir: filepath.Join(a.TempDir(), "run"),
		demand: torture.Demand{Partitions: 4, Align: true, Captures: [][]int64{a.ends}}}
	policy := "quarantine"
	if a.rand.IntN(4) == 0 {
		m.demand.Copy = true
		policy = "copy"
	}
	// Small batches make many requests, so there is much to come in between.
	m.flags = []string{"--source", a.source, "--target", m.target, "--on-unparseable", policy, "--target-config", "max.message.bytes=16384"}
	if a.rand.IntN(4) == 0 {
		m.demand.Align = false
		m.flags = append(m.flags, "--align", "none")
	}
	if a.rand.IntN(4) == 0 {
		m.demand.Latest = true
		m.flags = append(m.flags, "--history", "latest")
	}
	return m
}

// plan makes the sealed plan.
func (m *migration) plan() {
	m.Helper()
	if p := m.start(append([]string{"plan"}, m.flags...)...); p.wait() != 0 {
		m.Fatalf("plan: %v", p)
	}
}

// process is the program at work.
type process struct {
	command string
	*exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

// start runs the program on the migration's run directory.
func (m *migration) start(args ...string) *process {
	m.Helper()
	args = append(args, "--run-dir", m.dir, "--bootstrap-server", m.Bootstrap(), "--output", "json", "--quiet")
	return start(m, exec.Command(rekeyPath(m), args...))
}

func rekeyPath(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("rekey")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t testing.TB, command *exec.Cmd) *process {
	t.Helper()
	p := &process{command: command.Args[1], Cmd: command, ended: make(chan struct{})}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.Wait() // its outcome is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it has ended unless the test failed
		<-p.ended
	})
	return p
}

// wait gives the exit code, -1 for a process that a signal ended. A process
// that hangs is killed, which no test takes for anything but a failure.
func (p *process) wait() int {
	hang := time.AfterFunc(3*testcluster.Deadline, func() { _ = p.Process.Kill() })
	defer hang.Stop()
	<-p.ended
	return p.ProcessState.ExitCode()
}

// killed says whether SIGKILL ended the process, after wait.
func (p *process) killed() bool {
	status := p.ProcessState.Sys().(syscall.WaitStatus)
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (p *process) String() string {
	return fmt.Sprintf("%s: %v\n%s%s", p.command, p.ProcessState, p.stdout.Bytes(), p.stderr.Bytes())
}

// nothing says whether an apply found nothing to do, or nothing to write.
func (p *process) nothing(t testing.TB) bool {
	t.Helper()
	var evidence struct {
		Nothing bool  `json:"nothing_to_do"`
		Written int64 `json:"written"`
	}
	fields := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(p.stdout.Bytes(), &fields), json.Unmarshal(p.stdout.Bytes(), &evidence)); err != nil {
		t.Fatalf("%v: %v", err, p)
	}
	for _, name := range []string{"nothing_to_do", "written"} {
		if fields[name] == nil {
			t.Fatalf("no field %s: %v", name, p)
		}
	}
	return evidence.Nothing || evidence.Written == 0
}

// problems is the verdict on the target as it is now.
func (m *migration) problems() []string {
	m.Helper()
	return m.demand.Problems(m.records, m.Read(m, m.target))
}

// claim demands that an exit with 0 is justified, and says whether it is.
func (m *migration) claim(p *process) bool {
	m.Helper()
	problems := m.problems()
	if len(problems) == 0 {
		return true
	}
	m.result.FalseSuccess++
	m.result.Failures++
	m.Errorf("false success with %q: %d problems: %q\n%v", m.flags, len(problems), problems[:min(5, len(problems))], p)
	return false
}

// conclude goes on to the end, with nothing in the way, and judges it.
func (m *migration) conclude(flags ...string) {
	m.Helper()
	for _, command := range [][]string{m.carriesOut(flags...), append([]string{"verify"}, flags...)} {
		p := m.start(command...)
		if p.wait() != 0 {
			m.result.Refusals++
			m.Errorf("after %q, with nothing in the way: %v", m.flags, p)
			return
		}
		if !m.claim(p) {
			return
		}
	}
}

// moment is what the target has got to.
func (m *migration) moment() string {
	m.Helper()
	if !m.exists() {
		return "before the target exists"
	}
	padding, records := 0, 0
	for _, r := range m.Read(m, m.target) {
		if len(r.Headers) == 1 && strings.HasPrefix(string(r.Headers[0].Value), "padding") {
			padding++
		} else {
			records++
		}
	}
	switch {
	case padding+records == 0:
		return "the target is empty"
	case records == 0:
		return "padding only"
	case len(m.problems()) > 0:
		return "some records"
	}
	return "all records"
}

func (m *migration) exists() bool {
	m.Helper()
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(m.target)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(testcluster.Context(m), m.Client(m))
	if err != nil || len(response.Topics) != 1 {
		m.Fatalf("describe %s: %v", m.target, err)
	}
	return !errors.Is(kerr.ErrorForCode(response.Topics[0].ErrorCode), kerr.UnknownTopicOrPartition)
}

// wireTap sees each request that reaches the embedded broker.
type wireTap struct {
	mu      sync.Mutex
	seen    func(name string, nth int) (drop bool)
	numbers map[string]int
	hold    func(name string, nth int) <-chan struct{}
}

func tap(c *testcluster.Cluster) *wireTap {
	w := &wireTap{numbers: map[string]int{}}
	cluster := c.Fake().Cluster()
	cluster.Control(func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		w.mu.Lock()
		name := kmsg.NameForKey(request.Key())
		w.numbers[name]++
		nth := w.numbers[name]
		drop := w.seen != nil && w.seen(name, nth)
		var held <-chan struct{}
		if w.hold != nil {
			held = w.hold(name, nth)
		}
		w.mu.Unlock()
		if held != nil {
			cluster.SleepControl(func() { <-held })
		}
		if drop {
			return nil, errors.New("the connection is lost"), true
		}
		return nil, nil, false
	})
	return w
}

// watch begins to count anew, and calls seen for each request with its number
// among those of its name. A request that seen drops is not carried out.
func (w *wireTap) watch(seen func(name string, nth int) (drop bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.numbers = seen, map[string]int{}
}

// counted ends a watch and gives the number of requests of each name.
func (w *wireTap) counted() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	numbers := w.numbers
	w.seen, w.hold, w.numbers = nil, nil, map[string]int{}
	return numbers
}

// measure carries out applies that nothing hits. The quicker one counts: a cold
// broker would make most hits come too late.
func (a *arena) measure() {
	a.Helper()
	for range 2 {
		m := a.prepare()
		m.plan()
		if a.wire != nil {
			a.wire.watch(nil)
		}
		begin := time.Now()
		p := m.start("apply")
		code, took := p.wait(), time.Since(begin)
		if a.wire != nil {
			a.requests = a.wire.counted()
		}
		if code != 0 || !m.claim(p) {
			a.Fatalf("an apply that nothing hits: %v", p)
		}
		if a.duration == 0 || took < a.duration {
			a.duration = took
		}
	}
}

// hit runs apply and hits it with a signal: at a random moment, or as a random
// request arrives, which is then carried out or lost. It gives the process,
// which has not ended if the signal does not end it.
func (m *migration) hit(signal syscall.Signal, arm func(strike func()), flags ...string) *process {
	m.Helper()
	begin := make(chan *process, 1)
	struck := make(chan struct{})
	var once sync.Once
	arm(func() {
		once.Do(func() {
			p := <-begin
			_ = p.Process.Signal(signal) // it may have ended
			close(struck)
		})
	})
	p := m.start(m.carriesOut(flags...)...)
	begin <- p
	select {
	case <-p.ended:
	case <-struck:
	}
	return p
}

// someMoment arms a timer anywhere in the duration of an apply.
func (m *migration) someMoment(strike func()) {
	timer := time.AfterFunc(time.Duration(m.rand.Float64()*1.05*float64(m.duration)), strike)
	m.Cleanup(func() { timer.Stop() })
}

// someRequest waits for one of the requests that an apply makes.
func (m *migration) someRequest(names ...string) func(strike func()) {
	name := names[m.rand.IntN(len(names))]
	at, lost := 1+m.rand.IntN(max(1, m.requests[name])), m.rand.IntN(2) == 0
	return func(strike func()) {
		m.wire.watch(func(seen string, nth int) bool {
			if seen != name || nth != at {
				return false
			}
			strike()
			return lost
		})
	}
}

// pointsOfApply are the requests that mark its phases, the writes more often.
var pointsOfApply = []string{"CreateTopics", "InitProducerID", "IncrementalAlterConfigs", "ListOffsets", "Fetch", "Produce", "Produce", "Produce"}

// kill runs an apply and kills it; false if it had ended before.
func (m *migration) kill(resumed bool, flags ...string) bool {
	m.Helper()
	arm := m.someMoment
	if m.wire != nil && m.rand.IntN(2) == 0 {
		arm = m.someRequest(pointsOfApply...)
	}
	p := m.hit(syscall.SIGKILL, arm, flags...)
	code := p.wait()
	if m.wire != nil {
		m.wire.counted()
	}
	switch {
	case p.killed():
		m.result.Hits++
		if resumed {
			m.result.ResumeHits++
		}
		m.result.Moments[m.moment()]++
		return true
	case code == 0:
		m.result.Late++
		m.claim(p)
	default:
		m.result.Refusals++
		m.Errorf("nothing hit it: %v", p)
	}
	return false
}

// Apply is killed at random moments and at random requests, the resume too, at
// least a quarter as often. Then it goes on to the end.
func TestTortureKill(t *testing.T) {
	a := newArena(t, "apply: kill -9")
	a.fill(tortured(a.result.Seed, 3000))
	a.measure()
	n := number(t, 5, 200, 20)
	for first := 0; (first < n || a.result.ResumeHits < n/4) && !t.Failed(); first = a.result.Hits - a.result.ResumeHits {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		if m.kill(false) && a.rand.IntN(4) == 0 {
			for again := 1 + a.rand.IntN(3); again > 0 && m.kill(true); again-- {
			}
		}
		m.conclude()
	}
}

// The same with a plan that is extended in between: killed in the first apply or
// not, and in the second.
func TestTortureKillExtended(t *testing.T) {
	a := newArena(t, "apply of an extended plan: kill -9")
	a.fill(tortured(a.result.Seed, 1000))
	a.measure()
	for n := number(t, 1, 50, 5); a.result.Hits < n && !t.Failed(); {
		a.fill(tortured(a.rand.Uint64(), 1000))
		m := a.prepare()
		m.plan()
		a.result.Runs++
		if !m.kill(false) || a.rand.IntN(2) == 0 {
			m.conclude()
		}
		a.grow(200)
		m.extend()
		if m.kill(true) && a.rand.IntN(2) == 0 {
			m.kill(true)
		}
		m.conclude()
	}
}

// grow appends records to the source.
func (a *arena) grow(n int) {
	a.Helper()
	w := newSourceWriter(a)
	for range n {
		if err := w.write(testcluster.Context(a)); err != nil {
			a.Fatal(err)
		}
	}
	a.look()
}

// sourceWriter writes what a running job writes: states of new keys, new states
// of old ones, deletions, and states of keys that were deleted before.
type sourceWriter struct {
	rand    *rand.Rand
	client  *kgo.Client
	topic   string
	live    []string
	deleted []string
	written int
}

func newSourceWriter(a *arena) *sourceWriter {
	return &sourceWriter{rand: rand.New(rand.NewPCG(a.rand.Uint64(), 1)), client: a.Client(a), topic: a.source}
}

func (w *sourceWriter) write(ctx context.Context) error {
	// Close to the records that are there: a real broker would roll a segment
	// for a much later one, and clean what lies before it.
	r := seed.Record{Timestamp: 1_767_225_600_000 + int64(w.written), Value: fmt.Appendf(nil, "state %d", w.written)}
	var key string
	switch dice := w.rand.IntN(8); {
	case dice < 2 && len(w.live) > 0:
		key = w.live[w.rand.IntN(len(w.live))]
	case dice < 4 && len(w.live) > 0:
		i := w.rand.IntN(len(w.live))
		key, r.Value = w.live[i], nil
		w.live = slices.Delete(w.live, i, i+1)
		w.deleted = append(w.deleted, key)
	case dice < 5 && len(w.deleted) > 0:
		i := w.rand.IntN(len(w.deleted))
		key = w.deleted[i]
		w.deleted = slices.Delete(w.deleted, i, i+1)
		w.live = append(w.live, key)
	default:
		id := func() string {
			return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", w.rand.Uint32(), w.rand.IntN(1<<16), w.rand.IntN(1<<16), w.rand.IntN(1<<16), w.rand.Int64N(1<<48))
		}
		key = fmt.Sprintf("%s_%d_%s_%s", seed.BusinessKey(w.rand.IntN(500)), w.written, id(), id())
		w.live = append(w.live, key)
	}
	r.Key = []byte(key)
	_, err := seed.ProduceBatch(ctx, w.client, w.topic, seed.Partition(r.Key, 4), seed.Batch{Records: []seed.Record{r}})
	w.written++
	return err
}

// extend extends the plan by what the source holds now.
func (m *migration) extend() {
	m.Helper()
	if p := m.start("plan", "--extend"); p.wait() != 0 {
		m.Fatalf("plan --extend: %v", p)
	}
	m.demand.Captures = append(m.demand.Captures, m.ends)
}

// An extension is killed while it is made. It can be made again, whatever the
// killed one left in the run directory.
func TestTortureKillPlan(t *testing.T) {
	a := newArena(t, "plan --extend: kill -9")
	a.fill(tortured(a.result.Seed, 600))
	a.measure()
	for n := number(t, 2, 100, 10); a.result.Hits < n && !t.Failed(); {
		a.fill(tortured(a.rand.Uint64(), 600))
		m := a.prepare()
		m.plan()
		a.result.Runs++
		m.conclude()
		before := m.ends
		a.grow(100)
		a.badKeys(5)
		begin := make(chan *process, 1)
		timer := time.AfterFunc(time.Duration(a.rand.Float64()*float64(m.duration)), func() {
			_ = (<-begin).Process.Kill() // it may have ended
		})
		p := m.start("plan", "--extend")
		begin <- p
		code := p.wait()
		timer.Stop()
		switch {
		case p.killed():
			a.result.Hits++
			a.result.Moments["plan.json "+m.sealed(before)]++
		case code == 0:
			a.result.Late++
			a.duration = a.duration * 9 / 10 // an extension takes less than an apply
		default:
			t.Fatal(p)
		}
		if p := m.start("plan", "--extend"); p.wait() != 0 {
			a.result.Refusals++
			t.Errorf("after a killed extension: %v", p)
			continue
		}
		m.demand.Captures = append(m.demand.Captures, m.ends)
		m.conclude()
	}
}

// sealed says whether plan.json is extended already.
func (m *migration) sealed(before []int64) string {
	m.Helper()
	if captures := m.captures(); slices.Equal(captures[len(captures)-1], before) {
		return "as it was"
	}
	return "extended"
}

// captures are the source's ends in plan.json.
func (m *migration) captures() [][]int64 {
	m.Helper()
	content, err := os.ReadFile(filepath.Join(m.dir, "plan.json"))
	if err != nil {
		m.Fatal(err)
	}
	var plan struct {
		Captures []struct {
			Ends []int64 `json:"log_ends"`
		} `json:"captures"`
	}
	if err := json.Unmarshal(content, &plan); err != nil {
		m.Fatal(err)
	}
	var ends [][]int64
	for _, c := range plan.Captures {
		ends = append(ends, c.Ends)
	}
	return ends
}

// badKeys appends records whose keys cannot be parsed.
func (a *arena) badKeys(n int) {
	a.Helper()
	client := a.Client(a)
	for i := range n {
		r := seed.Record{Timestamp: 1_767_225_600_000, Key: fmt.Appendf(nil, "bad-%d", a.rand.IntN(3)), Value: fmt.Appendf(nil, "%d", i)}
		if _, err := seed.ProduceBatch(testcluster.Context(a), client, a.source, int32(i%4), seed.Batch{Records: []seed.Record{r}}); err != nil {
			a.Fatal(err)
		}
	}
	a.look()
}

const tookOver = "another apply of this target took over"

// Two applies of one plan, from one run directory or from copies of it as on two
// machines, at once or one after the other. One of them finishes, or the one
// that comes late finds nothing to do.
func TestTortureTwo(t *testing.T) {
	a := newArena(t, "two applies at once")
	a.fill(tortured(a.result.Seed, 3000))
	a.measure()
	for range number(t, 2, 40, 20) {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		other := *m
		if a.rand.IntN(2) == 0 {
			other.dir = filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(other.dir, os.DirFS(m.dir)); err != nil {
				t.Fatal(err)
			}
		}
		first := m.start("apply")
		if a.rand.IntN(2) == 0 {
			later := time.NewTimer(time.Duration(a.rand.Float64() * float64(m.duration)))
			select {
			case <-later.C:
			case <-first.ended:
			}
		}
		second := other.start("apply")
		winners, idle := 0, 0
		for _, p := range []*process{first, second} {
			switch code := p.wait(); {
			case code == 0 && p.nothing(t):
				idle++
			case code == 0:
				winners++
			case code == 4 && strings.Contains(p.stderr.String(), tookOver):
				a.result.Hits++
			default:
				a.result.Refusals++
				t.Errorf("neither success nor taken over: %v", p)
			}
		}
		// With none that wrote all, what one wrote before the other took over
		// was everything.
		if winners+idle == 0 || winners > 1 {
			a.result.Failures++
			t.Errorf("%d finish, %d find nothing to do:\n%v\n%v", winners, idle, first, second)
		}
		a.result.Moments[fmt.Sprintf("%d finish, %d find nothing to do, %d taken over", winners, idle, 2-winners-idle)]++
		m.claim(first)
		m.conclude()
	}
}

// An apply is stopped in the middle, another one finishes, the first wakes up.
// It must notice before it appends anything.
func TestTortureStop(t *testing.T) {
	a := newArena(t, "apply: SIGSTOP, another apply, SIGCONT")
	a.fill(tortured(a.result.Seed, 3000))
	a.measure()
	impatient := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(impatient, []byte("request.timeout.ms=500\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := number(t, 2, 50, 10); a.result.Hits < n && !t.Failed(); {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		arm := m.someMoment
		if m.wire != nil && a.rand.IntN(4) > 0 {
			at, name := 1, []string{"CreateTopics", "InitProducerID", "IncrementalAlterConfigs", "Produce", "Produce", "Produce"}[a.rand.IntN(6)]
			at += a.rand.IntN(max(1, a.requests[name]))
			arm = func(strike func()) {
				m.wire.watch(func(seen string, nth int) bool {
					if seen == name && nth == at {
						strike()
					}
					return false
				})
			}
		}
		var flags []string
		long := os.Getenv("REKEY_TORTURE") != "" && a.rand.IntN(4) == 0
		if long {
			flags = []string{"--command-config", impatient}
		}
		first := m.hit(syscall.SIGSTOP, arm, flags...)
		if !first.stopped(t) {
			a.result.Late++
			continue
		}
		a.result.Hits++
		if m.wire != nil {
			m.wire.counted()
		}
		a.result.Moments[m.moment()]++
		second := m.start("apply")
		if second.wait() != 0 {
			a.result.Refusals++
			t.Errorf("the second: %v", second)
			continue
		}
		m.claim(second)
		if long {
			// Not to wait for anything, but to be stopped for longer than every
			// time-out of a request.
			time.Sleep(time.Second)
		}
		before := ends(t, a.Cluster, m.target)
		if err := first.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		switch code := first.wait(); {
		case code == 4 && strings.Contains(first.stderr.String(), tookOver):
			if after := ends(t, a.Cluster, m.target); !slices.Equal(before, after) {
				a.result.Failures++
				t.Errorf("it appended after it was taken over: ends %v, were %v\n%v", after, before, first)
			}
		case code == 0 && (first.nothing(t) || second.nothing(t)):
			m.claim(first) // stopped before it had the lock, or after it was done
		default:
			a.result.Refusals++
			t.Errorf("the first: %v\nthe second: %v", first, second)
		}
		p := m.start("verify")
		if p.wait() != 0 {
			a.result.Failures++
			t.Errorf("stopped %v: %v", m.flags, p)
			continue
		}
		m.claim(p)
	}
}

// stopped waits until the process does nothing any more, and says whether it
// can be woken up.
func (p *process) stopped(t testing.TB) bool {
	t.Helper()
	for {
		select {
		case <-p.ended:
			return false
		default:
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		// The state follows the name, which is in brackets.
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); fields[0] == "T" {
			return true
		}
		runtime.Gosched()
	}
}

var resumeWith = regexp.MustCompile(`go on with: (rekey apply .*)`)

// A signal ends apply with code 7, the target as a resume needs it, and the
// command that resumes.
func TestTortureInterrupt(t *testing.T) {
	a := newArena(t, "apply: SIGINT or SIGTERM")
	a.fill(tortured(a.result.Seed, 3000))
	a.measure()
	properties := filepath.Join(t.TempDir(), "it's mine.properties")
	if err := os.WriteFile(properties, []byte("client.id=tortured\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := number(t, 2, 100, 20); a.result.Hits < n && !t.Failed(); {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		arm := m.someMoment
		if m.wire != nil && a.rand.IntN(2) == 0 {
			arm = m.someRequest(pointsOfApply...)
		}
		p := m.hit([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM}[a.rand.IntN(2)], arm, "--command-config", properties, "--allow-live-source")
		code := p.wait()
		if m.wire != nil {
			m.wire.counted()
		}
		switch {
		case code == 7:
			a.result.Hits++
			a.result.Moments[m.moment()]++
			command := resumeWith.FindStringSubmatch(p.stderr.String())
			if command == nil || !strings.Contains(command[1], "--command-config") || !strings.Contains(command[1], "--allow-live-source") {
				a.result.Failures++
				t.Errorf("no command that resumes: %v", p)
				break
			}
			resumed := start(t, exec.Command("sh", "-c", command[1]))
			if resumed.wait() != 0 {
				a.result.Refusals++
				t.Errorf("%s: %v", command[1], resumed)
			}
		case code == 0:
			a.result.Late++
			m.claim(p)
		case code == -1 && !m.exists():
			a.result.Late++ // before the program was up
		default:
			a.result.Failures++
			t.Errorf("interrupted: %v", p)
		}
		m.conclude()
	}
}

// A signal ends apply although a request is never answered. The request arrives
// in the end, when the resume is through; it must not matter.
func TestTortureInterruptStalled(t *testing.T) {
	testcluster.RequireFake(t, "requests are held back")
	if os.Getenv("REKEY_TORTURE") == "" {
		t.Skip("half a minute on a busy machine: set REKEY_TORTURE=1")
	}
	a := newArena(t, "apply: SIGINT while the broker is silent")
	a.fill(tortured(a.result.Seed, 1000))
	a.measure()
	patient := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(patient, []byte("request.timeout.ms=3600000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	points := []string{"Produce", "Fetch", "InitProducerID", "CreateTopics", "IncrementalAlterConfigs", "ListOffsets", "DescribeConfigs", "Metadata", "ApiVersions", "FindCoordinator"}
	a.rand.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	for i := range number(t, 1, 50, 0) {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		name := points[i%len(points)]
		at := 1 + a.rand.IntN(max(1, a.requests[name]))
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		t.Cleanup(free)
		p := m.hit(syscall.SIGINT, func(strike func()) {
			m.wire.watch(nil)
			m.wire.holdBack(func(seen string, nth int) <-chan struct{} {
				if seen != name || nth != at {
					return nil
				}
				strike()
				return release
			})
		}, "--command-config", patient)
		code := p.wait()
		m.wire.counted()
		switch {
		case code == 7:
			a.result.Hits++
			a.result.Moments[fmt.Sprintf("waiting for %s", name)]++
		case code == 0:
			a.result.Late++
			m.claim(p)
		default:
			a.result.Failures++
			t.Errorf("held back %s %d: %v", name, at, p)
		}
		if a.rand.IntN(2) == 0 {
			free()
		}
		m.conclude()
		free()
		p = m.start("verify")
		if p.wait() == 5 && name == "IncrementalAlterConfigs" && strings.Contains(p.stdout.String(), "run apply to its end") {
			// No lock keeps a change of settings out that was under way for that
			// long; verify notices, and apply puts it right.
			m.conclude()
			continue
		}
		if p.ProcessState.ExitCode() != 0 || !m.claim(p) {
			a.result.Failures++
			t.Errorf("the request that arrived late: %v", p)
		}
	}
}

// A request is carried out or not, and never answered. Apply asks again, over a
// new connection, and gets to its end.
func TestTortureUnanswered(t *testing.T) {
	testcluster.RequireFake(t, "requests are left without an answer")
	a := newArena(t, "apply: a request that is never answered")
	a.fill(tortured(a.result.Seed, 1000))
	a.measure()
	impatient := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(impatient, []byte("request.timeout.ms=1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	points := []string{"CreateTopics", "InitProducerID", "IncrementalAlterConfigs", "ListOffsets", "DescribeConfigs", "FindCoordinator", "Metadata", "ApiVersions", "Fetch", "Produce"}
	a.rand.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	for i := range number(t, 1, 50, 0) {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		name := points[i%len(points)]
		at := 1 + a.rand.IntN(max(1, a.requests[name]))
		forgotten := make(chan struct{})
		m.wire.watch(nil)
		m.wire.holdBack(func(seen string, nth int) <-chan struct{} {
			if seen != name || nth != at {
				return nil
			}
			a.result.Hits++
			a.result.Moments["no answer to "+name]++
			return forgotten
		})
		p := m.start("apply", "--command-config", impatient)
		code := p.wait()
		m.wire.counted()
		if code != 0 {
			a.result.Refusals++
			t.Errorf("no answer to %s %d: %v", name, at, p)
		} else {
			m.claim(p)
		}
		close(forgotten)
		m.conclude()
	}
}

// holdBack delays requests for as long as the channel is open that hold gives
// for them.
func (w *wireTap) holdBack(hold func(name string, nth int) <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = hold
}

// A second signal does not wait for anything.
func TestTortureSecondSignal(t *testing.T) {
	testcluster.RequireFake(t, "requests are held back")
	a := newArena(t, "apply: two signals")
	a.fill(tortured(a.result.Seed, 300))
	m := a.prepare()
	m.plan()
	release := make(chan struct{})
	defer close(release)
	p := m.hit(syscall.SIGTERM, func(strike func()) {
		m.wire.watch(nil)
		m.wire.holdBack(func(name string, _ int) <-chan struct{} {
			if name != "Produce" {
				return nil
			}
			strike()
			return release
		})
	})
	// The first one may be on its way still; the process takes any number.
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for done := false; !done; {
		select {
		case <-p.ended:
			done = true
		case <-again.C:
			_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
		}
	}
	a.result.Runs++
	if status := p.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		a.result.Failures++
		t.Errorf("the second signal did not end it: %v", p)
	}
	a.result.Hits++
	m.wire.counted()
}

// The bulk is copied while the job runs, extensions too, and the last one when it
// has stopped.
func TestTortureLiveSource(t *testing.T) {
	a := newArena(t, "plan --extend with a job that writes all the time")
	for range number(t, 1, 20, 5) {
		a.fill(tortured(a.rand.Uint64(), 1000))
		m := a.prepare()
		job := a.startJob()
		job.await(20)
		m.plan()
		for range 3 {
			job.await(20)
			p := m.start("apply", "--allow-live-source")
			if p.wait() != 0 {
				a.result.Refusals++
				t.Fatal(p)
			}
			a.look()
			m.demand.Captures = m.captures()
			m.claim(p)
			job.await(20)
			if p := m.start("verify"); p.wait() != 4 || !strings.Contains(p.stderr.String(), "still written to") {
				a.result.Failures++
				t.Errorf("verify with a job that runs: %v", p)
			}
			p = m.start("verify", "--allow-live-source")
			if p.wait() != 0 {
				a.result.Refusals++
				t.Error(p)
			}
			m.claim(p)
			if p := m.start("plan", "--extend"); p.wait() != 0 {
				a.result.Refusals++
				t.Fatal(p)
			}
			m.demand.Captures = m.captures()
			a.result.Hits++
		}
		job.stop()
		if p := m.start("plan", "--extend"); p.wait() != 0 {
			t.Fatal(p)
		}
		a.look()
		m.demand.Captures = m.captures()
		if last := m.demand.Captures[len(m.demand.Captures)-1]; !slices.Equal(last, a.ends) {
			t.Errorf("the last capture ends at %v, the source at %v", last, a.ends)
		}
		a.result.Runs++
		m.conclude()
	}
}

// job writes to the source until it is stopped.
type job struct {
	t        testing.TB
	cancel   context.CancelFunc
	progress chan struct{}
	ended    chan error
}

func (a *arena) startJob() *job {
	ctx, cancel := context.WithCancel(testcluster.Context(a))
	j := &job{t: a, cancel: cancel, progress: make(chan struct{}), ended: make(chan error, 1)}
	w := newSourceWriter(a)
	go func() {
		pace := time.NewTicker(2 * time.Millisecond) // or the topic outgrows the test
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				j.ended <- nil
				return
			case <-pace.C:
			}
			// Not ctx: a record is written or not, and then counts or does not.
			if err := w.write(context.WithoutCancel(ctx)); err != nil {
				j.ended <- err
				return
			}
			select {
			case j.progress <- struct{}{}:
			default:
			}
		}
	}()
	a.Cleanup(cancel)
	return j
}

// await returns when the job has written n more records.
func (j *job) await(n int) {
	j.t.Helper()
	for range n {
		select {
		case <-j.progress:
		case err := <-j.ended:
			j.t.Fatalf("the job ended: %v", err)
		}
	}
}

func (j *job) stop() {
	j.t.Helper()
	j.cancel()
	if err := <-j.ended; err != nil {
		j.t.Fatal(err)
	}
}
