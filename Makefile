# make prints the targets.
# The flags of make console, such as ARGS='-redis redis://127.0.0.1:6379'.
ARGS ?=

.PHONY: help run console test lint bench docs gate

help: # prints this list
	@awk -F ': # ' '/^[a-z]+: # / { printf "make %-7s %s\n", $$1, $$2 }' Makefile

run: # serves the quickstart on 127.0.0.1:8080
	go -C examples/quickstart run .

console: # serves the management page on 127.0.0.1:8080, with the flags in ARGS
	@echo "Compiling the console: seconds, or two minutes the first time. Then it prints its address."
	@go -C cmd/headgate-console run . $(ARGS)

test: # runs the tests that take seconds; those on Redis start redis-server
	go test ./...

lint: # checks the format, and runs vet, staticcheck and the linters
	bash .ci/vet-all
	bash .ci/lint

bench: # measures headgate beside its peers, in some minutes
	go -C bench run . -quick

docs: # tests the documentation, and serves the reference on 127.0.0.1:8081
	go test -count=1 ./internal/test/readme ./examples/...
	go run golang.org/x/pkgsite/cmd/pkgsite@v0.6.0 -http 127.0.0.1:8081 .

gate: # runs everything that a change has to pass; installs what it needs, as root
	bash .ci/run
