// Package report holds what rekey found out and did, and shows it to people
// and to programs.
//
// # What is here
//
// Three documents, each a plain struct in model.go:
//
//   - [Report] is what a plan found and decided. It becomes report.json,
//     report.txt, report.html and the summary on the terminal.
//   - [Apply] is the evidence of one run of apply: apply.json.
//   - [Verify] is the evidence of one run of verify: verify.json.
//
// [BadKey] is one state key that cannot be parsed, a line of unparseable.jsonl;
// [Repair] is what to do with one, a line of repairs.jsonl.
//
// # How a value becomes a page
//
// Every rendering starts from the same value, so that text, HTML and JSON can
// never tell different stories:
//
//	model.go      the documents
//	facts.go      sentences and figures that text and HTML share
//	printable.go  how a key is shown
//	json.go       WriteJSON, ReadReport, the bad-key lines
//	text.go       WriteText, WriteSummary
//	html.go       WriteHTML, with report.gohtml, report.css and report.js
//	schema/       JSON Schema of each document
//
// # What must stay true
//
//   - A key is data of a stranger. It reaches a terminal, a JSON file or a page
//     only through [Printable], or through the same table of what is visible.
//   - null, empty and the text "null" look different everywhere.
//   - Nothing here reads a clock, a file or the network. A caller decides about
//     colour and width; the same value gives the same bytes.
//   - Counts carry thousands separators; partitions, offsets and identifiers do
//     not, because people copy them into other tools.
package report
