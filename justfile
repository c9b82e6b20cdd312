# Every recipe runs against the parts that `dev/up` started. `just --list` shows what there is.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Builds are the slow part: clones of the project on one machine share them.
export CARGO_TARGET_DIR := env("CARGO_TARGET_DIR", env("XDG_CACHE_HOME", env("HOME") / ".cache") / "matchday" / "target")
export PATH := (env("XDG_CACHE_HOME", env("HOME") / ".cache") / "matchday" / "tools" / "bin") + ":" + env("PATH")

parts := "source .dev/env"

_default:
    @just --list

# Cargo does not tell one clone's crates from another's: what another clone built last is cleared away, the
# dependencies stay.
_own:
    @mkdir -p "$CARGO_TARGET_DIR"
    @[[ "$(cat "$CARGO_TARGET_DIR/clone" 2>/dev/null)" == "{{ justfile_directory() }}" ]] || \
        { cargo clean --quiet -p matchday -p platform -p web -p scoring -p matrix-appservice -p breaker -p bench && echo "{{ justfile_directory() }}" > "$CARGO_TARGET_DIR/clone"; }

# Start the service with its workers on the development parts.
run *ARGS: _own
    {{ parts }} && cargo run --quiet --bin matchday -- serve --migrate {{ ARGS }}

# All tests, or those whose name has one of these words in it. With words, only the test binaries that have such tests are
# built.
test *WORDS: _own
    {{ parts }} && cargo nextest run --all-features $(dev/test-targets {{ WORDS }}) {{ WORDS }}

# Upgrades under load, all of them, from the last release (or the revision that is given) to what is here.
upgrade REVISION="": _own
    {{ parts }} && dev/upgrade {{ REVISION }}

# Break parts while people use the service, and see that what was promised holds. Also what only runs at night.
faults *FILTER: _own
    dev/proof-parts
    {{ parts }} && cargo nextest run -p matchday --all-features --test faults --run-ignored all --no-capture {{ FILTER }}

# Mixed traffic for so many minutes, with every part real: nothing may fail, and nothing grow that should not.
# MATCHDAY_BIN names another binary than the debug one, like that of a release build.
soak MINUTES="20": _own
    {{ parts }} && MATCHDAY_SOAK_MINUTES={{ MINUTES }} cargo nextest run -p matchday --all-features --test upgrade \
        --run-ignored all --no-capture -E 'test(/^soak::/)'

# What must pass before anything lands.
ci: format lint queries test migrations dependencies docs clients deploy

# The code is formatted, and the scripts are sound.
format:
    cargo fmt --all --check
    shellcheck -x -P . dev/up dev/down dev/reset dev/tools dev/lock-requirements dev/check-migrations dev/upgrade dev/proof-parts dev/schemathesis dev/test-targets .ci/run \
        deploy/check deploy/make-env deploy/postgres-init.sh clients/check clients/with-service

# No warning of the compiler or of clippy.
lint: _own
    {{ parts }} && cargo clippy --workspace --all-targets --all-features -- --deny warnings

# The checked queries in .sqlx fit the code and the schema.
queries: _own migrate
    {{ parts }} && SQLX_OFFLINE=false cargo sqlx prepare --workspace --check -- --all-targets --all-features

# Write .sqlx anew after a query changed.
prepare: _own migrate
    {{ parts }} && SQLX_OFFLINE=false cargo sqlx prepare --workspace -- --all-targets --all-features

# Bring the development database up to date.
migrate:
    {{ parts }} && sqlx migrate run --source migrations

# Migrations go up, down and up again, on a database of their own, and leave the same schema.
migrations:
    {{ parts }} && dev/check-migrations

# Licences, sources, duplicates and unused dependencies.
dependencies:
    cargo deny --offline check bans licenses sources
    cargo machete

# What lies in deploy/, checked with the real programs: two minutes, and some packages of Debian.
deploy: _own
    cargo build --quiet --bin matchday && deploy/check

# Everything that is too slow for every change, and docs/reliability.md of what it saw. Takes some hours.
nightly: _own
    rm -f .dev/proof.jsonl
    MATCHDAY_PROOF="$PWD/.dev/proof.jsonl" just faults
    MATCHDAY_PROOF="$PWD/.dev/proof.jsonl" just upgrade
    MATCHDAY_PROOF="$PWD/.dev/proof.jsonl" just soak
    MATCHDAY_PROOF="$PWD/.dev/proof.jsonl" just hostile
    just reliability

# Write docs/reliability.md of the lines that the tests left in .dev/proof.jsonl.
reliability: _own
    cargo run --quiet --bin bench -- --reliability .dev/proof.jsonl

# Known vulnerabilities; needs the advisory database from the internet.
advisories:
    cargo deny check advisories

# The code's documentation builds without a warning.
docs: _own
    {{ parts }} && RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --all-features --document-private-items

# Measure beside the bare engines: all scenarios, or those named; --report writes docs/performance.md.
bench *ARGS: _own
    dev/proof-parts nginx
    {{ parts }} && cargo build --quiet --release --bin matchday --bin bench
    {{ parts }} && ulimit -n "$(ulimit -Hn)" && "$CARGO_TARGET_DIR/release/bench" {{ ARGS }}

# The clients: types as this service describes them, tests, and the web app in a real browser.
clients: _own
    {{ parts }} && cargo build --quiet --bin matchday && clients/check

# At least so many requests that Schemathesis thinks up, to a service of their own: by night 20000, in a hurry 1.
schemathesis CASES="20000": _own
    {{ parts }} && cargo build --quiet --bin matchday && dev/schemathesis {{ CASES }}

# Property tests of parsers with arbitrary input, with far more cases than in `just test`.
fuzz CASES="200000": _own
    {{ parts }} && PROPTEST_CASES={{ CASES }} timeout 3600 cargo nextest run -p matchday -p web --all-features --lib -E '\
        package(matchday) & (test(=identity::phone::tests::whatever_is_read_is_a_number) + \
            test(=identity::usernames::rules::tests::parsing_follows_the_rule) + \
            test(/^identity::sessions::rules::tests::(a_token_reads|one_changed|nonsense)/) + \
            test(/^identity::sms::tests::providers::(nothing|what_twilio_signed|what_vonage_signed)/) + \
            test(=identity::sms::templates::tests::any_header_yields_a_language) + \
            test(/^identity::idempotency::rules::tests::(no_header|other_requests)/) + \
            test(/^catalogue::fixtures::tests::no_(text|damage|value)_makes_the_reader_panic/) + \
            test(/^catalogue::feeds::(football_data|openfootball|reading)::tests::(no_|every_name|venues)/) + \
            test(/^chat::membership_sync::rules::tests::(no_event|what_is_read)/) + \
            test(=chat::rooms::rules::tests::an_address_is_kept_to_the_letter)) + \
        package(web) & (test(/^paging::tests::(a_cursor_reads|whatever)/) + test(/^cached::tests::(no_bytes|a_validator)/) + \
            test(/^fields::tests::no_/) + test(/^client::tests::no_header/))'
    {{ parts }} && PROPTEST_CASES=5000 timeout 3600 cargo nextest run -p matchday --all-features --test hostile -E 'test(bytes)'

# Everything hostile, as by night: Schemathesis, the network, strings in every place, and bytes.
hostile: schemathesis
    {{ parts }} && ulimit -n 16384 && HOSTILE_STRINGS=all cargo nextest run -p matchday --all-features --test hostile \
        --run-ignored all --no-capture -E 'not test(bytes)'
    just fuzz
