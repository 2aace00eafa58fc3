package migrate

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"rekey/report"
)

// marker is a recovery marker: for each partition of the source the next offset
// to read. The job saves one with every checkpoint, the ends of the topic at
// that moment, and its recovery reads from there.
type marker map[int32]int64

// MarkerAtEnd stands for the marker of a savepoint that is taken now.
const MarkerAtEnd = "at-end"

// markerSet is what one --marker names: the markers of one checkpoint or
// savepoint, one from each subtask, in no particular order.
type markerSet struct {
	name    string // the file, or MarkerAtEnd
	markers []marker
	// What the file says the offsets belong to; "" where it says nothing.
	topic, topicID string
}

// merged is what recovery makes of several markers: the lowest offset of each
// partition.
func (s markerSet) merged() marker {
	lowest := marker{}
	for _, m := range s.markers {
		for partition, offset := range m {
			if known, ok := lowest[partition]; !ok || offset < known {
				lowest[partition] = offset
			}
		}
	}
	return lowest
}

// markerAt is the marker of a savepoint taken when the topic has these ends.
func markerAt(ends []int64) marker {
	m := make(marker, len(ends))
	for partition, end := range ends {
		m[int32(partition)] = end
	}
	return m
}

// partitions are the partitions that a marker names, in order.
func (m marker) partitions() []int32 { return slices.Sorted(maps.Keys(m)) }

// readMarkers reads a marker file. Each of these is one:
//
//	{"offsets": {"0": 123, "1": 99}}
//	[{"offsets": {"0": 123}}, {"offsets": {"0": 120}}]
//	the plan that Flink Agents' own cleanup of action state writes
//
// The last has topic, topicId, schemaVersion, planId and sourceRecoveryPoint
// beside its offsets. A list of such objects is accepted as well.
//
// What is wrong with a file is ErrUsage and names the place in it.
func readMarkers(path string) (markerSet, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return markerSet{}, &Failure{Kind: ErrUsage, What: "cannot read the marker file", Cause: err,
			Do: `name a file that holds {"offsets": {"0": 123, …}}`}
	}
	set, err := parseMarkers(content)
	if err != nil {
		return markerSet{}, &Failure{Kind: ErrUsage, What: path + " is no marker file", Cause: err,
			Do: `a marker file holds {"offsets": {"0": 123, …}}, a list of such objects, or Flink Agents' cleanup plan`}
	}
	set.name = path
	return set, nil
}

func parseMarkers(content []byte) (markerSet, error) {
	p := markerParser{content: content, decoder: json.NewDecoder(bytes.NewReader(content))}
	p.decoder.UseNumber()
	set, err := p.document()
	if err != nil {
		return markerSet{}, fmt.Errorf("line %d: %w", p.line(), err)
	}
	return set, nil
}

// markerParser reads a marker file token by token. The decoder would convert
// and forgive: take the last of two equal names, any case, any number. An
// offset that is not what somebody meant costs states.
type markerParser struct {
	content []byte
	decoder *json.Decoder
}

// line is the number of the line that was read last.
func (p *markerParser) line() int {
	return bytes.Count(p.content[:p.decoder.InputOffset()], []byte{'\n'}) + 1
}

// token is the next token; where something else follows is told by the caller.
func (p *markerParser) token() (json.Token, error) {
	token, err := p.decoder.Token()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file ends too early")
	}
	return token, err
}

func (p *markerParser) document() (markerSet, error) {
	var set markerSet
	token, err := p.token()
	if err != nil {
		return set, err
	}
	switch token {
	case json.Delim('{'):
		if err := p.object(&set, "the file"); err != nil {
			return set, err
		}
	case json.Delim('['):
		for p.decoder.More() {
			place := fmt.Sprintf("entry %d of the list", len(set.markers)+1)
			if token, err = p.token(); err != nil {
				return set, err
			}
			if token != json.Delim('{') {
				return set, fmt.Errorf("%s is %s, want an object with offsets", place, describe(token))
			}
			if err := p.object(&set, place); err != nil {
				return set, err
			}
		}
		if _, err := p.token(); err != nil { // the closing bracket
			return set, err
		}
		if len(set.markers) == 0 {
			return set, errors.New("the list is empty: a job without markers recovers nothing")
		}
	default:
		return set, fmt.Errorf("the file holds %s, want an object or a list of objects", describe(token))
	}
	if _, err := p.decoder.Token(); !errors.Is(err, io.EOF) {
		return set, errors.New("something follows the marker")
	}
	return set, nil
}

// cleanupPlan is what a marker object may hold beside its offsets, under the
// names that Flink Agents gives to it.
type cleanupPlan struct {
	topic, topicID, planID, recoveryPoint string
}

// object reads one object, of which the opening brace was read already.
func (p *markerParser) object(set *markerSet, place string) error {
	var offsets marker
	var plan cleanupPlan
	texts := map[string]*string{"topic": &plan.topic, "topicId": &plan.topicID, "planId": &plan.planID, "sourceRecoveryPoint": &plan.recoveryPoint}
	seen := map[string]bool{}
	for p.decoder.More() {
		token, err := p.token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if seen[name] {
			return fmt.Errorf("%s has the field %s twice", place, report.Printable([]byte(name)))
		}
		seen[name] = true
		switch {
		case name == "offsets":
			if offsets, err = p.offsets(place); err != nil {
				return err
			}
		case name == "schemaVersion":
			if token, err = p.token(); err != nil {
				return err
			}
			if token != json.Number("1") {
				return fmt.Errorf("schemaVersion of %s is %s, only 1 is known", place, describe(token))
			}
		case texts[name] != nil:
			if token, err = p.token(); err != nil {
				return err
			}
			text, ok := token.(string)
			if !ok || strings.TrimSpace(text) == "" {
				return fmt.Errorf("%s of %s is %s, want a text", name, place, describe(token))
			}
			*texts[name] = text
		default:
			return fmt.Errorf("%s has an unknown field %s", place, report.Printable([]byte(name)))
		}
	}
	if _, err := p.token(); err != nil { // the closing brace
		return err
	}
	switch {
	case offsets == nil:
		return fmt.Errorf("%s has no offsets", place)
	case plan.planID != "" && plan.planID != plan.id(offsets):
		return fmt.Errorf("planId of %s does not match its content: the cleanup plan was edited", place)
	case len(set.markers) > 0 && (plan.topic != set.topic || plan.topicID != set.topicID):
		return fmt.Errorf("%s is of another topic than the entry before it", place)
	}
	set.markers = append(set.markers, offsets)
	set.topic, set.topicID = plan.topic, plan.topicID
	return nil
}

// offsets reads the map from partition to offset.
func (p *markerParser) offsets(place string) (marker, error) {
	token, err := p.token()
	if err != nil {
		return nil, err
	}
	if token != json.Delim('{') {
		return nil, fmt.Errorf("the offsets of %s are %s, want an object", place, describe(token))
	}
	offsets := marker{}
	for p.decoder.More() {
		if token, err = p.token(); err != nil {
			return nil, err
		}
		name, _ := token.(string)
		partition, err := decimal(name, 1<<31-1)
		if err != nil {
			return nil, fmt.Errorf("%s, offsets: %s is no partition number: %w", place, report.Printable([]byte(name)), err)
		}
		if _, twice := offsets[int32(partition)]; twice {
			return nil, fmt.Errorf("%s has partition %d twice", place, partition)
		}
		if token, err = p.token(); err != nil {
			return nil, err
		}
		number, ok := token.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%s, partition %d: the offset is %s, want a number", place, partition, describe(token))
		}
		offset, err := decimal(number.String(), 1<<63-1)
		if err != nil {
			return nil, fmt.Errorf("%s, partition %d: %s is no offset: %w", place, partition, number, err)
		}
		offsets[int32(partition)] = offset
	}
	if _, err := p.token(); err != nil { // the closing brace
		return nil, err
	}
	if len(offsets) == 0 {
		return nil, fmt.Errorf("%s names no partition", place)
	}
	return offsets, nil
}

// decimal parses canonical digits, and says why a text is none.
func decimal(text string, limit int64) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case strings.HasPrefix(text, "-"):
		return 0, errors.New("it is negative")
	case errors.Is(err, strconv.ErrRange), err == nil && n > uint64(limit):
		return 0, fmt.Errorf("it is above %d", limit)
	case err != nil:
		return 0, errors.New("it is no whole decimal number")
	case strconv.FormatUint(n, 10) != text:
		return 0, errors.New("it has a leading zero")
	}
	return int64(n), nil
}

// describe is a JSON token for an error message.
func describe(token json.Token) string {
	switch token := token.(type) {
	case nil:
		return "null"
	case json.Delim:
		if token == '[' {
			return "a list"
		}
		return "an object"
	case string:
		return report.Printable([]byte(token))
	}
	return fmt.Sprint(token)
}

// id is the planId that Flink Agents gives to a cleanup plan: a digest of its
// content.
func (c cleanupPlan) id(offsets marker) string {
	var text strings.Builder
	fmt.Fprintf(&text, "1\n%s\n%s\n%s\n", c.recoveryPoint, c.topic, c.topicID)
	for _, partition := range offsets.partitions() {
		fmt.Fprintf(&text, "%d=%d\n", partition, offsets[partition])
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:])
}

// checkSource refuses markers of another topic than the plan's source. Missing
// partitions and offsets beyond the log are no matter for refusal: each release
// of the runtime has its own way with them, see recovery.
func (s markerSet) checkSource(p *plan) error {
	const advice = "take the marker of a savepoint of the job that writes to the source topic of this run directory"
	if s.topic != "" && s.topic != p.Source.Topic {
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("%s is for the topic %s, the source is %s", s.name, s.topic, p.Source.Topic), Do: advice}
	}
	if s.topicID != "" && !sameTopicID(s.topicID, p.Source.TopicID) {
		return &Failure{Kind: ErrChanged, What: fmt.Sprintf("%s is for the topic id %s, the source %s has the id %s: the topic was re-created, or it is another one",
			s.name, s.topicID, p.Source.Topic, p.Source.TopicID), Do: advice}
	}
	for _, m := range s.markers {
		for _, partition := range m.partitions() {
			if partition >= p.Source.Partitions {
				return usage(fmt.Sprintf("%s names partition %d, but %s has the partitions 0 to %d", s.name, partition, p.Source.Topic, p.Source.Partitions-1), advice)
			}
		}
	}
	return nil
}

// sameTopicID compares topic ids in either of their text forms: base64 as Kafka
// shows them, or the UUID form of other tools.
func sameTopicID(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := topicUUID(a)
	y, errY := topicUUID(b)
	return errX == nil && errY == nil && x == y
}

func topicUUID(text string) (uuid.UUID, error) {
	if raw, err := base64.RawURLEncoding.Strict().DecodeString(text); err == nil && len(raw) == 16 {
		return uuid.FromBytes(raw)
	}
	return uuid.Parse(text)
}
