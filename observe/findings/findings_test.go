package findings_test

import (
	"testing"

	"github.com/headgate/headgate/observe/findings"
)

func TestPage(t *testing.T) {
	const page = "https://github.com/headgate/headgate/blob/main/docs/findings.md#"
	for code, want := range map[string]string{
		"HG001": page + "hg001", findings.CostUnread: page + "hg023",
		"": "", "HG": "", "HG01": "", "HG0001": "", "HG0a1": "", "XY001": "", "hg001": "", "HG00 ": "",
	} {
		if got := findings.Page(code); got != want {
			t.Errorf("%q: %q", code, got)
		}
	}
}
