package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTroubleshooting holds docs/troubleshooting.md to the error messages in the
// code. Each message that is built into a Failure must have an entry: a phrase
// of it in bold code, with … for what differs from case to case. Entries that no
// message has are stale. Where this fails after a new message: give it an entry.
func TestTroubleshooting(t *testing.T) {
	content, err := os.ReadFile("docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, match := range regexp.MustCompile("\\*\\*`([^`]+)`\\*\\*").FindAllStringSubmatch(string(content), -1) {
		if len(match[1]) < 8 {
			t.Errorf("%q is too short for a phrase", match[1])
		}
		used[match[1]] = false
	}
	messages := errorMessages(t)
	if len(messages) < 100 {
		t.Fatalf("only %d messages found in the code", len(messages))
	}
	for message, at := range messages {
		found := false
		for phrase := range used {
			if strings.Contains(message, phrase) {
				used[phrase], found = true, true
			}
		}
		if !found {
			t.Errorf("%s: no entry in docs/troubleshooting.md for: %s", at, message)
		}
	}
	for phrase, matched := range used {
		if !matched {
			t.Errorf("docs/troubleshooting.md has an entry for %q, which no error says", phrase)
		}
	}
}

// verb is a formatting directive.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]+)?[a-zA-Z]|…+`)

// errorMessages finds the texts that a Failure is made of, by where they are.
func errorMessages(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	messages := map[string]string{}
	add := func(n ast.Node, e ast.Expr) {
		text := verb.ReplaceAllString(literal(e), "…")
		for strings.Contains(text, "……") {
			text = strings.ReplaceAll(text, "……", "…")
		}
		if len(strings.Trim(text, "…: \n-")) >= 8 { // else it is handed on from elsewhere
			messages[text] = fmt.Sprint(files.Position(n.Pos()))
		}
	}
	for _, folder := range []string{".", "migrate"} {
		paths, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					field := map[string]string{"Failure": "What", "Refusal": "Text", "settingError": "problem"}[nameOf(n.Type)]
					for _, element := range n.Elts {
						if pair, ok := element.(*ast.KeyValueExpr); ok && field != "" && nameOf(pair.Key) == field {
							add(n, pair.Value)
						}
					}
				case *ast.CallExpr:
					// The functions that make a Failure, and the argument that is its text.
					argument, known := map[string]int{"usage": 0, "changed": 0, "refused": 0, "setting": 1}[nameOf(n.Fun)]
					if receiver, ok := n.Fun.(*ast.SelectorExpr); ok {
						switch {
						case receiver.Sel.Name == "add" && strings.HasSuffix(path, "target.go"): // of a preflight
							argument, known = 0, true
						case receiver.Sel.Name == "refuse": // of a planner
							argument, known = 2, len(n.Args) > 2
						default:
							known = false
						}
					}
					if known && len(n.Args) > argument {
						add(n, n.Args[argument])
					}
				}
				return true
			})
		}
	}
	return messages
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// literal is what is constant of a text: "a" + x + fmt.Sprintf("b %s", y) is a…b %s.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	case *ast.CallExpr: // fmt.Sprintf, fmt.Errorf, errors.New
		if len(e.Args) > 0 {
			return literal(e.Args[0])
		}
	}
	return "…"
}
