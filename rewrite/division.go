package rewrite

import (
	"bytes"
	"fmt"
)

// Division is one part of a source topic's partitions: those with a number p
// for which p % Count == Index. Two of the same Count share no partition, and
// all of them together have every one. The zero value is Whole.
type Division struct {
	Index, Count int32 // 0 <= Index < Count, or both 0
}

// Whole is the division that has every partition. It writes alone what shards
// write together, so it is not the same as shard 0 of 1.
var Whole = Division{}

// ParseDivision reads the form that String writes: "<i>/<n>", canonical decimals
// with i below n. Whole has no such form.
func ParseDivision(text []byte) (Division, error) {
	left, right, found := bytes.Cut(text, []byte{'/'})
	index, indexOK := canonicalDecimal(left, 1<<31-1)
	count, countOK := canonicalDecimal(right, 1<<31-1)
	if !found || !indexOK || !countOK || index >= count {
		return Division{}, fmt.Errorf("%q is not <i>/<n> with 0 <= i < n, both canonical decimals below 2^31", text)
	}
	return Division{int32(index), int32(count)}, nil
}

func (d Division) String() string { return fmt.Sprintf("%d/%d", d.Index, d.Count) }

// Has says whether a source partition belongs to the division.
func (d Division) Has(partition int32) bool {
	return d == Whole || partition%d.Count == d.Index
}

// Overlaps says whether two divisions share one of a topic's partitions.
func (d Division) Overlaps(o Division, partitions int32) bool {
	for p := range partitions {
		if d.Has(p) && o.Has(p) {
			return true
		}
	}
	return false
}
