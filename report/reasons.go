package report

// reason is a code and what it means, in one plain sentence.
type reason struct{ code, meaning string }

// reasons is the closed list of reasons why a state key cannot be parsed. It is
// the only place that explains them; tools and documents look here.
var reasons = []reason{
	{"null-key", "The record has no key at all, so it names no state."},
	{"empty-key", "The key is there, but it has no bytes."},
	{"invalid-utf8", "The key is not text in UTF-8, so no release can have written it."},
	{"too-few-fields", "The key has fewer than the four fields of a state key."},
	{"bad-sequence", "The sequence number is not a plain decimal number of 0 or more."},
	{"bad-event-uuid", "The event UUID is not 36 characters of lower-case hex and dashes."},
	{"bad-action-uuid", "The action UUID is not 36 characters of lower-case hex and dashes."},
	{"dashed", "The key is from before release 0.1.0: it has no sequence number to carry over."},
	{"already-encoded", "The key already has a target form of rekey: it was migrated before."},
	{"bad-key-group", "The key group is not a plain decimal number in front of or behind a state key."},
	{"bad-escape", "The business key has a % that is not followed by 25 or 5F."},
	{"bad-length", "The length in front of the business key is not the one that it has."},
	{"foreign", "The key is not one of Flink Agents, or no key of the given --key-type prints it."},
	{"unknown-action", "The action UUID is not in the file given with --actions, so it has no new name."},
}

// Meaning explains a reason code in one plain sentence. It returns "" for a code
// that is not in the list.
func Meaning(code string) string {
	for _, r := range reasons {
		if r.code == code {
			return r.meaning
		}
	}
	return ""
}

// ReasonCodes lists the codes that Meaning explains, in the order in which the
// parser looks for them.
func ReasonCodes() []string {
	codes := make([]string, len(reasons))
	for i, r := range reasons {
		codes[i] = r.code
	}
	return codes
}
