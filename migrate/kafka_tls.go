package migrate

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/pbkdf2"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/IBM/sarama"
	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"
)

// applyTLS sets up encryption from the ssl.* settings. Stores are PEM, JKS or
// PKCS12; what a store is shows in its first bytes, as Java's own loader tells
// JKS and PKCS12 apart, so only a type that contradicts them is an error.
func (p *clientProperties) applyTLS(config *sarama.Config) error {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if settings.RootCAs, err = p.trust(""); err != nil {
		return err
	}
	if settings.Certificates, err = p.identity(); err != nil {
		return err
	}
	if err := p.tlsVersions(settings); err != nil {
		return err
	}
	if settings.CipherSuites, err = p.cipherSuites(); err != nil {
		return err
	}
	const names = "ssl.endpoint.identification.algorithm"
	_, given := p.values[names]
	switch algorithm := p.word(names); {
	case given && algorithm == "":
		verifyAnyName(settings)
	case given && !strings.EqualFold(algorithm, "https"):
		return setting(names, fmt.Sprintf("= %q: want https, or nothing behind the = to accept any host name", algorithm), "")
	}
	for _, name := range []string{"ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation"} {
		p.word(name) // they choose between implementations of the same
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = true, settings
	return nil
}

// verifyAnyName leaves out the host name and nothing else: the certificate must
// still come from a trusted authority, as with Kafka's own tools.
func verifyAnyName(settings *tls.Config) {
	settings.InsecureSkipVerify = true // replaced by:
	settings.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the broker has no certificate")
		}
		options := x509.VerifyOptions{Roots: settings.RootCAs, Intermediates: x509.NewCertPool()}
		for _, certificate := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(certificate)
		}
		_, err := state.PeerCertificates[0].Verify(options)
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return nil
	}
}

func (p *clientProperties) tlsVersions(settings *tls.Config) error {
	versions := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	const enabled, protocol = "ssl.enabled.protocols", "ssl.protocol"
	if names := split(p.word(enabled)); len(names) > 0 {
		settings.MinVersion, settings.MaxVersion = tls.VersionTLS13, tls.VersionTLS12
		for _, name := range names {
			version, known := versions[name]
			if !known {
				return setting(enabled, fmt.Sprintf("has %q: want TLSv1.2, TLSv1.3 or both", name), "older versions are not secure; let the listener take one of these")
			}
			settings.MinVersion, settings.MaxVersion = min(settings.MinVersion, version), max(settings.MaxVersion, version)
		}
	}
	if name := p.word(protocol); name != "" && name != "TLS" && versions[name] == 0 {
		return setting(protocol, fmt.Sprintf("= %q: want TLS, TLSv1.2 or TLSv1.3", name), "older versions are not secure; let the listener take one of these")
	}
	return nil
}

// cipherSuites are those of TLS 1.2; the ones of 1.3 cannot be chosen.
func (p *clientProperties) cipherSuites() ([]uint16, error) {
	const name = "ssl.cipher.suites"
	var ids []uint16
	for _, suite := range split(p.word(name)) {
		at := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.Name == suite })
		if at < 0 {
			return nil, setting(name, fmt.Sprintf("has %q, which is unknown or not secure", suite), "leave the setting out to have all secure ones")
		}
		ids = append(ids, tls.CipherSuites()[at].ID)
	}
	return ids, nil
}

// split takes a list apart at its commas.
func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// trust is the pool of authorities that ssl.truststore.* names, nil (those of
// the system) without any. prefix stands before the names.
func (p *clientProperties) trust(prefix string) (*x509.CertPool, error) {
	inline, err := p.get(prefix + "ssl.truststore.certificates")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if inline != "" {
		name := prefix + "ssl.truststore.certificates"
		if err := agreeOnType(name, p.word(prefix+"ssl.truststore.type"), storePEM); err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(unfold(inline)) {
			return nil, setting(name, "holds no PEM certificate", "")
		}
		return pool, nil
	}
	s, err := p.store(prefix+"ssl.truststore", "a truststore")
	if s == nil || err != nil {
		return nil, err
	}
	var certificates []*x509.Certificate
	switch s.kind {
	case storePEM:
		if !pool.AppendCertsFromPEM(s.content) {
			return nil, setting(s.name, fmt.Sprintf("= %s holds no PEM certificate", s.path), "")
		}
		return pool, nil
	case storeJKS:
		certificates, err = s.trustedOfJKS()
	default:
		if certificates, err = pkcs12.DecodeTrustStore(s.content, s.password); err != nil {
			err = s.undecodable(err)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(certificates) == 0 {
		return nil, setting(s.name, fmt.Sprintf("= %s holds no trusted certificate", s.path), "import the authority's certificate with keytool -importcert")
	}
	for _, certificate := range certificates {
		pool.AddCert(certificate)
	}
	return pool, nil
}

// identity is the client's own certificate with its key, none without
// ssl.keystore.*.
func (p *clientProperties) identity() ([]tls.Certificate, error) {
	const chainName, keyName, passwordName = "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"
	chain, err := p.get(chainName)
	if err != nil {
		return nil, err
	}
	key, err := p.get(keyName)
	if err != nil {
		return nil, err
	}
	password, err := p.get(passwordName)
	if err != nil {
		return nil, err
	}
	if (chain == "") != (key == "") {
		return nil, setting(chainName+" and "+keyName, "must be given together", "")
	}
	if chain != "" {
		if err := agreeOnType(chainName, p.word("ssl.keystore.type"), storePEM); err != nil {
			return nil, err
		}
		pair, err := pairOfPEM(keyName, unfold(chain), unfold(key), password)
		return []tls.Certificate{pair}, err
	}
	s, err := p.store("ssl.keystore", "a keystore")
	if s == nil || err != nil {
		return nil, err
	}
	var pair tls.Certificate
	switch s.kind {
	case storePEM:
		pair, err = pairOfPEM(s.name, s.content, s.content, password)
	case storeJKS:
		pair, err = s.pairOfJKS(cmp.Or(password, s.password))
	default:
		pair, err = s.pairOfPKCS12()
	}
	if err != nil {
		return nil, err
	}
	return []tls.Certificate{pair}, nil
}

// What a store is.
const (
	storePEM    = "PEM"
	storeJKS    = "JKS"
	storePKCS12 = "PKCS12"
)

// keyStore is a file with keys or certificates.
type keyStore struct {
	name     string // of the setting that names the file
	path     string
	kind     string
	content  []byte
	password string
}

// store reads the file of prefix.location, nil without one.
func (p *clientProperties) store(prefix, what string) (*keyStore, error) {
	s := &keyStore{name: prefix + ".location"}
	declared := p.word(prefix + ".type")
	var err error
	if s.path, err = p.get(s.name); err != nil {
		return nil, err
	}
	if s.password, err = p.get(prefix + ".password"); err != nil {
		return nil, err
	}
	if s.path == "" {
		return nil, nil
	}
	if s.content, err = os.ReadFile(s.path); err != nil {
		return nil, unreadable(s.name, err, "give the path of "+what+" that this user may read")
	}
	switch {
	case bytes.HasPrefix(s.content, []byte{0xfe, 0xed, 0xfe, 0xed}):
		s.kind = storeJKS
	case bytes.HasPrefix(s.content, []byte{0xce, 0xce, 0xce, 0xce}):
		return nil, setting(s.name, fmt.Sprintf("= %s is a JCEKS store, which is not supported", s.path), "convert it with keytool -importkeystore -deststoretype PKCS12")
	case bytes.Contains(s.content, []byte("-----BEGIN ")):
		s.kind = storePEM
	case bytes.HasPrefix(s.content, []byte{0x30}):
		s.kind = storePKCS12
	default:
		return nil, setting(s.name, fmt.Sprintf("= %s is neither PEM nor JKS nor PKCS12", s.path), "give the path of "+what+" in one of these formats")
	}
	return s, agreeOnType(s.name, declared, s.kind)
}

// agreeOnType refuses a declared type that the content contradicts. Java reads
// PKCS12 as JKS and the other way round; so does this.
func agreeOnType(name, declared, kind string) error {
	declared = strings.ToUpper(declared)
	if !slices.Contains([]string{"", storePEM, storeJKS, storePKCS12}, declared) {
		return setting(strings.TrimSuffix(name, name[strings.LastIndexByte(name, '.'):])+".type", fmt.Sprintf("= %s is not supported: want PEM, JKS or PKCS12", declared), "convert the store with keytool -importkeystore -deststoretype PKCS12")
	}
	if declared != "" && (declared == storePEM) != (kind == storePEM) {
		return setting(name, fmt.Sprintf("is %s, but its type is set to %s", kind, declared), "correct the .type setting of this store")
	}
	return nil
}

// undecodable tells a wrong password from a broken store.
func (s *keyStore) undecodable(cause error) error {
	if errors.Is(cause, pkcs12.ErrIncorrectPassword) || errors.Is(cause, pkcs12.ErrDecryption) {
		return setting(s.name, fmt.Sprintf("= %s: the password is wrong, or the store is damaged", s.path), "correct "+strings.TrimSuffix(s.name, ".location")+".password")
	}
	return unreadable(s.name+" = "+s.path, cause, "convert the store to PEM, or make it again with keytool")
}

func (s *keyStore) openJKS() (keystore.KeyStore, error) {
	ks := keystore.New(keystore.WithOrderedAliases())
	password := []byte(s.password)
	err := ks.Load(bytes.NewReader(s.content), password)
	if err != nil {
		// Its only error about the password is that the digest does not fit,
		// which a damaged store has too.
		return ks, &settingError{name: s.name, problem: fmt.Sprintf("= %s: the password is wrong, or the store is damaged", s.path), cause: err,
			do: "correct " + strings.TrimSuffix(s.name, ".location") + ".password"}
	}
	return ks, nil
}

func (s *keyStore) trustedOfJKS() ([]*x509.Certificate, error) {
	ks, err := s.openJKS()
	if err != nil {
		return nil, err
	}
	var certificates []*x509.Certificate
	for _, alias := range ks.Aliases() {
		if !ks.IsTrustedCertificateEntry(alias) {
			continue
		}
		entry, err := ks.GetTrustedCertificateEntry(alias)
		if err != nil {
			return nil, unreadable(s.name+" = "+s.path, err, "")
		}
		certificate, err := x509.ParseCertificate(entry.Certificate.Content)
		if err != nil {
			return nil, unreadable(s.name+" = "+s.path+": certificate "+alias, err, "")
		}
		certificates = append(certificates, certificate)
	}
	return certificates, nil
}

func (s *keyStore) pairOfJKS(password string) (tls.Certificate, error) {
	var pair tls.Certificate
	ks, err := s.openJKS()
	if err != nil {
		return pair, err
	}
	for _, alias := range ks.Aliases() {
		if !ks.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := ks.GetPrivateKeyEntry(alias, []byte(password))
		if err != nil {
			return pair, &settingError{name: s.name, problem: fmt.Sprintf("= %s: the password of key %s is wrong", s.path, alias), cause: err, do: "correct ssl.key.password"}
		}
		for _, certificate := range entry.CertificateChain {
			pair.Certificate = append(pair.Certificate, certificate.Content)
		}
		if pair.PrivateKey, err = x509.ParsePKCS8PrivateKey(entry.PrivateKey); err != nil {
			return pair, unreadable(s.name+" = "+s.path+": key "+alias, err, "")
		}
		return pair, nil
	}
	return pair, setting(s.name, fmt.Sprintf("= %s holds no private key", s.path), "a keystore has the client's own key; authorities belong into ssl.truststore.location")
}

func (s *keyStore) pairOfPKCS12() (tls.Certificate, error) {
	var pair tls.Certificate
	key, certificate, authorities, err := pkcs12.DecodeChain(s.content, s.password)
	if err != nil {
		return pair, s.undecodable(err)
	}
	pair.PrivateKey = key
	pair.Certificate = append(pair.Certificate, certificate.Raw)
	for _, authority := range authorities {
		pair.Certificate = append(pair.Certificate, authority.Raw)
	}
	return pair, nil
}

// pairOfPEM reads a certificate chain and its key, which may be encrypted.
func pairOfPEM(name string, chain, key []byte, password string) (tls.Certificate, error) {
	var pair tls.Certificate
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			pair.Certificate = append(pair.Certificate, block.Bytes)
		}
	}
	if len(pair.Certificate) == 0 {
		return pair, setting(name, "has no certificate with the key", "put the certificate and those that signed it before or behind the key")
	}
	for block, rest := pem.Decode(key); block != nil; block, rest = pem.Decode(rest) {
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue
		}
		der := block.Bytes
		if block.Type == "ENCRYPTED PRIVATE KEY" {
			if password == "" {
				return pair, setting(name, "has an encrypted key", "give its password as ssl.key.password")
			}
			var err error
			if der, err = decryptKey(der, password); err != nil {
				return pair, unreadable(name, err, "correct ssl.key.password, or decrypt the key with openssl pkcs8")
			}
		}
		private, err := parseKey(der)
		if err != nil {
			return pair, unreadable(name, err, "give the key as PKCS#8: openssl pkcs8 -topk8 converts it")
		}
		pair.PrivateKey = private
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			return pair, unreadable(name, err, "")
		}
		if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(private.(crypto.Signer).Public()) {
			return pair, setting(name, "has a key that does not belong to the first certificate", "put the client's own certificate first")
		}
		return pair, nil
	}
	return pair, setting(name, "has no private key", "a keystore has the client's own key; authorities belong into ssl.truststore.location")
}

// parseKey reads a key in any of the three forms that PEM files have.
func parseKey(der []byte) (crypto.PrivateKey, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("the private key cannot be read")
	}
	switch key.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
		return key, nil
	}
	return nil, fmt.Errorf("a key of type %T cannot sign", key)
}

// foldedPEM is a PEM block whose line ends became spaces or got lost, as happens
// in a value of a properties file.
var foldedPEM = regexp.MustCompile(`(-----BEGIN [A-Z0-9 ]+-----)([A-Za-z0-9+/=\s]+)(-----END [A-Z0-9 ]+-----)`)

// unfold gives PEM blocks their lines back.
func unfold(text string) []byte {
	return foldedPEM.ReplaceAllFunc([]byte(text), func(block []byte) []byte {
		parts := foldedPEM.FindSubmatch(block)
		body := bytes.Join(bytes.Fields(parts[2]), nil)
		out := append([]byte("\n"), parts[1]...)
		for line := range slices.Chunk(body, 64) {
			out = append(append(out, '\n'), line...)
		}
		return append(append(append(out, '\n'), parts[3]...), '\n')
	})
}

// The encryption of PKCS#8 keys (RFC 8018, PBES2) as OpenSSL and Java write it.
type encryptedKey struct {
	Algorithm pkix.AlgorithmIdentifier
	Data      []byte
}

type pbes2 struct{ Derivation, Cipher pkix.AlgorithmIdentifier }

type pbkdf2Parameters struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	Function   pkix.AlgorithmIdentifier `asn1:"optional"`
}

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}

	aesKeyLengths = map[string]int{"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32} // CBC
	hmacHashes    = map[string]func() hash.Hash{
		"": sha1.New, "1.2.840.113549.2.7": sha1.New, "1.2.840.113549.2.9": sha256.New, "1.2.840.113549.2.10": sha512.New384, "1.2.840.113549.2.11": sha512.New,
	}
)

// decryptKey opens an encrypted PKCS#8 key.
func decryptKey(der []byte, password string) ([]byte, error) {
	var key encryptedKey
	var scheme pbes2
	var derivation pbkdf2Parameters
	var iv []byte
	if _, err := asn1.Unmarshal(der, &key); err != nil {
		return nil, errors.New("the encrypted key cannot be read")
	}
	if !key.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, fmt.Errorf("the key is encrypted by algorithm %s, which is not supported", key.Algorithm.Algorithm)
	}
	if _, err := asn1.Unmarshal(key.Algorithm.Parameters.FullBytes, &scheme); err != nil || !scheme.Derivation.Algorithm.Equal(oidPBKDF2) {
		return nil, errors.New("the encrypted key cannot be read")
	}
	if _, err := asn1.Unmarshal(scheme.Derivation.Parameters.FullBytes, &derivation); err != nil {
		return nil, errors.New("the encrypted key cannot be read")
	}
	length, known := aesKeyLengths[scheme.Cipher.Algorithm.String()]
	if !known {
		return nil, fmt.Errorf("the key is encrypted by cipher %s, which is not supported", scheme.Cipher.Algorithm)
	}
	function, known := hmacHashes[derivation.Function.Algorithm.String()]
	if !known {
		return nil, fmt.Errorf("the key's password is hashed by %s, which is not supported", derivation.Function.Algorithm)
	}
	if _, err := asn1.Unmarshal(scheme.Cipher.Parameters.FullBytes, &iv); err != nil || len(iv) != aes.BlockSize || len(key.Data) == 0 || len(key.Data)%aes.BlockSize != 0 {
		return nil, errors.New("the encrypted key cannot be read")
	}
	secret, err := pbkdf2.Key(function, password, derivation.Salt, derivation.Iterations, length)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	plain := make([]byte, len(key.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, key.Data)
	padding := int(plain[len(plain)-1])
	if padding == 0 || padding > aes.BlockSize || !bytes.Equal(plain[len(plain)-padding:], bytes.Repeat([]byte{byte(padding)}, padding)) {
		return nil, errors.New("the password of the key is wrong")
	}
	return plain[:len(plain)-padding], nil
}
