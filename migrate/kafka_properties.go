package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/magiconair/properties"
)

// clientConfig makes the client's configuration from a client.properties file
// in the format of Kafka's own tools; path "" means defaults. Settings that
// rekey knows but does not support are refused by name, unknown ones are
// logged by name, so that none is ignored in silence.
func clientConfig(to Connection, env Environment) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.ClientID = "rekey"
	config.Metadata.AllowAutoTopicCreation = false
	config.Metadata.Retry.Max = 3
	config.Net.DialTimeout = 10 * time.Second
	path := to.Properties
	if path == "" {
		return config, nil
	}
	values, err := loadProperties(path)
	if err != nil {
		return nil, &Failure{Kind: ErrUsage, What: "cannot read the file of " + cmp.Or(to.flag, "--command-config"), Cause: err, Do: "give the path of a client.properties file"}
	}
	settings := clientProperties{path: path, bootstrap: to.Bootstrap, values: values, used: map[string]bool{}}
	err = settings.apply(config)
	if err == nil {
		err = settings.refuseUnsupported()
	}
	if err != nil {
		do := "correct this setting in the file, which is in the format of Kafka's own tools"
		if wrong, ok := errors.AsType[*settingError](err); ok && wrong.do != "" {
			do = wrong.do
		}
		return nil, &Failure{Kind: ErrUsage, What: path, Cause: err, Do: do}
	}
	if len(settings.idle) > 0 {
		env.warn("%s: settings without effect while security.protocol is %s: %s", path, cmp.Or(settings.word("security.protocol"), "PLAINTEXT, the default"), strings.Join(settings.idle, ", "))
	}
	for _, note := range settings.notes {
		env.warn("%s: %s", path, note)
	}
	if unknown := settings.unused(); len(unknown) > 0 {
		env.warn("%s: settings that rekey does not know are ignored: %s", path, strings.Join(unknown, ", "))
	}
	return config, nil
}

// loadProperties reads a file in Java's properties syntax.
func loadProperties(path string) (map[string]string, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	file, err := loader.LoadFile(path)
	if err != nil {
		return nil, err
	}
	return file.Map(), nil
}

// clientProperties are the settings of a file. Their values may be secrets: no
// error quotes one, except of settings that hold none.
type clientProperties struct {
	path      string
	bootstrap []string
	values    map[string]string
	used      map[string]bool
	idle      []string // names of settings that the protocol has no use for
	notes     []string // what else a person should know
}

// settingError says what is wrong with a setting, and what to do about it.
type settingError struct {
	name, problem, do string
	cause             error
}

func setting(name, problem, do string) error {
	return &settingError{name: name, problem: problem, do: do}
}

// unreadable is a setting that names something that cannot be read.
func unreadable(name string, cause error, do string) error {
	return &settingError{name: name, cause: cause, do: do}
}

func (e *settingError) Error() string {
	text := e.name
	if e.problem != "" {
		text += " " + e.problem
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *settingError) Unwrap() error { return e.cause }

// raw is the value of a setting as it is in the file.
func (p *clientProperties) raw(name string) string {
	p.used[name] = true
	return strings.TrimSpace(p.values[name])
}

// get is the value of a setting with what it refers to put in.
func (p *clientProperties) get(name string) (string, error) {
	value, err := expand(p.raw(name))
	if err != nil {
		return "", unreadable(name, err, "set the variable, or make the file readable to this user")
	}
	return value, nil
}

// word is the value of a setting that holds no secret and may be quoted in
// errors: a reference in it is a mistake that shows up as an unknown word.
func (p *clientProperties) word(name string) string { return p.raw(name) }

// expand puts in what ${…} refers to, in the way of Kafka's config providers:
// ${env:NAME} is a variable, ${file:PATH} is what is in a file without the line
// end behind it, ${file:PATH:KEY} is a setting of a properties file and
// ${directory:PATH:NAME} is what is in a file of a folder. Errors name what was
// looked for, never what was found.
func expand(value string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(value, "${")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		reference, after, closed := strings.Cut(rest, "}")
		provider, what, known := strings.Cut(reference, ":")
		if !closed || !known || !slices.Contains([]string{"env", "file", "directory"}, provider) {
			out.WriteString("${") // a password may hold these two characters
			value = rest
			continue
		}
		secret, err := lookUp(provider, what)
		if err != nil {
			return "", err
		}
		out.WriteString(secret)
		value = after
	}
}

func lookUp(provider, what string) (string, error) {
	if provider == "env" {
		value, set := os.LookupEnv(what)
		if !set {
			return "", fmt.Errorf("${env:%s}: there is no such environment variable", what)
		}
		return value, nil
	}
	path, key := what, ""
	if _, err := os.Stat(path); err != nil {
		if colon := strings.LastIndexByte(what, ':'); colon > 0 {
			path, key = what[:colon], what[colon+1:]
		}
	}
	if provider == "directory" {
		if key == "" || strings.ContainsAny(key, `/\`) {
			return "", fmt.Errorf("${directory:%s}: want ${directory:PATH:NAME}", what)
		}
		path, key = path+"/"+key, ""
	}
	if key == "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("${%s:%s}: %w", provider, what, err)
		}
		return strings.TrimRight(string(content), "\r\n"), nil
	}
	values, err := loadProperties(path)
	if err != nil {
		return "", fmt.Errorf("${file:%s}: %w", what, err)
	}
	value, found := values[key]
	if !found {
		return "", fmt.Errorf("${file:%s}: the file has no %s", what, key)
	}
	return value, nil
}

// unused are the names that nothing asked for.
func (p *clientProperties) unused() []string {
	var names []string
	for name := range p.values {
		if !p.used[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// setAside takes settings out of account that the security protocol does not
// use. Kafka's tools say nothing of them; a forgotten protocol is worth a word.
func (p *clientProperties) setAside(prefixes ...string) {
	for _, name := range p.unused() {
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				p.used[name] = true
				p.idle = append(p.idle, name)
			}
		}
	}
}

// milliseconds is a setting that holds a duration; 0 if it is not there.
func (p *clientProperties) milliseconds(name string) (time.Duration, error) {
	text := p.word(name)
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.Atoi(text)
	if err != nil || ms <= 0 {
		return 0, setting(name, fmt.Sprintf("= %q: want a positive number of milliseconds", text), "")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// unsupported are settings that change how a connection is made or secured.
// To ignore one would connect in another way than was asked for.
var unsupported = map[string]string{
	"security.providers":                   "rekey has no Java security providers; remove it",
	"ssl.provider":                         "rekey has no Java security providers; remove it",
	"ssl.engine.factory.class":             "rekey loads no Java classes; use ssl.truststore.* and ssl.keystore.*",
	"sasl.login.class":                     "rekey loads no Java classes; remove it",
	"sasl.client.callback.handler.class":   "rekey loads no Java classes; remove it, and give the credentials in sasl.jaas.config",
	"sasl.oauthbearer.jwt.retriever.class": "rekey loads no Java classes; use sasl.oauthbearer.token.endpoint.url with client id and secret",
	"sasl.oauthbearer.assertion.file":      "rekey has only the client credentials grant; use sasl.oauthbearer.token.endpoint.url with client id and secret",
	"sasl.kerberos.kinit.cmd":              "rekey renews no tickets by kinit; use useKeyTab=true in sasl.jaas.config",
}

// refuseUnsupported names the first setting that rekey knows but cannot honour.
func (p *clientProperties) refuseUnsupported() error {
	for _, name := range p.unused() {
		if do, known := unsupported[name]; known {
			return setting(name, "is not supported", do)
		}
		if strings.HasPrefix(name, "sasl.oauthbearer.assertion.") {
			return setting(name, "is not supported", unsupported["sasl.oauthbearer.assertion.file"])
		}
	}
	return nil
}

func (p *clientProperties) apply(config *sarama.Config) error {
	for name := range p.values {
		if strings.HasPrefix(name, "config.providers") {
			p.used[name] = true // env, file and directory need no setting up here
		}
	}
	id, err := p.get("client.id")
	if err != nil {
		return err
	}
	if id != "" {
		config.ClientID = id
	}
	if timeout, err := p.milliseconds("request.timeout.ms"); err != nil {
		return err
	} else if timeout > 0 {
		config.Net.ReadTimeout, config.Net.WriteTimeout = timeout, timeout
	}
	if timeout, err := p.milliseconds("socket.connection.setup.timeout.ms"); err != nil {
		return err
	} else if timeout > 0 {
		config.Net.DialTimeout = timeout
	}
	switch lookup := p.word("client.dns.lookup"); lookup {
	case "", "use_all_dns_ips": // every address of a name is tried in any case
	case "resolve_canonical_bootstrap_servers_only":
		config.Net.ResolveCanonicalBootstrapServers = true
	default:
		return setting("client.dns.lookup", fmt.Sprintf("= %q: want use_all_dns_ips or resolve_canonical_bootstrap_servers_only", lookup), "")
	}
	protocol := strings.ToUpper(p.word("security.protocol"))
	switch protocol {
	case "", "PLAINTEXT":
		p.setAside("ssl.", "sasl.")
		return nil
	case "SSL":
		p.setAside("sasl.")
		return p.applyTLS(config)
	case "SASL_PLAINTEXT":
		p.setAside("ssl.")
		return p.applySASL(config)
	case "SASL_SSL":
		if err := p.applyTLS(config); err != nil {
			return err
		}
		return p.applySASL(config)
	}
	return setting("security.protocol", fmt.Sprintf("= %q: want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol), "")
}
