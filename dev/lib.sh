# shellcheck shell=bash
# Shared by dev/up, dev/down, dev/reset and dev/proof-parts; not to be run by itself.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
dev=$root/.dev
run=$dev/run
log=$dev/log
all_parts=(postgres redis nats synapse)

# Outside the clone: the socket, whose path must be short, and the data where
# the PostgreSQL user cannot reach the clone. One directory for each clone.
outside=/var/tmp/matchday-dev-$(printf %s "$root" | sha256sum | cut -c1-12)

say() { printf '%s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

now_ms() { local t=${EPOCHREALTIME/[.,]/}; say $((t / 1000)); }
seconds_since() { # START_MS
  local ms=$(($(now_ms) - $1))
  printf '%d.%d s' $((ms / 1000)) $((ms % 1000 / 100))
}

# Where this clone's PostgreSQL keeps its data.
pg_data() {
  if [[ -L $dev/postgres ]]; then say "$outside/data"; else say "$dev/postgres"; fi
}

# An argument that only this clone's process of that part has.
marker() { # PART
  case $1 in
    postgres) pg_data ;;
    redis) say "$dev/redis/redis.conf" ;;
    nats) say "$dev/nats/nats.conf" ;;
    synapse) say "$dev/synapse/homeserver.yaml" ;;
  esac
}

# Whether a process is this clone's process of that part: ids are used again.
is_part() { # PART PID
  local args=() arg wanted
  [[ $2 =~ ^[0-9]+$ ]] || return 1
  { mapfile -d '' -t args <"/proc/$2/cmdline"; } 2>/dev/null || return 1
  wanted=$(marker "$1")
  for arg in "${args[@]}"; do
    [[ $arg != "$wanted" ]] || return 0
  done
  return 1
}

# The process id of a part this clone runs; fails if it does not run.
part_pid() { # PART
  local pid=
  { read -r pid <"$run/$1.pid"; } 2>/dev/null || return 1
  is_part "$1" "$pid" && say "$pid"
}

check_parts() { # PART…
  local part
  for part; do
    [[ " ${all_parts[*]} " == *" $part "* ]] || die "no part is called '$part'; there are: ${all_parts[*]}"
  done
}

# One dev/up, dev/down or dev/reset at a time in a clone.
lock() {
  mkdir -p "$dev"
  exec 9>"$dev/lock"
  flock -w 600 9 || die "another dev/ script has been busy in this clone for 10 minutes"
}

# Runs a long command with its output in a log, and says every 10 s that it lives.
install_step() { # WHAT COMMAND…
  local what=$1 pid start tick=0
  shift
  start=$(now_ms)
  say "installing $what …"
  "$@" </dev/null >"$log/install.log" 2>&1 9>&- &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    ((++tick % 50)) || say "installing $what … $(seconds_since "$start")"
  done
  if ! wait "$pid"; then
    tail -n 20 "$log/install.log" >&2
    die "installing $what failed (whole log: $log/install.log); check the network, then run it again"
  fi
  say "installed $what in $(seconds_since "$start")"
}

apt_install() { # PACKAGE…
  local sudo=() status=0
  ((EUID == 0)) || sudo=(sudo -n)
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300)
  # Debian would start its own servers at once; this file forbids it meanwhile.
  local policy=/usr/sbin/policy-rc.d made=
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod 755 "$policy"
    made=1
  fi
  "${apt[@]}" install --no-install-recommends "$@" ||
    { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } || status=$?
  [[ -z $made ]] || "${sudo[@]}" rm -f "$policy"
  return "$status"
}

# Stops a part by its process id, the hard way after 15 s.
stop_part() { # PART
  local part=$1 pid signal=TERM start how=stopped
  start=$(now_ms)
  if ! pid=$(part_pid "$part"); then
    rm -f "$run/$part.pid"
    printf '%-9s not running\n' "$part"
    return
  fi
  [[ $part == postgres ]] && signal=INT # a fast shutdown: ends sessions, loses nothing
  kill -"$signal" "$pid" || true
  while is_part "$part" "$pid"; do
    if (($(now_ms) - start > 15000)); then
      kill -KILL "$pid" || true
      how=killed
      sleep 0.5
      break
    fi
    sleep 0.05
  done
  rm -f "$run/$part.pid"
  printf '%-9s %s  %s\n' "$part" "$how" "$(seconds_since "$start")"
}

stop_parts() { # PART…; PostgreSQL last, since Synapse uses it
  local part jobs=()
  for part; do
    [[ $part == postgres ]] && continue
    stop_part "$part" 9>&- &
    jobs+=($!)
  done
  ((${#jobs[@]} == 0)) || wait "${jobs[@]}"
  for part; do
    [[ $part != postgres ]] || stop_part postgres
  done
}
