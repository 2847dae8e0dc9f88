# The recipes people and CI call. `just` alone lists them.

daemon := "target/dist/trunkline"
generator := "target/dist/trunkline-bench"

_default:
    @just --list --unsorted

# Format, lints, dependency rules: what is quick
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    if command -v cargo-deny >/dev/null; then cargo deny check; else cargo test --test invariants dependencies_keep; fi

# The documentation of all crates in target/doc; a broken link fails
doc *args:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps {{args}}

# Every test of the workspace
test *args:
    cargo test --workspace {{args}}

# axe-core looks at every page of the console, in every size and colour (npm, Chromium); screenshots go to target/screenshots
axe:
    mkdir -p target/axe target/screenshots
    cp tests/web/axe/package.json tests/web/axe/package-lock.json target/axe/
    cd target/axe && npm ci --silent --no-audit --no-fund
    TRUNKLINE_TEST_AXE="$PWD/target/axe/node_modules/axe-core/axe.min.js" TRUNKLINE_SCREENSHOTS="$PWD/target/screenshots" cargo test --test daemon every_page

# What a fresh machine runs, PostgreSQL and packages included (root)
ci:
    .ci/run

# The daemon and the load generator as packages have them, with link-time optimisation
build:
    cargo build --profile dist -p trunkline -p trunkline-bench

# The Debian package, with man pages and completions (needs cargo-deb)
dist:
    packaging/build

# Installs that package on a clean Debian, starts it as its unit would, calls, upgrades, purges (root; debootstrap, sip-tester)
dist-test: dist
    packaging/test-install

# The container image of what `dist` has built, looked at and run as a container would (root; jq)
image: dist
    packaging/image
    packaging/test-image

# This tree alone, the lines of bench-against: calls, CPU by thread, latency, overload, memory, lists (half an hour)
bench *args:
    bench/against --pairs 1 {{args}}

# A look in two minutes: 60 calls at once, and 1,000 calls/s
bench-quick:
    bench/against --pairs 1 --lines closed:60,rate:1000

# This tree beside an earlier revision and a Kamailio, as ratios of pairs; hours for all of it, so take a few lines for a look:
# just bench-against v0.1.0 --pairs 2 --lines closed:60,rate:2500
bench-against revision *args:
    bench/against {{revision}} {{args}}

# Calls of bots over TLS for a minute, 500 and 1,000 at once: CPU and memory of a call, delay to the bot, late ticks, clear -> silence
bench-bots *args: build
    {{generator}} bots --daemon {{daemon}} {{args}}

# A bot that sends 10,000 junk messages a second beside 200 calls of bots: the others' late ticks without it and with it, and which calls end
bench-hostile-bot *args: build
    {{generator}} hostile-bot --daemon {{daemon}} {{args}}

# Pipecat and OpenAI's Twilio adapter as their registries have them, called through the daemon (python3 with venv, node and npm; hundreds of megabytes)
bot-adapters:
    cargo build --bin trunkline
    python3 fixtures/bot/adapters.py target/debug/trunkline

# Asterisk of Debian unstable with the lines of `trunkline trunk paste`, beside a daemon: all flows in ten minutes, or those named, such as
# just asterisk echoed killed (root; debootstrap, iproute2, openssl; 600 MB in target/asterisk)
asterisk *flows:
    cargo build --bin trunkline
    tests/interop/asterisk target/debug/trunkline {{flows}}

# G.711 and concealment against the ITU's vectors: `src` of a checkout of openitu/STL
itu-vectors folder:
    TRUNKLINE_ITU_STL={{folder}} cargo test -p trunkline-net --lib itu_s -- --ignored --nocapture

# The console: 200 live pages beside 200 calls/s, and pages of a list of 100,000 calls
bench-console *args: build
    {{generator}} live-pages --daemon {{daemon}} {{args}}
    {{generator}} call-list --daemon {{daemon}}

# How much the generator itself can do, caller against callee with no daemon between
bench-self: build
    {{generator}} loopback --seconds 5

# A directory of 1,000, 10,000 and 100,000 orgs with ten numbers each: time to ready, lag of a change, CPU per change
bench-directory *args: build
    {{generator}} directory --daemon {{daemon}} {{args}}

# Minutes to build and to test from nothing, size of the binary, dependencies, keys: a column for each revision (half an hour each)
numbers *revisions:
    bench/numbers {{revisions}}

# User instructions a call over all threads, counted by callgrind (valgrind); with another build's beside: just instructions --against PROGRAM
instructions *args: build
    {{generator}} instructions --daemon {{daemon}} {{args}}

# An hour at 500 calls/s with 20 s of talk, and what is left after it
soak minutes="60": build
    {{generator}} line rate:500 --talk-ms 20000 --leftover --daemon {{daemon}} --seconds $(({{minutes}} * 60))

# `trunkline trace` in a pseudo-terminal under 100 calls/s: the org's limit untouched, memory flat (sipp)
trace-soak minutes="10":
    TRUNKLINE_TRACE_SOAK_S=$(({{minutes}} * 60)) cargo test --release --test daemon a_load -- --nocapture

# kill -9 under load, twenty times
kill-rounds rounds="20":
    TRUNKLINE_KILL_ROUNDS={{rounds}} cargo test --release --test daemon kill:: -- --nocapture

# kill -9 the moment that calls are answered, two hundred times
kill-answers rounds="200":
    TRUNKLINE_KILL_ANSWERS={{rounds}} cargo test --release --test daemon torture::kept -- --nocapture

# kill -9 while clients write over the API, a hundred times on SQLite and on PostgreSQL each
kill-writes rounds="100":
    TRUNKLINE_KILL_WRITE_ROUNDS={{rounds}} cargo test --release --test daemon kill::writes -- --nocapture

# kill -9 of a process that records simulated calls: usage is what was made, to the call and the second
kill-usage calls="100000" kills="20":
    TRUNKLINE_KILL_USAGE_CALLS={{calls}} TRUNKLINE_KILL_USAGE_KILLS={{kills}} cargo test --release --test daemon kill::usage -- --nocapture

# The property tests and the lossy network with many more cases than usual
fuzz cases="100000":
    PROPTEST_CASES={{cases}} cargo test --release -p trunkline-sip -p trunkline-routing
    TRUNKLINE_SIM_CALLS={{cases}} cargo test --release -p trunkline-calls --test simulation

# The OpenAPI document against the server with bodies of other seeds than the tests'; one that fails is printed
differential seeds="20":
    for _ in $(seq {{seeds}}); do TRUNKLINE_TEST_SEED=$(od -An -N7 -tu8 /dev/urandom | tr -d ' ') cargo test --test api differential || exit 1; done

# Changes of single lines in the state machines of calls and dialogs: names those that no unit test notices (cargo-mutants; hours)
mutants *args:
    cargo mutants -p trunkline-sip -p trunkline-calls {{args}}

# The clips of assets/spoken made anew (flite)
spoken:
    assets/spoken/make

# The golden trace made anew: a digest of what both peers see, for 5,000 simulated runs and every recorded flow
golden:
    TRUNKLINE_GOLDEN=write cargo test -p trunkline-calls --test simulation golden
    TRUNKLINE_GOLDEN=write cargo test --test daemon replay::golden
    git diff --stat fixtures/golden

# The trace of one simulated run (a number) or one recorded flow (a name), to compare with another commit's
golden-trace case:
    TRUNKLINE_GOLDEN_SEED={{case}} TRUNKLINE_GOLDEN_FLOW={{case}} cargo test {{ if case =~ '^[0-9]+$' { "-p trunkline-calls --test simulation" } else { "--test daemon" } }} golden -- --nocapture

# A flow in fixtures/flows made anew, from sipp or from real phones: just record baresip-transfers-udp; a new one out of scenarios of
# fixtures/sipp: just record busy caller_is_refused runtime_is_busy; all from real phones: just record phones
record name *rest:
    cargo build
    {{ if name == "phones" { "fixtures/flows/phones.py --all" } else { "fixtures/flows/record " + name + " " + rest } }}

# A capture of so many megabytes, read by `capture import` and `replay`: what they use at their peak
large-capture megabytes="1024":
    TRUNKLINE_CAPTURE_MB={{megabytes}} cargo test --test daemon replay::large -- --nocapture --test-threads 1

# Requests made up from the daemon's own OpenAPI document, so many for each operation
schemathesis examples="200":
    cargo build --bin trunkline
    tests/schemathesis/run target/debug/trunkline {{examples}}
