package keycodec

import "testing"

// benchKey is a legacy key of 95 bytes, the size of an ordinary one.
var benchKey = []byte("tenant_user_123_12345_" + eventText + "_" + actionText)

var notEscaped = []byte("100%")

// TestAllocations holds the promise that a scan's memory does not grow with its records.
func TestAllocations(t *testing.T) {
	long := "a_business_key_of_more_than_the_256_bytes_that_fit_on_the_stack"
	for len(long) <= 256 {
		long += long
	}
	short, longKey := testKey("tenant_user_123"), testKey(long)
	short.KeyGroup = 12
	buffer := make([]byte, 0, 1024)
	check := func(name string, want float64, work func()) {
		t.Helper()
		if got := testing.AllocsPerRun(100, work); got != want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
	for _, f := range allFormats(t) {
		text, err := f.Append(nil, &short)
		if err != nil {
			t.Fatal(err)
		}
		var k Key
		var failure error
		check(f.Name()+" parse", 0, func() { failure = f.Parse(&k, text) })
		if failure != nil {
			t.Fatal(failure)
		}
		check(f.Name()+" append", 0, func() { buffer, failure = f.Append(buffer[:0], &short) })
		if failure != nil || string(buffer) != string(text) {
			t.Fatalf("%q, %v", buffer, failure)
		}
		for _, name := range PartitionerNames() {
			p, err := LookupPartitioner(name)
			if err != nil {
				t.Fatal(err)
			}
			check(f.Name()+" partition "+name, 0, func() { p.Partition(f, text, &k, 0, 64) })
		}
		check(f.Name()+" traits", 0, func() { k.Traits() })
	}
	for keyType, text := range map[KeyType]string{
		KeyString: "日本語_𝄞", KeyLong: "-42", KeyInt: "42", KeyDouble: "2.0E23", KeyBoolean: "true", KeyRowString: "+I[a]",
		KeyRowLong: "+I[1]", KeyRowInt: "+I[1]", KeyRowPickled: "+I[[-128, 4, 75, 1, 46]]",
	} {
		f, k := flinkAgents04Of(t, keyType), testKey(text)
		check("append "+string(keyType), 0, func() { buffer, _ = f.Append(buffer[:0], &k) })
	}
	check("is escaped", 0, func() { IsEscaped(notEscaped) })
	// A serialized key that outgrows its stack buffer moves to the heap.
	f := flinkAgents04Of(t, KeyString)
	check("append a long string", 1, func() { buffer, _ = f.Append(buffer[:0], &longKey) })
}

func BenchmarkParse(b *testing.B) {
	for _, f := range allFormats(b) {
		b.Run(f.Name(), func(b *testing.B) {
			var k Key
			source := testKey("tenant_user_123")
			source.KeyGroup = 12
			text, err := f.Append(nil, &source)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Parse(&k, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkConvert is what a migration does for each record.
func BenchmarkConvert(b *testing.B) {
	for _, f := range []Format{Escaped, LengthPrefixed, flinkAgents04Of(b, KeyString)} {
		b.Run(f.Name(), func(b *testing.B) {
			var k Key
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				err := Legacy.Parse(&k, benchKey)
				if err == nil {
					out, err = f.Append(out[:0], &k)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPartition(b *testing.B) {
	p, err := LookupPartitioner("flink-agents")
	if err != nil {
		b.Fatal(err)
	}
	var k Key
	if err := Legacy.Parse(&k, benchKey); err != nil {
		b.Fatal(err)
	}
	text, err := Escaped.Append(nil, &k)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Partition(Escaped, text, &k, 0, 64)
	}
}

func BenchmarkTraits(b *testing.B) {
	var k Key
	if err := Legacy.Parse(&k, benchKey); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		k.Traits()
	}
}

// BenchmarkDiagnose is the slow path: a topic where no key is good must still be scanned in time.
func BenchmarkDiagnose(b *testing.B) {
	var k Key
	key := append([]byte(nil), benchKey...)
	key[len(key)-1] = 'G'
	for b.Loop() {
		if Legacy.Parse(&k, key) == nil {
			b.Fatal("parsed")
		}
	}
}
