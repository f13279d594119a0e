package web

import (
	"net/url"
	"strconv"
)

// perPage is how many rows are on a page of a list that is read as a whole.
const perPage = 100

// paging is the place of a page in its list.
type paging struct {
	All            int64  // rows on all pages
	Previous, Next string // addresses of pages, or ""
}

// pageIn returns the number of the page that an address asks for: 1 if it is none.
func pageIn(u url.Values) int {
	page, err := strconv.Atoi(u.Get("page"))
	if err != nil {
		return 1
	}
	return page
}

// pageOf returns the part of a list that the address asks for: the first one if there is no such
// page.
func pageOf[T any](r *request, list []T) ([]T, paging) {
	page := pageIn(r.req.URL.Query())
	if last := max(1, (len(list)+perPage-1)/perPage); page < 1 || page > last {
		page = 1
	}
	// The other pages keep the search, which has made the list what it is.
	at := func(page int) string {
		q := given(map[string]string{"search": r.query("search"), "page": strconv.Itoa(page)})
		return r.req.URL.Path + "?" + q.Encode()
	}

	p := paging{All: int64(len(list))}
	if page > 1 {
		p.Previous = at(page - 1)
	}
	if page*perPage < len(list) {
		p.Next = at(page + 1)
	}

	return list[(page-1)*perPage : min(page*perPage, len(list))], p
}
