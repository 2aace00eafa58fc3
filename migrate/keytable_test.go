package migrate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"testing"
	"unsafe"
)

// The table against a Go map: growing from nothing, random keys met again and
// again, keys never met, values that stay what they were set to. The narrow key
// spaces make fingerprints agree in one half, and crowd the index's first slots.
func TestKeyTableAgainstMap(t *testing.T) {
	spaces := map[string]func(*rand.Rand) fingerprint{
		"random":          func(r *rand.Rand) fingerprint { return fingerprint{r.Uint64N(30_000) * 0x9e3779b97f4a7c15, r.Uint64()} },
		"few":             func(r *rand.Rand) fingerprint { return fingerprint{r.Uint64N(40) << 58, r.Uint64N(40)} },
		"one first half":  func(r *rand.Rand) fingerprint { return fingerprint{42, r.Uint64N(500)} },
		"one second half": func(r *rand.Rand) fingerprint { return fingerprint{r.Uint64N(20_000) << 49, 42} },
		"last slots":      func(r *rand.Rand) fingerprint { return fingerprint{^uint64(0) - r.Uint64N(300), r.Uint64N(2)} },
	}
	for name, key := range spaces {
		t.Run(name, func(t *testing.T) {
			const seed = 1
			random := rand.New(rand.NewPCG(seed, 7))
			var table keyTable[int64]
			reference := map[fingerprint]int64{}
			var order []fingerprint
			for step := range 30_000 {
				k := key(random)
				want, known := reference[k]
				if got := table.get(k); (got != nil) != known || known && *got != want {
					t.Fatalf("step %d: get gives %v, the map has %d, %t", step, got, want, known)
				}
				if random.IntN(3) == 0 {
					continue // only looked up
				}
				value, isNew := table.at(k)
				if isNew == known || *value != want {
					t.Fatalf("step %d: at gives %d, new %t; the map has %d, %t", step, *value, isNew, want, known)
				}
				if isNew {
					order = append(order, k)
				}
				*value = int64(step)
				reference[k] = int64(step)
			}
			if table.size != len(reference) {
				t.Fatalf("the table has %d keys, the map %d", table.size, len(reference))
			}
			for i, k := range order {
				if e := table.entry(i); e.key != k || e.value != reference[k] {
					t.Fatalf("entry %d is %v = %d, want %v = %d", i, e.key, e.value, k, reference[k])
				}
			}
		})
	}
}

// A value keeps its address while the table grows: callers hold on to it.
func TestKeyTableValuesStay(t *testing.T) {
	var table keyTable[int64]
	first, _ := table.at(fingerprint{1, 1})
	*first = 1
	for i := range uint64(5 * keyChunk) {
		table.at(fingerprint{i << 40, i + 2})
	}
	*first = 2
	if got := table.get(fingerprint{1, 1}); got != first || *got != 2 {
		t.Errorf("the value moved: %v", got)
	}
}

func TestKeyTableEmpty(t *testing.T) {
	var table keyTable[int64]
	if got := table.get(fingerprint{}); got != nil {
		t.Errorf("an empty table has %d", *got)
	}
	if value, isNew := table.at(fingerprint{}); !isNew || *value != 0 {
		t.Errorf("the zero fingerprint: %d, new %t", *value, isNew)
	}
	if value, isNew := table.at(fingerprint{}); isNew || value == nil {
		t.Errorf("the zero fingerprint again: new %t", isNew)
	}
}

// What a scan may cost in memory is promised to people: below 64 bytes for each
// distinct key, keys that cannot be parsed included.
func TestKeyTableMemory(t *testing.T) {
	if !alone(t) {
		return
	}
	const keys, limit = 1_000_000, 64.0
	measure := func(name string, fill func() any) {
		before := heap()
		table := fill()
		got := (heap() - before) / keys
		t.Logf("%s: %.1f bytes per key", name, got)
		if got >= limit {
			t.Errorf("%s: %.1f bytes per key, the limit is %.0f", name, got, limit)
		}
		if least := 16.0; got < least {
			t.Errorf("%s: %.1f bytes per key are less than the fingerprint alone: the measurement is wrong", name, got)
		}
		runtime.KeepAlive(table)
	}
	measure("offsets", func() any { return fillTable[int64](keys) })
	measure("statistics of bad keys", func() any { return fillTable[badKeyStats](keys) })
}

// alone says whether the test has the process to itself. If not, it runs the test
// in one: what other tests leave behind is collected at any time.
func alone(t *testing.T) bool {
	t.Helper()
	const mark = "REKEY_TEST_ALONE"
	if os.Getenv(mark) != "" {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	c.Env = append(os.Environ(), mark+"=1")
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Error("the test did not run")
	}
	return false
}

// heap is what the heap holds, in bytes.
func heap() float64 {
	runtime.GC() // twice: the first one only finds what finalizers and pools hold
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

func fillTable[V any](keys int) *keyTable[V] {
	random := rand.New(rand.NewPCG(1, 2))
	table := new(keyTable[V])
	for range keys {
		table.at(fingerprint{random.Uint64(), random.Uint64()})
	}
	return table
}

// The index is between 60 % and 90 % full once it has grown past its first
// size, which is what bounds the memory for any number of keys.
func TestKeyTableLoad(t *testing.T) {
	var table keyTable[badKeyStats]
	random := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for n := 1; n <= 200_000; n++ {
		table.at(fingerprint{random.Uint64(), random.Uint64()})
		load := float64(table.size) / float64(len(table.index))
		if load > 0.9 {
			t.Fatalf("%d keys: the index is %.3f full", n, load)
		}
		if n > 64 {
			worst = max(worst, 4/load)
		}
	}
	entry := float64(unsafe.Sizeof(keyEntry[badKeyStats]{}))
	if total := entry + worst; total >= 64 {
		t.Errorf("an entry takes %.0f bytes and up to %.1f of index: %.1f in all, the limit is 64", entry, worst, total)
	}
}

// Two seeds, two hashes: what collides in one does not in the other.
func TestFingerprints(t *testing.T) {
	prints := newFingerprinter()
	seen := map[fingerprint]string{}
	for i := range 10_000 {
		key := fmt.Sprintf("user_%d", i)
		print := prints.of([]byte(key))
		if print != prints.of([]byte(key)) {
			t.Fatalf("%s has two fingerprints", key)
		}
		if other, taken := seen[print]; taken {
			t.Fatalf("%s and %s have one fingerprint", key, other)
		}
		if print[0] == print[1] {
			t.Fatalf("%s: both halves are alike", key)
		}
		seen[print] = key
	}
}

func BenchmarkKeyTable(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]fingerprint, 1<<20)
	for i := range keys {
		keys[i] = fingerprint{random.Uint64(), random.Uint64()}
	}
	b.Run("insert", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; n < b.N; n += len(keys) {
			var table keyTable[int64]
			for i := range keys[:min(len(keys), b.N-n)] {
				table.at(keys[i])
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		var table keyTable[int64]
		for i := range keys {
			table.at(keys[i])
		}
		b.ResetTimer()
		for i := range b.N {
			if table.get(keys[i&(len(keys)-1)]) == nil {
				b.Fatal("a key is gone")
			}
		}
	})
}
