package rewrite

import (
	"strings"
	"testing"
)

func TestParseDivision(t *testing.T) {
	for _, text := range []string{"0/1", "0/4", "3/4", "2147483646/2147483647"} {
		d, err := ParseDivision([]byte(text))
		if err != nil || d.String() != text || d == Whole {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{
		"", "/", "0", "1/", "/1", "4/4", "5/4", "0/0", "1/0", "-1/4", "0/-4", "+0/4", "00/4", "0/04", "01/4", "0/4/8", "0/4 ", " 0/4",
		"0 /4", "0/2147483648", "4294967296/4294967297", "0,4", "a/b", "0x1/4", "1.0/4", "٠/4", "0/4\x00", "0/99999999999999999999",
	} {
		if d, err := ParseDivision([]byte(text)); err == nil || !strings.Contains(err.Error(), "0 <= i < n") {
			t.Errorf("%q is accepted as %v, %v", text, d, err)
		}
	}
}

// The shards of one count have every partition, and none of them twice.
func TestShardsHaveEachPartitionOnce(t *testing.T) {
	for count := int32(1); count <= 9; count++ {
		for partition := range int32(20) {
			owners := 0
			for index := range count {
				if (Division{index, count}).Has(partition) {
					owners++
				}
			}
			if owners != 1 || !Whole.Has(partition) {
				t.Errorf("partition %d has %d owners among %d", partition, owners, count)
			}
		}
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		a, b       Division
		partitions int32
		want       bool
	}{
		{Whole, Whole, 1, true},
		{Whole, Whole, 0, false},
		{Whole, Division{3, 4}, 4, true},
		{Whole, Division{3, 4}, 3, false}, // that shard has no partition
		{Division{0, 4}, Division{1, 4}, 100, false},
		{Division{1, 4}, Division{1, 4}, 2, true},
		{Division{0, 2}, Division{2, 4}, 3, true},
		{Division{0, 2}, Division{2, 4}, 2, false}, // partition 2 is the first that they share
		{Division{0, 2}, Division{1, 4}, 100, false},
		{Division{1, 2}, Division{1, 4}, 8, true},
		{Division{1, 2}, Division{2, 3}, 5, false}, // partition 5 is the first
		{Division{1, 2}, Division{2, 3}, 6, true},
		{Division{0, 1}, Division{3, 4}, 4, true},
	} {
		if c.a.Overlaps(c.b, c.partitions) != c.want || c.b.Overlaps(c.a, c.partitions) != c.want {
			t.Errorf("%v and %v over %d partitions: want %t", c.a, c.b, c.partitions, c.want)
		}
	}
}
