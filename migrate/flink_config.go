package migrate

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// FlinkConfig is what a Flink configuration file says of the action-state
// topic, by the names of Flink Agents' own options. "" is not there.
type FlinkConfig struct {
	BootstrapServers string // agent.kafkaBootstrapServers
	Topic            string // agent.kafkaActionStateTopic
	// These two say how the job would create the topic, not how it is.
	Partitions        string // agent.kafkaActionStateTopicNumPartitions
	ReplicationFactor string // agent.kafkaActionStateTopicReplicationFactor
}

// ReadFlinkConfig reads config.yaml (or flink-conf.yaml) of a Flink cluster. Its
// options may be nested under agent: or spelled agent.name. Whatever else is in
// the file, secrets too, is not looked at.
func ReadFlinkConfig(path string) (FlinkConfig, error) {
	var c FlinkConfig
	content, err := os.ReadFile(path)
	if err != nil {
		return c, &Failure{Kind: ErrUsage, What: "cannot read the file of --flink-config", Cause: err, Do: "give the path of the config.yaml of Flink"}
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return c, &Failure{Kind: ErrUsage, What: "the file of --flink-config is not YAML: " + path, Cause: err, Do: "give the path of the config.yaml of Flink"}
	}
	options := map[string]string{}
	collect := func(name string, value *yaml.Node) error {
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
			return nil
		}
		if earlier, twice := options[name]; twice && earlier != value.Value {
			return usage(fmt.Sprintf("%s has agent.%s twice, with different values", path, name), "correct the file, or give the flags instead of --flink-config")
		}
		options[name] = value.Value
		return nil
	}
	if len(document.Content) == 1 && document.Content[0].Kind == yaml.MappingNode {
		top := document.Content[0].Content
		for i := 0; i+1 < len(top); i += 2 {
			if name, flat := strings.CutPrefix(top[i].Value, "agent."); flat {
				if err := collect(name, top[i+1]); err != nil {
					return c, err
				}
			}
			if top[i].Value != "agent" || top[i+1].Kind != yaml.MappingNode {
				continue
			}
			nested := top[i+1].Content
			for j := 0; j+1 < len(nested); j += 2 {
				if err := collect(nested[j].Value, nested[j+1]); err != nil {
					return c, err
				}
			}
		}
	}
	if backend := options["actionStateStoreBackend"]; backend != "" && !strings.EqualFold(backend, "kafka") {
		return c, usage(fmt.Sprintf("%s says that the action states are kept in %s, not in Kafka", path, backend), "docs/fluss.md says how other stores are migrated")
	}
	c.BootstrapServers, c.Topic = options["kafkaBootstrapServers"], options["kafkaActionStateTopic"]
	c.Partitions, c.ReplicationFactor = options["kafkaActionStateTopicNumPartitions"], options["kafkaActionStateTopicReplicationFactor"]
	if c == (FlinkConfig{}) {
		return c, usage(fmt.Sprintf("%s has no options of Flink Agents for Kafka", path), "they stand under agent:, such as kafkaActionStateTopic; without them, give --bootstrap-server and --source")
	}
	return c, nil
}
