package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"rekey/fixtures/kafka"
	"rekey/fixtures/seed"
)

//go:embed mirror.pom.xml
var mirrorPom []byte

var mirrorVersion = string(regexp.MustCompile(`<mirror\.version>(.+)</mirror\.version>`).FindSubmatch(mirrorPom)[1])

// java is the command line of a class of Kafka's. Tools log errors only.
func (l *lab) java(ctx context.Context, jars, heap, class string, args ...string) ([]string, error) {
	java, err := kafka.Java(ctx)
	if err != nil {
		return nil, err
	}
	logging := filepath.Join(l.dir, "log4j2.properties")
	if err := os.WriteFile(logging, []byte("status=error\nappender.out.type=Console\nappender.out.name=out\nappender.out.target=SYSTEM_ERR\nrootLogger.level=error\nrootLogger.appenderRef.out.ref=out\n"), 0o666); err != nil {
		return nil, err
	}
	return append([]string{java, "-Xmx" + heap, "-Dlog4j2.configurationFile=" + logging, "-cp", filepath.Join(jars, "*"), class}, args...), nil
}

// consumerPerf is Kafka's own tool that reads a topic. The time that counts is
// its own, without the start of the JVM and without joining a group.
func (l *lab) consumerPerf(ctx context.Context, source *seeded) (contestant, error) {
	jars, err := kafka.Fetch(ctx, "")
	if err != nil {
		return contestant{}, err
	}
	args, err := l.java(ctx, jars, "1g", "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", l.addrs, "--topic", source.topic,
		"--num-records", strconv.Itoa(source.Records), "--timeout", "60000", "--fetch-size", "4194304", "--hide-header",
		"--command-property", "fetch.max.bytes=104857600")
	return contestant{args: args, check: func(_ context.Context, output []byte) (told, error) { return parseConsumerPerf(output) }}, err
}

// parseConsumerPerf reads the line of figures: start, end, MB, MB/s, records,
// records/s, milliseconds of joining, milliseconds of fetching, and rates.
func parseConsumerPerf(output []byte) (told, error) {
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	fields := bytes.Split(lines[len(lines)-1], []byte(","))
	if len(fields) < 8 {
		return told{}, fmt.Errorf("no figures in %q", output)
	}
	records, err := strconv.ParseInt(string(bytes.TrimSpace(fields[4])), 10, 64)
	if err != nil {
		return told{}, err
	}
	ms, err := strconv.ParseFloat(string(bytes.TrimSpace(fields[7])), 64)
	return told{Records: records, Seconds: ms / 1000}, err
}

// producerPerf is Kafka's own tool that writes a topic: records of the source's
// contents without keys, which it spreads over the partitions, and which a compacted
// topic does not take.
func (l *lab) producerPerf(ctx context.Context, source *seeded, target string) (contestant, error) {
	jars, err := kafka.Fetch(ctx, "")
	if err != nil {
		return contestant{}, err
	}
	payload := filepath.Join(l.dir, source.topic+".payload")
	if err := writePayload(payload, source.Options); err != nil {
		return contestant{}, err
	}
	args, err := l.java(ctx, jars, "1g", "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", l.addrs, "--topic", target,
		"--num-records", strconv.Itoa(source.Records), "--throughput", "-1", "--payload-file", payload, "--reporting-interval", "3600000",
		"--command-property", "acks=all", "compression.type="+source.Codec.String(), "batch.size=1000000", "linger.ms=5", "buffer.memory=268435456")
	if err != nil {
		return contestant{}, err
	}
	return contestant{args: args, after: []string{target},
		before: func(ctx context.Context) error { return l.createTopic(ctx, target, source.Partitions, "delete") },
		check: func(ctx context.Context, output []byte) (told, error) {
			said, err := parseProducerPerf(output)
			if err != nil {
				return said, err
			}
			return l.counted(ctx, said, target, source)
		}}, nil
}

var producerPerfLine = regexp.MustCompile(`(\d+) records sent, ([0-9.]+) records/sec`)

func parseProducerPerf(output []byte) (told, error) {
	found := producerPerfLine.FindAllSubmatch(output, -1)
	if len(found) == 0 {
		return told{}, fmt.Errorf("no figures in %q", output)
	}
	last := found[len(found)-1]
	records, err := strconv.ParseInt(string(last[1]), 10, 64)
	if err != nil {
		return told{}, err
	}
	rate, err := strconv.ParseFloat(string(last[2]), 64)
	return told{Records: records, Seconds: float64(records) / rate}, err
}

// writePayload writes some records of a topic, one a line, unless it is there.
func writePayload(path string, o seed.Options) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	o.Records = min(o.Records, 10_000)
	var out bytes.Buffer
	for g := range seed.Generate(o) {
		out.Write(bytes.ReplaceAll(g.Key, []byte("\n"), []byte(" ")))
		out.Write(g.Value)
		out.WriteByte('\n')
	}
	return os.WriteFile(path, out.Bytes(), 0o666)
}

// mirrorMaker copies the topic from the cluster to itself, under the name that
// MirrorMaker gives it, until nothing is missing. It has no end of its own.
//
// The settings are those that its documentation and practice suggest for bulk:
// large fetches and batches, the source's compression, several tasks, nothing
// mirrored but the topic, and no waiting at the start. Connect's producers send
// one request at a time unless told otherwise.
func (l *lab) mirrorMaker(ctx context.Context, source *seeded, run int) (contestant, error) {
	jars, err := kafka.FetchJars(ctx, "", "mirror-", mirrorPom)
	if err != nil {
		return contestant{}, err
	}
	from, to := fmt.Sprintf("from%d", run), fmt.Sprintf("to%d", run)
	config := filepath.Join(l.dir, fmt.Sprintf("mirror-%d.properties", run))
	text := fmt.Sprintf(`clusters = %[1]s, %[2]s
%[1]s.bootstrap.servers = %[3]s
%[2]s.bootstrap.servers = %[3]s
%[1]s->%[2]s.enabled = true
%[1]s->%[2]s.topics = %[4]s
%[2]s->%[1]s.enabled = false
tasks.max = %[6]d
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
offset.storage.partitions = 1
status.storage.partitions = 1
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.group.offsets.enabled = false
sync.topic.acls.enabled = false
refresh.groups.enabled = false
refresh.topics.interval.seconds = 5
scheduled.rebalance.max.delay.ms = 0
%[1]s.consumer.fetch.max.bytes = 104857600
%[1]s.consumer.max.partition.fetch.bytes = 4194304
%[1]s.consumer.fetch.min.bytes = 1
%[1]s.consumer.max.poll.records = 10000
%[1]s.consumer.receive.buffer.bytes = 1048576
%[2]s.producer.compression.type = %[5]s
%[2]s.producer.batch.size = 1000000
%[2]s.producer.linger.ms = 5
%[2]s.producer.buffer.memory = 268435456
%[2]s.producer.max.request.size = 10485760
%[2]s.producer.enable.idempotence = true
%[2]s.producer.max.in.flight.requests.per.connection = 5
`, from, to, l.addrs, source.topic, source.Codec, min(4, source.Partitions))
	if err := os.WriteFile(config, []byte(text), 0o666); err != nil {
		return contestant{}, err
	}
	args, err := l.java(ctx, jars, "2g", "org.apache.kafka.connect.mirror.MirrorMaker", config, "--clusters", to)
	if err != nil {
		return contestant{}, err
	}
	target := from + "." + source.topic
	return contestant{args: args, after: []string{target},
		until: func(ctx context.Context) (time.Duration, error) {
			return l.untilCopied(ctx, target, source, mirrorPatience)
		},
		check: func(ctx context.Context, _ []byte) (told, error) { return l.counted(ctx, told{}, target, source) }}, nil
}

// mirrorPatience is how long a copy may make no progress.
const mirrorPatience = 2 * time.Minute

// untilCopied waits until a target has as many records as the source, and gives
// the time since it had its first.
func (l *lab) untilCopied(ctx context.Context, target string, source *seeded, patience time.Duration) (time.Duration, error) {
	var first time.Time
	seen, moved := int64(0), time.Now()
	for {
		records, err := l.count(ctx, target, source.Partitions)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			records = 0
		case err != nil:
			return 0, err
		}
		if records > seen {
			moved = time.Now()
			if seen == 0 {
				first = moved
			}
			seen = records
		}
		if seen >= int64(source.Records) {
			return time.Since(first), nil
		}
		if time.Since(moved) > patience {
			return 0, fmt.Errorf("nothing came for %s after %d of %d records", patience, seen, source.Records)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
