#!/usr/bin/env bash
# Makes a bare Debian or Ubuntu machine ready; a second run only checks.
# Usage: testbed/setup.sh [python|demo|browser|all]
#   (python: only the virtual environment; demo: what `make demo` runs; all: what `make test` does;
#   browser: only what tests that look at pages need beside)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }

python=${PYTHON:-python3}
venv_packages=()
if ! command -v "$python" >/dev/null; then
    venv_packages=(python3 python3-venv)
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    venv_packages=(python3-venv)
fi

debian_packages() {
    local wanted missing=()
    mapfile -t wanted <"requirements/$1.txt"
    shift
    for package in "$@" "${wanted[@]}"; do
        dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q ' installed$' \
            || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ]; then
        say "these Debian packages are missing; as root, run:"
        say "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        return
    fi
    say "installing Debian packages: ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        >/dev/null
}

fetch_package() {
    local download=(apt-get download -qq "$2")
    cd "$1"
    "${download[@]}" >/dev/null 2>&1 && return
    # Lists that are old name packages that are gone.
    [ "$(id -u)" -eq 0 ] && apt-get update -qq && "${download[@]}" >/dev/null 2>&1
}

# Programs of Debian packages that would start a service if they were installed.
unpacked_programs() {
    local package place scratch
    while read -r package; do
        place=$1/$package
        [ -d "$place" ] && continue
        say "unpacking the Debian package $package"
        mkdir -p "$1"
        scratch=$(mktemp -d "$1/.unpacking-XXXX")
        chmod 755 "$scratch"
        if (fetch_package "$scratch" "$package"); then
            dpkg-deb --extract "$scratch"/*.deb "$scratch/tree"
            mv --no-target-directory "$scratch/tree" "$place" 2>/dev/null || true
        else
            say "$package can't be fetched; as root, run: apt-get update"
        fi
        rm -rf "$scratch"
    done <requirements/debian-unpacked.txt
}

virtual_environment() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || { say "Python 3.11 or newer is needed; $("$python" --version) is too old"; exit 1; }
    local stamp=.venv/requirements.sha256 wanted
    wanted=$(cat requirements/bootstrap.txt requirements/dev.txt requirements/image.txt \
        | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return
    say "installing the Python environment into .venv"
    [ -x .venv/bin/pip ] || "$python" -m venv --clear .venv
    .venv/bin/pip install -q --disable-pip-version-check --require-hashes \
        -r requirements/bootstrap.txt
    .venv/bin/uv pip install -q --python .venv/bin/python --require-hashes \
        -r requirements/dev.txt -r requirements/image.txt
    echo "$wanted" >"$stamp"
}

purpose=${1:-all}
if [ "$purpose" = browser ]; then
    debian_packages debian-browser
    exit
fi
if [ "$purpose" != python ] || [ ${#venv_packages[@]} -gt 0 ]; then
    debian_packages debian "${venv_packages[@]}"
fi
virtual_environment
[ "$purpose" != python ] || exit 0
if [ "$purpose" = all ]; then
    unpacked_programs "$(.venv/bin/python -c 'from testbed import paths; print(paths.unpacked())')"
fi
.venv/bin/python -m testbed build "$purpose"
