package migrate

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sort"
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
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	file, err := loader.LoadFile(path)
	if err != nil {
		return nil, &Failure{Kind: ErrUsage, What: "cannot read the file of " + cmp.Or(to.flag, "--command-config"), Cause: err, Do: "give the path of a client.properties file"}
	}
	settings := clientProperties{path: path, values: file.Map(), used: map[string]bool{}}
	if err := settings.apply(config); err != nil {
		return nil, &Failure{Kind: ErrUsage, What: path, Cause: err, Do: "correct this setting in the file, which is in the format of Kafka's own tools"}
	}
	if unknown := settings.unused(); len(unknown) > 0 {
		env.warn("%s: settings that rekey does not know are ignored: %s", path, strings.Join(unknown, ", "))
	}
	return config, nil
}

type clientProperties struct {
	path   string
	values map[string]string
	used   map[string]bool
}

func (p *clientProperties) get(name string) string {
	p.used[name] = true
	return strings.TrimSpace(p.values[name])
}

func (p *clientProperties) unused() []string {
	var names []string
	for name := range p.values {
		if !p.used[name] {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func (p *clientProperties) apply(config *sarama.Config) error {
	if id := p.get("client.id"); id != "" {
		config.ClientID = id
	}
	if text := p.get("request.timeout.ms"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 {
			return fmt.Errorf("request.timeout.ms = %q: want a positive number of milliseconds", text)
		}
		timeout := time.Duration(ms) * time.Millisecond
		config.Net.ReadTimeout, config.Net.WriteTimeout = timeout, timeout
	}
	protocol := strings.ToUpper(p.get("security.protocol"))
	switch protocol {
	case "", "PLAINTEXT":
		return nil
	case "SSL":
		return p.applyTLS(config)
	case "SASL_PLAINTEXT":
		return p.applySASL(config)
	case "SASL_SSL":
		if err := p.applyTLS(config); err != nil {
			return err
		}
		return p.applySASL(config)
	}
	return fmt.Errorf("security.protocol = %q: want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol)
}

func (p *clientProperties) applyTLS(config *sarama.Config) error {
	for _, name := range []string{"ssl.truststore.type", "ssl.keystore.type"} {
		if kind := strings.ToUpper(p.get(name)); kind != "" && kind != "PEM" {
			return fmt.Errorf("%s = %s is not supported yet; convert the store to PEM", name, kind)
		}
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS12}
	if trust := p.get("ssl.truststore.location"); trust != "" {
		pem, err := os.ReadFile(trust)
		if err != nil {
			return fmt.Errorf("ssl.truststore.location: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("ssl.truststore.location = %s holds no PEM certificate", trust)
		}
		config.Net.TLS.Config.RootCAs = pool
	}
	if key := p.get("ssl.keystore.location"); key != "" {
		pair, err := tls.LoadX509KeyPair(key, key)
		if err != nil {
			return fmt.Errorf("ssl.keystore.location: %w", err)
		}
		config.Net.TLS.Config.Certificates = []tls.Certificate{pair}
	}
	if _, given := p.values["ssl.endpoint.identification.algorithm"]; given && p.get("ssl.endpoint.identification.algorithm") == "" {
		config.Net.TLS.Config.InsecureSkipVerify = true // as Kafka's tools do: the empty value turns host names off
	}
	return nil
}

func (p *clientProperties) applySASL(config *sarama.Config) error {
	mechanism := strings.ToUpper(p.get("sasl.mechanism"))
	if mechanism != "PLAIN" {
		return fmt.Errorf("sasl.mechanism = %q is not supported yet; supported: PLAIN", mechanism)
	}
	user, password, err := parsePlainJAAS(p.get("sasl.jaas.config"))
	if err != nil {
		return fmt.Errorf("sasl.jaas.config: %w", err)
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	config.Net.SASL.User, config.Net.SASL.Password = user, password
	return nil
}

// parsePlainJAAS reads user name and password of a JAAS line such as
//
//	org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";
//
// Errors name options, never their values.
func parsePlainJAAS(text string) (user, password string, err error) {
	user, err = jaasOption(text, "username")
	if err != nil {
		return "", "", err
	}
	password, err = jaasOption(text, "password")
	return user, password, err
}

func jaasOption(text, name string) (string, error) {
	_, rest, found := strings.Cut(text, name+"=\"")
	if !found {
		return "", fmt.Errorf("no %s=\"…\"", name)
	}
	var value strings.Builder
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			if i++; i < len(rest) {
				value.WriteByte(rest[i])
			}
		case '"':
			return value.String(), nil
		default:
			value.WriteByte(rest[i])
		}
	}
	return "", fmt.Errorf("%s has no closing quote", name)
}
