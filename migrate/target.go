package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"rekey/report"
)

// Origins of a target setting in reports.
const (
	originSource = "source"
	originGiven  = "given"
	originRekey  = "rekey"
	originLeft   = "not carried over"
)

// notCarried are settings of the source topic that a copy must not or cannot
// have, with the reason.
var notCarried = map[string]string{
	"leader.replication.throttled.replicas":   "names replicas of the source topic",
	"follower.replication.throttled.replicas": "names replicas of the source topic",
	"message.format.version":                  "gone since Kafka 4.0",
	"message.downconversion.enable":           "gone since Kafka 4.0",
	"remote.storage.enable":                   "tiered storage takes no compacted topics",
	"local.retention.ms":                      "belongs to tiered storage",
	"local.retention.bytes":                   "belongs to tiered storage",
}

// targetConfigs derives the settings that the target topic is to have after
// the copy: the source's own ones, except what must not be carried over, with
// what the operator gave on top.
func targetConfigs(source map[string]topicConfig, given map[string]string) []report.Config {
	var configs []report.Config
	for _, name := range slices.Sorted(maps.Keys(source)) {
		setting := source[name]
		if _, overridden := given[name]; overridden || !setting.own || name == "cleanup.policy" {
			continue
		}
		config := report.Config{Name: name, Value: setting.value, Origin: originSource}
		if why, left := notCarried[name]; left {
			config.Origin, config.Note = originLeft, why
		}
		if name == "message.timestamp.type" && setting.value != createTime {
			config.Origin, config.Note = originLeft, "it would replace the records' timestamps"
		}
		configs = append(configs, config)
	}
	if _, overridden := given["cleanup.policy"]; !overridden {
		config := report.Config{Name: "cleanup.policy", Value: "compact", Origin: originRekey}
		if was := source["cleanup.policy"].value; was != "compact" && was != "" {
			config.Note = fmt.Sprintf("the source has %q", was)
		}
		configs = append(configs, config)
	}
	if _, overridden := given["message.timestamp.type"]; !overridden && source["message.timestamp.type"].value != createTime {
		configs = append(configs, report.Config{Name: "message.timestamp.type", Value: createTime, Origin: originRekey, Note: "keeps the records' timestamps"})
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		configs = append(configs, report.Config{Name: name, Value: given[name], Origin: originGiven})
	}
	return configs
}

const createTime = "CreateTime"

// inForce are the planned settings as a map, without those not carried over.
func inForce(configs []report.Config) map[string]string {
	out := map[string]string{}
	for _, config := range configs {
		if config.Origin != originLeft {
			out[config.Name] = config.Value
		}
	}
	return out
}

// forever is the longest time that a setting in milliseconds can hold.
const forever = "9223372036854775807"

// duringCopy are settings that hold while the copy runs and are put back
// afterwards. Segments roll by record timestamps, so a copy that interleaves
// old and new records would make thousands of tiny ones; and the log cleaner
// must leave the target alone until the copy is complete, because resume
// checks that what is there is an exact prefix of what the plan demands.
var duringCopy = map[string]string{
	"segment.ms":            forever,
	"min.compaction.lag.ms": forever,
}

// onlyAfterCopy are settings that contradict duringCopy; they are set when
// the copy is complete.
var onlyAfterCopy = []string{"max.compaction.lag.ms"}

// copyConfigs are the settings to create the target with.
func copyConfigs(planned []report.Config) map[string]string {
	configs := inForce(planned)
	maps.Copy(configs, duringCopy)
	for _, name := range onlyAfterCopy {
		delete(configs, name)
	}
	return configs
}

// temporaryConfigs are the changes that put the settings of the copy in force.
func temporaryConfigs() map[string]*string {
	changes := map[string]*string{}
	for name, value := range duringCopy {
		changes[name] = &value
	}
	for _, name := range onlyAfterCopy {
		changes[name] = nil
	}
	return changes
}

// finalConfigs are the changes that put the planned settings in force once the
// copy is complete; nil means back to the brokers' default.
func finalConfigs(planned []report.Config) map[string]*string {
	changes := map[string]*string{}
	wanted := inForce(planned)
	for name := range duringCopy {
		changes[name] = nil
		if value, ok := wanted[name]; ok {
			changes[name] = &value
		}
	}
	for _, name := range onlyAfterCopy {
		if value, ok := wanted[name]; ok {
			changes[name] = &value
		}
	}
	return changes
}

// preflight are reasons not to write the first record, all at once.
type preflight []string

func (f *preflight) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// failure is ErrPreflight with everything that was found, or nil.
func (f preflight) failure(what, do string) error {
	if len(f) == 0 {
		return nil
	}
	return &Failure{Kind: ErrPreflight, What: what + ":\n  - " + strings.Join(f, "\n  - "), Do: do}
}

// checkPermissions names what the principal may not do with a topic. Brokers
// that do not say are asked by doing, which fails before the first write too.
func (f *preflight) checkPermissions(state topicState, wanted ...string) {
	for _, operation := range state.permitted.missing(wanted...) {
		f.add("not permitted: %s on topic %s", operation, state.name)
	}
}

// checkTargetConfigs compares the settings in force on the target with what
// the records to be copied need.
func (f *preflight) checkTargetConfigs(configs map[string]topicConfig, planned map[string]string, e extremes, nowMS int64) {
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		if have, known := configs[name]; known && !sameSetting(have.value, planned[name]) {
			f.add("target setting %s is %q, the plan says %q", name, have.value, planned[name])
		}
	}
	if have := configs["message.timestamp.type"].value; have != "" && have != createTime {
		f.add("target setting message.timestamp.type is %s: the broker would replace every timestamp; set it to %s", have, createTime)
	}
	at := func(p report.Position) string {
		return fmt.Sprintf("source partition %d, offset %d", p.Partition, p.Offset)
	}
	if limit, ok := number(configs, "max.message.bytes"); ok && e.Largest > limit {
		f.add("the largest record (%s) needs a batch of up to %d bytes, the target takes %d: plan again with --target-config max.message.bytes=%d", at(e.LargestAt), e.Largest, limit, e.Largest)
	}
	if e.Records == 0 || e.Oldest == -1 && e.Newest == -1 {
		return
	}
	past, hasPast := number(configs, "message.timestamp.before.max.ms")
	future, hasFuture := number(configs, "message.timestamp.after.max.ms")
	if !hasPast && !hasFuture {
		past, hasPast = number(configs, "message.timestamp.difference.max.ms")
		future, hasFuture = past, hasPast
	}
	if age := nowMS - e.Oldest; hasPast && age > past {
		f.add("the oldest record's timestamp (%s) is %d ms old, the target takes %d: plan again with --target-config message.timestamp.before.max.ms=%s", at(e.OldestAt), age, past, forever)
	}
	if ahead := e.Newest - nowMS; hasFuture && ahead > future {
		f.add("the newest record's timestamp (%s) is %d ms in the future, the target takes %d: plan again with --target-config message.timestamp.after.max.ms=%s", at(e.NewestAt), ahead, future, forever)
	}
}

// checkCleanup refuses policies under which records vanish.
func (f *preflight) checkCleanup(configs map[string]topicConfig) {
	policy := configs["cleanup.policy"].value
	if policy == "" {
		return // the broker does not say
	}
	policies := strings.Split(strings.ReplaceAll(policy, " ", ""), ",")
	if !slices.Contains(policies, "compact") {
		f.add("target setting cleanup.policy is %q: the job needs a compacted topic", policy)
	}
	if slices.Contains(policies, "delete") {
		for _, name := range []string{"retention.ms", "retention.bytes"} {
			if limit, ok := number(configs, name); ok && limit >= 0 {
				f.add("target setting cleanup.policy is %q with %s = %d: records with old timestamps would be deleted at once; use cleanup.policy=compact", policy, name, limit)
			}
		}
	}
}

// sameSetting compares two values of a setting. Brokers give back what they
// understood: 0.0 for 0, and lists without blanks.
func sameSetting(a, b string) bool {
	wholeA, errA := strconv.ParseInt(a, 10, 64)
	wholeB, errB := strconv.ParseInt(b, 10, 64)
	if errA == nil && errB == nil {
		return wholeA == wholeB
	}
	numberA, errA := strconv.ParseFloat(a, 64)
	numberB, errB := strconv.ParseFloat(b, 64)
	if errA == nil && errB == nil {
		return numberA == numberB
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }
	return plain(a) == plain(b)
}

// number is a setting as a number; false if it is missing or not one.
func number(configs map[string]topicConfig, name string) (int64, bool) {
	n, err := strconv.ParseInt(configs[name].value, 10, 64)
	return n, err == nil
}

// checkPartitions refuses a topic that cannot take writes or be read.
func (f *preflight) checkPartitions(side string, state topicState, minInSync int64, fullISR bool) {
	for p, partition := range state.partitions {
		switch {
		case partition.leader < 0:
			f.add("%s partition %d has no leader", side, p)
		case int64(partition.isr) < minInSync:
			f.add("%s partition %d has %d replicas in sync, min.insync.replicas wants %d", side, p, partition.isr, minInSync)
		case fullISR && partition.isr < partition.replicas:
			f.add("%s partition %d has %d of %d replicas in sync; a copy reads best from a healthy topic: wait until all are", side, p, partition.isr, partition.replicas)
		}
	}
}
