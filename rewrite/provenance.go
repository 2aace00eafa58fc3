package rewrite

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"

	"rekey/keycodec"
)

// ProvenanceHeader is the name of the one header that a migration adds to each
// record it writes. Its value is "<partition>:<offset>" of the source record,
// "<partition>:<offset>:<round>" if it was kept aside at first and came with a
// replay, all canonical decimals; or on padding records "padding", with
// ":<i>/<n>" behind it where shard i of n wrote it. Resume, verify and offset
// translation rest on it alone, so nothing else has to be stored.
const ProvenanceHeader = "rekey-source"

const paddingMark = "padding"

// PaddingBusinessKey is the business key of padding records. Their state key
// is this with sequence 0 and nil UUIDs, in the target's format; where that
// keeps only a digest of the business key, see PaddingKey.
const PaddingBusinessKey = "rekey-padding"

// Provenance is the source position of a record on the target.
type Provenance struct {
	Padding   bool     // written to move the next offset; came from no source record
	Writer    Division // of padding
	Partition int32
	Offset    int64
	Round     int32 // of the replay that wrote it; 0 for the copy itself
}

// AppendProvenance appends the header value for a source position. Source
// offsets rise along each pair of partitions within one round; without the round
// a replayed record would look out of order.
func AppendProvenance(dst []byte, partition int32, offset int64, round int32) []byte {
	dst = strconv.AppendInt(dst, int64(partition), 10)
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, offset, 10)
	if round == 0 {
		return dst
	}
	dst = append(dst, ':')
	return strconv.AppendInt(dst, int64(round), 10)
}

// PaddingProvenance is the header value of the padding that a division writes.
func PaddingProvenance(d Division) []byte {
	if d == Whole {
		return []byte(paddingMark)
	}
	return []byte(paddingMark + ":" + d.String())
}

// IsPadding says whether a header value is that of padding.
func IsPadding(value []byte) bool {
	p, err := ParseProvenance(value)
	return err == nil && p.Padding
}

// ParseProvenance reads a header value. Only the canonical form is accepted,
// so that parsing and appending are inverse.
func ParseProvenance(value []byte) (Provenance, error) {
	if string(value) == paddingMark {
		return Provenance{Padding: true}, nil
	}
	if writer, found := bytes.CutPrefix(value, []byte(paddingMark+":")); found {
		d, err := ParseDivision(writer)
		if err != nil {
			return Provenance{}, fmt.Errorf("%s header %q: %w", ProvenanceHeader, value, err)
		}
		return Provenance{Padding: true, Writer: d}, nil
	}
	left, right, found := bytes.Cut(value, []byte{':'})
	if !found {
		return Provenance{}, fmt.Errorf("%s header %q is neither <partition>:<offset> nor %q", ProvenanceHeader, value, paddingMark)
	}
	partition, ok := canonicalDecimal(left, 1<<31-1)
	if !ok {
		return Provenance{}, fmt.Errorf("%s header %q: the partition is no canonical decimal below 2^31", ProvenanceHeader, value)
	}
	round := uint64(0)
	right, last, replayed := bytes.Cut(right, []byte{':'})
	if replayed {
		if round, ok = canonicalDecimal(last, 1<<31-1); !ok || round == 0 {
			return Provenance{}, fmt.Errorf("%s header %q: the round is no canonical decimal from 1 to 2^31-1", ProvenanceHeader, value)
		}
	}
	offset, ok := canonicalDecimal(right, 1<<63-1)
	if !ok {
		return Provenance{}, fmt.Errorf("%s header %q: the offset is no canonical decimal below 2^63", ProvenanceHeader, value)
	}
	return Provenance{Partition: int32(partition), Offset: int64(offset), Round: int32(round)}, nil
}

// canonicalDecimal parses digits without sign or leading zero, without
// allocating: it runs once for each record on the target.
func canonicalDecimal(text []byte, limit uint64) (uint64, bool) {
	if len(text) == 0 || len(text) > 19 || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	var n uint64 // 19 digits cannot overflow 64 bits
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n <= limit
}

// FindProvenance gives the value of the provenance header, if the record has
// one. It looks at the last header first: that is where a migration puts it.
func FindProvenance(headers []Header) ([]byte, bool) {
	for i := len(headers) - 1; i >= 0; i-- {
		if string(headers[i].Key) == ProvenanceHeader {
			return headers[i].Value, true
		}
	}
	return nil, false
}

// PaddingKey is the reserved state key of padding records in the target's
// format.
//
// A flink-agents-0.4 key has a digest of the serialized business key, and a job
// whose keys are numbers has no key that prints as PaddingBusinessKey. There the
// digest is that of the text itself, in key group 0, which every job has. No
// key of a job can have it: none of their types serializes to these bytes.
func PaddingKey(to keycodec.Format) ([]byte, error) {
	key := keycodec.Key{BusinessKey: []byte(PaddingBusinessKey), KeyGroup: keycodec.NoKeyGroup}
	if to.Name() == keycodec.NameFlinkAgents04 {
		sum := sha256.Sum256(key.BusinessKey)
		key = keycodec.Key{KeyGroup: 0, Digest: base64.StdEncoding.AppendEncode(nil, sum[:])}
	}
	return to.Append(nil, &key)
}
