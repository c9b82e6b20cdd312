# shellcheck shell=bash
# Finds a container engine, for deploy/demo and deploy/upgrade, which source dev/lib.sh before; not a command. Sets `engine`
# to the command for compose files, and `has_image` to a command that succeeds if an image exists.

install_podman_compose() { # sets podman_compose
  local venv
  podman_compose=$(type -P podman-compose) && return
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/matchday/tools/compose-$(sha256sum <deploy/requirements.txt | cut -c1-12)
  podman_compose=$venv/bin/podman-compose
  [[ ! -x $podman_compose ]] || return 0
  say "installing podman-compose…"
  python3 -m venv "$venv"
  # Only the packages that it needs, with their hashes.
  awk '/^[a-zA-Z]/ { wanted = /^(podman-compose|python-dotenv|pyyaml)==/ } wanted' deploy/requirements.txt >"$venv/requirements.txt"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$venv/requirements.txt"
}
engine=() has_image=()
if [[ ${MATCHDAY_COMPOSE:-} ]]; then # of deploy/check
  engine=("$MATCHDAY_COMPOSE") has_image=(podman image exists)
elif docker compose version >/dev/null 2>&1; then
  engine=(docker compose) has_image=(docker image inspect)
elif type -P podman >/dev/null; then
  install_podman_compose
  engine=("$podman_compose") has_image=(podman image exists)
else
  die "install Docker with Compose 2, or podman 4 (apt-get install podman netavark aardvark-dns), then run this again"
fi
quietly() { # COMMAND…; shows its output only if it fails. A file, because podman's helpers would keep a pipe open.
  local output
  output=$(mktemp)
  if ! "$@" >"$output" 2>&1 </dev/null; then
    grep -v 'get systemd connection' "$output" | tail -n 30 >&2
    die "failed: $*"
  fi
  rm -f "$output"
}
