package migrate

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// saslModules are the login modules that go with a mechanism. Only the last
// part of the class name counts: vendors ship Kafka's classes under their own.
var saslModules = map[string]string{
	"PLAIN":         "PlainLoginModule",
	"SCRAM-SHA-256": "ScramLoginModule",
	"SCRAM-SHA-512": "ScramLoginModule",
	"OAUTHBEARER":   "OAuthBearerLoginModule",
	"AWS_MSK_IAM":   "IAMLoginModule",
	"GSSAPI":        "Krb5LoginModule",
}

// loginHandlers are the callback classes whose part is built in.
var loginHandlers = []string{"OAuthBearerLoginCallbackHandler", "IAMClientCallbackHandler"}

// applySASL sets up authentication from the sasl.* settings.
func (p *clientProperties) applySASL(config *sarama.Config) error {
	const jaasName = "sasl.jaas.config"
	given := strings.ToUpper(p.word("sasl.mechanism"))
	mechanism := cmp.Or(given, "GSSAPI") // as with Kafka's own tools
	module, known := saslModules[mechanism]
	if !known {
		return setting("sasl.mechanism", fmt.Sprintf("= %q is not supported: want PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI", mechanism), "")
	}
	for _, name := range []string{"sasl.login.callback.handler.class", "sasl.client.callback.handler.class"} {
		class := p.values[name]
		if slices.Contains(loginHandlers, class[strings.LastIndexByte(class, '.')+1:]) {
			p.used[name] = true
		} else if class != "" {
			return setting(name, "is not supported", "rekey loads no Java classes; remove it, and give the credentials in sasl.jaas.config")
		}
	}
	raw := p.raw(jaasName)
	if strings.HasPrefix(raw, "${") { // all of it is elsewhere
		var err error
		if raw, err = p.get(jaasName); err != nil {
			return err
		}
	}
	entry := &jaasEntry{options: map[string]string{}, used: map[string]bool{}}
	if raw != "" {
		var err error
		if entry, err = parseJAAS(raw); err != nil {
			return &settingError{name: jaasName, cause: err, do: fmt.Sprintf("write it as %s required option=\"value\" …; and end it with a semicolon", module)}
		}
		if entry.module != module {
			return setting(jaasName, fmt.Sprintf("names a login module that does not go with sasl.mechanism %s", mechanism), fmt.Sprintf("correct sasl.mechanism (Kafka's default is GSSAPI), or name %s", module))
		}
	} else if mechanism != "AWS_MSK_IAM" && (mechanism != "OAUTHBEARER" || p.values["sasl.oauthbearer.client.credentials.client.id"] == "") {
		do := fmt.Sprintf("give %s with the credentials", module)
		if given == "" {
			do = "give sasl.mechanism too: Kafka's default is GSSAPI"
		}
		return setting(jaasName, "is missing", do)
	}
	sasl := &config.Net.SASL
	sasl.Enable, sasl.Handshake, sasl.Version = true, true, sarama.SASLHandshakeV1
	sasl.Mechanism = sarama.SASLMechanism(mechanism)
	for name := range p.values {
		if strings.HasPrefix(name, "sasl.login.refresh.") || strings.HasPrefix(name, "sasl.login.retry.") {
			p.used[name] = true // tokens and tickets are renewed when a connection needs one
		}
	}
	var err error
	switch mechanism {
	case "OAUTHBEARER":
		err = p.applyOAuth(config, entry)
	case "AWS_MSK_IAM":
		err = p.applyMSK(config, entry)
	case "GSSAPI":
		err = p.applyKerberos(config, entry)
	default:
		err = p.applyPassword(config, entry)
	}
	if n := entry.unknown(); n > 0 {
		// By number only: where quotes are missing, a name may be part of a password.
		p.notes = append(p.notes, fmt.Sprintf("options of %s that rekey does not know are ignored: %d of %d", jaasName, n, len(entry.options)))
	}
	return err
}

// applyPassword is PLAIN and SCRAM.
func (p *clientProperties) applyPassword(config *sarama.Config, entry *jaasEntry) error {
	const jaasName = "sasl.jaas.config"
	sasl := &config.Net.SASL
	if strings.EqualFold(entry.option("tokenauth"), "true") {
		return setting(jaasName, "has tokenauth=true: delegation tokens are not supported", "give user name and password")
	}
	sasl.User, sasl.Password = entry.option("username"), entry.option("password")
	for _, option := range []string{"username", "password"} {
		if entry.options[option] == "" {
			return setting(jaasName, "has no "+option, fmt.Sprintf("write %s=\"…\", or %s=\"${env:NAME}\" to take it from the environment", option, option))
		}
	}
	if sasl.Mechanism != sarama.SASLTypePlaintext {
		sasl.SCRAMClientGeneratorFunc = scramClients(sasl.Mechanism, sasl.User, sasl.Password)
	}
	return nil
}

// scramClients gives each connection its own conversation. What takes time (the
// salted password) is computed once for all of them.
func scramClients(mechanism sarama.SASLMechanism, user, password string) func() sarama.SCRAMClient {
	generator := scram.SHA256
	if mechanism == sarama.SASLTypeSCRAMSHA512 {
		generator = scram.SHA512
	}
	client, err := generator.NewClient(user, password, "")
	return func() sarama.SCRAMClient { return &scramConversation{client: client, err: err} }
}

type scramConversation struct {
	client       *scram.Client
	err          error
	conversation *scram.ClientConversation
}

func (s *scramConversation) Begin(string, string, string) error {
	if s.err != nil {
		return &loginError{text: "user name or password hold characters that SCRAM does not allow"}
	}
	s.conversation = s.client.NewConversation()
	return nil
}

// Step answers the broker. The library's own errors are those of the broker's
// last word ("invalid-proof") and of brokers that do not know the password.
func (s *scramConversation) Step(challenge string) (string, error) {
	answer, err := s.conversation.Step(challenge)
	if err != nil {
		return "", &loginError{text: "the SCRAM conversation failed", cause: err}
	}
	return answer, nil
}

func (s *scramConversation) Done() bool { return s.conversation.Done() }

// loginError is a failure to get or to prove an identity that happens on this
// side of the connection.
type loginError struct {
	text    string
	cause   error
	passing bool // it may be otherwise in a moment: worth another attempt
}

func (e *loginError) Error() string {
	if e.cause == nil {
		return e.text
	}
	return e.text + ": " + e.cause.Error()
}

func (e *loginError) Unwrap() error { return e.cause }

// applyKerberos takes the keytab or the ticket cache of the login module.
func (p *clientProperties) applyKerberos(config *sarama.Config, entry *jaasEntry) error {
	const jaasName = "sasl.jaas.config"
	service := cmp.Or(p.word("sasl.kerberos.service.name"), entry.option("serviceName"))
	if service == "" {
		return setting("sasl.kerberos.service.name", "is missing", "give the name of the brokers' principals before the slash, usually kafka")
	}
	for _, name := range []string{"sasl.kerberos.min.time.before.relogin", "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"} {
		p.word(name) // a ticket is fetched for each connection
	}
	g := &config.Net.SASL.GSSAPI
	g.ServiceName = service
	g.KerberosConfigPath = cmp.Or(os.Getenv("KRB5_CONFIG"), "/etc/krb5.conf")
	user, realm, _ := strings.Cut(entry.option("principal"), "@")
	if user == "" || realm == "" {
		return setting(jaasName, "has no principal with a realm", `write principal="user@REALM"`)
	}
	g.Username, g.Realm = user, realm
	switch {
	case strings.EqualFold(entry.option("useKeyTab"), "true"):
		g.AuthType, g.KeyTabPath = sarama.KRB5_KEYTAB_AUTH, strings.TrimPrefix(entry.option("keyTab"), "file:")
		if _, err := os.Stat(g.KeyTabPath); err != nil {
			return unreadable(jaasName+": keyTab", err, "name a keytab that this user may read")
		}
	case strings.EqualFold(entry.option("useTicketCache"), "true"):
		g.AuthType = sarama.KRB5_CCACHE_AUTH
		g.CCachePath = strings.TrimPrefix(cmp.Or(entry.option("ticketCache"), os.Getenv("KRB5CCNAME"), "/tmp/krb5cc_"+strconv.Itoa(os.Getuid())), "FILE:")
		if _, err := os.Stat(g.CCachePath); err != nil {
			return unreadable(jaasName+": ticketCache", err, "run kinit, or use a keytab")
		}
	default:
		return setting(jaasName, "has neither useKeyTab=true nor useTicketCache=true", "nobody can be asked for a password here: give one of them")
	}
	if _, err := os.Stat(g.KerberosConfigPath); err != nil {
		return unreadable("sasl.mechanism GSSAPI", err, "install krb5.conf, or name it in the environment variable KRB5_CONFIG")
	}
	return nil
}
