# `make help` lists what there is. Everything but test-kafka needs Go only.

# The toolchain is the one that is installed: a build never fetches another.
export GOTOOLCHAIN := local

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 10s
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.DEFAULT_GOAL := help
.PHONY: help build dist demo test race fuzz lint vuln bench bench-smoke bench-render bench-padding microbench test-kafka torture torture-long cover mutants clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

build: ## one static binary in dist/, with its version from git
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o dist/rekey .

dist: ## what a release consists of: static binaries of all platforms, checksums, SBOMs
	go run ./deploy/dist -version $(VERSION)

demo: ## a whole migration on an embedded broker, in a few seconds
	@go run . demo

test: ## all tests on the embedded broker, in a few minutes
	go test -timeout 15m ./...

race: ## the same under the race detector, but for whole processes under attack and what they weigh; needs a C compiler
	CGO_ENABLED=1 go test -race -short -skip 'Torture|TestMemory_' -timeout 25m ./...

fuzz: ## every fuzz target, one after the other, for FUZZTIME (10s) each
	@set -eu; n=0; \
	for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "fuzz $$package $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
			n=$$((n + 1)); \
		done; \
	done; \
	test $$n -gt 0 || { echo 'no fuzz target found' >&2; exit 1; }; \
	echo "$$n fuzz targets, $(FUZZTIME) each"

lint: ## gofmt, go vet and staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted, run gofmt -w on:" >&2; echo "$$unformatted" >&2; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

vuln: ## known vulnerabilities; optional, for it needs the Go vulnerability database
	@go run $(GOVULNCHECK) ./... || { echo 'make vuln found something, or could not reach the Go vulnerability database: see above. It is no part of lint, which must work offline.' >&2; exit 1; }

bench: ## rekey against other ways to copy a topic; KAFKA=1 on a real Apache Kafka
	cd bench && go run . $(if $(KAFKA),-kafka) $(BENCHFLAGS)

bench-smoke: ## the bench on a few thousand records: every contestant must copy all of them
	cd bench && go vet ./... && go test ./... && go run . -records 4000 -runs 1 -partitions 4

bench-render: ## the tables and the plot of docs/performance.md from bench/results
	cd bench && go run . render

bench-padding: ## what alignment costs on a real Kafka: time, disk, compaction; minutes and gigabytes
	REKEY_BENCH=1 go test -run '^TestBenchPadding$$' -count=1 -timeout 60m -v ./migrate

microbench: ## the Go benchmarks
	go test -run '^$$' -bench . -benchmem ./...

test-kafka: ## the broker tests on a real Apache Kafka; needs a JDK, 17 or newer, and Maven
	@test -n "$${JAVA_HOME:-}" || command -v java >/dev/null || { echo 'make test-kafka needs Java 17 or newer: install a JDK (Debian, Ubuntu: apt-get install default-jdk-headless) or set JAVA_HOME' >&2; exit 1; }
	@ls -d .cache/kafka/jars-* >/dev/null 2>&1 || command -v mvn >/dev/null || { echo 'make test-kafka needs Maven 3 to fetch Apache Kafka: install it (Debian, Ubuntu: apt-get install maven)' >&2; exit 1; }
	REKEY_TEST_BROKER=kafka go test -p 1 -count=1 -timeout 25m . ./migrate/... ./fixtures/...

torture: ## the long tests that break things on purpose
	REKEY_TORTURE=1 go test -run Torture -count=1 -timeout 60m -v ./...

torture-long: ## the same for hours, on both brokers; needs a JDK and Maven, and 50 GB of disk
	REKEY_TORTURE=1 REKEY_TORTURE_N=1000 go test -run Torture -count=1 -timeout 6h -v .
	REKEY_TEST_BROKER=kafka REKEY_TORTURE=1 REKEY_TORTURE_N=100 REKEY_SOAK_RECORDS=50000000 REKEY_SOAK_SECONDS=120 go test -run Torture -skip TestTortureCluster -count=1 -timeout 12h -v .
	REKEY_TEST_BROKER=kafka REKEY_TORTURE=1 REKEY_TORTURE_N=30 go test -run TestTortureCluster -count=1 -timeout 6h -v .
	$(MAKE) fuzz FUZZTIME=30m

mutants: ## small mistakes in keycodec and rewrite, one at a time: would tests notice? half an hour
	go run ./fixtures/mutate -most 600 -seed 1 -out fixtures/mutate/result.json keycodec rewrite

cover: ## test coverage by package, and as dist/cover.html
	@mkdir -p dist
	go test -coverpkg=./... -coverprofile=dist/cover.out ./...
	go tool cover -html=dist/cover.out -o dist/cover.html
	@go run ./fixtures/coverage dist/cover.out

clean: ## remove what the other targets made, the fetched Kafka included
	rm -rf dist .cache rekey
	go clean -testcache
