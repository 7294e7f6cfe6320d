# provctl: `make demo` shows the whole thing, `make test` proves it, `make crash` to the last case, `make lint` keeps it tidy.
GO      ?= go
VERSION ?= $(shell packaging/version.sh 2>/dev/null || echo development)
LDFLAGS := -X main.version=$(VERSION)

SUMMARY := $(CURDIR)/bin/crash-summary
# What the crash tests counted, in lines; nothing if their result was cached.
summary = cat $(SUMMARY) 2>/dev/null || true

.PHONY: build demo test crash case fuzz race bench lint packages vuln clean

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/provctl ./cmd/provctl

demo: build
	./bin/provctl demo $(DEMO_FLAGS)

test:
	@mkdir -p bin && rm -f $(SUMMARY)
	@CRASH_SUMMARY=$(SUMMARY) $(GO) test -timeout 20m ./...; code=$$?; $(summary); exit $$code

# Every case of every sweep of docs/crash-testing.md, and the seeded faults; all other tests are those of "make test".
crash:
	@mkdir -p bin && rm -f $(SUMMARY)
	@$(GO) test -count 1 -v -run '^TestProtocolHolds$$' ./crashtests/model | sed -n 's/^.*\(model states: [0-9]*\)/\1/p' > $(SUMMARY)
	@CRASH=full CRASH_SUMMARY=$(SUMMARY) $(GO) test -count 1 -timeout 45m -run 'Sweep|Teeth|Regressions|WireFaults' ./crashtests; \
	code=$$?; $(summary); exit $$code

# One case by the name that its failure printed: make case CASE=TestSweep8Wire/reply-dropped/configure
case:
	CASE='$(CASE)' $(GO) test -count 1 -v -run '^$(firstword $(subst /, ,$(CASE)))$$' ./crashtests

FUZZTIME ?= 20s

# Every decoder, FUZZTIME each; what is found is written to testdata/fuzz as a seed.
fuzz:
	@grep -rHoE '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' . | sort | while IFS=: read -r file func; do \
	$(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s -parallel 1 "$$(dirname "$$file")" || exit 1; done

race:
	$(GO) test -race -timeout 40m ./...

bench:
	$(GO) test -run '^$$' -bench . -benchtime 2s ./receipt/... ./journal/... ./inspect/... ./internal/choria/...

# A deb, an rpm and a tarball, with their bill of materials and checksums, in dist/.
packages:
	packaging/build.sh dist

# Fails if the program calls anything that is known to be vulnerable; VULNDB=latest takes the newest database.
vuln:
	packaging/govulncheck.sh $(VULNDB)

lint:
	@unformatted=$$($(GO) tool gofumpt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofumpt'd:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) mod verify

clean:
	rm -rf bin dist
