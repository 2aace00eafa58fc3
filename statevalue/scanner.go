package statevalue

import "bytes"

// scanner walks over JSON text without building anything from it. It checks no
// more than it needs to find its way: that brackets and strings end, and that
// names have values.
type scanner struct {
	text []byte
	at   int
}

// deepest bounds how deep values may nest; the runtime's own parser reads no
// deeper either.
const deepest = 1000

// next is the first byte of what follows, 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take passes over the byte c, if it follows.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// object hands each name of an object to fn, which must pass over its value.
func (s *scanner) object(fn func(name []byte) bool) bool {
	if !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		name, ok := s.string()
		if !ok || !s.take(':') || !fn(name) {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// array calls fn for each element of an array, which it must pass over. What is
// no array, null above all, is passed over as a whole.
func (s *scanner) array(fn func() bool) bool {
	if s.next() != '[' {
		return s.skip()
	}
	s.at++
	if s.take(']') {
		return true
	}
	for {
		if !fn() {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// string is what stands between the quotes of a string, its escapes as they are.
func (s *scanner) string() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	from := s.at
	for s.at < len(s.text) {
		quote := bytes.IndexByte(s.text[s.at:], '"')
		if quote < 0 {
			break
		}
		escape := bytes.IndexByte(s.text[s.at:s.at+quote], '\\')
		if escape < 0 {
			s.at += quote + 1
			return s.text[from : s.at-1], true
		}
		s.at += escape + 2 // whatever is escaped, a quote too
	}
	return nil, false
}

// stringInto reads a string; text stays as it is if something else stands there.
func (s *scanner) stringInto(text *[]byte) bool {
	if s.next() != '"' {
		return s.skip()
	}
	read, ok := s.string()
	*text = read
	return ok
}

// skip passes over one value.
func (s *scanner) skip() bool {
	switch s.next() {
	case '"':
		_, ok := s.string()
		return ok
	case '{', '[':
		return s.skipNested()
	}
	return s.word()
}

// skipNested passes over an object or array. Its depth costs no stack.
func (s *scanner) skipNested() bool {
	var closing [deepest]byte
	depth := 0
	for {
		switch c := s.next(); c {
		case '"':
			if _, ok := s.string(); !ok {
				return false
			}
		case '{', '[':
			if depth == deepest {
				return false
			}
			closing[depth] = c + 2 // in ASCII the closing one
			depth++
			s.at++
		case '}', ']':
			depth--
			if closing[depth] != c {
				return false
			}
			s.at++
			if depth == 0 {
				return true
			}
		case ',', ':':
			s.at++
		default:
			if !s.word() {
				return false
			}
		}
	}
}

// word passes over a number, true, false or null.
func (s *scanner) word() bool {
	from := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'E' {
			s.at++
			continue
		}
		break
	}
	return s.at > from
}
