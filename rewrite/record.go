package rewrite

// Record is one Kafka record as the log holds it. Nothing in it is converted:
// the timestamp is the raw 64-bit number, null and empty stay apart, and
// headers keep their order, duplicates and null values.
//
// The slices belong to whoever made the record, usually a fetch buffer that is
// used again; code that keeps one must copy it.
type Record struct {
	Partition int32
	Offset    int64
	Timestamp int64  // milliseconds since 1970 by convention, -1 for none; raw
	Key       []byte // nil is null
	Value     []byte // nil is null: a tombstone. Empty is not nil
	Headers   []Header
}

// Header is one record header. A nil Value is a null value.
type Header struct {
	Key, Value []byte
}

// Size is the number of payload bytes of the record: key, value and headers.
func (r *Record) Size() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}
