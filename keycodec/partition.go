package keycodec

import (
	"fmt"
	"slices"
	"strings"
)

// Partitioner says on which partition a state key lives.
type Partitioner interface {
	// Name is the word for the partitioner in flags and reports.
	Name() string

	// Partition returns the partition of stateKey, a key in format f which Parse reads as k, on a topic
	// of so many partitions (at least one). For a key that f cannot parse k is nil; see
	// Format.PartitionText. The partition on which the source had the record is source.
	Partition(f Format, stateKey []byte, k *Key, source, partitions int32) int32
}

var partitioners = []Partitioner{flinkAgentsPartitioner{}, javaDefaultPartitioner{}, sourcePartitioner{}}

// LookupPartitioner returns the partitioner of that name.
func LookupPartitioner(name string) (Partitioner, error) {
	for _, p := range partitioners {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown partitioner %q: expected one of %s", name, strings.Join(PartitionerNames(), ", "))
}

// PartitionerNames lists the partitioners, the default first.
func PartitionerNames() []string {
	list := slices.Grow([]string(nil), len(partitioners))
	for _, p := range partitioners {
		list = append(list, p.Name())
	}
	return list
}

// flinkAgentsPartitioner is the one that the runtime sets on its own producer.
type flinkAgentsPartitioner struct{}

func (flinkAgentsPartitioner) Name() string { return "flink-agents" }

func (flinkAgentsPartitioner) Partition(f Format, stateKey []byte, k *Key, _, partitions int32) int32 {
	return FlinkMurmur(JavaHash(f.PartitionText(stateKey, k))) % partitions
}

// javaDefaultPartitioner is what Kafka's Java producer does when nobody sets a partitioner.
type javaDefaultPartitioner struct{}

func (javaDefaultPartitioner) Name() string { return "java-default" }

func (javaDefaultPartitioner) Partition(_ Format, stateKey []byte, _ *Key, _, partitions int32) int32 {
	return (JavaMurmur2(stateKey) & 0x7fffffff) % partitions
}

// sourcePartitioner leaves each record where it was. It is right only between topics of the same
// number of partitions; the number that it returns may lie beyond the target's otherwise.
type sourcePartitioner struct{}

func (sourcePartitioner) Name() string { return "source" }

func (sourcePartitioner) Partition(_ Format, _ []byte, _ *Key, source, _ int32) int32 { return source }

// RuntimeRefuses reports whether the partitioner of releases 0.1 to 0.3 throws on this key, so that
// the runtime itself can never have written it, nor write it again: one with no text before its first
// '_', which includes every legacy key whose business key is empty or begins with '_'.
func RuntimeRefuses(stateKey []byte) bool { return len(firstField(stateKey)) == 0 }
