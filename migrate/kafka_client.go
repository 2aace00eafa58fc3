package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/rcrowley/go-metrics"
)

// The client library counts every request in a metrics registry unless told
// not to before the first client exists. Nobody reads those counts here, and
// they cost a few percent of a copy.
func init() {
	metrics.UseNilMetrics = true
	limitLibrary(newBudget(0))
}

// limitLibrary bounds what the client library takes for one response and for one
// batch of it when it is decompressed, whatever its codec. It has one limit for
// all clients of a process.
func limitLibrary(b budget) {
	largest := int32(b.largestBatch)
	if sarama.MaxDecompressedBatchSize == largest {
		return
	}
	sarama.MaxDecompressedBatchSize = largest
	sarama.MaxResponseSize = largest + responseOverhead
	sarama.MaxRequestSize = largest + responseOverhead
}

// responseOverhead is what a response may hold beside one batch of the largest
// size: all responses but those to fetches fit into it.
const responseOverhead = 4 << 20

// patience is how long a request may fail for reasons that pass by themselves
// (a leader moves, replicas are missing, a broker restarts) before the phase
// gives up. It counts from the last success.
const patience = 2 * time.Minute

// cluster is a connection to one Kafka cluster.
type cluster struct {
	client     sarama.Client
	admin      sarama.ClusterAdmin
	config     *sarama.Config
	connection Connection
	env        Environment
	patience   time.Duration
	reading    *gate // for responses that expand to far more than usual
}

// connect opens a client. An unreachable or refusing broker is told apart from
// wrong properties, which are ErrUsage.
func connect(ctx context.Context, to Connection, env Environment) (*cluster, error) {
	config, err := clientConfig(to, env)
	if err != nil {
		return nil, err
	}
	if err := probe(ctx, to, config); err != nil {
		return nil, connectFailure(to, config, err)
	}
	client, err := sarama.NewClient(to.Bootstrap, config)
	if err != nil {
		return nil, connectFailure(to, config, err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, errors.Join(connectFailure(to, config, err), client.Close())
	}
	return &cluster{client: client, admin: admin, config: config, connection: to, env: env, patience: cmp.Or(env.Patience, patience), reading: newGate(env.budget().largeAtOnce)}, nil
}

// addresses are the bootstrap servers as on a command line.
func (c *cluster) addresses() string { return strings.Join(c.connection.Bootstrap, ",") }

// Close closes all connections of the shared client. Links close their own.
func (c *cluster) Close() error { return c.admin.Close() }

// topicState is what the cluster says of a topic at one moment.
type topicState struct {
	clusterID  string
	name, id   string // id is empty on brokers before 2.8, which have none
	partitions []partitionState
	permitted  operations
}

// operations are what the principal may do with a topic, one bit each, as
// brokers report them. A broker that does not say reports unknownOperations.
type operations int32

const unknownOperations operations = math.MinInt32

// The operations that rekey needs, by their number in the protocol.
var operationBits = map[string]int{"Read": 3, "Write": 4, "Describe": 8, "DescribeConfigs": 10, "AlterConfigs": 11}

// missing lists those of the wanted operations that are not permitted.
func (o operations) missing(wanted ...string) []string {
	if o == unknownOperations || o == 0 {
		return nil
	}
	return slices.DeleteFunc(wanted, func(name string) bool { return o&(1<<operationBits[name]) != 0 })
}

type partitionState struct {
	leader        int32 // -1 without one
	replicas, isr int
	offline       int
}

// errNoTopic says that a topic does not exist.
var errNoTopic = errors.New("no such topic")

// topic asks for a topic's identity and partitions. It never creates it.
func (c *cluster) topic(ctx context.Context, name string) (topicState, error) {
	var state topicState
	err := c.retry(ctx, "describe topic "+name, func() error {
		broker, err := c.client.Controller()
		if err != nil {
			return err
		}
		request := sarama.NewMetadataRequest(c.config.Version, []string{name})
		request.AllowAutoTopicCreation = false
		request.IncludeTopicAuthorizedOperations = true
		response, err := broker.GetMetadata(request)
		if err != nil {
			if _, refreshErr := c.client.RefreshController(); refreshErr != nil {
				return errors.Join(err, refreshErr)
			}
			return err
		}
		state, err = readTopicState(name, response)
		return err
	})
	return state, err
}

func readTopicState(name string, response *sarama.MetadataResponse) (topicState, error) {
	state := topicState{name: name, permitted: unknownOperations}
	if response.ClusterID != nil {
		state.clusterID = *response.ClusterID
	}
	for _, topic := range response.Topics {
		if topic.Name != name {
			continue
		}
		switch {
		case errors.Is(topic.Err, sarama.ErrUnknownTopicOrPartition):
			return state, errNoTopic
		case errors.Is(topic.Err, sarama.ErrTopicAuthorizationFailed):
			return state, notPermitted("Describe", "topic "+name, topic.Err)
		case !errors.Is(topic.Err, sarama.ErrNoError):
			return state, topic.Err
		}
		if id := uuid.UUID(topic.Uuid); id != uuid.Nil {
			state.id = id.String()
		}
		if topic.Version >= 8 {
			state.permitted = operations(topic.TopicAuthorizedOperations)
		}
		sort.Slice(topic.Partitions, func(i, j int) bool { return topic.Partitions[i].ID < topic.Partitions[j].ID })
		for i, p := range topic.Partitions {
			if p.ID != int32(i) {
				return state, fmt.Errorf("the broker's answer for topic %s lacks partition %d", name, i)
			}
			state.partitions = append(state.partitions, partitionState{
				leader: p.Leader, replicas: len(p.Replicas), isr: len(p.Isr), offline: len(p.OfflineReplicas)})
		}
		return state, nil
	}
	return state, errNoTopic
}

// bounds are the log starts and high watermarks of a topic.
func bounds(ctx context.Context, c *cluster, topic string, partitions int) (starts, ends []int64, err error) {
	if starts, err = c.offsets(ctx, topic, partitions, sarama.OffsetOldest, false); err != nil {
		return nil, nil, err
	}
	ends, err = highWatermarks(ctx, c, topic, int32(partitions))
	return starts, ends, err
}

// highWatermarks are the next offsets of a topic's partitions.
func highWatermarks(ctx context.Context, c *cluster, topic string, partitions int32) ([]int64, error) {
	return c.offsets(ctx, topic, int(partitions), sarama.OffsetNewest, false)
}

// lastStableOffsets are the offsets before which every transaction is decided.
func lastStableOffsets(ctx context.Context, c *cluster, topic string, partitions int32) ([]int64, error) {
	return c.offsets(ctx, topic, int(partitions), sarama.OffsetNewest, true)
}

// offsets asks for one offset of each of the first n partitions. at is
// sarama.OffsetOldest or sarama.OffsetNewest; with committed, the newest is the
// last stable offset instead of the high watermark.
func (c *cluster) offsets(ctx context.Context, topic string, n int, at int64, committed bool) ([]int64, error) {
	ask := map[int32]int64{}
	for p := range n {
		ask[int32(p)] = at
	}
	options := &sarama.ListOffsetsOptions{}
	if committed {
		options.IsolationLevel = sarama.ReadCommitted
	}
	out := make([]int64, n)
	err := c.retry(ctx, "list the offsets of topic "+topic, func() error {
		answers, err := c.admin.ListOffsets(map[string]map[int32]int64{topic: ask}, options)
		if err != nil {
			return c.refreshed(topic, err)
		}
		for p := range out {
			answer := answers[topic][int32(p)]
			switch {
			case answer == nil:
				return c.refreshed(topic, fmt.Errorf("partition %d: %w", p, sarama.ErrIncompleteResponse))
			case answer.Err != nil && !errors.Is(answer.Err, sarama.ErrNoError):
				return c.refreshed(topic, fmt.Errorf("partition %d: %w", p, answer.Err))
			}
			out[p] = answer.Offset
		}
		return nil
	})
	return out, err
}

// refreshed renews the leaders after a failed request, so that the next
// attempt asks the right brokers; it returns the failure.
func (c *cluster) refreshed(topic string, failure error) error {
	if err := c.client.RefreshMetadata(topic); err != nil {
		return errors.Join(failure, err)
	}
	return failure
}

// topicConfigs are the effective settings of a topic.
func (c *cluster) topicConfigs(ctx context.Context, topic string) (map[string]topicConfig, error) {
	out := map[string]topicConfig{}
	err := c.retry(ctx, "describe the configs of topic "+topic, func() error {
		results, err := c.admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic}}, sarama.DescribeConfigsOptions{})
		if err != nil {
			return err
		}
		for _, result := range results {
			switch {
			case errors.Is(result.ErrorCode, sarama.ErrTopicAuthorizationFailed):
				return notPermitted("DescribeConfigs", "topic "+topic, result.ErrorCode)
			case !errors.Is(result.ErrorCode, sarama.ErrNoError):
				return fmt.Errorf("%w %s", result.ErrorCode, result.ErrorMsg)
			}
			for _, entry := range result.Configs {
				out[entry.Name] = topicConfig{value: entry.Value, own: entry.Source == sarama.SourceTopic}
			}
		}
		return nil
	})
	return out, err
}

// errNotYet is the state of something that the brokers do in their own time.
var errNotYet = errors.New("not yet done")

// topicConfig is one effective setting; own means set on the topic itself
// rather than inherited from the brokers.
type topicConfig struct {
	value string
	own   bool
}

// setConfigs changes settings of a topic as alterConfigs does. It returns when
// the brokers say that the new settings are in force: until then another broker
// may still show the old ones.
func (c *cluster) setConfigs(ctx context.Context, topic string, settings map[string]*string) error {
	if err := c.alterConfigs(ctx, topic, settings); err != nil {
		return err
	}
	return c.retry(ctx, "wait for the configs of topic "+topic, func() error {
		now, err := c.topicConfigs(ctx, topic)
		if err != nil {
			return err
		}
		for name, value := range settings {
			if have := now[name]; have.own != (value != nil) || value != nil && !sameSetting(have.value, *value) {
				return fmt.Errorf("%s is still %q: %w", name, have.value, errNotYet)
			}
		}
		return nil
	})
}

// alterConfigs changes settings of a topic; a nil value returns to the default.
func (c *cluster) alterConfigs(ctx context.Context, topic string, settings map[string]*string) error {
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range settings {
		operation := sarama.IncrementalAlterConfigsOperationSet
		if value == nil {
			operation = sarama.IncrementalAlterConfigsOperationDelete
		}
		entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: operation, Value: value}
	}
	return c.retry(ctx, "alter the configs of topic "+topic, func() error {
		err := c.admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
		if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			return notPermitted("AlterConfigs", "topic "+topic, err)
		}
		return err
	})
}

// createTopic creates a topic and waits until every partition has a leader,
// for CreateTopics returns before the brokers know of it.
func (c *cluster) createTopic(ctx context.Context, name string, partitions int32, replication int16, configs map[string]string) error {
	entries := map[string]*string{}
	for key, value := range configs {
		entries[key] = &value
	}
	err := c.retry(ctx, "create topic "+name, func() error {
		err := c.admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: replication, ConfigEntries: entries}, false)
		var refused *sarama.TopicError
		switch {
		case errors.As(err, &refused) && errors.Is(refused.Err, sarama.ErrTopicAlreadyExists):
			return nil // another run was faster; what it holds is examined next
		case errors.As(err, &refused) && (errors.Is(refused.Err, sarama.ErrTopicAuthorizationFailed) || errors.Is(refused.Err, sarama.ErrClusterAuthorizationFailed)):
			return notPermitted("Create", "topic "+name, err)
		case errors.As(err, &refused) && !transient(refused.Err):
			return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("the broker refuses to create topic %s", name), Cause: err,
				Do: "change the setting it names with --target-config name=value on plan, in a new run directory"}
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.retry(ctx, "wait for leaders of topic "+name, func() error {
		state, err := c.topic(ctx, name)
		if errors.Is(err, errNoTopic) {
			return sarama.ErrLeaderNotAvailable
		}
		if err != nil {
			return err
		}
		if int32(len(state.partitions)) < partitions {
			return sarama.ErrLeaderNotAvailable
		}
		for _, p := range state.partitions {
			if p.leader < 0 {
				return sarama.ErrLeaderNotAvailable
			}
		}
		return c.client.RefreshMetadata(name)
	})
}

func notPermitted(operation, resource string, cause error) error {
	return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("not permitted: %s on %s", operation, resource), Cause: cause,
		Do: fmt.Sprintf("grant the operation %s on %s to this principal; docs/permissions.md lists all that are needed", operation, resource)}
}

// retry repeats f while it fails for a reason that passes by itself, for as
// long as the cluster's patience.
func (c *cluster) retry(ctx context.Context, what string, f func() error) error {
	wait := newBackoff(c.patience)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !transient(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !wait.next(ctx) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s: gave up after %s: %w", what, c.patience, err)
		}
		c.env.Logf("%s: %v; trying again", what, err)
		c.reconnect(err)
	}
}

// reconnect closes the shared connections after one of them failed; the next
// request opens them again. The library keeps a connection that timed out, and
// fails every later request on it with the time-out of the first.
func (c *cluster) reconnect(err error) {
	var network net.Error
	if !errors.As(err, &network) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !mixedUp(err) {
		return
	}
	for _, broker := range c.client.Brokers() {
		c.hangUp(broker)
	}
}

// Codes that the client library has no names for.
const (
	unknownTopicID           sarama.KError = 100
	inconsistentTopicID      sarama.KError = 103
	fetchSessionTopicID      sarama.KError = 106
	shareSessionLimitReached sarama.KError = 133
)

// transient says whether an error passes by itself: the request may be sent
// again as it is. Every code is among them that Kafka calls retriable, whatever
// the request; a test holds the list to the protocol's own table.
func transient(err error) bool {
	var failure *Failure
	if errors.As(err, &failure) || refusedConnection(err) {
		return false
	}
	if mixedUp(err) {
		return true
	}
	for _, known := range []error{
		sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrUnknownTopicOrPartition,
		sarama.ErrRequestTimedOut, sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable,
		sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend,
		sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch, sarama.ErrOffsetNotAvailable,
		sarama.ErrKafkaStorageError, sarama.ErrInvalidMessage, sarama.ErrNotController,
		sarama.ErrOffsetsLoadInProgress, sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer,
		sarama.ErrConcurrentTransactions, sarama.ErrThrottlingQuotaExceeded, sarama.ErrPreferredLeaderNotAvailable,
		sarama.ErrReassignmentInProgress, sarama.ErrListenerNotFound,
		sarama.ErrFetchSessionIDNotFound, sarama.ErrInvalidFetchSessionEpoch, sarama.ErrElectionNotNeeded,
		sarama.ErrEligibleLeadersNotAvailable, sarama.ErrUnstableOffsetCommit,
		unknownTopicID, inconsistentTopicID, fetchSessionTopicID, shareSessionLimitReached,
		sarama.ErrOutOfBrokers, sarama.ErrNotConnected, sarama.ErrControllerNotAvailable, sarama.ErrIncompleteResponse,
		errNotYet, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}

// mixedUp says whether an answer was that to an earlier request. If the answer to
// the first request on a connection, for the versions that the broker knows, comes
// after the time-out, the library asks once more, takes the late answer for the
// second one's, and so on. The connection is of no use then; a new one is.
func mixedUp(err error) bool {
	decoding, ok := errors.AsType[sarama.PacketDecodingError](err)
	return ok && strings.HasPrefix(decoding.Info, "correlation ID didn't match")
}

// backoff waits longer and longer between attempts until its patience is used
// up. reset starts over after a success. Each wait is half as long again as the
// one before, not twice as long: a new topic of 64 partitions was noticed only
// after 50, 100, 200 and 400 milliseconds.
type backoff struct {
	patience, step time.Duration
	deadline       time.Time
}

const (
	firstBackoff   = 20 * time.Millisecond
	longestBackoff = time.Second
)

func newBackoff(patience time.Duration) *backoff {
	b := &backoff{patience: patience}
	b.reset()
	return b
}

func (b *backoff) reset() {
	b.step = firstBackoff
	b.deadline = time.Now().Add(b.patience)
}

// next waits; false means that the patience is used up or ctx is done.
func (b *backoff) next(ctx context.Context) bool {
	if time.Now().Add(b.step).After(b.deadline) {
		return false
	}
	timer := time.NewTimer(b.step)
	defer timer.Stop()
	b.step = min(b.step*3/2, longestBackoff)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// link holds the connections of one goroutine. A connection's lock is held
// while a request is encoded and answered, so connections that are shared make
// their users wait for each other. A link is not safe for concurrent use.
type link struct {
	cluster *cluster
	brokers map[int32]*sarama.Broker
}

func (c *cluster) newLink() *link { return &link{cluster: c, brokers: map[int32]*sarama.Broker{}} }

// leader is a connection to the leader of a partition, and its leader epoch.
func (l *link) leader(topic string, partition int32) (*sarama.Broker, int32, error) {
	shared, epoch, err := l.cluster.client.LeaderAndEpoch(topic, partition)
	if err != nil {
		return nil, 0, err
	}
	if own := l.brokers[shared.ID()]; own != nil {
		return own, epoch, nil
	}
	own := sarama.NewBroker(shared.Addr())
	if err := own.Open(l.cluster.config); err != nil {
		return nil, 0, err
	}
	if err := opened(own); err != nil {
		return nil, 0, err
	}
	l.brokers[shared.ID()] = own
	return own, epoch, nil
}

// opened waits until a connection is there. If the answer to its first request
// comes after the time-out, the library takes it for the answer to the next one:
// that is no broken data, and a new connection gets over it.
func opened(broker *sarama.Broker) error {
	_, err := broker.Connected()
	var mixedUp sarama.PacketDecodingError
	if errors.As(err, &mixedUp) {
		return fmt.Errorf("%w: %w", sarama.ErrNotConnected, err)
	}
	return err
}

// renew forgets the connections and asks for the leaders again, after a
// request failed in a way that may pass.
func (l *link) renew(topic string) error {
	l.close()
	return l.cluster.client.RefreshMetadata(topic)
}

func (l *link) close() {
	for id, broker := range l.brokers {
		delete(l.brokers, id)
		if err := broker.Close(); err != nil && !errors.Is(err, sarama.ErrNotConnected) {
			l.cluster.env.Logf("close a connection to %s: %v", broker.Addr(), err)
		}
	}
}

// codecName is the name of a codec by its number in record batches.
func codecName(codec int) string { return sarama.CompressionCodec(codec).String() }

// codecByName maps a compression name, as in Kafka's configs, to its codec.
func codecByName(name string) (sarama.CompressionCodec, error) {
	codec, known := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[name]
	if !known {
		return 0, fmt.Errorf("unknown compression %q; known: none, gzip, snappy, lz4, zstd", name)
	}
	return codec, nil
}
