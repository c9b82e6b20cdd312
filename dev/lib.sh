# shellcheck shell=bash
# Shared by dev/up, dev/down, dev/reset and dev/install-test-tools; not a command.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
dev=$root/.dev
run=$dev/run
log=$dev/log
all_services=(postgres redis nats synapse)

# A directory outside the clone that belongs to this clone. It holds PostgreSQL's socket, whose path must be short, and
# PostgreSQL's data if its user cannot access the clone.
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

# Data directory of this clone's PostgreSQL.
pg_data() {
  if [[ -L $dev/postgres ]]; then say "$outside/data"; else say "$dev/postgres"; fi
}

# An argument on the command line that identifies this clone's process of a service.
marker() { # SERVICE
  case $1 in
    postgres) pg_data ;;
    redis) say "$dev/redis/redis.conf" ;;
    nats) say "$dev/nats/nats.conf" ;;
    synapse) say "$dev/synapse/homeserver.yaml" ;;
  esac
}

# Whether a process is this clone's process of a service. Checks the command line, because process ids are reused.
is_service() { # SERVICE PID
  local args=() arg wanted
  [[ $2 =~ ^[0-9]+$ ]] || return 1
  { mapfile -d '' -t args <"/proc/$2/cmdline"; } 2>/dev/null || return 1
  wanted=$(marker "$1")
  for arg in "${args[@]}"; do
    [[ $arg != "$wanted" ]] || return 0
  done
  return 1
}

# Prints the process id of a service that this clone runs; fails if it is not running.
service_pid() { # SERVICE
  local pid=
  { read -r pid <"$run/$1.pid"; } 2>/dev/null || return 1
  is_service "$1" "$pid" && say "$pid"
}

check_services() { # SERVICE…
  local service
  for service; do
    [[ " ${all_services[*]} " == *" $service "* ]] || die "unknown service '$service'; choose from: ${all_services[*]}"
  done
}

# Allows one dev/up, dev/down or dev/reset at a time in a clone.
lock() {
  mkdir -p "$dev"
  exec 9>"$dev/lock"
  flock -w 600 9 || die "another dev/ script has been running in this clone for 10 minutes"
}

# Runs a long command with its output in a log, and prints a progress line every 10 s.
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
    die "installing $what failed (log: $log/install.log); check the network, then run it again"
  fi
  say "installed $what in $(seconds_since "$start")"
}

apt_install() { # PACKAGE…
  local sudo=() status=0
  ((EUID == 0)) || sudo=(sudo -n)
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300)
  # Debian would start its own servers after the installation; this file prevents that.
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

# Stops a service; kills it after 15 s.
stop_service() { # SERVICE
  local service=$1 pid signal=TERM start how=stopped
  start=$(now_ms)
  if ! pid=$(service_pid "$service"); then
    rm -f "$run/$service.pid"
    printf '%-9s not running\n' "$service"
    return
  fi
  [[ $service == postgres ]] && signal=INT # fast shutdown: disconnects clients, loses no data
  kill -"$signal" "$pid" || true
  while is_service "$service" "$pid"; do
    if (($(now_ms) - start > 15000)); then
      kill -KILL "$pid" || true
      how=killed
      sleep 0.5
      break
    fi
    sleep 0.05
  done
  rm -f "$run/$service.pid"
  printf '%-9s %s  %s\n' "$service" "$how" "$(seconds_since "$start")"
}

stop_services() { # SERVICE…; PostgreSQL last, because Synapse uses it
  local service jobs=()
  for service; do
    [[ $service == postgres ]] && continue
    stop_service "$service" 9>&- &
    jobs+=($!)
  done
  ((${#jobs[@]} == 0)) || wait "${jobs[@]}"
  for service; do
    [[ $service != postgres ]] || stop_service postgres
  done
}
