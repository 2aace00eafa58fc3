package migrate

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// badKeys collects the keys that cannot be parsed. Statistics stay in memory,
// in a table of fixed-size entries; the keys themselves, which may be long, go
// to a temporary file in the run directory.
type badKeys struct {
	mu     sync.Mutex
	prints fingerprinter
	table  keyTable[badKeyStats]
	dir    runDir
	file   openFile
	buffer *bufio.Writer
	length int64
}

// badKeyStats is what is known of one key. Positions are the first and last by
// partition, then offset.
type badKeyStats struct {
	spooled                       int64 // place of the key in the file
	firstOffset, lastOffset       int64
	firstPartition, lastPartition int32
	records, tombstones           uint32
}

func newBadKeys(dir runDir, prints fingerprinter) (*badKeys, error) {
	file, err := dir.files.CreateTemp(dir.folder, ".keys-*")
	if err != nil {
		return nil, dir.unwritable("the spooled keys", err)
	}
	return &badKeys{prints: prints, dir: dir, file: file, buffer: bufio.NewWriterSize(file, 1<<16)}, nil
}

func (b *badKeys) close() error {
	return errors.Join(b.file.Close(), b.dir.files.Remove(b.file.Name()))
}

// add takes note of one record.
func (b *badKeys) add(r *rewrite.Record) error {
	stats := badKeyStats{firstPartition: r.Partition, firstOffset: r.Offset, lastPartition: r.Partition, lastOffset: r.Offset, records: 1}
	if r.Value == nil {
		stats.tombstones = 1
	}
	return b.insert(r.Key, stats)
}

// insert adds statistics of a key to what is known of it. A new key is spooled
// as one byte that tells null from others, its length in eight bytes, and its
// bytes.
func (b *badKeys) insert(key []byte, more badKeyStats) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	stats, isNew := b.table.at(b.prints.of(key))
	if isNew {
		*stats = more
		stats.spooled = b.length
		return b.spool(key)
	}
	if before(more.firstPartition, more.firstOffset, stats.firstPartition, stats.firstOffset) {
		stats.firstPartition, stats.firstOffset = more.firstPartition, more.firstOffset
	}
	if before(stats.lastPartition, stats.lastOffset, more.lastPartition, more.lastOffset) {
		stats.lastPartition, stats.lastOffset = more.lastPartition, more.lastOffset
	}
	stats.records += more.records
	stats.tombstones += more.tombstones
	return nil
}

func (b *badKeys) spool(key []byte) error {
	var head [9]byte
	if key == nil {
		head[0] = 1
	}
	binary.LittleEndian.PutUint64(head[1:], uint64(len(key)))
	for _, part := range [][]byte{head[:], key} {
		if _, err := b.buffer.Write(part); err != nil {
			return b.dir.unwritable("the spooled keys", err)
		}
		b.length += int64(len(part))
	}
	return nil
}

func before(p int32, o int64, q int32, w int64) bool { return p < q || p == q && o < w }

// each calls fn for every key, ordered by first position.
func (b *badKeys) each(fn func(key []byte, stats *badKeyStats) error) error {
	if err := b.buffer.Flush(); err != nil {
		return b.dir.unwritable("the spooled keys", err)
	}
	order := make([]uint32, b.table.size)
	for i := range order {
		order[i] = uint32(i)
	}
	sort.Slice(order, func(i, j int) bool {
		x, y := &b.table.entry(int(order[i])).value, &b.table.entry(int(order[j])).value
		return before(x.firstPartition, x.firstOffset, y.firstPartition, y.firstOffset)
	})
	for _, i := range order {
		stats := &b.table.entry(int(i)).value
		key, err := b.key(stats.spooled)
		if err != nil {
			return b.dir.unreadable("the spooled keys", err)
		}
		if err := fn(key, stats); err != nil {
			return err
		}
	}
	return nil
}

func (b *badKeys) key(at int64) ([]byte, error) {
	var head [9]byte
	if _, err := b.file.ReadAt(head[:], at); err != nil {
		return nil, err
	}
	if head[0] == 1 {
		return nil, nil
	}
	key := make([]byte, binary.LittleEndian.Uint64(head[1:]))
	if len(key) == 0 {
		return key, nil
	}
	_, err := b.file.ReadAt(key, at+int64(len(head)))
	return key, err
}

// badKeyEntry is a key's line of unparseable.jsonl.
func badKeyEntry(rules *rewrite.Rules, key []byte, stats *badKeyStats) (report.BadKey, error) {
	_, err := rules.Translate(nil, new(keycodec.Key), key)
	problem, ok := errors.AsType[*keycodec.ParseError](err)
	if !ok {
		return report.BadKey{}, fmt.Errorf("a key in the spool parses: %q", key)
	}
	decision := rewrite.Quarantine.String()
	switch repair := rules.Repair(key); {
	case repair != nil:
		decision = string(repair.Action)
	case rules.OnUnparseable == rewrite.PolicyFail:
		decision = rewrite.Refuse.String()
	case rules.Copies(key):
		decision = rewrite.Copy.String()
	}
	entry := report.BadKey{
		KeyBase64: base64OrNull(key), Key: report.Printable(key),
		Reason: string(problem.Reason), Field: problem.Field, Byte: problem.Offset, Detail: problem.Detail,
		Records: int64(stats.records), Tombstones: int64(stats.tombstones),
		First:    report.Position{Partition: stats.firstPartition, Offset: stats.firstOffset},
		Last:     report.Position{Partition: stats.lastPartition, Offset: stats.lastOffset},
		Decision: decision,
	}
	entry.Suggestion = suggestion(rules, key)
	return entry, nil
}

func base64OrNull(data []byte) *string {
	if data == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(data)
	return &text
}

// quarantined is a line of quarantine.jsonl: a whole record. Base64 is null
// for null.
type quarantined struct {
	Partition   int32               `json:"partition"`
	Offset      int64               `json:"offset"`
	TimestampMS int64               `json:"timestamp_ms"`
	Reason      string              `json:"reason"`
	KeyBase64   *string             `json:"key_base64"`
	ValueBase64 *string             `json:"value_base64"`
	Headers     []quarantinedHeader `json:"headers"`
}

type quarantinedHeader struct {
	KeyBase64   *string `json:"key_base64"`
	ValueBase64 *string `json:"value_base64"`
}

// newQuarantined is the line of a record that a decision sets aside.
func newQuarantined(r *rewrite.Record, d *rewrite.Decision) quarantined {
	reason := d.Reason.String()
	if d.Problem != nil && d.Reason != rewrite.IncompatibleValue {
		reason = string(d.Problem.Reason)
	}
	line := quarantined{Partition: r.Partition, Offset: r.Offset, TimestampMS: r.Timestamp, Reason: reason,
		KeyBase64: base64OrNull(r.Key), ValueBase64: base64OrNull(r.Value), Headers: []quarantinedHeader{}}
	for _, h := range r.Headers {
		line.Headers = append(line.Headers, quarantinedHeader{base64OrNull(h.Key), base64OrNull(h.Value)})
	}
	return line
}

// spools are those of one file, by source partition.
type spools []spool

func (d runDir) newSpools(partitions int32) spools {
	s := make(spools, partitions)
	for i := range s {
		s[i].dir = d
	}
	return s
}

// close removes the temporary files. Nothing depends on how that goes any more,
// so a failure is only logged.
func (s spools) close(env Environment) {
	for i := range s {
		if err := s[i].close(); err != nil {
			env.Logf("remove a temporary file: %v", err)
		}
	}
}

// spool keeps the lines that one source partition adds to a file in a temporary
// file until all partitions are read, so that the final file is in order
// whatever partition was read first.
type spool struct {
	dir     runDir
	file    openFile // nil before the first record
	buffer  *bufio.Writer
	encoder *json.Encoder
	lines   int64
}

func (q *spool) add(line any) error {
	if q.file == nil {
		file, err := q.dir.files.CreateTemp(q.dir.folder, ".lines-*")
		if err != nil {
			return q.dir.unwritable("the spooled records", err)
		}
		q.file, q.buffer = file, bufio.NewWriterSize(file, 1<<16)
		q.encoder = json.NewEncoder(q.buffer)
		q.encoder.SetEscapeHTML(false)
	}
	if err := q.encoder.Encode(line); err != nil {
		return q.dir.unwritable("the spooled records", err)
	}
	q.lines++
	return nil
}

// copyTo appends the spooled lines to w.
func (q *spool) copyTo(w io.Writer) error {
	if q.file == nil {
		return nil
	}
	if err := q.buffer.Flush(); err != nil {
		return q.dir.unwritable("the spooled records", err)
	}
	if _, err := q.file.Seek(0, io.SeekStart); err != nil {
		return q.dir.unreadable("the spooled records", err)
	}
	in := &noteErrors{Reader: q.file}
	if _, err := io.Copy(w, in); in.err != nil {
		return q.dir.unreadable("the spooled records", in.err)
	} else if err != nil {
		return err
	}
	return nil
}

func (q *spool) close() error {
	if q.file == nil {
		return nil
	}
	return errors.Join(q.file.Close(), q.dir.files.Remove(q.file.Name()))
}
