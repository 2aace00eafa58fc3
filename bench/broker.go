package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/broker"
	"rekey/fixtures/kafka"
	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

// serve runs the embedded broker until it is told to stop.
func serve(ctx context.Context, _ []string) error {
	b, err := broker.Start(broker.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Println(strings.Join(b.Addrs(), ","))
	<-ctx.Done()
	return nil
}

// lab is where measurements are made: a running broker, the product's binary and
// a folder for what the runs leave behind.
type lab struct {
	kafka   bool
	addrs   string
	client  *kgo.Client
	self    string // this program
	product string
	dir     string
	stop    func() error // of the broker
}

// newLab builds rekey and starts a broker in a process of its own.
func newLab(ctx context.Context, realKafka bool) (_ *lab, err error) {
	l := &lab{kafka: realKafka, stop: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if l.dir, err = os.MkdirTemp("", "rekey-bench-"); err != nil {
		return nil, err
	}
	l.product = l.dir + "/rekey"
	build := exec.CommandContext(ctx, "go", "build", "-o", l.product, ".")
	build.Dir = ".." // the product is another module
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build rekey: %w\n%s", err, output)
	}
	if realKafka {
		err = l.startKafka(ctx)
	} else {
		err = l.startEmbedded()
	}
	if err != nil {
		return nil, err
	}
	l.client, err = wire.Dial(strings.Split(l.addrs, ","))
	return l, err
}

func (l *lab) startKafka(ctx context.Context) error {
	// Targets are deleted after each turn; by default their files stay for a minute.
	cluster, err := kafka.Start(ctx, kafka.Options{Nodes: 1, Optimize: true, Heap: "2g", Properties: map[string]string{"log.segment.delete.delay.ms": "1000"}})
	if err != nil {
		return err
	}
	l.addrs, l.stop = strings.Join(cluster.Addrs(), ","), cluster.Stop
	return nil
}

func (l *lab) startEmbedded() error {
	server := exec.Command(l.self, "serve")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	l.stop = func() error {
		return errors.Join(server.Process.Signal(syscall.SIGTERM), server.Wait())
	}
	if _, err := fmt.Fscanln(out, &l.addrs); err != nil {
		return fmt.Errorf("the broker did not start: %w", err)
	}
	return nil
}

func (l *lab) close() error {
	if l.client != nil {
		l.client.Close()
	}
	return errors.Join(l.stop(), os.RemoveAll(l.dir))
}

func (l *lab) brokerName() string {
	if l.kafka {
		return "Apache Kafka " + kafka.Version()
	}
	return "embedded broker"
}

// seeded is the source topic: what was asked for and what came of it.
type seeded struct {
	topic string
	seed.Options
	summary seed.Summary
}

// seed fills a topic. It does so in a process of its own: Linux counts the
// memory of the process that starts another one as the other one's.
func (l *lab) seed(ctx context.Context, topic string, o seed.Options) (*seeded, error) {
	command := exec.CommandContext(ctx, l.self, append(append([]string{"seed"}, topicArgs(o)...), l.addrs, topic)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("seed the source: %w", err)
	}
	s := &seeded{topic: topic, Options: o}
	if err := json.Unmarshal(output, &s.summary); err != nil {
		return nil, fmt.Errorf("seed the source: %w", err)
	}
	return s, nil
}

// seedTopic is the process that fills a topic.
func seedTopic(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("seed", flag.ContinueOnError)
	o := seed.Options{Seed: 1, Step: 10}
	topicFlags(flags, &o)
	if err := flags.Parse(args); err != nil {
		return err
	}
	summary, err := seed.Write(ctx, strings.Split(flags.Arg(0), ","), flags.Arg(1), o, nil)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(summary)
}

// createTopic makes the target of a rival that cannot do so itself.
func (l *lab) createTopic(ctx context.Context, topic string, partitions int32, policy string) error {
	return seed.CreateTopic(ctx, l.client, topic, partitions, -1, map[string]string{"cleanup.policy": policy})
}

func (l *lab) deleteTopics(ctx context.Context, topics ...string) error {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = 30_000
	for _, name := range topics {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
		request.TopicNames = append(request.TopicNames, name) // up to version 5
	}
	response, err := request.RequestWith(ctx, l.client)
	if err != nil {
		return fmt.Errorf("delete %s: %w", strings.Join(topics, ", "), err)
	}
	for _, topic := range response.Topics {
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
			return fmt.Errorf("delete %s: %w", strings.Join(topics, ", "), err)
		}
	}
	return nil
}

// count is the number of offsets between log starts and ends: of a topic that
// was only appended to, its records.
func (l *lab) count(ctx context.Context, topic string, partitions int32) (int64, error) {
	ends, err := l.offsets(ctx, topic, partitions, -1)
	if err != nil {
		return 0, err
	}
	starts, err := l.offsets(ctx, topic, partitions, -2)
	return ends - starts, err
}

// offsets adds up an offset of all partitions: -1 their ends, -2 their starts.
func (l *lab) offsets(ctx context.Context, topic string, partitions int32, at int64) (int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = topic
	for p := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, at
		asked.Partitions = append(asked.Partitions, partition)
	}
	request.Topics = append(request.Topics, asked)
	response, err := request.RequestWith(ctx, l.client)
	if err != nil {
		return 0, fmt.Errorf("offsets of %s: %w", topic, err)
	}
	var sum int64
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, fmt.Errorf("offsets of %s partition %d: %w", topic, p.Partition, err)
			}
			sum += p.Offset
		}
	}
	return sum, nil
}
