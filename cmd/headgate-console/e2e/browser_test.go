package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/test"
)

// chromium finds the browser, without which the test is left out.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return test.Program(t, "chromium", "chromium")
}

// The size of a usual window.
const width, height = 1280, 960

// browse starts a browser that ends with the test, and returns its first tab. It
// finds no host but 127.0.0.1.
func browse(t testing.TB, path string) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.WindowSize(width, height), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-US"))
	if os.Getuid() == 0 { // chromium's sandbox refuses root
		options = append(options, chromedp.NoSandbox)
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	return open(t, ctx)
}

// tab is a tab of the browser.
type tab struct {
	t        testing.TB
	ctx      context.Context
	keyboard bool // the user has no mouse
	steps    int  // fields that were filled in, and clicks

	mu     sync.Mutex
	faults []string // complaints of the browser
}

// open opens a tab, in a new browser if ctx is not of a tab.
func open(t testing.TB, ctx context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(ctx, options...)
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // a busy browser may take longer than chromedp waits
			t.Log("a tab does not close:", err)
		}
		end()
	})

	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}

	b.resize(width, height)
	return b
}

// another opens a tab beside b, with the same cookies.
func (b *tab) another() *tab {
	b.t.Helper()
	other := open(b.t, b.ctx)
	other.keyboard = b.keyboard
	return other
}

// apart opens a tab in the browser of b, with cookies and a test of its own.
func (b *tab) apart(t testing.TB) *tab {
	t.Helper()
	return open(t, b.ctx, chromedp.WithNewBrowserContext())
}

// focus makes b the visible tab.
func (b *tab) focus() {
	b.t.Helper()
	b.do(call(page.BringToFront, cdp.Empty{}))
}

// resize gives the window a size.
func (b *tab) resize(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// withoutScripts turns JavaScript off.
func (b *tab) withoutScripts() {
	b.t.Helper()
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
}

// prefer sets the preferred colours, "light" or "dark".
func (b *tab) prefer(scheme string) {
	b.t.Helper()
	b.do(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

func call[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, c, params)
		return chromedp.Void{}, err
	}
}

// listen keeps the complaints of the browser: faults of scripts, violations of the
// page's security policy, and failed loads.
func (b *tab) listen(event any) {
	var fault string
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			fault = string(e.Entry.Source) + ": " + e.Entry.Text + " (" + e.Entry.URL + ")"
		}
	case *runtime.EventConsoleAPICalled:
		fault = "console." + string(e.Type)
	case *runtime.EventExceptionThrown:
		fault = "exception: " + exceptionText(e.ExceptionDetails)
	}

	if fault != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = append(b.faults, fault)
	}
}

// complaints returns the complaints of the browser since the last call.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.faults
	b.faults = nil
	return list
}

// refusedWith checks that the browser complains about the status of the last page, at once or
// soon, and about nothing else.
func (b *tab) refusedWith(status int) {
	b.t.Helper()
	var list []string
	b.until("the browser complains", func() bool {
		list = append(list, b.complaints()...)
		return len(list) > 0
	})
	if strings.Contains(list[0], fmt.Sprintf("responded with a status of %d", status)) {
		list = list[1:]
	}
	for _, c := range list {
		b.t.Errorf("the browser complains: %s", c)
	}
}

// quiet checks that the browser has complained about nothing.
func (b *tab) quiet() {
	b.t.Helper()
	for _, c := range b.complaints() {
		b.t.Errorf("the browser complains: %s", c)
	}
}

func exceptionText(d *runtime.ExceptionDetails) string {
	if d.Exception != nil {
		return d.Text + " " + d.Exception.Description
	}
	return d.Text
}
