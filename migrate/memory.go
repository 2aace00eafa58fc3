package migrate

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"golang.org/x/sync/semaphore"
)

// A budget divides the memory that a phase may take (--memory) among what the
// phase holds. This is the only place that does so.
//
// What is bounded: what is fetched and not worked on yet, one batch when it is
// decompressed, batches to write, and what verify compares key by key. Batches
// that are large for the budget are let through a gate, so that several
// partitions do not have them at once.
//
// What is not: tables of keys, where decisions need them, grow with the topic
// (docs/design.md#memory lists them). They are watched. If --memory or
// GOMEMLIMIT was given and what must be kept does not fit, the phase ends with
// an error that says so; otherwise the limit of the garbage collector moves up
// with them. Neither bounded are the library's objects for the records of one
// batch: 200 bytes each, which is more than a record of less than that. The
// program itself, about 20 MiB, comes on top.
type budget struct {
	total int64
	firm  bool // it was given: nothing may take more

	readers      int   // partitions read at the same time
	expanded     int64 // aim for what one response expands to; up to three for each reader
	largestBatch int64 // of one batch, compressed and decompressed
	largeAtOnce  int64 // of all responses that expanded to far more than the aim
	batches      int64 // of batches that are filled or on their way
	senders      int   // requests on their way
	hugeAtOnce   int64 // of records to write that are larger than a batch should be
	reconcile    int64 // of what is compared key by key
	keysReplayed int64 // state keys that a rehearsal remembers
}

// Sizes of --memory.
const (
	// DefaultMemory is enough for every topic of usual batches. Without tables,
	// phases take 110 to 250 MiB with it (docs/performance.md).
	DefaultMemory = 256 << 20
	// SmallestMemory is the least that is accepted.
	SmallestMemory = 64 << 20
)

// What a rehearsal remembers at once if no memory was given: a gigabyte.
const (
	defaultReplayed = 12 << 20 // state keys
	replayedBytes   = 2 * 47   // of a state key and its business key at most (recovery.go)
)

// newBudget divides memory; 0 means that none was given. The shares are those
// that the tables of docs/performance.md were measured with at 256 MiB. More
// readers, senders or bytes on their way than these made nothing faster.
func newBudget(memory int64) budget {
	total := memory
	if total == 0 {
		total = DefaultMemory
	}
	b := budget{
		total: total, firm: memory != 0,
		readers:      int(clamp(total/(32<<20), 1, 4)),
		expanded:     clamp(total/128, 512<<10, 2<<20),
		largestBatch: min(total/8, 1<<30),
		largeAtOnce:  total / 4,
		batches:      clamp(total/8, 8<<20, 32<<20),
		senders:      int(clamp(total/(16<<20), 4, 16)),
		hugeAtOnce:   total / 8,
		reconcile:    total / 4,
		keysReplayed: defaultReplayed,
	}
	if b.firm {
		b.keysReplayed = total / 2 / replayedBytes
	}
	return b
}

func clamp(n, least, most int64) int64 { return min(max(n, least), most) }

// budget is that of a phase.
func (e Environment) budget() budget { return newBudget(e.Memory) }

// memoryFlag repeats --memory on a command line that is printed.
func (e Environment) memoryFlag() string {
	if e.Memory == 0 {
		return ""
	}
	return " --memory " + memoryText(e.Memory)
}

// LimitMemory makes the process keep to --memory: the soft limit of the
// garbage collector and the limits of the client library follow it. It gives
// the value for Environment.Memory: 0 if neither the flag nor GOMEMLIMIT says
// anything. To be called once, before anything is connected to.
//
// GOMEMLIMIT is Go's own way to say the same. It is taken where the flag is
// missing; where both say something, they must agree.
func LimitMemory(flag string) (int64, error) {
	memory := int64(0)
	if given := debug.SetMemoryLimit(-1); given != math.MaxInt64 {
		memory = given
	}
	if flag != "" {
		asked, err := parseMemory(flag)
		if err != nil {
			return 0, err
		}
		if memory != 0 && memory != asked {
			return 0, usage(fmt.Sprintf("--memory %s and GOMEMLIMIT=%s contradict each other", flag, os.Getenv("GOMEMLIMIT")),
				"give one of them; the limit of the garbage collector follows --memory")
		}
		memory = asked
	}
	if memory != 0 && memory < SmallestMemory {
		return 0, usage(fmt.Sprintf("a memory limit of %s is too little", memoryText(memory)),
			fmt.Sprintf("--memory, or GOMEMLIMIT, must be at least %s; %s is the default", memoryText(SmallestMemory), memoryText(DefaultMemory)))
	}
	b := newBudget(memory)
	debug.SetMemoryLimit(b.total)
	limitLibrary(b)
	return memory, nil
}

// memoryUnits are those of GOMEMLIMIT, with the short forms of Kubernetes.
var memoryUnits = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"B", 1},
}

func parseMemory(text string) (int64, error) {
	digits, unit := text, int64(1)
	for _, known := range memoryUnits {
		if before, found := strings.CutSuffix(text, known.name); found {
			digits, unit = before, known.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return 0, usage(fmt.Sprintf("--memory %q is no size", text), "write it as 256MiB or 1GiB")
	}
	return int64(n) * unit, nil
}

// memoryText is a size as --memory takes it.
func memoryText(n int64) string {
	for _, unit := range memoryUnits {
		if n >= unit.size && n%unit.size == 0 {
			return fmt.Sprintf("%d%s", n/unit.size, unit.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// check is asked every now and then. What is alive on the heap is what cannot
// be given back: with more than nine tenths of the limit the garbage collector
// would soon do nothing but look for garbage that is not there.
func (b budget) check() error {
	alive := aliveOnHeap()
	if alive < b.total/10*9 {
		return nil
	}
	if !b.firm {
		if limit := debug.SetMemoryLimit(-1); limit < 2*alive {
			debug.SetMemoryLimit(2 * alive)
		}
		return nil
	}
	runtime.GC() // the figure may be from a moment when a large batch was in work
	if alive = aliveOnHeap(); alive < b.total/10*9 {
		return nil
	}
	return &Failure{Kind: ErrPreflight,
		What: fmt.Sprintf("what must be remembered of the topic's keys does not fit into a memory limit of %s: %d MiB are in use", memoryText(b.total), alive>>20),
		Do:   "run the same command again with more: --memory " + memoryText(2*b.total) + ", or as much as the machine has (docs/design.md lists what grows with the keys)"}
}

// aliveOnHeap is what the last garbage collection found in use.
func aliveOnHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// gate lets things through that are large, so many bytes at a time. Something
// larger than the gate goes through alone.
type gate struct {
	size   int64
	weight *semaphore.Weighted
}

func newGate(size int64) *gate { return &gate{size: size, weight: semaphore.NewWeighted(size)} }

// enter waits for room. What it gives is to be handed to leave.
func (g *gate) enter(ctx context.Context, n int64) (int64, error) {
	n = min(n, g.size)
	if err := g.weight.Acquire(ctx, n); err != nil {
		return 0, err
	}
	return n, nil
}

func (g *gate) leave(n int64) { g.weight.Release(n) }
