package migrate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/IBM/sarama"
)

// The client library answers every failure to connect with "out of brokers" and
// hides why. What a person can put right is told apart here by the cause, which
// is in the chain of the error.

// errUnreachable is an unexpected failure (exit code 1) with advice.
var errUnreachable = errors.New("broker unreachable")

// refusedConnection says whether a connection failed for a reason that no
// waiting cures: wrong credentials, or a certificate that is not trusted.
func refusedConnection(err error) bool {
	if login, ok := errors.AsType[*loginError](err); ok {
		return !login.passing
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return certificate || plain || tlsAlert(err) != nil || errors.Is(err, sarama.ErrSASLAuthenticationFailed) ||
		errors.Is(err, sarama.ErrUnsupportedSASLMechanism) || errors.Is(err, sarama.ErrIllegalSASLState)
}

// probe tries the bootstrap servers one after the other, until one lets this
// client in. The client library does so in its first request, four times over
// and without saying at which step it failed: a listener that takes a TLS
// handshake for the begin of a request is then minutes of silence, and a wrong
// password is an account locked.
func probe(ctx context.Context, to Connection, config *sarama.Config) error {
	if !config.Net.TLS.Enable && !config.Net.SASL.Enable || config.Net.ResolveCanonicalBootstrapServers {
		return nil
	}
	var failures []error
	for _, address := range to.Bootstrap {
		err := shakeHands(ctx, address, config)
		if err == nil {
			err = logIn(address, config)
		}
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if refusedConnection(err) {
			return err // as the others would, and too many wrong passwords lock an account
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

func shakeHands(ctx context.Context, address string, config *sarama.Config) error {
	if !config.Net.TLS.Enable {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, config.Net.DialTimeout)
	defer cancel()
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: config.Net.TLS.Config}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// logIn authenticates once. A broker that hangs up in the middle of that,
// though it speaks Kafka, has refused: old ones give no other answer.
func logIn(address string, config *sarama.Config) error {
	if !config.Net.SASL.Enable {
		return nil
	}
	err := open(address, config)
	if !cut(err) {
		return err
	}
	without := *config
	without.Net.SASL.Enable = false
	if open(address, &without) == nil {
		return &loginError{text: "the broker hangs up during authentication", cause: err}
	}
	return err
}

func open(address string, config *sarama.Config) error {
	broker := sarama.NewBroker(address)
	if err := broker.Open(config); err != nil {
		return err
	}
	if _, err := broker.Connected(); err != nil {
		return err
	}
	return broker.Close()
}

// cut says whether the other side ended the connection.
func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// tlsAlert is the broker's own refusal of a TLS handshake, nil if it was not
// that. The type of an alert is hidden; its wrapping is not.
func tlsAlert(err error) error {
	if network, ok := errors.AsType[*net.OpError](err); ok && network.Op == "remote error" {
		return network
	}
	return nil
}

// connectFailure says why no connection came about. It never repeats what the
// library says of the credentials, only what the broker says.
func connectFailure(to Connection, config *sarama.Config, err error) error {
	at := strings.Join(to.Bootstrap, ",")
	file := cmp.Or(to.flag, "--command-config")
	refused := func(what, do string) error {
		return &Failure{Kind: ErrUsage, What: what, Cause: err, Do: do}
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	secure, sasl := config.Net.TLS.Enable, config.Net.SASL.Enable
	if wrong, ok := errors.AsType[sarama.ConfigurationError](err); ok {
		return refused("the connection settings contradict each other", "correct the file of "+file+": "+string(wrong))
	}
	if login, ok := errors.AsType[*loginError](err); ok {
		return &Failure{Kind: ErrUsage, What: "authentication failed at " + at, Cause: login, Do: "correct user name, password and sasl.mechanism in the file of " + file}
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &Failure{Kind: ErrUsage, What: "TLS: the certificate of " + at + " is not accepted", Cause: certificate,
			Do: "put the authority that signed it into ssl.truststore.location in the file of " + file + ", and use a host name of --bootstrap-server that the certificate has"}
	}
	if alert := tlsAlert(err); alert != nil {
		return &Failure{Kind: ErrUsage, What: "TLS: the broker at " + at + " refuses the connection", Cause: alert,
			Do: "if it wants a client certificate, give ssl.keystore.location in the file of " + file + "; if so, it may not trust that certificate"}
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return refused("TLS: the listener at "+at+" does not use TLS", "use another port, or "+withoutTLS(sasl)+" in the file of "+file)
	}
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return refused("authentication failed at "+at, "correct user name, password and sasl.mechanism in the file of "+file)
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return refused(fmt.Sprintf("the broker at %s does not offer sasl.mechanism %s", at, config.Net.SASL.Mechanism), "give one that the listener offers, in the file of "+file)
	case errors.Is(err, sarama.ErrIllegalSASLState):
		return refused("the listener at "+at+" does not use SASL", "use another port, or security.protocol without SASL in the file of "+file)
	}
	return &Failure{Kind: errUnreachable, What: "no broker answers at " + at, Cause: err, Do: adviceOnSilence(err, secure, sasl, file)}
}

func withoutTLS(sasl bool) string {
	if sasl {
		return "security.protocol=SASL_PLAINTEXT"
	}
	return "security.protocol=PLAINTEXT"
}

// adviceOnSilence reads what it can from a connection that was cut or that
// nobody took.
func adviceOnSilence(err error, secure, sasl bool, file string) string {
	_, lookup := errors.AsType[*net.DNSError](err)
	garbled := false
	if _, ok := errors.AsType[sarama.PacketDecodingError](err); ok {
		garbled = true
	}
	switch {
	case lookup:
		return "check the host name in --bootstrap-server"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "check host and port of --bootstrap-server: nothing listens there"
	case secure && (cut(err) || errors.Is(err, context.DeadlineExceeded)):
		return "no TLS handshake came about. If the listener does not use TLS, give " + withoutTLS(sasl) + " in the file of " + file + ", or use another port"
	case !secure && garbled:
		return "the answer is not Kafka's. A TLS listener answers so: give security.protocol=SSL or SASL_SSL in the file of " + file
	case cut(err) && !sasl:
		return "the broker hangs up. Check security.protocol in the file of " + file + ": a listener with TLS or SASL does so to a client without"
	case cut(err):
		return "the broker hangs up. Check security.protocol and sasl.mechanism in the file of " + file
	}
	return "check host and port of --bootstrap-server, and security.protocol in the file of " + file + ": a client without TLS gets no answer from a TLS listener"
}
