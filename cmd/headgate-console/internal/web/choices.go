package web

import (
	_ "embed"
	"encoding/json"
	"errors"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

//go:embed words.json
var wordsFile []byte

// vocabulary has the words of the pages that templates have not: those that the program chooses.
var vocabulary = readVocabulary()

// wordList is what words.json has.
type wordList struct {
	Done       map[string]string // the messages that confirm an action, by their names in addresses
	Labels     map[string]string // the names of fields, as the service has them
	Fields     []string          // of a policy, in the order of display
	Inputs     []control         // of the form of a policy, in its order
	Parts      []part            // of that form, in its order
	Choices    map[string][]choice
	Conditions map[service.AlertKind]string   // what they mean
	Events     map[string]string              // of messages to webhooks
	Decides    map[string]string              // what decides for an instance, by what it reports
	Redis      map[string]string              // what to do about its errors, by how they begin
	Kinds      []kind                         // in the order in which they are stacked
	Failures   map[string]failure             // the pages of errors
	Signin     map[string]failure             // what is said of a log-in that failed
	Groups     []group                        // of the navigation
	Filters    []struct{ Name, Query string } // of the list, that many look at
	Columns    []control                      // of the list; a name orders it
	Questions  map[string]confirmation        // before a change; {it} is what they are about
	Starts     []start                        // in the order of the page
}

// readVocabulary panics if the file, which is part of the program, has a mistake.
func readVocabulary() (v wordList) {
	err := json.Unmarshal(wordsFile, &v)
	for i := range v.Starts {
		err = errors.Join(err, v.Starts[i].complete())
	}
	if err != nil {
		panic("web: words.json: " + err.Error())
	}
	return v
}

// choice is an option of a form, with a line that explains it.
type choice struct {
	Value, Words, Help string
}

// choices returns the options of an input of the form of a policy, as its sentences have them, and
// of the form of the list.
func choices(name string) []choice { return vocabulary.Choices[name] }

// recipes are the recipes that have words of their own.
func recipes() []choice { return choices("key")[:len(choices("key"))-1] }

// modes are the modes where they stand alone.
func modes() []choice { return choices("alone") }

// onLimitWords describes what happens to a request over the limit.
func onLimitWords(onLimit string) string {
	span, waits := strings.CutPrefix(onLimit, "wait ")
	switch {
	case waits:
		return "waits up to " + span
	case onLimit == "degrade":
		return "passes marked, for a cheaper answer"
	}
	return "is refused with 429"
}

// start is a policy that a new one may begin with. It lacks an application, and is in shadow.
type start struct {
	Title   string
	Needs   string         // what the program has to do for it, or ""
	Written policy.Written `json:"policy"` // its name is that of the start
	Policy  policy.Policy  `json:"-"`
}

// complete reads the policy. One without an application would be a mistake.
func (s *start) complete() (err error) {
	s.Written.Apps, s.Written.Mode = []string{"any"}, policy.Shadow.String()
	s.Policy, err = s.Written.Policy()
	s.Policy.Apps = nil
	return err
}
