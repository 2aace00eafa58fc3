package migrate

import (
	"encoding/binary"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/rewrite"
)

// atPhase calls something once, as a part of the work begins.
type atPhase struct {
	NoProgress
	name string // how the part's name begins
	do   func()
	once sync.Once
}

func (p *atPhase) Phase(name string, _ int64) {
	if strings.HasPrefix(name, p.name) {
		p.once.Do(p.do)
	}
}

// addPartition gives a topic one partition more.
func (m *migration) addPartition(t testing.TB, topic string) {
	t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 30_000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, int32(len(m.ends(t, topic)))+1
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(testcluster.Context(t), m.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.ends(t, topic) // waits for the new one's leader
}

// Each way in which others can change the target between the first record and
// the last: whoever reads it while it is written has checked it already, so only
// a look at it afterwards shows that the copy is not what was asked for.
func TestTargetChangesWhileItIsWritten(t *testing.T) {
	settings := func(values map[string]string) func(*testing.T, *migration) {
		return func(t *testing.T, m *migration) { m.cluster.AlterConfig(t, m.target, values) }
	}
	for _, c := range []struct {
		name   string
		change func(*testing.T, *migration)
		text   string
	}{
		{name: "a foreign record", change: func(t *testing.T, m *migration) {
			m.write(t, m.target, []reader.Record{{Partition: 1, Timestamp: 1_767_225_600_000, Key: []byte("k"), Value: []byte("v")}})
		}, text: "another program writes to"},
		{name: "re-created", change: func(t *testing.T, m *migration) {
			evidence := m.env.runDir(m.run.RunDir).path(applyFileName)
			kept, err := os.ReadFile(evidence)
			if err != nil {
				t.Fatal(err)
			}
			m.replace(t, m.target, 2, nil)
			if err := os.WriteFile(evidence, kept, 0o644); err != nil {
				t.Fatal(err)
			}
		}, text: "re-created"},
		{name: "one partition more", change: func(t *testing.T, m *migration) { m.addPartition(t, m.target) }, text: "has 3 partitions, the plan is for 2"},
		{name: "records deleted", change: func(t *testing.T, m *migration) {
			m.cluster.DeleteRecords(t, m.target, 0, -1)
		}, text: "log start"},
		{name: "cleanup policy", change: settings(map[string]string{"cleanup.policy": "delete", "retention.ms": "604800000"}), text: `cleanup.policy is "delete"`},
		{name: "retention", change: settings(map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "604800000"}), text: "cleanup.policy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMigration(t, testcluster.Start(t), tinyTopic(), nil)
			m.plan(t)
			env := m.env
			env.Progress = &atPhase{name: "copy to", do: func() { c.change(t, m) }}
			_, err := Apply(testcluster.Context(t), m.run, env)
			refused(t, err, 4, m.target, c.text)
			if Advice(err) == "" {
				t.Errorf("no advice with %q", err)
			}
			// Nor does anything that comes after take it for a good copy.
			for _, phase := range phases {
				if err := phase.run(t, m); err == nil {
					t.Errorf("afterwards, %s accepts it", phase.name)
				}
			}
		})
	}
}

// The same while verify reads: what it says is about the target as it was, so it
// says nothing if that is not the target as it is.
func TestTargetChangesWhileItIsVerified(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*testing.T, *migration)
		text   string
	}{
		{name: "a foreign record", change: func(t *testing.T, m *migration) {
			m.write(t, m.target, []reader.Record{{Partition: 1, Timestamp: 1_767_225_600_000, Key: []byte("k"), Value: []byte("v")}})
		}, text: "another program writes to"},
		{name: "one partition more", change: func(t *testing.T, m *migration) { m.addPartition(t, m.target) }, text: "has 3 partitions, the plan is for 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMigration(t, testcluster.Start(t), tinyTopic(), nil)
			m.planAndApply(t)
			env := m.env
			env.Progress = &atPhase{name: "verify", do: func() { c.change(t, m) }}
			v, err := Verify(testcluster.Context(t), m.run, env)
			refused(t, err, 4, m.target, c.text)
			if v != nil && v.Equal {
				t.Error("the evidence says that they are equal")
			}
		})
	}
}

// A plan is about the source as it was scanned; with more partitions it is
// another one.
func TestSourceGetsPartitionsWhileItIsPlanned(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), tinyTopic(), nil)
	env := m.env
	env.Progress = &atPhase{name: "scan", do: func() { m.addPartition(t, m.source) }}
	_, err := Plan(testcluster.Context(t), m.options, env)
	refused(t, err, 4, m.source, "3 partitions")
}

// A newcomer that takes the lock as the last record is written is no foreign
// program: its padding shows, and so does that this apply has lost the lock.
func TestNewcomerAsTheCopyEnds(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), tinyTopic(), nil)
	m.plan(t)
	env := m.env
	env.Progress = &atDone{name: "copy to", do: func() {
		if _, err := seed.InitProducer(testcluster.Context(t), m.client, lockName(m.target, rewrite.Whole)); err != nil {
			t.Error(err)
		}
		m.apply(t)
	}}
	_, err := Apply(testcluster.Context(t), m.run, env)
	refused(t, err, 4, "another apply of this target took over")
	m.verify(t)
	m.check(t)
}

// The same for a shard, which has a lock of its own. Before it gets to shut out
// the whole, its padding says who it is.
func TestShardAsTheCopyEnds(t *testing.T) {
	m := newMigration(t, testcluster.Start(t), tinyTopic(), nil)
	m.plan(t)
	padding := reader.Record{Timestamp: 1, Key: []byte(m.model(t).paddingKey()), Headers: []reader.Header{{Key: "rekey-source", Value: []byte("padding:0/2")}}}
	env := m.env
	env.Progress = &atDone{name: "copy to", do: func() { m.write(t, m.target, []reader.Record{padding}) }}
	_, err := Apply(testcluster.Context(t), m.run, env)
	refused(t, err, 4, "another apply of this target took over")
	m.apply(t)
	m.verify(t)
	m.check(t)
}

// atDone calls something once, as a part of the work ends.
type atDone struct {
	NoProgress
	name string
	mu   sync.Mutex
	now  bool
	do   func()
	once sync.Once
}

func (p *atDone) Phase(name string, _ int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = strings.HasPrefix(name, p.name)
}

func (p *atDone) Done() {
	p.mu.Lock()
	now := p.now
	p.mu.Unlock()
	if now {
		p.once.Do(p.do)
	}
}

// Acknowledged records that are not there any more, as after the election of a
// replica that had not got them, are no success.
func TestAcknowledgedRecordsAreLost(t *testing.T) {
	testcluster.RequireFake(t, "the broker says that the log is shorter than it is")
	m := newMigration(t, testcluster.Start(t), tinyTopic(), nil)
	m.plan(t)
	fake := m.cluster.Fake().Cluster()
	env := m.env
	env.Progress = &atDone{name: "copy to", do: func() {
		fake.ControlKey(kmsg.ListOffsets.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			request := r.(*kmsg.ListOffsetsRequest)
			response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
			if request.Topics[0].Topic != m.target {
				return nil, nil, false
			}
			for _, topic := range request.Topics {
				answer := kmsg.NewListOffsetsResponseTopic()
				answer.Topic = topic.Topic
				for _, partition := range topic.Partitions {
					one := kmsg.NewListOffsetsResponseTopicPartition()
					one.Partition, one.Offset = partition.Partition, 0
					if partition.Timestamp == -1 {
						one.Offset = 1
					}
					answer.Partitions = append(answer.Partitions, one)
				}
				response.Topics = append(response.Topics, answer)
			}
			return response, nil, true
		})
	}}
	_, err := Apply(testcluster.Context(t), m.run, env)
	refused(t, err, 4, m.target, "ends at 1 although the brokers acknowledged")
}

// A broker that stamps records is caught at the first batch, even where the
// setting is back before anybody looks. The timestamp that comes with a batch
// that the broker had already is the batch's own.
func TestBrokerStampsRecords(t *testing.T) {
	testcluster.RequireFake(t, "answers are made up")
	for _, c := range []struct {
		name  string
		stamp func(newest int64) int64
		exit  int
	}{
		{"its own time", func(newest int64) int64 { return newest + 1 }, 4},
		{"the batch's own", func(newest int64) int64 { return newest }, 0},
		{"none", func(int64) int64 { return -1 }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			broker := testcluster.Start(t)
			w := newWriterTopic(t, broker, 1, nil)
			fake := broker.Fake().Cluster()
			fake.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				request := r.(*kmsg.ProduceRequest)
				partition := request.Topics[0].Partitions[0]
				response := request.ResponseKind().(*kmsg.ProduceResponse)
				topic := kmsg.NewProduceResponseTopic()
				topic.Topic = request.Topics[0].Topic
				one := kmsg.NewProduceResponseTopicPartition()
				one.Partition = partition.Partition
				// The newest timestamp stands 35 bytes into a batch.
				one.LogAppendTime = c.stamp(int64(binary.BigEndian.Uint64(partition.Records[35:])))
				topic.Partitions = append(topic.Partitions, one)
				response.Topics = append(response.Topics, topic)
				return response, nil, true
			})
			writer := newTopicWriter(w.cluster, w.name, 1, producer{id: 1, since: time.Now()}, sarama.CompressionNone, 1<<20)
			err := writer.Write(t.Context(), 0, &rewrite.Record{Timestamp: 5, Key: []byte("k")})
			if err == nil {
				err = writer.Write(t.Context(), 0, &rewrite.Record{Timestamp: 3, Key: []byte("k")})
			}
			if err == nil {
				err = writer.Flush(t.Context())
			}
			if closeErr := writer.Close(); err == nil {
				err = closeErr
			}
			if ExitCode(err) != c.exit {
				t.Errorf("exit code %d, want %d: %v", ExitCode(err), c.exit, err)
			}
		})
	}
}
