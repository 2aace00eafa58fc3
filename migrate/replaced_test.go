package migrate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"rekey/fixtures/testcluster"
)

// A key that lies in two source partitions has one place on the target. When the
// target's cleaner removed the record of one of them in favour of the other's,
// it is not missing: writing it again would bring back the older value.
func TestApplyLeavesAloneWhatCompactionReplaced(t *testing.T) {
	testcluster.RequireReal(t, "compaction on the embedded broker moves the log start, which apply refuses")
	cluster := testcluster.Start(t)
	source := cluster.Seed(t, "source", `
partitions 2
config cleanup.policy=compact
0 1700000000000 a_b_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 zero
1 1700000000001 a_b_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 one
0 1700000000002 c_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 two
`)
	m := migrationOf(t, cluster, source, nil).planAndApply(t)
	m.verify(t)
	cluster.Compact(t, m.target)
	before := cluster.Read(t, m.target)
	again := m.apply(t)
	if !again.Nothing || again.Written != 0 {
		t.Errorf("apply again: nothing to do %t, %d records written", again.Nothing, again.Written)
	}
	if diff := cmp.Diff(before, cluster.Read(t, m.target)); diff != "" {
		t.Errorf("the target changed (-before +after):\n%s", diff)
	}
	m.verify(t)
}
