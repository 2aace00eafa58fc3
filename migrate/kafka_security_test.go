package migrate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/twmb/franz-go/pkg/kfake"
	"software.sslmate.com/src/go-pkcs12"

	"rekey/fixtures/testcluster"
)

const hidden = "hunter2-s3cret" // every password here; it must show up nowhere

// authority signs the certificates of one test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

// issued is a certificate with its key.
type issued struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (a *authority) issue(t testing.TB, name string, hosts ...string) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{certificate, key}
}

func (i *issued) pair() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{i.certificate.Raw}, PrivateKey: i.key}
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func (i *issued) keyDER(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// file writes a file of the test and gives its path, with / on every system.
func file(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(path)
}

func jks(t testing.TB, fill func(keystore.KeyStore) error) []byte {
	t.Helper()
	ks := keystore.New()
	if err := fill(ks); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := ks.Store(&out, []byte(hidden)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// stores are all ways to name a client's key and the authority it trusts.
func stores(t testing.TB, ca *authority, client *issued) map[string]string {
	t.Helper()
	x509Of := func(der []byte) keystore.Certificate { return keystore.Certificate{Type: "X509", Content: der} }
	trustJKS := jks(t, func(ks keystore.KeyStore) error {
		return ks.SetTrustedCertificateEntry("ca", keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: x509Of(ca.certificate.Raw)})
	})
	keyJKS := jks(t, func(ks keystore.KeyStore) error {
		return ks.SetPrivateKeyEntry("me", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: client.keyDER(t),
			CertificateChain: []keystore.Certificate{x509Of(client.certificate.Raw)}}, []byte(hidden+"-key"))
	})
	trustP12, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{ca.certificate}, hidden)
	if err != nil {
		t.Fatal(err)
	}
	keyP12, err := pkcs12.Modern.Encode(client.key, client.certificate, []*x509.Certificate{ca.certificate}, hidden)
	if err != nil {
		t.Fatal(err)
	}
	key, chain, trusted := pemOf("PRIVATE KEY", client.keyDER(t)), pemOf("CERTIFICATE", client.certificate.Raw), pemOf("CERTIFICATE", ca.certificate.Raw)
	folded := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", " ") }
	escaped := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", `\n`) }
	return map[string]string{
		"PEM files": "ssl.truststore.type=PEM\nssl.truststore.location=" + file(t, "ca.pem", []byte(trusted)) +
			"\nssl.keystore.type=PEM\nssl.keystore.location=" + file(t, "me.pem", []byte(key+chain)),
		"PEM inline": "ssl.truststore.type=PEM\nssl.truststore.certificates=" + escaped(trusted) +
			"\nssl.keystore.type=PEM\nssl.keystore.certificate.chain=" + escaped(chain) + "\nssl.keystore.key=" + escaped(key),
		"PEM inline on one line": "ssl.truststore.type=PEM\nssl.truststore.certificates=" + folded(trusted) +
			"\nssl.keystore.type=PEM\nssl.keystore.certificate.chain=" + folded(chain) + "\nssl.keystore.key=" + folded(key),
		"PEM from files": "ssl.truststore.type=PEM\nssl.truststore.certificates=${file:" + file(t, "ca.pem", []byte(trusted)) + "}" +
			"\nssl.keystore.type=PEM\nssl.keystore.certificate.chain=${file:" + file(t, "chain.pem", []byte(chain)) + "}\nssl.keystore.key=${file:" + file(t, "key.pem", []byte(key)) + "}",
		"JKS": "ssl.truststore.location=" + file(t, "trust.jks", trustJKS) + "\nssl.truststore.password=" + hidden +
			"\nssl.keystore.location=" + file(t, "key.jks", keyJKS) + "\nssl.keystore.password=" + hidden + "\nssl.key.password=" + hidden + "-key",
		"PKCS12": "ssl.truststore.type=PKCS12\nssl.truststore.location=" + file(t, "trust.p12", trustP12) + "\nssl.truststore.password=" + hidden +
			"\nssl.keystore.type=PKCS12\nssl.keystore.location=" + file(t, "key.p12", keyP12) + "\nssl.keystore.password=" + hidden,
		"PKCS12 under the name of JKS": "ssl.truststore.type=JKS\nssl.truststore.location=" + file(t, "trust.jks", trustP12) + "\nssl.truststore.password=" + hidden +
			"\nssl.keystore.location=" + file(t, "key.jks", keyP12) + "\nssl.keystore.password=" + hidden,
	}
}

// secured is a broker that asks for TLS, SASL or both.
func secured(t *testing.T, options ...kfake.Opt) string {
	t.Helper()
	testcluster.RequireFake(t, "asks for TLS and SASL as the test says; the real one is in kafka_permissions_test.go")
	return testcluster.StartWith(t, testcluster.Options{Fake: append(options, kfake.SeedTopics(2, "states"))}).Bootstrap()
}

// dial connects with a properties file and looks at a topic.
func dial(t *testing.T, bootstrap, properties string) (warnings string, err error) {
	t.Helper()
	var said strings.Builder
	env := Environment{Logf: func(string, ...any) {}, Warnf: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}
	to := Connection{Bootstrap: []string{bootstrap}, Properties: file(t, "client.properties", []byte("request.timeout.ms=3000\nsocket.connection.setup.timeout.ms=500\n"+properties))}
	c, err := connect(t.Context(), to, env)
	if err == nil {
		_, err = c.topic(t.Context(), "states")
		if closeErr := c.Close(); closeErr != nil {
			t.Error(closeErr)
		}
	}
	for _, text := range []string{fmt.Sprint(err), Advice(err), said.String()} {
		if strings.Contains(text, hidden) {
			t.Errorf("a secret is in %q", text)
		}
	}
	return said.String(), err
}

// wantFailure checks exit code and text of an error, and that it has advice.
func wantFailure(t *testing.T, err error, code int, phrases ...string) {
	t.Helper()
	if got := ExitCode(err); got != code {
		t.Errorf("exit code %d, want %d: %v", got, code, err)
	}
	for _, phrase := range phrases {
		if !strings.Contains(fmt.Sprint(err)+"\n"+Advice(err), phrase) {
			t.Errorf("%q is not in the error: %v\n  what to do: %s", phrase, err, Advice(err))
		}
	}
	if Advice(err) == "" {
		t.Errorf("no advice for: %v", err)
	}
}

func TestSASL(t *testing.T) {
	modules := map[string]string{
		"PLAIN":         "org.apache.kafka.common.security.plain.PlainLoginModule",
		"SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
		"SCRAM-SHA-512": "shaded.org.apache.kafka.common.security.scram.ScramLoginModule",
	}
	t.Setenv("REKEY_TEST_PASSWORD", hidden)
	for mechanism, module := range modules {
		t.Run(mechanism, func(t *testing.T) {
			at := secured(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "u", hidden))
			common := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=" + mechanism + "\nsasl.jaas.config=" + module
			for _, options := range []string{
				` required username="u" password="` + hidden + `";`,
				" required \\\n   username='u' \\\n   password='" + hidden + "' ;",
				` required username=u password="${env:REKEY_TEST_PASSWORD}";`,
				` required username=u password="${file:` + file(t, "password", []byte(hidden+"\n")) + `}";`,
				` required username=u password="${file:` + file(t, "secrets.properties", []byte("a=b\npassword="+hidden)) + `:password}";`,
			} {
				if warnings, err := dial(t, at, common+options); err != nil || warnings != "" {
					t.Errorf("%s: %v, warnings %q", strings.ReplaceAll(options, hidden, "…"), err, warnings)
				}
			}
			_, err := dial(t, at, common+` required username="u" password="`+hidden+`-wrong";`)
			wantFailure(t, err, 2, "authentication failed", "correct user name, password and sasl.mechanism")
			_, err = dial(t, at, common+` required username="nobody" password="`+hidden+`";`)
			wantFailure(t, err, 2, "authentication failed")
		})
	}
	t.Run("another mechanism", func(t *testing.T) {
		at := secured(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", hidden))
		_, err := dial(t, at, "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=x.ScramLoginModule required username=u password="+hidden+";")
		wantFailure(t, err, 2, "authentication failed")
	})
	t.Run("forgotten", func(t *testing.T) {
		at := secured(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", hidden))
		_, err := dial(t, at, "")
		wantFailure(t, err, 1, "no broker answers", "security.protocol")
		warnings, err := dial(t, at, "sasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required username=u password="+hidden+";")
		wantFailure(t, err, 1, "no broker answers", "security.protocol")
		if !strings.Contains(warnings, "without effect while security.protocol is PLAINTEXT, the default: sasl.jaas.config, sasl.mechanism") {
			t.Errorf("warnings: %q", warnings)
		}
	})
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	client := ca.issue(t, "client")
	known := x509.NewCertPool()
	known.AddCert(ca.certificate)
	listen := func(hosts ...string) kfake.Opt {
		return kfake.TLS(&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "server", hosts...).pair()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known})
	}
	at, elsewhere, open := secured(t, listen("127.0.0.1", "localhost")), secured(t, listen("broker.example")), secured(t)
	for name, properties := range stores(t, ca, client) {
		t.Run(name, func(t *testing.T) {
			properties = "security.protocol=SSL\n" + properties + "\n"
			if warnings, err := dial(t, at, properties); err != nil || warnings != "" {
				t.Errorf("%v, warnings %q", err, warnings)
			}
			_, err := dial(t, elsewhere, properties)
			wantFailure(t, err, 2, "TLS: the certificate of", "host name")
			if _, err := dial(t, elsewhere, properties+"ssl.endpoint.identification.algorithm=\n"); err != nil {
				t.Errorf("any host name: %v", err)
			}
			if strings.Contains(properties, ".password=") {
				_, err = dial(t, at, strings.ReplaceAll(properties, "password="+hidden, "password="+hidden+"-wrong"))
				wantFailure(t, err, 2, "the password", "correct ssl.")
			}
		})
	}
	trust := "security.protocol=SSL\nssl.truststore.location=" + file(t, "ca.pem", []byte(pemOf("CERTIFICATE", ca.certificate.Raw))) + "\n"
	t.Run("no client certificate", func(t *testing.T) {
		_, err := dial(t, at, trust)
		wantFailure(t, err, 2, "TLS: the broker at", "refuses the connection", "ssl.keystore.location")
	})
	t.Run("unknown authority", func(t *testing.T) {
		for _, more := range []string{"", "ssl.endpoint.identification.algorithm=\n"} {
			other := "security.protocol=SSL\nssl.truststore.location=" + file(t, "ca.pem", []byte(pemOf("CERTIFICATE", newAuthority(t, "other").certificate.Raw))) + "\n"
			_, err := dial(t, at, other+more)
			wantFailure(t, err, 2, "TLS: the certificate of", "ssl.truststore.location")
		}
	})
	t.Run("no TLS there", func(t *testing.T) {
		// The embedded broker takes the handshake for the begin of a request.
		_, err := dial(t, open, trust)
		wantFailure(t, err, 1, "no broker answers", "no TLS handshake came about", "security.protocol=PLAINTEXT")
		// A server that answers at all is recognized.
		web := httptest.NewServer(http.NotFoundHandler())
		defer web.Close()
		_, err = dial(t, strings.TrimPrefix(web.URL, "http://"), trust)
		wantFailure(t, err, 2, "TLS: the listener at", "does not use TLS", "security.protocol=PLAINTEXT")
	})
	t.Run("forgotten", func(t *testing.T) {
		_, err := dial(t, at, "")
		wantFailure(t, err, 1, "no broker answers", "security.protocol")
	})
	t.Run("with SASL", func(t *testing.T) {
		both := secured(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", hidden),
			kfake.TLS(&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "server", "127.0.0.1").pair()}}))
		login := "sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=x.ScramLoginModule required username=u password="
		properties := strings.Replace(trust, "=SSL", "=SASL_SSL", 1) + login
		if warnings, err := dial(t, both, properties+hidden+";"); err != nil || warnings != "" {
			t.Errorf("%v, warnings %q", err, warnings)
		}
		_, err := dial(t, both, properties+hidden+"-wrong;")
		wantFailure(t, err, 2, "authentication failed")
		_, err = dial(t, both, "security.protocol=SASL_PLAINTEXT\n"+login+hidden+";")
		wantFailure(t, err, 1, "no broker answers", "security.protocol")
	})
}

// TestStoresOfJava reads what keytool and openssl wrote: see testdata/tls.
func TestStoresOfJava(t *testing.T) {
	const folder = "testdata/tls/"
	content, err := os.ReadFile(folder + "certificate.pem")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	for _, name := range []string{"trust.jks", "trust.p12", "certificate.pem"} {
		p := clientProperties{used: map[string]bool{}, values: map[string]string{"ssl.truststore.location": folder + name, "ssl.truststore.password": "changeit"}}
		pool, err := p.trust("")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := x509.NewCertPool()
		want.AppendCertsFromPEM(content)
		if !pool.Equal(want) {
			t.Errorf("%s: another pool", name)
		}
	}
	for name, password := range map[string]string{
		"key.jks": "another", "key.p12": "", "encrypted-aes128.pem": "changeit", "encrypted-aes256.pem": "changeit", "encrypted-aes192-sha1.pem": "changeit",
	} {
		p := clientProperties{used: map[string]bool{}, values: map[string]string{"ssl.keystore.location": folder + name, "ssl.keystore.password": "changeit", "ssl.key.password": password}}
		pairs, err := p.identity()
		if err != nil || len(pairs) != 1 || !bytes.Equal(pairs[0].Certificate[0], block.Bytes) {
			t.Errorf("%s: %d pairs, %v", name, len(pairs), err)
		}
		p.values["ssl.keystore.password"], p.values["ssl.key.password"] = hidden, hidden
		if _, err := p.identity(); err == nil || strings.Contains(err.Error(), hidden) {
			t.Errorf("%s with a wrong password: %v", name, err)
		}
	}
	p := clientProperties{used: map[string]bool{}, values: map[string]string{"ssl.keystore.location": folder + "encrypted-aes256.pem"}}
	if _, err := p.identity(); err == nil || !strings.Contains(err.Error(), "encrypted key") {
		t.Errorf("no password: %v", err)
	}
}

// TestProperties lists what a file can get wrong; nothing is connected to.
func TestProperties(t *testing.T) {
	tests := []struct {
		name, properties string
		want             []string // in error or advice; none: no error
		warns            string
	}{
		{"client.id and times", "client.id=ops\nrequest.timeout.ms=1000\nsocket.connection.setup.timeout.ms=500\nclient.dns.lookup=use_all_dns_ips", nil, ""},
		{"unknown", "a.b=" + hidden + "\nacks=all", nil, "settings that rekey does not know are ignored: a.b, acks"},
		{"lookup", "client.dns.lookup=default", []string{"client.dns.lookup", "use_all_dns_ips"}, ""},
		{"time", "request.timeout.ms=soon", []string{"request.timeout.ms", "milliseconds"}, ""},
		{"no variable", "client.id=${env:REKEY_TEST_NOT_SET}", []string{"client.id", "${env:REKEY_TEST_NOT_SET}", "no such environment variable"}, ""},
		{"no file", "client.id=${file:/no/such/file}", []string{"client.id", "${file:/no/such/file}"}, ""},
		{"no reference", "client.id=a${b}c${env", nil, ""},
		{"providers", "config.providers=env\nconfig.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\nclient.id=${env:PATH}", nil, ""},
		{"engine", "security.protocol=SSL\nssl.engine.factory.class=x.Y", []string{"ssl.engine.factory.class is not supported", "Java classes"}, ""},
		{"idle", "security.protocol=SSL\nsasl.mechanism=PLAIN", nil, "without effect while security.protocol is SSL: sasl.mechanism"},
		{"old TLS", "security.protocol=SSL\nssl.enabled.protocols=TLSv1.1,TLSv1.2", []string{"ssl.enabled.protocols", "TLSv1.1", "TLSv1.3"}, ""},
		{"new TLS", "security.protocol=SSL\nssl.enabled.protocols=TLSv1.3\nssl.protocol=TLSv1.3", nil, ""},
		{"cipher", "security.protocol=SSL\nssl.cipher.suites=TLS_RSA_WITH_RC4_128_SHA", []string{"ssl.cipher.suites", "not secure"}, ""},
		{"good cipher", "security.protocol=SSL\nssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", nil, ""},
		{"names", "security.protocol=SSL\nssl.endpoint.identification.algorithm=ldap", []string{"ssl.endpoint.identification.algorithm", "https"}, ""},
		{"store type", "security.protocol=SSL\nssl.truststore.type=BCFKS\nssl.truststore.location=testdata/tls/trust.jks", []string{"ssl.truststore.type", "BCFKS", "keytool"}, ""},
		{"store type of other store", "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=testdata/tls/trust.jks", []string{"ssl.truststore.location is JKS, but its type is set to PEM"}, ""},
		{"no store", "security.protocol=SSL\nssl.truststore.location=doc.go", []string{"neither PEM nor JKS nor PKCS12"}, ""},
		{"key without chain", "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=x", []string{"must be given together"}, ""},
		{"trust without password", "security.protocol=SSL\nssl.truststore.location=testdata/tls/trust.jks", []string{"the password is wrong", "ssl.truststore.password"}, ""},
		{"key of trust", "security.protocol=SSL\nssl.keystore.location=testdata/tls/trust.jks\nssl.keystore.password=changeit", []string{"no private key", "ssl.truststore.location"}, ""},
		{"trust of key", "security.protocol=SSL\nssl.truststore.location=testdata/tls/key.jks\nssl.truststore.password=changeit", []string{"no trusted certificate", "keytool -importcert"}, ""},

		{"no mechanism", "security.protocol=SASL_SSL\nsasl.jaas.config=x.PlainLoginModule required username=u password=p;", []string{"sasl.jaas.config names a login module that does not go with sasl.mechanism GSSAPI", "Kafka's default is GSSAPI"}, ""},
		{"no JAAS", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", []string{"sasl.jaas.config is missing", "PlainLoginModule"}, ""},
		{"neither", "security.protocol=SASL_SSL", []string{"sasl.jaas.config is missing", "GSSAPI"}, ""},
		{"other mechanism", "security.protocol=SASL_SSL\nsasl.mechanism=DIGEST-MD5", []string{"sasl.mechanism", "DIGEST-MD5", "SCRAM-SHA-512"}, ""},
		{"other module", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.ScramLoginModule required username=u password=" + hidden + ";", []string{"does not go with sasl.mechanism PLAIN", "PlainLoginModule"}, ""},
		{"no semicolon", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required username=u password=" + hidden, []string{"; at the end is missing"}, ""},
		{"no flag", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule username=" + hidden + ";", []string{"LoginModule required"}, ""},
		{"no equals", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required password " + hidden + ";", []string{"no = behind option password"}, ""},
		{"quote in the middle", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required password=\"a\"" + hidden + "\";", []string{"sasl.jaas.config"}, ""},
		{"two modules", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required; y.PlainLoginModule required;", []string{"more than one login module"}, ""},
		{"no password", "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=x.ScramLoginModule required username=u;", []string{"sasl.jaas.config has no password", "${env:NAME}"}, ""},
		{"delegation token", "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=x.ScramLoginModule required username=u password=" + hidden + " tokenauth=true;", []string{"delegation tokens are not supported"}, ""},
		{"unknown option", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required username=u password=p user_admin=" + hidden + ";", nil, "options of sasl.jaas.config that rekey does not know are ignored: 1 of 3"},
		{"callback", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.client.callback.handler.class=x.Y\nsasl.jaas.config=x.PlainLoginModule required username=u password=p;", []string{"sasl.client.callback.handler.class is not supported"}, ""},

		{"token of a file", "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=file:///token\nsasl.jaas.config=x.OAuthBearerLoginModule required clientId=a clientSecret=b;", []string{"sasl.oauthbearer.token.endpoint.url", "https://"}, ""},
		{"no endpoint", "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config=x.OAuthBearerLoginModule required clientId=a clientSecret=b;", []string{"sasl.oauthbearer.token.endpoint.url is missing"}, ""},
		{"no secret", "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://x/t\nsasl.jaas.config=x.OAuthBearerLoginModule required clientId=a;", []string{"has no clientSecret"}, ""},
		{"assertion", "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://x/t\nsasl.oauthbearer.assertion.algorithm=RS256\nsasl.jaas.config=x.OAuthBearerLoginModule required clientId=a clientSecret=b;", []string{"sasl.oauthbearer.assertion.algorithm is not supported", "client credentials"}, ""},
		{"settings of 4.1", "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://x/t\nsasl.oauthbearer.client.credentials.client.id=a\nsasl.oauthbearer.client.credentials.client.secret=" + hidden + "\nsasl.oauthbearer.scope=s\nsasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler", nil, ""},

		{"MSK", "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\nsasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler", nil, ""},
		{"MSK profile and role", "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config=x.IAMLoginModule required awsProfileName=a awsRoleArn=b;", []string{"both awsProfileName and awsRoleArn"}, ""},
		{"Kerberos without service", "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"/k\" principal=\"a@B\";", []string{"sasl.kerberos.service.name is missing"}, ""},
		{"Kerberos without keytab", "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\nsasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"/no/such/keytab\" principal=\"a@B\";", []string{"keyTab", "/no/such/keytab"}, ""},
		{"Kerberos with a prompt", "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\nsasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required principal=\"a@B\";", []string{"neither useKeyTab=true nor useTicketCache=true"}, ""},
		{"Kerberos without realm", "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\nsasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required principal=a;", []string{"no principal with a realm"}, ""},
	}
	t.Setenv("AWS_REGION", "eu-central-1")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var warned strings.Builder
			env := Environment{Logf: func(string, ...any) {}, Warnf: func(format string, args ...any) { fmt.Fprintf(&warned, format+"\n", args...) }}
			config, err := clientConfig(Connection{Bootstrap: []string{"a:1"}, Properties: file(t, "client.properties", []byte(test.properties))}, env)
			if len(test.want) > 0 {
				wantFailure(t, err, 2, append(test.want, "client.properties")...)
			} else if err != nil {
				t.Error(err)
			} else if err := config.Validate(); err != nil {
				t.Error(err)
			}
			if test.warns == "" && warned.Len() > 0 || !strings.Contains(warned.String(), test.warns) {
				t.Errorf("warnings %q, want %q", warned.String(), test.warns)
			}
			if text := fmt.Sprint(err) + Advice(err) + warned.String(); strings.Contains(text, hidden) {
				t.Errorf("a secret is in %q", text)
			}
		})
	}
}

// TestTokens asks a server for tokens as Kafka's clients do.
func TestTokens(t *testing.T) {
	asked, status := 0, http.StatusOK
	answer := map[string]any{"access_token": hidden + "-token", "expires_in": 100}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		id, secret, _ := r.BasicAuth()
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		want := []string{"POST", "me", hidden, "client_credentials", "a b"}
		if diff := cmp.Diff(want, []string{r.Method, id, secret, r.PostForm.Get("grant_type"), r.PostForm.Get("scope")}); diff != "" {
			t.Errorf("request (-want +got)\n%s", diff)
		}
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	properties := func(url string) string {
		return "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=" + url +
			"\nsasl.jaas.config=x.OAuthBearerLoginModule required clientId=me clientSecret=\"" + hidden + "\" scope=\"a b\" extension_pool=p ssl.truststore.location=\"" +
			file(t, "ca.pem", []byte(pemOf("CERTIFICATE", server.Certificate().Raw))) + "\";"
	}
	provider := func(url string) *tokens {
		t.Helper()
		env := Environment{Logf: t.Logf, Warnf: t.Errorf}
		config, err := clientConfig(Connection{Properties: file(t, "client.properties", []byte(properties(url)))}, env)
		if err != nil {
			t.Fatal(err)
		}
		return config.Net.SASL.TokenProvider.(*tokens)
	}
	p := provider(server.URL)
	now := time.Now()
	p.now = func() time.Time { return now }
	for _, later := range []time.Duration{0, 70 * time.Second, 90 * time.Second, 91 * time.Second} {
		now = now.Add(later)
		token, err := p.Token()
		if err != nil {
			t.Fatal(err)
		}
		if token.Token != hidden+"-token" || token.Extensions["pool"] != "p" {
			t.Errorf("token %v", token.Extensions)
		}
		now = now.Add(-later)
	}
	if asked != 3 && asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	// Each failure says which endpoint and why, and never the secret.
	status, answer = http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": hidden}
	for _, test := range []struct {
		url, want string
		refused   bool // no waiting cures it
	}{
		{server.URL, "answers 401 invalid_client", true}, {"https://127.0.0.1:1/" + hidden, "127.0.0.1:1 cannot be reached", false},
	} {
		_, err := provider(test.url).Token()
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), hidden) || refusedConnection(err) != test.refused || transient(fmt.Errorf("%w: %w", sarama.ErrOutOfBrokers, err)) == test.refused {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	status = http.StatusServiceUnavailable
	if _, err := provider(server.URL).Token(); err == nil || refusedConnection(err) {
		t.Errorf("%v", err)
	}
	status, answer = http.StatusUnauthorized, map[string]any{"error": hidden + "!"}
	if _, err := provider(server.URL).Token(); err == nil || strings.Contains(err.Error(), hidden) {
		t.Errorf("%v", err)
	}
	status, answer = http.StatusOK, map[string]any{}
	if _, err := provider(server.URL).Token(); err == nil || !strings.Contains(err.Error(), "no access_token") {
		t.Errorf("%v", err)
	}
}

func TestRegionOf(t *testing.T) {
	for address, want := range map[string]string{
		"b-1.states.abc123.c2.kafka.eu-west-1.amazonaws.com:9098":     "eu-west-1",
		"boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098":     "us-east-1",
		"b-1.states.abc123.c2.kafka.cn-north-1.amazonaws.com.cn:9098": "cn-north-1",
		"kafka.example.com:9092":                                      "", "localhost:1": "",
	} {
		if got := regionOf([]string{address}); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// TestMSKToken signs with credentials of the environment; nothing is asked.
func TestMSKToken(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": hidden, "AWS_SESSION_TOKEN": "", "AWS_REGION": "eu-west-1", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"} {
		t.Setenv(name, value)
	}
	path := file(t, "client.properties", []byte("security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config=x.IAMLoginModule required;"))
	config, err := clientConfig(Connection{Bootstrap: []string{"localhost:1"}, Properties: path}, Environment{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if config.Net.SASL.Mechanism != "OAUTHBEARER" {
		t.Errorf("mechanism %s", config.Net.SASL.Mechanism)
	}
	first, err := config.Net.SASL.TokenProvider.Token()
	if err != nil || len(first.Token) < 100 {
		t.Fatalf("token of %d bytes, %v", len(first.Token), err)
	}
	if again, err := config.Net.SASL.TokenProvider.Token(); err != nil || again.Token != first.Token {
		t.Errorf("another token: %v", err)
	}
}

func FuzzJAAS(f *testing.F) {
	for _, seed := range []string{"", "a.B required;", `a.B required u="x\"y" p='z';`, `a.B required u=;`, `a.B required u="`, "a b c d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseJAAS(text)
		if (e == nil) == (err == nil) {
			t.Errorf("%v, %v", e, err)
		}
	})
}

// TestQuotedJAAS reads back what a careful person wrote.
func TestQuotedJAAS(t *testing.T) {
	for _, password := range []string{"a b", `a"b`, `a\b`, "a;b=c", "ünï", "${env", "'"} {
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(password)
		e, err := parseJAAS(`x.PlainLoginModule required username="u" password="` + quoted + `";`)
		if err != nil || e.option("password") != password || e.module != "PlainLoginModule" {
			t.Errorf("%q: %v", password, err)
		}
	}
}
