package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rekey/migrate"
)

// fromFlinkConfig takes what --flink-config says for flags that were not given,
// and says what it took.
func fromFlinkConfig(c *cli.Context) error {
	path := c.String("flink-config")
	if path == "" {
		return nil
	}
	config, err := migrate.ReadFlinkConfig(path)
	if err != nil {
		return err
	}
	var taken, left []string
	for _, option := range []struct{ name, value, flag string }{
		{"kafkaBootstrapServers", config.BootstrapServers, "bootstrap-server"},
		{"kafkaActionStateTopic", config.Topic, "source"},
	} {
		known := slices.ContainsFunc(c.Command.Flags, func(f cli.Flag) bool { return f.Names()[0] == option.flag })
		switch {
		case option.value == "" || !known:
		case c.IsSet(option.flag):
			left = append(left, fmt.Sprintf("%s (--%s is given)", option.name, option.flag))
		default:
			if err := c.Set(option.flag, option.value); err != nil {
				return usage(err)
			}
			taken = append(taken, fmt.Sprintf("--%s %s", option.flag, option.value))
		}
	}
	for name, value := range map[string]string{"kafkaActionStateTopicNumPartitions": config.Partitions, "kafkaActionStateTopicReplicationFactor": config.ReplicationFactor} {
		if value != "" {
			left = append(left, name+" (the source topic itself says so)")
		}
	}
	slices.Sort(left)
	say := newLog(c).warn
	if len(taken) > 0 {
		say("from %s: %s", path, strings.Join(taken, " "))
	}
	if len(left) > 0 {
		say("not from %s: %s", path, strings.Join(left, ", "))
	}
	return nil
}
