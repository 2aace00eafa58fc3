package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// jaasEntry is one line of Java's login configuration, such as
//
//	org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";
type jaasEntry struct {
	module  string // the last part of the class name
	options map[string]string
	used    map[string]bool
}

// parseJAAS reads what sasl.jaas.config holds, as Kafka's clients do: words,
// quoted where they hold anything but letters, digits and - _ $ . and a
// semicolon at the end. Errors name options, never their values.
func parseJAAS(text string) (*jaasEntry, error) {
	words := jaasWords{text: text}
	class, err := words.next()
	if err != nil {
		return nil, err
	}
	flag, err := words.next()
	if err != nil {
		return nil, err
	}
	switch strings.ToLower(flag.text) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return nil, errors.New("want LoginModule required option=\"value\" …;")
	}
	e := &jaasEntry{module: class.text[strings.LastIndexByte(class.text, '.')+1:], options: map[string]string{}, used: map[string]bool{}}
	for {
		name, err := words.next()
		if err != nil {
			return nil, err
		}
		if name.sign == ';' {
			if rest, err := words.next(); err == nil && rest.sign != 0 || err == nil && rest.text != "" {
				return nil, errors.New("more than one login module; give one")
			}
			return e, nil
		}
		if name.sign != 0 || name.quoted {
			return nil, errors.New("a word stands where the name of an option should be; is a quote missing?")
		}
		equals, err := words.next()
		if err != nil {
			return nil, err
		}
		if equals.sign != '=' {
			return nil, fmt.Errorf("no = behind option %s", optionName(name.text))
		}
		value, err := words.next()
		if err != nil {
			return nil, fmt.Errorf("%w (option %s)", err, optionName(name.text))
		}
		if value.sign != 0 {
			return nil, fmt.Errorf("option %s has no value", optionName(name.text))
		}
		if value.text, err = expand(value.text); err != nil {
			return nil, err
		}
		e.options[name.text] = value.text
	}
}

// optionName is a name for an error. Where a quote is missing, part of a
// password may stand in its place, so only names of options are repeated.
func optionName(name string) string {
	for _, known := range []string{
		"username", "password", "clientId", "clientSecret", "scope", "tokenauth", "keyTab", "principal", "useKeyTab", "useTicketCache",
		"ticketCache", "serviceName", "storeKey", "awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion",
	} {
		if name == known {
			return name
		}
	}
	return "(unknown)"
}

// option is the value of an option, "" without it.
func (e *jaasEntry) option(name string) string {
	e.used[name] = true
	return e.options[name]
}

// harmless are options that tune Java's own modules.
var harmless = []string{"debug", "storeKey", "refreshKrb5Config", "doNotPrompt", "isInitiator", "renewTGT", "awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}

// unknown counts the options that nothing asked for.
func (e *jaasEntry) unknown() int {
	n := 0
	for name := range e.options {
		if !e.used[name] && !slices.Contains(harmless, name) && !strings.HasPrefix(name, "extension_") {
			n++
		}
	}
	return n
}

// jaasWords takes the text apart.
type jaasWords struct {
	text string
	at   int
}

type jaasWord struct {
	text   string
	quoted bool
	sign   byte // ';' or '=' standing alone
}

var errJAASEnd = errors.New("the ; at the end is missing")

func (w *jaasWords) next() (jaasWord, error) {
	for w.at < len(w.text) && strings.IndexByte(" \t\r\n\f", w.text[w.at]) >= 0 {
		w.at++
	}
	if w.at == len(w.text) {
		return jaasWord{}, errJAASEnd
	}
	switch c := w.text[w.at]; {
	case c == ';' || c == '=':
		w.at++
		return jaasWord{sign: c}, nil
	case c == '"' || c == '\'':
		return w.quoted(c)
	}
	start := w.at
	for w.at < len(w.text) && strings.IndexByte(" \t\r\n\f;=\"'", w.text[w.at]) < 0 {
		w.at++
	}
	return jaasWord{text: w.text[start:w.at]}, nil
}

// quoted reads up to the closing quote, with the escapes of Java's tokenizer.
func (w *jaasWords) quoted(quote byte) (jaasWord, error) {
	var value strings.Builder
	for w.at++; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; c {
		case quote:
			w.at++
			return jaasWord{text: value.String(), quoted: true}, nil
		case '\\':
			if w.at++; w.at < len(w.text) {
				c = w.text[w.at]
				if i := strings.IndexByte("abfnrtv", c); i >= 0 {
					c = "\a\b\f\n\r\t\v"[i]
				}
				value.WriteByte(c)
			}
		default:
			value.WriteByte(c)
		}
	}
	return jaasWord{}, errors.New("a closing quote is missing")
}
