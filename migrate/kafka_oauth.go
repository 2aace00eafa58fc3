package migrate

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
)

// tokenTime is how long it may take to get a token.
const tokenTime = 30 * time.Second

// tokens hands out one token until it is about to expire.
type tokens struct {
	fetch func(context.Context) (text string, expires time.Time, err error)
	// extensions go with every token.
	extensions map[string]string
	now        func() time.Time

	mu      sync.Mutex
	text    string
	refresh time.Time
}

// Token is called for each new connection.
func (t *tokens) Token() (*sarama.AccessToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if t.text == "" || !now.Before(t.refresh) {
		ctx, cancel := context.WithTimeout(context.Background(), tokenTime)
		defer cancel()
		text, expires, err := t.fetch(ctx)
		if err != nil {
			return nil, err
		}
		// As Kafka's clients do: after four fifths of its life.
		t.text, t.refresh = text, now.Add(expires.Sub(now)*4/5)
	}
	return &sarama.AccessToken{Token: t.text, Extensions: t.extensions}, nil
}

// applyOAuth sets up the client credentials grant (RFC 6749, 4.4). Names are
// those of Kafka before and since 4.1.
func (p *clientProperties) applyOAuth(config *sarama.Config, entry *jaasEntry) error {
	const endpointName = "sasl.oauthbearer.token.endpoint.url"
	endpoint, err := p.get(endpointName)
	if err != nil {
		return err
	}
	if endpoint == "" {
		return setting(endpointName, "is missing", "give the address that hands out tokens for client id and secret")
	}
	address, err := url.Parse(endpoint)
	if err != nil || address.Host == "" || address.Scheme != "https" && address.Scheme != "http" {
		return setting(endpointName, "is no address that begins with https:// or http://", "rekey reads no token from a file; give the address that hands them out")
	}
	g := grant{endpoint: endpoint}
	for _, part := range []struct {
		into            *string
		option, setting string
	}{
		{&g.id, "clientId", "sasl.oauthbearer.client.credentials.client.id"},
		{&g.secret, "clientSecret", "sasl.oauthbearer.client.credentials.client.secret"},
		{&g.scope, "scope", "sasl.oauthbearer.scope"},
	} {
		value, err := p.get(part.setting)
		if err != nil {
			return err
		}
		*part.into = cmp.Or(value, entry.option(part.option))
		if *part.into == "" && part.option != "scope" {
			return setting("sasl.jaas.config", "has no "+part.option, fmt.Sprintf("write %s=\"…\", or %s=\"${env:NAME}\" to take it from the environment", part.option, part.option))
		}
	}
	if strings.EqualFold(p.word("sasl.oauthbearer.header.urlencode"), "true") {
		g.id, g.secret = url.QueryEscape(g.id), url.QueryEscape(g.secret)
	}
	for _, name := range []string{"sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"} {
		p.word(name) // tokenTime is for all of it
	}
	// The endpoint has a truststore of its own among the login options, or the
	// system's: not the one of the brokers.
	login := clientProperties{path: p.path, values: entry.options, used: entry.used}
	roots, err := login.trust("")
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	g.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t := &tokens{fetch: g.fetch, now: time.Now, extensions: map[string]string{}}
	for name, value := range entry.options {
		if extension, found := strings.CutPrefix(name, "extension_"); found {
			t.extensions[extension] = value
		}
	}
	config.Net.SASL.TokenProvider = t
	return nil
}

// grant asks an authorization server for tokens.
type grant struct {
	endpoint, id, secret, scope string
	client                      *http.Client
}

func (g *grant) fetch(ctx context.Context) (string, time.Time, error) {
	host := g.endpoint
	if address, err := url.Parse(g.endpoint); err == nil {
		host = address.Host
	}
	failed := func(format string, args ...any) (string, time.Time, error) {
		return "", time.Time{}, &loginError{text: fmt.Sprintf("the token endpoint %s "+format, append([]any{host}, args...)...)}
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if g.scope != "" {
		form.Set("scope", g.scope)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return failed("is no valid address")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	request.SetBasicAuth(g.id, g.secret)
	began := time.Now()
	response, err := g.client.Do(request)
	if err != nil {
		// The library's error repeats the address, which may hold a secret.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return "", time.Time{}, &loginError{text: "the token endpoint " + host + " cannot be reached", cause: err, passing: true}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", time.Time{}, &loginError{text: "the token endpoint " + host + " broke off", cause: err, passing: true}
	}
	var answer struct {
		Token   string  `json:"access_token"`
		Expires float64 `json:"expires_in"`
		Error   string  `json:"error"`
	}
	parseErr := json.Unmarshal(body, &answer)
	switch {
	case response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests:
		return "", time.Time{}, &loginError{text: fmt.Sprintf("the token endpoint %s answers %d", host, response.StatusCode), passing: true}
	case response.StatusCode != http.StatusOK && plainWord(answer.Error):
		return failed("answers %d %s", response.StatusCode, answer.Error)
	case response.StatusCode != http.StatusOK:
		return failed("answers %d", response.StatusCode)
	case parseErr != nil || answer.Token == "":
		return failed("gives no access_token")
	}
	if answer.Expires <= 0 {
		answer.Expires = 60
	}
	return answer.Token, began.Add(time.Duration(answer.Expires * float64(time.Second))), nil
}

// plainWord says whether an error code is one: a server may answer with
// anything, the secret included.
func plainWord(text string) bool {
	return text != "" && len(text) <= 64 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// applyMSK sets up IAM authentication of Amazon MSK, which takes a signed
// address as the token of OAUTHBEARER.
func (p *clientProperties) applyMSK(config *sarama.Config, entry *jaasEntry) error {
	region := regionOf(p.bootstrap)
	region = cmp.Or(region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if region == "" {
		return setting("sasl.mechanism", "= AWS_MSK_IAM: the region is unknown", "set the environment variable AWS_REGION")
	}
	profile, role, session := entry.option("awsProfileName"), entry.option("awsRoleArn"), entry.option("awsRoleSessionName")
	external := entry.option("awsRoleExternalId")
	if profile != "" && role != "" {
		return setting("sasl.jaas.config", "has both awsProfileName and awsRoleArn", "give one of them")
	}
	config.Net.SASL.Mechanism = sarama.SASLTypeOAuth
	config.Net.SASL.TokenProvider = &tokens{now: time.Now, fetch: func(ctx context.Context) (string, time.Time, error) {
		var text string
		var expiresMS int64
		var err error
		switch {
		case profile != "":
			text, expiresMS, err = signer.GenerateAuthTokenFromProfile(ctx, region, profile)
		case role != "":
			text, expiresMS, err = signer.GenerateAuthTokenFromRoleWithExternalId(ctx, region, role, session, external)
		default:
			text, expiresMS, err = signer.GenerateAuthToken(ctx, region)
		}
		if err != nil {
			return "", time.Time{}, &loginError{text: "no AWS credentials", cause: err}
		}
		return text, time.UnixMilli(expiresMS), nil
	}}
	return nil
}

// regionOf reads the region from the name of a broker of Amazon MSK.
func regionOf(bootstrap []string) string {
	for _, address := range bootstrap {
		host, _, _ := strings.Cut(address, ":")
		labels := strings.Split(strings.TrimSuffix(host, ".cn"), ".")
		n := len(labels)
		if n >= 5 && labels[n-1] == "com" && labels[n-2] == "amazonaws" && strings.HasPrefix(labels[n-4], "kafka") {
			return labels[n-3]
		}
	}
	return ""
}
