# Targets that a fresh machine with only Go and make can run: see CONTRIBUTING.md.

GO        ?= go
FUNCTIONS := thumbnail index counters purge sitemap search
TESTERS   := conformance crash
GUEST     := GOOS=wasip1 GOARCH=wasm $(GO) -C functions build -buildmode=c-shared -ldflags='-s -w' -trimpath
# The race detector needs a C compiler.
RACE      := $(shell command -v gcc cc clang 2>/dev/null | head -1 | sed 's/..*/-race/')

.PHONY: build functions testers run demo test lint bench fmt clean

build: functions
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o bin/pelton ./cmd/pelton

functions: $(FUNCTIONS:%=bin/functions/%.wasm)
	@rm -rf bin/functions/migrations
	@mkdir -p bin/functions
	cp manifests/*.yaml manifests/*.schema.json bin/functions/
	cp -R manifests/migrations bin/functions/migrations

testers: $(TESTERS:%=bin/testers/%.wasm)

bin/functions/%.wasm: always
	@mkdir -p bin/functions
	$(GUEST) -o ../bin/functions/$*.wasm ./$*

bin/testers/%.wasm: always
	@mkdir -p bin/testers
	$(GUEST) -o ../bin/testers/$*.wasm ./$*

# Go's own cache knows what is up to date.
.PHONY: always
always:

demo: build
	bin/pelton demo

run: build
	bin/pelton demo --keep

test: functions testers lint
	$(GO) -C sdk test $(RACE) ./...
	$(GO) -C functions test $(RACE) ./...
	$(GO) test $(RACE) -timeout 12m ./...

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) -C sdk vet ./...
	GOOS=wasip1 GOARCH=wasm $(GO) -C sdk vet ./...
	$(GO) -C functions vet ./...
	$(GO) tool staticcheck ./...

bench: functions testers
	$(GO) test -run '^TestBench' -count=1 -timeout 30m -v ./bench -bench-suite

fmt:
	gofmt -w $$(git ls-files '*.go')

clean:
	rm -rf bin bench/out
