package keycodec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Format is one layout of state keys. Implementations are stateless values, safe for concurrent use
// as long as each goroutine has its own Key.
type Format interface {
	// Name is the word for the format in flags and reports.
	Name() string

	// Parse reads stateKey into k. A nil stateKey is a null key, which is not the same as an empty
	// one. The error is a *ParseError, and k then holds nothing of use. On success Parse allocates
	// nothing, except to grow the scratch of k.
	Parse(k *Key, stateKey []byte) error

	// Append writes k to the end of dst and returns the extended slice. It allocates nothing when dst
	// has room. For a Key that the format cannot express it returns dst as it was and a *ParseError.
	Append(dst []byte, k *Key) ([]byte, error)

	// PartitionText is the part of a key that the runtime's partitioner hashes; k is what Parse made
	// of stateKey. For a stateKey that does not parse k is nil, and the text is what the released
	// partitioner takes of any key: all before the first '_'.
	PartitionText(stateKey []byte, k *Key) []byte
}

// NameFlinkAgents04 names the one format that is not a value of this package, because it takes
// parameters: see NewFlinkAgents04.
const NameFlinkAgents04 = "flink-agents-0.4"

var (
	sources = []Format{Legacy, KeyGroupFirst, KeyGroupLast}
	targets = []Format{Escaped, LengthPrefixed}
)

// Lookup returns the format of that name. It does not know flink-agents-0.4, which needs a key type
// and a max parallelism, and says so.
func Lookup(name string) (Format, error) {
	for _, f := range slices.Concat(sources, targets) {
		if f.Name() == name {
			return f, nil
		}
	}
	switch name {
	case NameFlinkAgents04:
		return nil, fmt.Errorf("key format %s needs a key type and a max parallelism", name)
	case string(Dashed):
		return nil, fmt.Errorf("key format dashed has no sequence number: it is recognised, but cannot be converted")
	}
	return nil, fmt.Errorf("unknown key format %q: expected one of %s", name,
		strings.Join(slices.Concat(SourceNames(), TargetNames()), ", "))
}

// SourceNames lists the formats that can be converted from.
func SourceNames() []string { return names(sources) }

// TargetNames lists the formats that can be converted to, the default first.
func TargetNames() []string { return append(names(targets), NameFlinkAgents04) }

func names(formats []Format) []string {
	list := make([]string, len(formats))
	for i, f := range formats {
		list[i] = f.Name()
	}
	return list
}

// firstField is what the released partitioner takes of a key, split("_")[0] in Java.
func firstField(stateKey []byte) []byte {
	text, _, _ := bytes.Cut(stateKey, separator)
	return text
}
