package migrate

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/reader"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
	"rekey/rewrite"
)

// fortress is a real Kafka with a listener that takes TLS and SCRAM only, and
// with an authorizer that permits nothing that was not granted. The tests
// themselves are super user on another listener.
type fortress struct {
	*testcluster.Cluster
	at, tlsOnly, saslOnly string
	ca                    *authority
	properties            string // of a client
	client                *kgo.Client
}

const principal = "rekey"

func newFortress(t *testing.T) *fortress {
	t.Helper()
	testcluster.RequireReal(t, "the embedded broker knows fewer operations")
	ca := newAuthority(t, "ca")
	server := ca.issue(t, "server", "127.0.0.1")
	trusted := pemOf("CERTIFICATE", ca.certificate.Raw)
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	more := fmt.Sprintf("SASL_SSL://127.0.0.1:%d,SSL://127.0.0.1:%d,SASL_PLAINTEXT://127.0.0.1:%d", ports[0], ports[1], ports[2])
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	f := &fortress{at: address(0), tlsOnly: address(1), saslOnly: address(2), ca: ca}
	f.Cluster = testcluster.StartWith(t, testcluster.Options{Properties: map[string]string{
		"listeners":                      "PLAINTEXT://127.0.0.1:%PORT%,CONTROLLER://127.0.0.1:%CONTROLLER_PORT%," + more,
		"advertised.listeners":           "PLAINTEXT://127.0.0.1:%PORT%," + more,
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
		"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.sasl_ssl.sasl.enabled.mechanisms":        "SCRAM-SHA-512",
		"listener.name.sasl_plaintext.sasl.enabled.mechanisms":  "PLAIN,OAUTHBEARER",
		"listener.name.sasl_plaintext.plain.sasl.jaas.config":   "org.apache.kafka.common.security.plain.PlainLoginModule required user_" + principal + "=\"" + hidden + "\";",
		// Without more, the broker takes tokens that nobody signed.
		"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";",
		"ssl.keystore.type":                 "PEM",
		"ssl.keystore.location":             file(t, "server.pem", []byte(pemOf("PRIVATE KEY", server.keyDER(t))+pemOf("CERTIFICATE", server.certificate.Raw))),
		"ssl.truststore.type":               "PEM",
		"ssl.truststore.location":           file(t, "ca.pem", []byte(trusted)),
		"listener.name.ssl.ssl.client.auth": "required",
		"authorizer.class.name":             "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                       "User:ANONYMOUS",
	}})
	f.client = f.Client(t)
	salt := []byte("0123456789abcdef")
	salted, err := pbkdf2.Key(sha512.New, hidden, salt, 4096, 64)
	if err != nil {
		t.Fatal(err)
	}
	request := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	user := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	user.Name, user.Mechanism, user.Iterations, user.Salt, user.SaltedPassword = principal, 2, 4096, salt, salted
	request.Upsertions = append(request.Upsertions, user)
	response, err := request.RequestWith(testcluster.Context(t), f.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Results[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.properties = "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\nssl.truststore.certificates=" +
		strings.ReplaceAll(strings.TrimSpace(trusted), "\n", `\n`) +
		"\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=" + principal + " password=\"" + hidden + "\";\n"
	return f
}

func (f *fortress) connection(t *testing.T) Connection {
	return Connection{Bootstrap: []string{f.at}, Properties: file(t, "client.properties", []byte(f.properties))}
}

// permission is one operation on one resource.
type permission struct {
	kind      kmsg.ACLResourceType
	name      string
	operation kmsg.ACLOperation
}

func (p permission) String() string {
	name := p.name
	if p.kind == kmsg.ACLResourceTypeTransactionalId {
		name = "transactional id " + name
	} else {
		name = "topic " + name
	}
	return map[kmsg.ACLOperation]string{
		kmsg.ACLOperationRead: "Read", kmsg.ACLOperationWrite: "Write", kmsg.ACLOperationCreate: "Create", kmsg.ACLOperationDescribe: "Describe",
		kmsg.ACLOperationDescribeConfigs: "DescribeConfigs", kmsg.ACLOperationAlterConfigs: "AlterConfigs",
	}[p.operation] + " on " + name
}

// grant replaces everything that the principal may do.
func (f *fortress) grant(t *testing.T, wanted ...permission) {
	t.Helper()
	ctx := testcluster.Context(t)
	remove := kmsg.NewPtrDeleteACLsRequest()
	all := kmsg.NewDeleteACLsRequestFilter()
	all.ResourceType, all.ResourcePatternType, all.Operation, all.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	remove.Filters = append(remove.Filters, all)
	removed, err := remove.RequestWith(ctx, f.client)
	if err == nil {
		err = kerr.ErrorForCode(removed.Results[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	create := kmsg.NewPtrCreateACLsRequest()
	for _, p := range wanted {
		acl := kmsg.NewCreateACLsRequestCreation()
		acl.ResourceType, acl.ResourceName, acl.ResourcePatternType = p.kind, p.name, kmsg.ACLResourcePatternTypeLiteral
		acl.Principal, acl.Host, acl.Operation, acl.PermissionType = "User:"+principal, "*", p.operation, kmsg.ACLPermissionTypeAllow
		create.Creations = append(create.Creations, acl)
	}
	if len(wanted) > 0 {
		created, err := create.RequestWith(ctx, f.client)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range created.Results {
			if err := kerr.ErrorForCode(result.ErrorCode); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The broker answers before its authorizer knows.
	describe := kmsg.NewPtrDescribeACLsRequest()
	describe.ResourceType, describe.ResourcePatternType, describe.Operation, describe.PermissionType = all.ResourceType, all.ResourcePatternType, all.Operation, all.PermissionType
	err = wire.Poll(ctx, func() (bool, error) {
		response, err := describe.RequestWith(ctx, f.client)
		if err != nil {
			return true, err
		}
		n := 0
		for _, resource := range response.Resources {
			n += len(resource.ACLs)
		}
		return n == len(wanted), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// records counts what is on a topic that may not exist.
func (f *fortress) records(t *testing.T, topic string) int {
	t.Helper()
	request := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	request.Topics = append(request.Topics, one)
	response, err := request.RequestWith(testcluster.Context(t), f.client)
	if err != nil {
		t.Fatal(err)
	}
	if response.Topics[0].ErrorCode == kerr.UnknownTopicOrPartition.Code {
		return 0
	}
	records, err := reader.Read(testcluster.Context(t), f.Addrs(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return len(records)
}

// needs are the permissions of one phase: those of docs/permissions.md, which
// TestPermissionsDoc compares.
var needs = map[string]func(source, target string) []permission{
	"plan": func(source, target string) []permission {
		return append(onTopic(source, kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs), onTopic(target, kmsg.ACLOperationDescribe)...)
	},
	"apply": func(source, target string) []permission {
		return append(onTopic(source, kmsg.ACLOperationRead),
			append(onTopic(target, kmsg.ACLOperationCreate, kmsg.ACLOperationAlterConfigs, kmsg.ACLOperationWrite, kmsg.ACLOperationRead),
				permission{kmsg.ACLResourceTypeTransactionalId, lockName(target, rewrite.Whole), kmsg.ACLOperationWrite})...)
	},
	"verify": func(source, target string) []permission {
		return append(onTopic(source, kmsg.ACLOperationRead), onTopic(target, kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs)...)
	},
	"rehearse": func(source, target string) []permission {
		return append(onTopic(source, kmsg.ACLOperationRead), onTopic(target, kmsg.ACLOperationRead)...)
	},
	"plan --extend": func(source, target string) []permission {
		return onTopic(source, kmsg.ACLOperationRead)
	},
}

func onTopic(topic string, operations ...kmsg.ACLOperation) []permission {
	var all []permission
	for _, operation := range operations {
		all = append(all, permission{kmsg.ACLResourceTypeTopic, topic, operation})
	}
	return all
}

// TestPermissions runs each phase as a principal that may do exactly what
// docs/permissions.md says, and then without each of these, one at a time.
func TestPermissions(t *testing.T) {
	f := newFortress(t)
	source := f.Seed(t, "source", `partitions 2
config cleanup.policy=compact
0 1700000000000 a_b_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 one
1 1700000000001 a_c_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 two
`)
	env := Environment{Version: "rekey test", Now: time.Now, Progress: NoProgress{}, Logf: func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); strings.Contains(text, hidden) {
			t.Errorf("a secret is logged: %s", text)
		}
	}}
	marker := file(t, "marker.json", []byte(`{"offsets":{"0":0,"1":0}}`))
	phases := map[string]func(ctx context.Context, dir, target string) error{
		"plan": func(ctx context.Context, dir, target string) error {
			o := DefaultPlanOptions()
			o.Connections.Source, o.Source, o.Target, o.RunDir = f.connection(t), source, target, dir
			_, err := Plan(ctx, o, env)
			return err
		},
		"apply": func(ctx context.Context, dir, target string) error {
			_, err := Apply(ctx, RunOptions{Connections: Connections{Source: f.connection(t)}, RunDir: dir}, env)
			return err
		},
		"verify": func(ctx context.Context, dir, target string) error {
			_, err := Verify(ctx, RunOptions{Connections: Connections{Source: f.connection(t)}, RunDir: dir}, env)
			return err
		},
		"rehearse": func(ctx context.Context, dir, target string) error {
			_, err := Rehearse(ctx, RehearseOptions{RunOptions: RunOptions{Connections: Connections{Source: f.connection(t)}, RunDir: dir}, Runtimes: []string{"0.3"}, Markers: []string{marker}}, env)
			return err
		},
		"plan --extend": func(ctx context.Context, dir, target string) error {
			o := DefaultPlanOptions()
			o.Connections.Source, o.RunDir, o.Extend = f.connection(t), dir, true
			_, err := Plan(ctx, o, env)
			return err
		},
	}
	order := []string{"plan", "apply", "verify", "rehearse", "plan --extend"}
	measured := 0
	dir, target := t.TempDir(), f.Topic(t, "target")
	for i, phase := range order {
		if phase == "plan --extend" { // without anything new it reads nothing
			appended := &kgo.Record{Topic: source, Partition: 0, Key: []byte("a_b_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448"), Value: []byte("three")}
			if err := f.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())).ProduceSync(testcluster.Context(t), appended).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		wanted := needs[phase](source, target)
		for _, missing := range wanted {
			measured++
			t.Run(phase+" without "+strings.NewReplacer(source, "source", target, "target").Replace(missing.String()), func(t *testing.T) {
				dirHere, targetHere := dir, target
				if phase == "apply" { // a topic that was created before has no need of Create
					dirHere, targetHere = t.TempDir(), f.Topic(t, "target")
					f.grant(t, needs["plan"](source, targetHere)...)
					if err := phases["plan"](testcluster.Context(t), dirHere, targetHere); err != nil {
						t.Fatal(err)
					}
				}
				without := missing
				if missing.name == target {
					without.name = targetHere
				} else if missing.name == lockName(target, rewrite.Whole) {
					without.name = lockName(targetHere, rewrite.Whole)
				}
				granted := slices.DeleteFunc(needs[phase](source, targetHere), func(p permission) bool { return p == without })
				if without.operation == kmsg.ACLOperationAlterConfigs { // which implies this
					granted = append(granted, onTopic(without.name, kmsg.ACLOperationDescribeConfigs)...)
				}
				if without.operation == kmsg.ACLOperationRead || without.operation == kmsg.ACLOperationWrite {
					granted = append(granted, permission{without.kind, without.name, kmsg.ACLOperationDescribe}) // and this
				}
				f.grant(t, granted...)
				before := f.records(t, targetHere)
				err := phases[phase](testcluster.Context(t), dirHere, targetHere)
				wantFailure(t, err, 6, "not permitted: "+without.String())
				t.Logf("%v", err)
				if after := f.records(t, targetHere); after != before {
					t.Errorf("the target has %d records, %d before", after, before)
				}
			})
		}
		f.grant(t, needs[phase](source, target)...)
		if err := phases[phase](testcluster.Context(t), dir, target); err != nil {
			t.Fatalf("%d. %s: %v\n%s", i+1, phase, err, Advice(err))
		}
	}
	t.Logf("%d permissions removed in turn", measured)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 8 {
		t.Fatalf("%d files in the run directory, %v", len(entries), err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil || strings.Contains(string(content), hidden) {
			t.Errorf("%s holds a secret, or %v", entry.Name(), err)
		}
	}
	t.Run("without a sight of the source", func(t *testing.T) {
		for _, phase := range order {
			f.grant(t, slices.DeleteFunc(needs[phase](source, target), func(p permission) bool { return p.name == source })...)
			here := dir
			if phase == "plan" {
				here = t.TempDir()
			}
			wantFailure(t, phases[phase](testcluster.Context(t), here, target), 6, "not permitted: Describe on topic "+source)
		}
	})
	t.Run("apply into a topic that is there needs no Create", func(t *testing.T) {
		there := f.CreateTopic(t, "there", 2, map[string]string{"cleanup.policy": "compact"})
		dir := t.TempDir()
		for _, phase := range order[:3] {
			f.grant(t, slices.DeleteFunc(needs[phase](source, there), func(p permission) bool { return p.operation == kmsg.ACLOperationCreate })...)
			if err := phases[phase](testcluster.Context(t), dir, there); err != nil {
				t.Fatalf("%s: %v", phase, err)
			}
		}
	})

	t.Run("PLAIN", func(t *testing.T) {
		login := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=" + principal + " password="
		_, err := dial(t, f.saslOnly, login+hidden+";")
		wantFailure(t, err, 6, "not permitted: Describe on topic states") // it is let in
		_, err = dial(t, f.saslOnly, login+hidden+"-wrong;")
		wantFailure(t, err, 2, "authentication failed at")
	})
	t.Run("OAUTHBEARER", func(t *testing.T) {
		subject, expires := principal, time.Now().Add(time.Hour)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			part := func(claims map[string]any) string {
				text, err := json.Marshal(claims)
				if err != nil {
					t.Error(err)
				}
				return base64.RawURLEncoding.EncodeToString(text)
			}
			token := part(map[string]any{"alg": "none"}) + "." + part(map[string]any{"sub": subject, "iat": time.Now().Unix(), "exp": expires.Unix()}) + "."
			if err := json.NewEncoder(w).Encode(map[string]any{"access_token": token, "expires_in": 3600}); err != nil {
				t.Error(err)
			}
		}))
		defer server.Close()
		login := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=" + server.URL +
			"\nsasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=me clientSecret=" + hidden + ";"
		_, err := dial(t, f.saslOnly, login)
		wantFailure(t, err, 6, "not permitted: Describe on topic states") // it is let in
		expires = time.Now().Add(-time.Hour)
		_, err = dial(t, f.saslOnly, login)
		wantFailure(t, err, 2, "authentication failed at")
		server.Close()
		_, err = dial(t, f.saslOnly, login)
		wantFailure(t, err, 2, "authentication failed at", "the token endpoint", "cannot be reached")
	})
	t.Run("client certificates", func(t *testing.T) {
		for name, properties := range stores(t, f.ca, f.ca.issue(t, "client")) {
			t.Run(name, func(t *testing.T) {
				_, err := dial(t, f.tlsOnly, "security.protocol=SSL\n"+properties)
				wantFailure(t, err, 6, "not permitted: Describe on topic states") // it is let in
			})
		}
	})
	t.Run("the connection", func(t *testing.T) {
		for _, test := range []struct {
			name, at, old, new string
			code               int
			want               []string
		}{
			{"wrong password", f.at, hidden, hidden + "-wrong", 2, []string{"authentication failed at"}},
			{"unknown user", f.at, "username=" + principal, "username=nobody", 2, []string{"authentication failed at"}},
			{"other mechanism", f.at, "SCRAM-SHA-512", "SCRAM-SHA-256", 2, []string{"does not offer sasl.mechanism SCRAM-SHA-256"}},
			{"no SASL", f.at, "SASL_SSL", "SSL", 1, []string{"no broker answers", "security.protocol"}},
			{"no TLS", f.at, "SASL_SSL", "SASL_PLAINTEXT", 1, []string{"no broker answers", "security.protocol"}},
			{"nothing", f.at, "SASL_SSL", "PLAINTEXT", 1, []string{"no broker answers", "security.protocol"}},
			{"plain listener", f.Bootstrap(), "x", "x", 1, []string{"no broker answers", "does not use TLS"}},
			{"plain listener, SASL", f.Bootstrap(), "SASL_SSL", "SASL_PLAINTEXT", 2, []string{"does not use SASL"}},
			{"client certificate", f.tlsOnly, "SASL_SSL", "SSL", 2, []string{"TLS: the broker at", "ssl.keystore.location"}},
			{"other authority", f.at, "ssl.truststore.certificates=", "ssl.truststore.location=" + file(t, "other.pem", []byte(pemOf("CERTIFICATE", newAuthority(t, "other").certificate.Raw))) + "\nx=", 2, []string{"TLS: the certificate of"}},
		} {
			t.Run(test.name, func(t *testing.T) {
				began := time.Now()
				_, err := dial(t, test.at, strings.Replace(f.properties, test.old, test.new, 1))
				wantFailure(t, err, test.code, test.want...)
				t.Logf("after %s: %v", time.Since(began).Round(time.Millisecond), err)
			})
		}
	})
}

// TestPermissionsDoc holds docs/permissions.md to what TestPermissions measures.
func TestPermissionsDoc(t *testing.T) {
	content, err := os.ReadFile("../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	for phase, wanted := range needs {
		rows := map[string][]string{}
		for _, p := range wanted("SOURCE", "TARGET") {
			operation, resource, _ := strings.Cut(p.String(), " on ")
			resource = strings.Replace(resource, lockName("TARGET", rewrite.Whole), "`"+lockName("TARGET", rewrite.Whole)+"`", 1)
			rows[resource] = append(rows[resource], operation)
		}
		for resource, operations := range rows {
			if row := fmt.Sprintf("| `%s` | %s | %s |\n", phase, resource, strings.Join(operations, ", ")); !strings.Contains(string(content), row) {
				t.Errorf("missing or different: %s", row)
			}
		}
	}
}
