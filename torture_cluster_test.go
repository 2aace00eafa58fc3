//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/kafka"
	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/torture"
	"rekey/fixtures/wire"
)

// Attacks on three nodes of Apache Kafka: what goes on in a cluster while rekey
// is at work, and what others do to its topics. They are judged as the attacks
// on the process are. In two ways it may end well: the brokers come back in time,
// and the migration gets to its end; or the world is another one, and whatever
// ends with 0 has left a target that is right all the same.
//
// Minutes, so only with REKEY_TORTURE; three runs of each unless REKEY_TORTURE_N
// says otherwise.
func TestTortureCluster(t *testing.T) {
	testcluster.RequireReal(t, "brokers end and come back, partitions move")
	if os.Getenv("REKEY_TORTURE") == "" {
		t.Skip("takes minutes: set REKEY_TORTURE=1")
	}
	f := startField(t)
	for _, attack := range []struct {
		test, name string
		run        func(*siege)
	}{
		{"Leaders", "leaders move", (*siege).leaders},
		{"Offline", "partitions without leader for 0.5 to 30 s", (*siege).offline},
		{"Frozen", "a broker stopped with SIGSTOP for 0.5 to 30 s", (*siege).frozen},
		{"Terminated", "brokers restarted one by one, SIGTERM", (*siege).terminated},
		{"Killed", "brokers restarted one by one, SIGKILL", (*siege).killed},
		{"InSync", "fewer replicas in sync than min.insync.replicas", (*siege).inSync},
		{"Reassigned", "replicas move to other brokers", (*siege).reassigned},
		{"KillBoth", "apply and a broker, both kill -9", (*siege).killBoth},
		{"Throttled", "quotas", (*siege).throttled},
		{"Truncated", "source truncated", (*siege).truncated},
		{"Foreign", "another writer on the target", (*siege).foreign},
		{"Configs", "topic settings changed", (*siege).configs},
		{"Topics", "topics deleted, re-created, with more partitions", (*siege).topics},
	} {
		t.Run(attack.test, func(t *testing.T) {
			a := newArenaOn(t, "cluster: "+attack.name, f.Cluster)
			a.result.Broker += ", 3 nodes"
			for n := range number(t, 0, 0, 3) {
				s := &siege{field: f, n: n}
				s.migration = &migration{arena: a}
				begin := time.Now()
				a.result.Runs++
				attack.run(s)
				s.heal()
				t.Logf("run %d took %.1f s", n+1, time.Since(begin).Seconds())
				s.clear()
			}
		})
	}
}

const fieldPartitions = 8

// field is the cluster that all attacks share, with the sources that none of
// them changes.
type field struct {
	*testcluster.Cluster
	client  *kgo.Client
	sources map[int]*quarry // by replication factor
	asleep  map[int]bool    // nodes
	limited []*string       // clients with quotas
}

// quarry is a source topic.
type quarry struct {
	topic    string
	records  []reader.Record
	ends     []int64
	bytes    int64
	demanded int64                    // records that belong on the target
	took     map[string]time.Duration // by phase, with nothing in the way
}

func startField(t *testing.T) *field {
	t.Helper()
	c := testcluster.StartWith(t, testcluster.Options{Brokers: 3, Properties: map[string]string{
		"default.replication.factor": "3",
		"min.insync.replicas":        "2",
		// A broker that is gone is noticed sooner, and what retention takes is gone at once.
		"broker.session.timeout.ms":       "3000",
		"broker.heartbeat.interval.ms":    "500",
		"log.retention.check.interval.ms": "300",
		"log.initial.task.delay.ms":       "300",
		// The model wants to see every record.
		"log.cleaner.min.compaction.lag.ms": testcluster.Forever,
	}})
	return &field{Cluster: c, client: c.Client(t), sources: map[int]*quarry{}, asleep: map[int]bool{}}
}

// siege is one run of an attack.
type siege struct {
	*field
	*migration
	n    int // of the run
	from *quarry
	id   [2][16]byte // the topics as they were: source, target
	slow []string    // flags of an apply that is to take its time
}

func (s *siege) nodes() *kafka.Cluster { return s.Cluster.Kafka() }

// quarry writes a source, once for each replication factor.
func (s *siege) quarry(replication int) *quarry {
	s.Helper()
	if q := s.sources[replication]; q != nil {
		return q
	}
	q := s.newQuarry(20_000, replication, map[string]string{"min.insync.replicas": fmt.Sprint(min(2, replication))})
	s.sources[replication] = q
	return q
}

func (s *siege) newQuarry(records, replication int, configs map[string]string) *quarry {
	s.Helper()
	o := tortured(s.result.Seed, records)
	o.Partitions = fieldPartitions
	q := &quarry{topic: s.Topic(s, "source"), took: map[string]time.Duration{}}
	ctx := testcluster.Context(s)
	if replication == 1 {
		// By default topics have three.
		s.must(seed.CreateTopic(ctx, s.client, q.topic, o.Partitions, 1, map[string]string{"cleanup.policy": "compact", "min.insync.replicas": "1"}))
		s.produce(q.topic, o)
	} else if _, err := seed.Write(ctx, s.Addrs(), q.topic, o, configs); err != nil {
		s.Fatal(err)
	}
	q.records = s.Read(s, q.topic)
	q.ends = ends(s, s.Cluster, q.topic)
	for _, r := range q.records {
		q.bytes += int64(len(r.Key) + len(r.Value) + 80)
	}
	s.measureQuarry(q)
	return q
}

// produce writes generated records to a topic that is there.
func (s *siege) produce(topic string, o seed.Options) {
	s.Helper()
	ctx := testcluster.Context(s)
	held := map[int32][]seed.Record{}
	flush := func(partition int32) {
		_, err := seed.ProduceBatch(ctx, s.client, topic, partition, seed.Batch{Records: held[partition]})
		s.must(err)
		held[partition] = nil
	}
	for g := range seed.Generate(o) {
		held[g.Partition] = append(held[g.Partition], g.Record)
		if len(held[g.Partition]) == 1000 {
			flush(g.Partition)
		}
	}
	for partition, records := range held {
		if len(records) > 0 {
			flush(partition)
		}
	}
}

// measureQuarry carries out a migration with nothing in the way.
func (s *siege) measureQuarry(q *quarry) {
	s.Helper()
	m := &siege{field: s.field, migration: &migration{arena: s.arena}}
	m.prepareFrom(q, "none", false)
	for _, phase := range []string{"plan", "apply", "verify"} {
		begin := time.Now()
		p := m.step(phase)
		if m.end(p) != 0 {
			s.Fatalf("with nothing in the way: %v", p)
		}
		q.took[phase] = time.Since(begin)
	}
	q.demanded = m.position() - fieldPartitions
	s.Logf("%s: %d records, %d bytes, %v", q.topic, len(q.records), q.bytes, q.took)
	m.delete(m.target)
}

// use prepares a migration of a quarry with options by chance.
func (s *siege) use(q *quarry) {
	align := "source-end"
	if s.rand.IntN(4) == 0 {
		align = "none"
	}
	s.prepareFrom(q, align, s.rand.IntN(4) == 0)
}

func (s *siege) prepareFrom(q *quarry, align string, copyBad bool) {
	s.from = q
	s.source, s.records, s.ends = q.topic, q.records, q.ends
	s.target, s.dir = s.Topic(s, "target"), filepath.Join(s.TempDir(), "run")
	s.demand = torture.Demand{Partitions: fieldPartitions, Align: align != "none", Copy: copyBad, Captures: [][]int64{q.ends}}
	policy := "quarantine"
	if copyBad {
		policy = "copy"
	}
	s.flags = []string{"--source", s.source, "--target", s.target, "--on-unparseable", policy, "--align", align, "--target-config", "max.message.bytes=32768"}
	s.id[0] = s.topicID(s.source)
	s.id[1] = [16]byte{}
}

// step starts a phase.
func (s *siege) step(phase string) *process {
	s.Helper()
	args := []string{phase}
	switch phase {
	case "plan":
		args = append(args, s.flags...)
	case "apply":
		args = append(args, s.slow...)
	}
	return s.start(args...)
}

// end waits for a process longer than rekey's patience with brokers can be.
func (s *siege) end(p *process) int {
	s.Helper()
	hang := time.AfterFunc(6*time.Minute, func() {
		s.Errorf("it hangs: %v", p.command)
		_ = p.Process.Kill() // it may have ended
	})
	defer hang.Stop()
	<-p.ended
	return p.ProcessState.ExitCode()
}

// await returns when a phase is somewhere in its middle, or false if it ended
// before.
func (s *siege) await(phase string, p *process) bool {
	s.Helper()
	if phase != "apply" {
		moment := time.NewTimer(time.Duration(0.7 * s.rand.Float64() * float64(s.from.took[phase])))
		defer moment.Stop()
		select {
		case <-moment.C:
			return true
		case <-p.ended:
			return false
		}
	}
	total := float64(s.from.demanded + fieldPartitions)
	if s.demand.Align {
		for _, end := range s.from.ends {
			total += float64(end)
		}
	}
	goal := int64((0.02 + 0.85*s.rand.Float64()) * total)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-p.ended:
			return false
		case <-look.C:
		}
		if s.position() >= goal {
			s.id[1] = s.topicID(s.target)
			return true
		}
	}
}

// position is how much the target holds, in all partitions together; 0 as long
// as nobody can say. Leaders are asked for each time: the client would remember
// for seconds that there is no such topic.
func (s *siege) position() int64 {
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	about, err := s.describe(s.target)
	if err != nil {
		return 0
	}
	byLeader := map[int32][]kmsg.ListOffsetsRequestTopicPartition{}
	for _, p := range about.Partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p.Partition, -1
		byLeader[p.Leader] = append(byLeader[p.Leader], partition)
	}
	var sum int64
	for leader, partitions := range byLeader {
		request := kmsg.NewPtrListOffsetsRequest()
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic, topic.Partitions = s.target, partitions
		request.Topics = append(request.Topics, topic)
		response, err := request.RequestWith(ctx, s.client.Broker(int(leader)))
		if err != nil {
			return 0
		}
		for _, topic := range response.Topics {
			for _, partition := range topic.Partitions {
				sum += max(0, partition.Offset)
			}
		}
	}
	return sum
}

// survive strikes in one of the phases, and the migration has to get to its end:
// by itself, or, if it gave up, with the same command when all is well again.
func (s *siege) survive(strike func(*process) string, phases ...string) {
	s.Helper()
	struck := phases[s.rand.IntN(len(phases))]
	for _, phase := range []string{"plan", "apply", "verify"} {
		p := s.step(phase)
		if phase == struck {
			s.hitIn(phase, p, strike)
		}
		if code := s.end(p); code != 0 {
			s.result.Refusals++
			s.result.Moments[fmt.Sprintf("%s refused with exit code %d", phase, code)]++
			s.Logf("refused: %v", p)
			s.heal()
			if phase == "plan" {
				s.dir = filepath.Join(s.TempDir(), "run")
			}
			if p = s.step(phase); s.end(p) != 0 {
				s.result.Failures++
				s.Errorf("refused again when all was well: %v", p)
				return
			}
		}
		if phase == struck {
			s.heal()
		}
		if phase != "plan" && !s.judge(p) {
			return
		}
	}
}

func (s *siege) hitIn(phase string, p *process, strike func(*process) string) bool {
	if !s.await(phase, p) {
		s.result.Late++
		return false
	}
	s.result.Hits++
	s.result.Moments[phase+": "+strike(p)]++
	return true
}

// refuse strikes in one of the phases so that the world is another one. Nothing
// may claim success from then on, unless what it left is right.
func (s *siege) refuse(strike func(*process) string, phases ...string) {
	s.Helper()
	struck, hit := phases[s.rand.IntN(len(phases))], false
	for i, phase := range []string{"plan", "apply", "verify", "apply", "verify"} {
		p := s.step(phase)
		var at time.Time // when a verify was struck
		if phase == struck && i < 3 {
			hit = s.hitIn(phase, p, func(p *process) string {
				if phase != "verify" {
					return strike(p)
				}
				// What comes after its last look concerns a verify no more. It
				// is over so soon that only one that stands still is certain
				// to be in its middle.
				_ = p.Process.Signal(syscall.SIGSTOP) // it may have ended
				defer func() { _ = p.Process.Signal(syscall.SIGCONT) }()
				at = time.Now()
				return strike(p)
			})
		}
		code := s.end(p)
		switch {
		case code == 0 && !at.IsZero() && s.finished(p).Before(at):
			s.result.Hits--
			s.result.Late++
		case code == 0 && phase != "plan":
			s.heal()
			if !s.judge(p) {
				return
			}
		case code == 0 && hit:
			// The plan may be about what was left when it began.
			s.records = s.captured()
		case code == 0:
		case !hit:
			s.result.Refusals++
			s.Errorf("nothing was in the way: %v", p)
			return
		default:
			s.result.Moments[fmt.Sprintf("%s refused with exit code %d", phase, code)]++
			s.Logf("%d: %s", code, lastLine(p.stderr.String()))
			if phase == "plan" {
				return // nothing that the others could go by
			}
		}
	}
}

// finished is when a phase says that it was through.
func (s *siege) finished(p *process) time.Time {
	s.Helper()
	var evidence struct {
		At time.Time `json:"finished_at"`
	}
	s.must(json.Unmarshal(p.stdout.Bytes(), &evidence))
	if evidence.At.IsZero() {
		s.Fatalf("it does not say when: %v", p)
	}
	return evidence.At
}

// captured are the source's records from where the plan began to read.
func (s *siege) captured() []reader.Record {
	s.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "plan.json"))
	s.must(err)
	var plan struct {
		Captures []struct {
			Starts []int64 `json:"log_starts"`
		} `json:"captures"`
	}
	s.must(json.Unmarshal(content, &plan))
	if len(plan.Captures) != 1 || len(plan.Captures[0].Starts) != fieldPartitions {
		s.Fatalf("a plan without log starts: %s", content)
	}
	return slices.DeleteFunc(slices.Clone(s.records), func(r reader.Record) bool {
		return r.Offset < plan.Captures[0].Starts[r.Partition]
	})
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// judge demands that an exit with 0 is justified: by the model, and by the
// topics, which must be those of the plan and keep what was written.
func (s *siege) judge(p *process) bool {
	s.Helper()
	var problems []string
	for i, topic := range []string{s.source, s.target} {
		about, err := s.describe(topic)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", topic, err))
			continue
		}
		if s.id[i] != [16]byte{} && about.TopicID != s.id[i] {
			problems = append(problems, topic+" is another topic")
		}
		if len(about.Partitions) != fieldPartitions {
			problems = append(problems, fmt.Sprintf("%s has %d partitions", topic, len(about.Partitions)))
		}
	}
	if len(problems) == 0 {
		configs, err := seed.DescribeConfig(testcluster.Context(s), s.client, s.target)
		s.must(err)
		for name, want := range map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"} {
			if value := configs[name].Value; value == nil || *value != want {
				problems = append(problems, fmt.Sprintf("%s is not %s", name, want))
			}
		}
		problems = append(problems, s.demand.Problems(s.records, s.Read(s, s.target))...)
	}
	if len(problems) == 0 {
		return true
	}
	s.result.FalseSuccess++
	s.result.Failures++
	s.Errorf("false success with %q: %d problems: %q\n%v", s.flags, len(problems), problems[:min(5, len(problems))], p)
	return false
}

// describe asks for a topic.
func (s *siege) describe(name string) (kmsg.MetadataResponseTopic, error) {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(testcluster.Context(s), s.client)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	if len(response.Topics) != 1 {
		return kmsg.MetadataResponseTopic{}, errors.New("the answer names no topic")
	}
	return response.Topics[0], kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

func (s *siege) topicID(name string) [16]byte {
	s.Helper()
	about, err := s.describe(name)
	s.must(err)
	return about.TopicID
}

func (s *siege) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// heal brings everything back that an attack took away, and waits until all
// replicas are in sync.
func (s *siege) heal() {
	s.Helper()
	for id := range s.asleep {
		s.thaw(id)
	}
	var down []int
	for id := 1; id <= 3; id++ {
		if !s.nodes().Running(id) {
			down = append(down, id)
		}
	}
	s.restart(down...)
	for _, client := range s.limited {
		s.quota(client, nil)
	}
	s.limited = nil
	s.awaitSync()
}

// awaitSync waits until all replicas of the topics are in sync.
func (s *siege) awaitSync() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	err := wire.Poll(ctx, func() (bool, error) {
		for _, topic := range []string{s.source, s.target} {
			if topic == "" {
				continue
			}
			about, err := s.describe(topic)
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				continue
			}
			if err != nil {
				return false, err
			}
			for _, p := range about.Partitions {
				if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
					return false, fmt.Errorf("%s-%d has leader %d, replicas %v, in sync %v", topic, p.Partition, p.Leader, p.Replicas, p.ISR)
				}
			}
		}
		return true, nil
	})
	if err != nil {
		s.Fatalf("the cluster does not heal: %v", err)
	}
}

func (s *siege) restart(ids ...int) {
	s.Helper()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
	defer cancel()
	s.must(s.nodes().Restart(ctx, ids...))
}

func (s *siege) freeze(id int) {
	s.Helper()
	s.must(s.nodes().Freeze(id))
	s.asleep[id] = true
}

func (s *siege) thaw(id int) {
	s.Helper()
	s.must(s.nodes().Thaw(id))
	delete(s.asleep, id)
}

// clear deletes what the run leaves behind.
func (s *siege) clear() {
	s.Helper()
	topics := []string{s.target}
	if s.from != nil && !slices.Contains([]*quarry{s.sources[1], s.sources[3]}, s.from) && s.from.took["apply"] > 0 {
		topics = append(topics, s.source)
	}
	for _, topic := range topics {
		s.delete(topic)
	}
}

// delete deletes a topic, if it is there, and waits until it is gone.
func (s *siege) delete(topic string) {
	s.Helper()
	ctx := testcluster.Context(s)
	err := wire.Poll(ctx, func() (bool, error) {
		request := kmsg.NewPtrDeleteTopicsRequest()
		request.TimeoutMillis, request.TopicNames = 30_000, []string{topic}
		one := kmsg.NewDeleteTopicsRequestTopic()
		one.Topic = &topic
		request.Topics = append(request.Topics, one)
		response, err := request.RequestWith(ctx, s.client)
		if err == nil {
			err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return true, nil
		}
		return false, err
	})
	s.must(err)
}

// someTime lasts between two durations: an attack takes its time.
func (s *siege) someTime(from, to time.Duration) time.Duration {
	d := from + time.Duration(s.rand.Float64()*float64(to-from))
	time.Sleep(d)
	return d
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// slowly makes a phase last for about as long as given, for attacks that take
// long themselves, and gives the flags that do so.
func (s *siege) slowly(lasting time.Duration) []string {
	s.Helper()
	client := "slow"
	rate := float64(s.from.bytes) / 3 / lasting.Seconds()
	s.quota(&client, map[string]float64{"producer_byte_rate": rate, "consumer_byte_rate": 2 * rate})
	file := filepath.Join(s.TempDir(), "client.properties")
	s.must(os.WriteFile(file, []byte("client.id="+client+"\n"), 0o600))
	return []string{"--command-config", file}
}

// quota sets the quotas of a client, of any for nil, or removes them.
func (s *siege) quota(client *string, values map[string]float64) {
	s.Helper()
	request := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entity := kmsg.NewAlterClientQuotasRequestEntryEntity()
	entity.Type, entity.Name = "client-id", client
	entry.Entity = append(entry.Entity, entity)
	for _, key := range []string{"producer_byte_rate", "consumer_byte_rate", "request_percentage"} {
		value, set := values[key]
		op := kmsg.NewAlterClientQuotasRequestEntryOp()
		op.Key, op.Value, op.Remove = key, math.Ceil(value), !set // a fraction of a byte is refused
		entry.Ops = append(entry.Ops, op)
	}
	request.Entries = append(request.Entries, entry)
	response, err := request.RequestWith(testcluster.Context(s), s.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Entries[0].ErrorCode)
	}
	s.must(err)
	if values != nil {
		s.limited = append(s.limited, client)
	}
}

// reassign gives each partition of a topic the replicas that choose returns.
func (s *siege) reassign(topic string, choose func(rand *rand.Rand) []int32) {
	s.Helper()
	request := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	request.TimeoutMillis = 30_000
	one := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	one.Topic = topic
	for n := range int32(fieldPartitions) {
		partition := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		partition.Partition, partition.Replicas = n, choose(s.rand)
		one.Partitions = append(one.Partitions, partition)
	}
	request.Topics = append(request.Topics, one)
	response, err := request.RequestWith(testcluster.Context(s), s.client)
	s.must(err)
	err = kerr.ErrorForCode(response.ErrorCode)
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(partition.ErrorCode))
		}
	}
	s.must(err)
}

// elect makes the first replica of each partition its leader.
func (s *siege) elect(topic string) {
	s.Helper()
	request := kmsg.NewPtrElectLeadersRequest()
	request.TimeoutMillis = 30_000
	one := kmsg.NewElectLeadersRequestTopic()
	one.Topic = topic
	for n := range int32(fieldPartitions) {
		one.Partitions = append(one.Partitions, n)
	}
	request.Topics = append(request.Topics, one)
	response, err := request.RequestWith(testcluster.Context(s), s.client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	s.must(err)
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			// One that is not in sync at this moment cannot lead.
			err := kerr.ErrorForCode(partition.ErrorCode)
			if err != nil && !errors.Is(err, kerr.ElectionNotNeeded) && !errors.Is(err, kerr.PreferredLeaderNotAvailable) {
				s.Errorf("elect a leader of %s-%d: %v", topic.Topic, partition.Partition, err)
			}
		}
	}
}

func brokers(n int) func(*rand.Rand) []int32 {
	return func(r *rand.Rand) []int32 {
		ids := []int32{1, 2, 3}
		r.Shuffle(3, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		return ids[:n]
	}
}

// topicsThere are source and, if it exists by now, target.
func (s *siege) topicsThere() []string {
	s.Helper()
	if _, err := s.describe(s.target); err == nil {
		return []string{s.source, s.target}
	}
	return []string{s.source}
}

func (s *siege) leaders() {
	s.use(s.quarry(3))
	s.survive(func(p *process) string {
		rounds := 0
		for ; p.running() && rounds < 20; rounds++ {
			for _, topic := range s.topicsThere() {
				s.reassign(topic, brokers(3))
				s.elect(topic)
			}
			s.someTime(0, 500*time.Millisecond)
		}
		return "leaders of all partitions moved"
	}, "plan", "apply", "apply", "verify")
}

// reassigned leaves each partition with two replicas on other brokers, again and
// again, and with three in the end.
func (s *siege) reassigned() {
	s.use(s.quarry(3))
	s.survive(func(p *process) string {
		for round := 0; p.running() && round < 20; round++ {
			for _, topic := range s.topicsThere() {
				s.reassign(topic, brokers(2))
			}
			s.someTime(0, time.Second)
		}
		for _, topic := range s.topicsThere() {
			s.reassign(topic, brokers(3))
		}
		return "replicas of all partitions moved"
	}, "plan", "apply", "apply", "verify")
}

// offline kills a broker that has the only replica of partitions.
func (s *siege) offline() {
	side, replication := "source", 1
	if s.rand.IntN(2) == 0 {
		side, replication = "target", 3
	}
	s.use(s.quarry(replication))
	settings := map[string]string{"cleanup.policy": "compact", "min.insync.replicas": "1", "max.message.bytes": "32768"}
	s.must(seed.CreateTopic(testcluster.Context(s), s.client, s.target, fieldPartitions, int16(4-replication), settings))
	s.flags = append(s.flags, "--target-config", "min.insync.replicas=1")
	phases := []string{"apply", "apply", "verify"}
	if side == "source" {
		phases = append(phases, "plan")
	}
	s.survive(func(*process) string {
		id := 1 + s.rand.IntN(3)
		s.must(s.nodes().Kill(id))
		s.someTime(500*time.Millisecond, 25*time.Second) // and what the start takes
		s.restart(id)
		return side + " partitions without leader"
	}, phases...)
}

// frozen stops a broker for less or more than what the others wait for it.
func (s *siege) frozen() {
	s.use(s.quarry(3))
	s.survive(func(*process) string {
		id := 1 + s.rand.IntN(3)
		s.freeze(id)
		d := s.someTime(500*time.Millisecond, 30*time.Second)
		s.thaw(id)
		if d > 3*time.Second {
			return "a broker silent for more than 3 s"
		}
		return "a broker silent for less than 3 s"
	}, "plan", "apply", "apply", "verify")
}

// terminated and killed restart one broker after the other while an apply that
// takes its time goes on.
func (s *siege) terminated() { s.rolling("SIGTERM", s.nodes().StopNode) }
func (s *siege) killed()     { s.rolling("SIGKILL", s.nodes().Kill) }

func (s *siege) rolling(how string, stop func(int) error) {
	s.use(s.quarry(3))
	s.slow = s.slowly(30 * time.Second)
	s.survive(func(p *process) string {
		order := s.rand.Perm(3)
		for n, i := range order {
			if !p.running() {
				return fmt.Sprintf("%d brokers restarted by %s", n, how)
			}
			s.must(stop(i + 1))
			s.someTime(0, 4*time.Second)
			s.restart(i + 1)
			s.awaitSync()
		}
		return fmt.Sprintf("%d brokers restarted by %s", len(order), how)
	}, "apply")
}

// inSync leaves partitions with fewer replicas in sync than they need: by a
// setting that wants all three, or by taking two brokers away.
func (s *siege) inSync() {
	s.use(s.quarry(3))
	if s.rand.IntN(2) == 0 {
		s.survive(func(*process) string {
			id := 1 + s.rand.IntN(3)
			s.must(s.nodes().Kill(id))
			s.AlterConfig(s, s.target, map[string]string{"min.insync.replicas": "3"})
			s.someTime(5*time.Second, 15*time.Second) // the others notice after 3
			s.restart(id)
			s.awaitSync()
			s.AlterConfig(s, s.target, map[string]string{"min.insync.replicas": "2"})
			return "2 in sync, min.insync.replicas 3"
		}, "apply")
		return
	}
	s.survive(func(*process) string {
		gone := s.rand.Perm(3)[:2]
		for _, i := range gone {
			s.must(s.nodes().Kill(i + 1))
		}
		s.someTime(2*time.Second, 15*time.Second)
		s.restart(gone[0]+1, gone[1]+1)
		return "two of three brokers gone"
	}, "apply", "apply", "verify")
}

// killBoth kills an apply and a broker in the same moment, and resumes.
func (s *siege) killBoth() {
	s.use(s.quarry(3))
	if p := s.step("plan"); s.end(p) != 0 {
		s.Fatal(p)
	}
	p := s.step("apply")
	if s.await("apply", p) {
		id := 1 + s.rand.IntN(3)
		_ = p.Process.Kill() // it may have ended
		s.must(s.nodes().Kill(id))
		s.restart(id)
		s.awaitSync()
	}
	switch code := s.end(p); {
	case p.killed():
		s.result.Hits++
		s.result.Moments["apply: both killed"]++
	case code == 0:
		s.result.Late++
		if !s.judge(p) {
			return
		}
	default:
		s.result.Refusals++
		s.Errorf("killed: %v", p)
	}
	for _, phase := range []string{"apply", "verify"} {
		p := s.step(phase)
		// And the one that resumes meets a broker that goes away.
		if phase == "apply" && s.rand.IntN(2) == 0 && s.await(phase, p) {
			s.result.ResumeHits++
			s.result.Hits++
			s.result.Moments["apply: a broker killed as it resumes"]++
			id := 1 + s.rand.IntN(3)
			s.must(s.nodes().Kill(id))
			s.restart(id)
		}
		if s.end(p) != 0 {
			s.result.Refusals++
			s.result.Failures++
			s.Errorf("it does not resume: %v", p)
			return
		}
		s.heal()
		if !s.judge(p) {
			return
		}
	}
}

// throttled sets quotas for all clients. That is slow, and no more than that.
func (s *siege) throttled() {
	s.use(s.quarry(3))
	rate := float64(s.from.bytes) / 3 / 10
	quotas := []map[string]float64{
		{"producer_byte_rate": rate},
		{"consumer_byte_rate": rate},
		{"request_percentage": 1},
		{"producer_byte_rate": rate, "consumer_byte_rate": rate, "request_percentage": 2},
	}
	limits := quotas[s.n%len(quotas)]
	phases := []string{"apply"}
	if len(limits) > 1 || limits["producer_byte_rate"] == 0 {
		phases = append(phases, "plan", "verify")
	}
	s.survive(func(*process) string {
		s.quota(nil, limits)
		return "quotas: " + strings.Join(slices.Sorted(maps.Keys(limits)), ", ")
	}, phases...)
}

// truncated removes the beginning of the source, by hand or by retention.
func (s *siege) truncated() {
	s.use(s.newQuarry(8_000, 3, map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "-1"}))
	s.refuse(func(*process) string {
		if s.rand.IntN(4) == 0 {
			s.AlterConfig(s, s.source, map[string]string{"retention.ms": "1000"})
			s.awaitTruncation()
			return "retention took the source's records"
		}
		partition := int32(s.rand.IntN(fieldPartitions))
		s.DeleteRecords(s, s.source, partition, 1+s.rand.Int64N(s.from.ends[partition]))
		return "the source's records deleted"
	}, "plan", "apply", "apply", "verify")
}

// awaitTruncation waits until a log start of the source has moved.
func (s *siege) awaitTruncation() {
	s.Helper()
	ctx := testcluster.Context(s)
	s.must(wire.Poll(ctx, func() (bool, error) {
		ranges, err := reader.Ranges(ctx, s.Addrs(), s.source)
		for _, r := range ranges {
			if r.Start > 0 {
				return true, nil
			}
		}
		return false, err
	}))
}

// foreign writes to the target: a record of somebody else's, or one that looks
// as if it were rekey's own.
func (s *siege) foreign() {
	s.use(s.quarry(3))
	s.refuse(func(*process) string {
		r := seed.Record{Partition: int32(s.rand.IntN(fieldPartitions)), Timestamp: 1_767_225_600_000, Key: []byte("a_1"), Value: []byte("foreign")}
		what := "a foreign record"
		if s.rand.IntN(2) == 0 {
			of := s.records[s.rand.IntN(len(s.records))]
			r.Key, r.Value = of.Key, of.Value
			r.Headers = []seed.Header{{Key: "rekey-source", Value: fmt.Appendf(nil, "%d:%d", of.Partition, of.Offset)}}
			what = "a record with a forged provenance"
		}
		if r.Key == nil {
			r.Key = []byte("a_1")
		}
		_, err := seed.ProduceBatch(testcluster.Context(s), s.client, s.target, r.Partition, seed.Batch{Records: []seed.Record{r}})
		s.must(err)
		return what
	}, "apply", "apply", "verify")
}

// configs changes settings of the target for good, for a moment, or so that
// what is there goes away.
func (s *siege) configs() {
	s.use(s.quarry(3))
	changes := []struct {
		what  string
		to    map[string]string
		again map[string]string // a moment later
	}{
		{what: "message.timestamp.type LogAppendTime", to: map[string]string{"message.timestamp.type": "LogAppendTime"}},
		{what: "cleanup.policy delete, short retention", to: map[string]string{"cleanup.policy": "delete", "retention.ms": "1000"}},
		{what: "max.message.bytes lowered", to: map[string]string{"max.message.bytes": "1000"}},
		{what: "message.timestamp.type for a moment", to: map[string]string{"message.timestamp.type": "LogAppendTime"}, again: map[string]string{"message.timestamp.type": "CreateTime"}},
		{what: "cleanup.policy compact,delete, short retention", to: map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "1000"}},
		{what: "min.insync.replicas raised", to: map[string]string{"min.insync.replicas": "3"}},
	}
	change := changes[s.n%len(changes)]
	s.refuse(func(*process) string {
		s.AlterConfig(s, s.target, change.to)
		if change.again != nil {
			s.someTime(0, 500*time.Millisecond)
			s.AlterConfig(s, s.target, change.again)
		}
		return change.what
	}, "apply")
}

// topics deletes topics, makes them anew and gives them more partitions.
func (s *siege) topics() {
	changes := []struct {
		what   string
		source bool
		do     func(topic string)
	}{
		{"target re-created", false, s.recreate},
		{"source with one partition more", true, s.grow},
		{"target with one partition more", false, s.grow},
		{"source re-created", true, s.recreate},
		{"target deleted", false, s.delete},
		{"source deleted", true, s.delete},
	}
	change := changes[s.n%len(changes)]
	phases := []string{"apply"}
	if change.source {
		s.use(s.newQuarry(8_000, 3, nil))
		phases = append(phases, "plan", "verify")
	} else {
		s.use(s.quarry(3))
	}
	s.refuse(func(*process) string {
		topic := s.target
		if change.source {
			topic = s.source
		}
		change.do(topic)
		return change.what
	}, phases...)
}

// recreate makes a topic anew, with the same settings; a source also with the
// same records.
func (s *siege) recreate(topic string) {
	s.Helper()
	ctx := testcluster.Context(s)
	all, err := seed.DescribeConfig(ctx, s.client, topic)
	s.must(err)
	settings := map[string]string{}
	for name, config := range all {
		if config.Source == kmsg.ConfigSourceDynamicTopicConfig && config.Value != nil {
			settings[name] = *config.Value
		}
	}
	s.delete(topic)
	s.must(seed.CreateTopic(ctx, s.client, topic, fieldPartitions, -1, settings))
	if topic == s.source {
		by := map[int32][]seed.Record{}
		for _, r := range s.records {
			by[r.Partition] = append(by[r.Partition], r)
		}
		for partition, records := range by {
			for batch := range slices.Chunk(records, 1000) {
				_, err := seed.ProduceBatch(ctx, s.client, topic, partition, seed.Batch{Records: batch})
				s.must(err)
			}
		}
	}
}

// grow gives a topic one partition more.
func (s *siege) grow(topic string) {
	s.Helper()
	request := kmsg.NewPtrCreatePartitionsRequest()
	request.TimeoutMillis = 30_000
	one := kmsg.NewCreatePartitionsRequestTopic()
	one.Topic, one.Count = topic, fieldPartitions+1
	request.Topics = append(request.Topics, one)
	response, err := request.RequestWith(testcluster.Context(s), s.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	s.must(err)
}
