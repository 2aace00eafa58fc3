package report

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTimeline: nothing is lost, the buckets are in order and hold what was put
// in, and neither order nor sharing out changes the result.
func TestTimeline(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 50 {
		n := rng.IntN(3000)
		span := int64(1) << rng.IntN(63)
		times := make([]int64, n)
		for i := range times {
			times[i] = rng.Int64N(span) - span/2
		}
		if round%5 == 0 {
			times = append(times, math.MinInt64, math.MaxInt64, 0, -1)
		}
		var all Timeline
		parts := make([]Timeline, 3)
		for _, i := range rng.Perm(len(times)) {
			parts[rng.IntN(3)].Add(times[i])
		}
		for _, ms := range times {
			all.Add(ms)
		}
		var merged Timeline
		for i := range parts {
			merged.Merge(&parts[i])
		}
		want := all.Buckets()
		if diff := cmp.Diff(want, merged.Buckets()); diff != "" {
			t.Fatalf("round %d: merged differs:\n%s", round, diff)
		}
		if len(want) > maxBuckets {
			t.Fatalf("%d buckets", len(want))
		}
		var sum int64
		for i, b := range want {
			sum += b.Records
			if b.To <= b.From || i > 0 && b.From < want[i-1].To {
				t.Fatalf("bucket %d is out of order: %v", i, want)
			}
			var in int64
			for _, ms := range times {
				if ms >= b.From && (ms < b.To || b.To == math.MaxInt64) {
					in++
				}
			}
			if in != b.Records {
				t.Fatalf("bucket %v holds %d", b, in)
			}
		}
		if sum != int64(len(times)) {
			t.Fatalf("%d of %d records", sum, len(times))
		}
	}
}

func TestMoment(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "1970-01-01 00:00:00 UTC", -1: "1969-12-31 23:59:59.999 UTC", 1764575622123: "2025-12-01 07:53:42.123 UTC",
		math.MaxInt64: "not a date", math.MinInt64: "not a date", 253402300799999: "9999-12-31 23:59:59.999 UTC",
	} {
		if got := moment(ms); got != want {
			t.Errorf("moment(%d) = %s, want %s", ms, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s", n, got)
		}
	}
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 0, "0%"}, {1, 0, "0%"}, {1, 1_000_000, "<0.1%"}, {999_999, 1_000_000, ">99.9%"}, {5, 5, "100%"}, {1, 8, "12.5%"}} {
		if got := percent(c.part, c.whole); got != c.want {
			t.Errorf("percent(%d, %d) = %s, want %s", c.part, c.whole, got, c.want)
		}
	}
}
