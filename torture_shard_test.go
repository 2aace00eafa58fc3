//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rekey/fixtures/testcluster"
)

// elsewhere is the migration with a copy of its run directory, as on another
// machine, or now and then with the very same one.
func (m *migration) elsewhere() *migration {
	m.Helper()
	other := *m
	if m.rand.IntN(4) == 0 {
		return &other
	}
	other.dir = filepath.Join(m.TempDir(), "copy")
	if err := os.CopyFS(other.dir, os.DirFS(m.dir)); err != nil {
		m.Fatal(err)
	}
	return &other
}

var missing = regexp.MustCompile(`^source (\d+):\d+ is missing$`)

// claimShard demands that an exit with 0 of shard i of n is justified: what is not
// on the target belongs to others.
func (m *migration) claimShard(p *process, i, n int) {
	m.Helper()
	problems := slices.DeleteFunc(m.problems(), func(problem string) bool {
		found := missing.FindStringSubmatch(problem)
		if found == nil {
			return false
		}
		partition, err := strconv.Atoi(found[1])
		if err != nil {
			m.Fatal(err)
		}
		return partition%n != i
	})
	if len(problems) > 0 {
		m.result.FalseSuccess++
		m.result.Failures++
		m.Errorf("false success of shard %d/%d with %q: %d problems: %q\n%v", i, n, m.flags, len(problems), problems[:min(5, len(problems))], p)
	}
}

// Four shards at once are killed at random moments and started again, until all of
// them are done.
func TestTortureShardKill(t *testing.T) {
	a := newArena(t, "apply, 4 shards at once: kill -9")
	a.fill(tortured(a.result.Seed, 3000))
	a.measure()
	const shards = 4
	for n := number(t, 4, 200, 40); a.result.Hits < n && !t.Failed(); {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		var machines [shards]*migration
		var running [shards]*process
		hits := [shards]int{}
		begin := func(i int) {
			running[i] = machines[i].start("apply", "--shard", fmt.Sprintf("%d/%d", i, shards))
		}
		for i := range shards {
			machines[i] = m.elsewhere()
			begin(i)
		}
		late := [shards]bool{}
		for range 2 + a.rand.IntN(3*shards) {
			i := a.rand.IntN(shards)
			if late[i] {
				continue // it is done
			}
			moment := time.NewTimer(time.Duration(a.rand.Float64() * float64(m.duration) / 2))
			select {
			case <-moment.C:
				_ = running[i].Process.Kill() // it may have ended
			case <-running[i].ended:
				moment.Stop()
			}
			switch code := running[i].wait(); {
			case running[i].killed():
				a.result.Hits++
				if hits[i]++; hits[i] > 1 {
					a.result.ResumeHits++
				}
				a.result.Moments[m.moment()]++
				begin(i)
			case code == 0:
				a.result.Late++
				late[i] = true
				m.claimShard(running[i], i, shards)
			default:
				a.result.Refusals++
				t.Fatalf("nothing hit shard %d: %v", i, running[i])
			}
		}
		for i, p := range running {
			if p.wait() != 0 {
				a.result.Refusals++
				t.Errorf("after %q, with nothing in the way: %v", m.flags, p)
			}
			m.claimShard(p, i, shards)
		}
		m.claim(running[0])
		m.conclude()
	}
}

// A shard is stopped in the middle; a second run of it finishes, or an apply of
// another division that has its partitions. The first wakes up and must notice
// before it appends anything.
func TestTortureShardStop(t *testing.T) {
	a := newArena(t, "apply, a shard: SIGSTOP, another apply, SIGCONT")
	a.fill(tortured(a.result.Seed, 3000))
	a.measure()
	for n := number(t, 3, 50, 10); a.result.Hits < n && !t.Failed(); {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		i := a.rand.IntN(4)
		first := m.elsewhere().hit(syscall.SIGSTOP, m.someMoment, "--shard", fmt.Sprintf("%d/4", i))
		if !first.stopped(t) {
			a.result.Late++
			m.claimShard(first, i, 4)
			continue
		}
		a.result.Hits++
		division := []string{"", fmt.Sprintf("%d/4", i), fmt.Sprintf("%d/2", i%2)}[a.rand.IntN(3)]
		a.result.Moments[m.moment()+map[bool]string{true: ", then the whole", false: ", then a shard"}[division == ""]]++
		args := []string{"apply"}
		if division != "" {
			args = append(args, "--shard", division)
		}
		second := m.elsewhere().start(args...)
		if second.wait() != 0 {
			a.result.Refusals++
			t.Errorf("the second, %q: %v", division, second)
			continue
		}
		m.claimShard(second, i, 4)
		before := ends(t, a.Cluster, m.target)
		if err := first.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		code := first.wait()
		after := ends(t, a.Cluster, m.target)
		switch {
		case code == 4 && strings.Contains(first.stderr.String(), tookOver):
			if !slices.Equal(before, after) {
				a.result.Failures++
				t.Errorf("it appended after it was taken over: ends %v, were %v\n%v", after, before, first)
			}
		case code == 0 && (first.nothing(t) || slices.Equal(before, after)):
			m.claimShard(first, i, 4) // stopped before it had the lock, or after it had written everything
		default:
			a.result.Refusals++
			t.Errorf("the first: %v\nthe second: %v", first, second)
		}
		m.conclude()
	}
}

// Applies of divisions that overlap, and of some that do not, all at once. Each
// finishes its part or is taken over from; whatever the outcome, what is there is
// a prefix that the last one goes on from.
func TestTortureDivisions(t *testing.T) {
	a := newArena(t, "apply, overlapping divisions at once")
	a.fill(tortured(a.result.Seed, 3000))
	a.measure()
	for range number(t, 2, 60, 20) {
		if t.Failed() {
			break
		}
		m := a.prepare()
		m.plan()
		a.result.Runs++
		type part struct {
			*process
			i, n int
		}
		var parts []part
		for range 3 + a.rand.IntN(3) {
			n := []int{1, 2, 3, 4}[a.rand.IntN(4)]
			p := part{i: a.rand.IntN(n), n: n}
			args := []string{"apply"}
			if n > 1 || a.rand.IntN(2) == 0 {
				args = append(args, "--shard", fmt.Sprintf("%d/%d", p.i, p.n))
			}
			p.process = m.elsewhere().start(args...)
			parts = append(parts, p)
			if a.rand.IntN(2) == 0 {
				later := time.NewTimer(time.Duration(a.rand.Float64() * float64(m.duration)))
				select {
				case <-later.C:
				case <-p.ended:
				}
			}
		}
		done, takenOver := 0, 0
		for _, p := range parts {
			switch code := p.wait(); {
			case code == 0:
				done++
			case code == 4 && strings.Contains(p.stderr.String(), tookOver):
				takenOver++
				a.result.Hits++
			default:
				a.result.Refusals++
				t.Errorf("neither success nor taken over: %v", p.process)
			}
		}
		for _, p := range parts {
			if p.ProcessState.ExitCode() == 0 {
				m.claimShard(p.process, p.i, p.n)
			}
		}
		a.result.Moments[fmt.Sprintf("%d finish, %d taken over", done, takenOver)]++
		m.conclude()
	}
}

// Shards that are started at the same moment all find no target. One of them
// creates it, the others take it as it is.
func TestTortureShardCreation(t *testing.T) {
	testcluster.RequireFake(t, "holds back the creation until all have asked")
	a := newArena(t, "apply, 4 shards at once: all create the target")
	a.fill(tortured(a.result.Seed, 300))
	for range number(t, 1, 20, 0) {
		m := a.prepare()
		m.plan()
		a.result.Runs++
		const shards = 4
		all := make(chan struct{})
		m.wire.watch(nil)
		m.wire.holdBack(func(name string, nth int) <-chan struct{} {
			if name != "CreateTopics" {
				return nil
			}
			if nth == shards {
				close(all)
			}
			return all
		})
		var running []*process
		for i := range shards {
			running = append(running, m.elsewhere().start("apply", "--shard", fmt.Sprintf("%d/%d", i, shards)))
		}
		for i, p := range running {
			if p.wait() != 0 {
				a.result.Refusals++
				t.Errorf("shard %d: %v", i, p)
				continue
			}
			a.result.Hits++
			m.claimShard(p, i, shards)
		}
		m.wire.counted()
		m.claim(running[0])
		m.conclude()
	}
}
