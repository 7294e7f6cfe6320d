# provctl: `make demo` shows the whole thing, `make test` proves it, `make lint` keeps it tidy.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
LDFLAGS := -X main.version=$(VERSION)

.PHONY: build demo test race bench lint clean

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/provctl ./cmd/provctl

demo: build
	./bin/provctl demo $(DEMO_FLAGS)

test:
	$(GO) test -timeout 20m ./...

race:
	$(GO) test -race -timeout 40m ./...

bench:
	$(GO) test -run '^$$' -bench . -benchtime 2s ./receipt/... ./journal/... ./internal/choria/...

lint:
	@unformatted=$$($(GO) tool gofumpt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofumpt'd:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) mod verify

clean:
	rm -rf bin
