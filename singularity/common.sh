# Sourced by the scripts here and in tests/containers: where things are, and how they are said.
# Everything they make is in $BUILD (build/containers), which may be deleted at any time.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=${SURREAL_BUILD:-$ROOT/build/containers}
IMAGE=${SURREAL_IMAGE:-surreal_bids}
mkdir -p "$BUILD"

say() { printf '\n== %s\n' "$*"; }
pass() { printf 'PASS  %s\n' "$*"; }
fail() { printf 'FAIL  %s\n' "$*" >&2; exit 1; }

# Nothing was built or tested where a tool is missing: nobody should overlook that. The exit code
# tells it from success, so that no script goes on with what an earlier run left.
SKIPPED=77
skip() {
    printf '\n%s\n%s\n%s\n' '******************** SKIPPED ********************' "$*" \
        '*************************************************' >&2
    exit "$SKIPPED"
}

# Install Debian packages, where this is Debian and we may.
install() {
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return 1
    apt-get update -qq > /dev/null && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" > "$BUILD/apt.log" 2>&1
}

# Set $ENGINE to docker or podman, whichever works.
find_engine() {
    if docker info > /dev/null 2>&1; then
        ENGINE=docker
        return
    fi
    command -v podman > /dev/null \
        || install podman buildah runc fuse-overlayfs uidmap \
        || skip 'neither docker nor podman works here, and neither can be installed'
    ENGINE=podman
    # Inside another container, limits cannot be raised and crun finds no cgroups.
    if command -v runc > /dev/null; then
        printf '%s\n' '[containers]' \
            'default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]' \
            '[engine]' 'runtime = "runc"' > "$BUILD/containers.conf"
        export CONTAINERS_CONF=$BUILD/containers.conf
    fi
}
