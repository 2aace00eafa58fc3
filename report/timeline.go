package report

import "slices"

// maxBuckets bounds a Timeline. Empty buckets take no place, so that one record
// from 1970 does not blur a topic of last week.
const maxBuckets = 240

// Timeline counts records by the time of their timestamps, in a bounded number
// of buckets. A bucket is one minute, or that doubled as often as it takes; the
// result does not depend on the order of the records, nor on how they were
// shared out between timelines that are merged.
//
// The zero value is ready. It is not safe for concurrent use: give each
// partition its own and merge them.
type Timeline struct {
	shift uint
	count map[int64]int64 // by minute>>shift

	// The bucket of the last record: neighbours in a log mostly share one.
	last  int64
	added int64
}

// Add counts one record. The timestamp -1 means that there is none; leave such
// records out.
func (t *Timeline) Add(ms int64) {
	i := floorDiv(ms, 60_000) >> t.shift
	if i == t.last && t.added > 0 {
		t.added++
		return
	}
	t.flush() // which may make the buckets wider
	t.last, t.added = floorDiv(ms, 60_000)>>t.shift, 1
}

// AddBuckets counts what another timeline gave as its buckets, which may be
// coarser than this one's would be.
func (t *Timeline) AddBuckets(buckets []TimeBucket) {
	t.flush()
	for _, b := range buckets {
		t.put(floorDiv(b.From, 60_000)>>t.shift, b.Records)
	}
}

// Merge adds what o has counted.
func (t *Timeline) Merge(o *Timeline) {
	t.flush()
	o.flush()
	for t.shift < o.shift {
		t.double()
	}
	for i, n := range o.count {
		t.put(i>>(t.shift-o.shift), n)
	}
}

func (t *Timeline) flush() {
	if t.added > 0 {
		t.put(t.last, t.added)
		t.added = 0
	}
}

func (t *Timeline) put(i, n int64) {
	if t.count == nil {
		t.count = make(map[int64]int64)
	}
	t.count[i] += n
	for len(t.count) > maxBuckets {
		t.double()
	}
}

func (t *Timeline) double() {
	t.shift++
	coarse := make(map[int64]int64, len(t.count))
	for i, n := range t.count {
		coarse[i>>1] += n
	}
	t.count = coarse
}

// Buckets returns the buckets that hold records, oldest first.
func (t *Timeline) Buckets() []TimeBucket {
	t.flush()
	bs := make([]TimeBucket, 0, len(t.count))
	for i, n := range t.count {
		bs = append(bs, TimeBucket{From: bound(i, t.shift), To: bound(i+1, t.shift), Records: n})
	}
	slices.SortFunc(bs, func(a, b TimeBucket) int {
		if a.From < b.From {
			return -1
		}
		return 1
	})
	return bs
}

// bound is the time at which a bucket starts, within the range of the type:
// timestamps may be any 64-bit number.
func bound(i int64, shift uint) int64 {
	const most = 1<<63 - 1
	minutes := i << shift
	if minutes>>shift != i || minutes > most/60_000 {
		if i > 0 {
			return most
		}
		return -most - 1
	}
	if minutes < (-most-1)/60_000 {
		return -most - 1
	}
	return minutes * 60_000
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
