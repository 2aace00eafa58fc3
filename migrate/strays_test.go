package migrate

import (
	"fmt"
	"strings"
	"testing"

	"rekey/keycodec"
	"rekey/rewrite"
)

// A key is in two partitions if two of them are not its home, or one is and the
// other is not; and it is counted once however many records it has.
func TestStrays(t *testing.T) {
	at := func(key string, partition int32, offset int64) *rewrite.Record {
		return &rewrite.Record{Partition: partition, Offset: offset, Key: []byte(key)}
	}
	s := strays{prints: newFingerprinter()}
	s.add(at("alone", 1, 0), 0)
	s.add(at("alone", 1, 1), 0)
	s.add(at("twice astray", 1, 2), 0)
	s.add(at("twice astray", 2, 3), 0)
	s.add(at("twice astray", 2, 4), 0)
	s.add(at("home, too", 1, 5), 2)
	for _, r := range []*rewrite.Record{at("home, too", 2, 6), at("home, too", 2, 7), at("home, too", 0, 8), at("never astray", 2, 9), at("twice astray", 0, 1)} {
		if err := s.atHome(r); err != nil {
			t.Fatal(err)
		}
	}
	if s.split != 2 || len(s.homes) != 2 || !s.homes[0] || !s.homes[2] {
		t.Errorf("%d keys in two partitions, homes %v", s.split, s.homes)
	}
	if got := strings.Join(s.first, "; "); got != `"twice astray" at p1@2 and p2@3; "home, too" at p1@5 and p2@6` {
		t.Errorf("named are %s", got)
	}
	for i := range 2 * splitExamples {
		s.add(at(fmt.Sprint(i), 1, 0), 0)
		s.add(at(fmt.Sprint(i), 2, 0), 0)
	}
	if s.split != 2+2*splitExamples || len(s.first) != splitExamples {
		t.Errorf("%d keys, %d named", s.split, len(s.first))
	}
}

// Key groups are recognised at each likely max parallelism; a number in front
// that is none says nothing.
func TestHints(t *testing.T) {
	for i, parallelism := range likelyParallelisms {
		var h hints
		for n := range 50 {
			business := fmt.Sprintf("user_%d", n)
			group := keycodec.AssignKeyGroup(keycodec.JavaHash([]byte(business)), parallelism)
			h.add(&keycodec.Key{BusinessKey: fmt.Appendf(nil, "%d_%s", group, business)})
		}
		if got, n := h.bestParallelism(); got != parallelism || n != 50 || h.numbered != 50 {
			t.Errorf("max parallelism %d: found %d for %d of %d keys, place %d", parallelism, got, n, h.numbered, i)
		}
	}
	var h hints
	for n := range 500 {
		h.add(&keycodec.Key{BusinessKey: fmt.Appendf(nil, "%d_order", n)})
	}
	for _, text := range []string{"0012_a", "_a", "x12_a", "99999999999_a", "-1_a", "", "12"} {
		h.add(&keycodec.Key{BusinessKey: []byte(text)})
	}
	if _, n := h.bestParallelism(); h.numbered != 500 || n > 5 {
		t.Errorf("%d of %d numbered keys are taken for key groups", n, h.numbered)
	}
}
