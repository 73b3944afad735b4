# Targets that a fresh machine with only Go and make can run: see CONTRIBUTING.md.

GO        ?= go
FUNCTIONS := thumbnail index counters purge sitemap search
TESTERS   := conformance crash nowork compute ledger relay asks statements
GUEST     := GOOS=wasip1 GOARCH=wasm $(GO) -C functions build -buildmode=c-shared -ldflags='-s -w' -trimpath
# The race detector needs a C compiler.
RACE      := $(shell command -v gcc cc clang 2>/dev/null | head -1 | sed 's/..*/-race/')
# Compiled guests are kept here between tests. A test's binary has no version of
# wazero in it, and compiling under the race detector takes ten times as long: so
# the command compiles them, and the tests are told the version that it used.
CACHE     := bin/testers/cache
WAZERO     = $(shell $(GO) list -m -f '{{.Version}}' github.com/tetratelabs/wazero)
VERSIONED  = -ldflags=-X=github.com/tetratelabs/wazero/internal/version.version=$(WAZERO)

.PHONY: build functions testers compiled run demo test lint bench bench-engine bench-delivery bench-host nemesis soak fmt fuzz clean

build: functions bin/pelton

.PHONY: bin/pelton
bin/pelton:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o bin/pelton ./cmd/pelton

functions: $(FUNCTIONS:%=bin/functions/%.wasm)
	@rm -rf bin/functions/migrations
	@mkdir -p bin/functions
	cp manifests/*.yaml manifests/*.schema.json bin/functions/
	cp -R manifests/migrations bin/functions/migrations

testers: $(TESTERS:%=bin/testers/%.wasm)
	@for t in $(TESTERS); do cp functions/$$t/$$t.yaml bin/testers/; done

compiled: functions testers bin/pelton bin/testers/pelton
	@bin/pelton check --cache $(CACHE) bin/functions bin/testers

# A host that dies where a test says.
.PHONY: bin/testers/pelton
bin/testers/pelton:
	CGO_ENABLED=0 $(GO) build -tags crashpoints -o bin/testers/pelton ./cmd/pelton

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

test: lint compiled
	$(GO) -C sdk test $(RACE) ./...
	$(GO) -C functions test $(RACE) ./...
	$(GO) test $(RACE) $(VERSIONED) -timeout 12m $$($(GO) list ./... | grep -v '/cmd/pelton$$')
	$(GO) test $(RACE) $(VERSIONED) -timeout 12m -parallel 6 ./cmd/pelton # by itself: its hosts are processes that mostly wait

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) -C sdk vet ./...
	GOOS=wasip1 GOARCH=wasm $(GO) -C sdk vet .
	$(GO) -C functions vet ./...
	$(GO) tool staticcheck ./...

# What the engine costs beside other ways to run guests: minutes.
bench-engine: compiled
	$(GUEST) -o ../bin/testers/computeplain.wasm ./computeplain
	$(GO) test $(VERSIONED) -run '^$$' -bench . -benchtime 1x -timeout 30m ./bench/engine

bench: compiled
	$(GO) test $(VERSIONED) -run '^$$' -bench . -benchtime 1x -timeout 30m ./bench

# Hosts and servers are killed, frozen and cut off, in SEEDS stories that begin
# with number SEED: half a minute each.
SEEDS ?= 20
SEED  ?= 1
nemesis: compiled
	PELTON_SEEDS=$(SEEDS) PELTON_SEED=$(SEED) $(GO) test $(VERSIONED) -run TestNemesis -v -timeout 120m ./cmd/pelton

# A host is killed KILLS times under load: a second each.
KILLS ?= 500
soak: compiled
	PELTON_KILLS=$(KILLS) $(GO) test $(VERSIONED) -run TestSoak -v -timeout 120m ./cmd/pelton

# What delivery costs: exactly-once state, an outbox, and nothing at all.
bench-delivery: compiled
	$(GO) test $(VERSIONED) -run '^$$' -bench 'Delivery|NoWork' -benchtime 1x -timeout 30m ./bench

bench-host: compiled
	$(GO) test $(VERSIONED) -run '^$$' -bench . -benchtime 1x -timeout 30m ./bench/host
	$(GO) test $(VERSIONED) -run '^$$' -bench Thumbnail -benchtime 1x -timeout 30m ./bench

fuzz:
	$(GO) test ./manifests -run '^$$' -fuzz FuzzDecode -fuzztime 30s
	$(GO) test ./runtime/engine -run '^$$' -fuzz FuzzReader -fuzztime 30s
	$(GO) test ./runtime/engine -run '^$$' -fuzz FuzzRewrite -fuzztime 30s
	$(GO) test ./runtime/wasm -run '^$$' -fuzz FuzzMeter -fuzztime 30s
	$(GO) test ./host/httpc -run '^$$' -fuzz FuzzTarget -fuzztime 30s
	$(GO) test ./host/blob -run '^$$' -fuzz FuzzCheckKey -fuzztime 30s
	$(GO) test ./host/image -run '^$$' -fuzz FuzzOrientation -fuzztime 30s
	$(GO) -C functions test ./event -run '^$$' -fuzz FuzzDecode -fuzztime 30s

fmt:
	gofmt -w $$(git ls-files '*.go')

clean:
	rm -rf bin bench/out
