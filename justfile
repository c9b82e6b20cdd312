# Recipes use the dependencies that `dev/up` started. `just --list` lists all recipes.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Clones of the project on one machine share their build output, because builds are slow.
export CARGO_TARGET_DIR := env("CARGO_TARGET_DIR", env("XDG_CACHE_HOME", env("HOME") / ".cache") / "matchday" / "target")
export PATH := (env("XDG_CACHE_HOME", env("HOME") / ".cache") / "matchday" / "tools" / "bin") + ":" + env("PATH")

load_env := "source .dev/env"

# Builds the programs with the features that `just test` uses, which tests select, so that nothing is compiled twice.
programs := "cargo build --quiet --all-features --bin matchday --bin matchday-verify --test documents"

_default:
    @just --list

# Cargo does not distinguish the crates of two clones: remove the crates that another clone built last, and keep
# external dependencies.
_own:
    @mkdir -p "$CARGO_TARGET_DIR"
    @[[ "$(cat "$CARGO_TARGET_DIR/clone" 2>/dev/null)" == "{{ justfile_directory() }}" ]] || \
        { cargo clean --quiet -p matchday -p platform -p web -p scoring -p matrix-appservice -p matchday-verify -p breaker -p avatars -p phone-push -p texts -p bench && echo "{{ justfile_directory() }}" > "$CARGO_TARGET_DIR/clone"; }

# Start the service with its workers, using the development dependencies.
run *ARGS: _own
    {{ load_env }} && cargo run --quiet --bin matchday -- serve --migrate {{ ARGS }}

# Run all tests, or those whose name contains one of these words (building only the test binaries needed).
test *WORDS: _own
    {{ load_env }} && cargo nextest run --all-features $(dev/test-targets {{ WORDS }}) {{ WORDS }}

# Run all upgrade tests under load, from the last release (or the given revision) to the working tree.
upgrade REVISION="": _own
    {{ load_env }} && dev/upgrade {{ REVISION }}

# Break dependencies under load and check that guarantees hold, including the nightly tests.
faults *FILTER: _own
    dev/install-test-tools
    {{ load_env }} && cargo nextest run -p matchday --all-features --test faults --run-ignored all --no-capture {{ FILTER }}

# Set MATCHDAY_BIN to test another binary than the debug build, such as a release build.
# Run mixed traffic with real dependencies for this many minutes, and check for failures, lost writes and growth.
soak MINUTES="20": _own
    {{ load_env }} && MATCHDAY_SOAK_MINUTES={{ MINUTES }} cargo nextest run -p matchday --all-features --test upgrade \
        --run-ignored all --no-capture -E 'test(/^soak::/)'

# Start a Citus cluster on this machine, and run these tests there: all query results, and tests with one of these words.
citus *WORDS: _own
    dev/citus up
    {{ load_env }} && . .dev/citus.env && cargo nextest run -p matchday --all-features --test citus --no-capture
    {{ load_env }} && . .dev/citus.env && MATCHDAY_COINS__PER_POINT=1 cargo nextest run --all-features -j 2 \
        {{ if WORDS == "" { "-p matchday --test whole" } else { "$(dev/test-targets " + WORDS + ") " + WORDS } }}
    dev/citus errors
    {{ load_env }} && . .dev/citus.env && cargo nextest run -p matchday --all-features --test citus --run-ignored only failures

# Run everything that must pass before a change is merged. A failed step does not stop the others.
ci:
    #!/usr/bin/env bash
    set -uo pipefail
    tests=target/nextest/default/junit.xml
    rm -f "$tests"
    failed=() table=''
    for step in format spelling migrations dependencies lint test docs clients deploy stale; do
        began=$SECONDS outcome=passed
        {{ just_executable() }} "$step" || { outcome=FAILED; failed+=("$step"); }
        printf -v row '%-13s %5d s  %s' "$step" $((SECONDS - began)) "$outcome"
        table+=$row$'\n'
        echo "=== $row"
    done
    printf '\n%s%-13s %5d s\n' "$table" total "$SECONDS"
    if [[ -f $tests ]]; then
        echo $'\nslowest tests:'
        sed -nE 's/.*<testcase name="([^"]*)" classname="([^"]*)".* time="([^"]*)".*/\3 s  \2 \1/p' "$tests" | sort -rn | head -n 10
        echo $'\nfailed tests:'
        grep -B1 -E '<(failure|error)' "$tests" | sed -nE 's/.*<testcase name="([^"]*)" classname="([^"]*)".*/\2 \1/p'
    fi
    ((${#failed[@]} == 0)) || { echo "failed steps: ${failed[*]}" >&2; exit 1; }

# Check the formatting of the code and the shell scripts.
format:
    cargo fmt --all --check
    shellcheck -x -P . dev/up dev/down dev/reset dev/citus dev/tools dev/lock-requirements dev/check-migrations dev/lint dev/upgrade dev/install-test-tools dev/schemathesis dev/generate-clients dev/test-targets .ci/run \
        deploy/check deploy/demo deploy/upgrade deploy/make-env deploy/postgres-init.sh deploy/stand-ins/make deploy/stand-ins/*-entrypoint deploy/compose/*/start deploy/citus/cluster clients/check clients/with-service

# Check the spelling of code, comments and documents; typos.toml has the exceptions.
spelling:
    typos

# Deny warnings of the compiler and Clippy, and check that .sqlx matches the queries in the code and the schema.
lint: _own
    {{ load_env }} && dev/lint

# Regenerate .sqlx after a query changed.
prepare: _own
    {{ load_env }} && dev/lint --write

# Migrate the development database.
migrate: _own
    {{ load_env }} && cargo run --quiet --bin matchday -- migrate

# Check that migrations can be reverted and reapplied, on a temporary database.
migrations:
    {{ load_env }} && dev/check-migrations

# Check licences, sources, duplicates and unused dependencies.
dependencies:
    cargo deny --offline check bans licenses sources
    cargo machete

# Build the image.
image NAME="matchday":
    docker build -f deploy/Dockerfile -t {{ NAME }} .

# Check deploy/ with the real programs. Takes some minutes, and installs missing Debian packages.
deploy: _own
    {{ programs }} && deploy/check

# Rehearse a restore from backups and the failover to a second site, under load and with private dependencies.
recovery: _own
    dev/install-test-tools pgbackrest
    {{ programs }} && deploy/rehearse-restore && deploy/rehearse-failover

# Each part stores its result in docs/nightly, from which docs/reliability.md is generated. All take several hours.
# Run the tests that are too slow for every change: all parts, or these (`just nightly --help`).
nightly *PARTS: _own
    {{ load_env }} && cargo run --quiet --bin bench -- nightly {{ PARTS }}

# Print what changed since the nightly parts ran, and fail if one failed.
stale:
    #!/usr/bin/env bash
    set -euo pipefail
    shopt -s nullglob
    failed=0
    for result in docs/nightly/*.json; do
        revision=$(sed -nE 's/^  "revision": "([0-9a-f]+).*/\1/p' "$result")
        newer=$(git rev-list --count "$revision..HEAD" -- crates migrations 2>/dev/null) || newer=unknown
        echo "nightly $(basename "$result" .json): at $revision, commits that changed the code since: $newer"
        grep -q '^  "passed": true' "$result" || { echo "error: this part failed" >&2; failed=1; }
    done
    exit "$failed"

# Compare the points from Rust and SQL for 200,000 random cases, and whole seasons of 1,000 fans with independent tables.
rules: _own
    {{ load_env }} && SEASON_FANS=1000 cargo nextest run --all-features -p matchday --lib --run-ignored all -E 'test(200_000_random_cases) + test(season_tests)'

# Check for known vulnerabilities; downloads the advisory database.
advisories:
    cargo deny check advisories

# Build the code documentation without warnings.
docs: _own
    {{ load_env }} && RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --all-features --document-private-items

# Measure against the bare engines: all scenarios, or the named ones; --report writes docs/performance.md.
bench *ARGS: _own
    dev/install-test-tools nginx
    {{ load_env }} && cargo build --quiet --release --bin matchday --bin bench
    {{ load_env }} && ulimit -n "$(ulimit -Hn)" && "$CARGO_TARGET_DIR/release/bench" {{ ARGS }}

# Compare the cost of every operation on a small and a large database; --report writes docs/growth.md.
growth *ARGS: _own
    {{ load_env }} && cargo build --quiet --release --bin matchday --bin bench
    {{ load_env }} && "$CARGO_TARGET_DIR/release/bench" growth {{ ARGS }}

# Drive a deployment like the fans of a final: `just swarm local`, or `just swarm run --url URL …` (docs/capacity.md).
swarm *ARGS: _own
    dev/install-test-tools haproxy
    {{ load_env }} && cargo build --quiet --release --bin matchday --bin bench
    {{ load_env }} && ulimit -n "$(ulimit -Hn)" && "$CARGO_TARGET_DIR/release/bench" swarm {{ ARGS }}

# Check the clients: generated types, tests, and the web app in a real browser.
clients: _own
    {{ load_env }} && {{ programs }} && clients/check

# Generate clients from the OpenAPI descriptions and compile them: python, go, java and kotlin, or only these.
generated-clients *LANGUAGES: _own
    {{ load_env }} && {{ programs }} && dev/generate-clients {{ LANGUAGES }}

# Send at least this many generated requests to a private service: 20000 every night, 1 for a quick check.
schemathesis CASES="20000": _own
    {{ load_env }} && {{ programs }} && dev/schemathesis {{ CASES }}

# Run property tests of parsers with far more cases than `just test`.
fuzz CASES="200000": _own
    {{ load_env }} && PROPTEST_CASES={{ CASES }} timeout 3600 cargo nextest run -p matchday -p web --all-features --lib -E '\
        package(matchday) & (test(=identity::phone::tests::parsed_numbers_are_valid_and_stable) + \
            test(=identity::usernames::rules::tests::parsing_follows_the_rule) + \
            test(/^identity::sessions::rules::tests::(made_token_reads_back|changed_token|arbitrary_text)/) + \
            test(/^identity::sms::tests::providers::(verification_never_panics|valid_(twilio|vonage)_signatures)/) + \
            test(=identity::sms::templates::tests::any_header_yields_a_language) + \
            test(/^identity::idempotency::rules::tests::(reading_key_never_panics|different_requests)/) + \
            test(/^catalogue::fixtures::tests::parser_never_panics/) + \
            test(/^catalogue::feeds::(football_data|openfootball|reading)::tests::(parser_never_panics|every_name|venues)/) + \
            test(/^chat::membership_sync::rules::tests::(no_event_causes_panic|parsed_event)/) + \
            test(=chat::rooms::rules::tests::room_address_is_kept_verbatim)) + \
        package(web) & (test(/^paging::tests::(cursor_round_trips|parsed_cursor)/) + test(/^cached::tests::(arbitrary_validators|validator_is_found)/) + \
            test(/^fields::tests::arbitrary_/) + test(/^client::tests::arbitrary_headers/))'
    {{ load_env }} && PROPTEST_CASES=5000 timeout 3600 cargo nextest run -p matchday --all-features --test hostile -E 'test(bytes)'

# Run all hostile-input tests, as in the nightly run: Schemathesis, network attacks, hostile strings, and arbitrary bytes.
hostile: schemathesis
    {{ load_env }} && ulimit -n 16384 && HOSTILE_STRINGS=all cargo nextest run -p matchday --all-features --test hostile \
        --run-ignored all --no-capture -E 'not test(bytes)'
    just fuzz
