#!/usr/bin/env bash
# Build the image with docker or podman: `make image`.
#
# BASE_IMAGE    base to use; by default python:3.11-slim-bookworm, or where that cannot be pulled
#               one like it, made of Debian's packages
# TORCH_WHEELS  folder with a wheel of torch, for machines that do not reach TORCH_INDEX_URL
# TORCH_INDEX_URL, APT_PACKAGES, SOURCE_URL   see the Dockerfile
# SURREAL_IMAGE name of the image (default: surreal_bids)
# CA_BUNDLE     certificates that pip trusts while building (default: PIP_CERT, SSL_CERT_FILE)
source "$(dirname "$0")/common.sh"
find_engine
STAND_IN=localhost/python:3.11-slim-bookworm
CPU_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX_URL=${TORCH_INDEX_URL-$CPU_INDEX}
CA_BUNDLE=${CA_BUNDLE:-${PIP_CERT:-${SSL_CERT_FILE:-}}}

# The caches of apt in it would be a third of it.
make_stand_in() {
    command -v mmdebstrap > /dev/null || install mmdebstrap \
        || skip 'no base image can be pulled, and mmdebstrap is missing to make one'
    say 'The base image cannot be pulled: making one of Debian packages'
    TMPDIR=$(mktemp -d -p /dev/shm 2> /dev/null || mktemp -d) mmdebstrap --quiet --variant=minbase \
        --include=ca-certificates,python3,python3-venv \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='printf "Dir::Cache::pkgcache \"\"; Dir::Cache::srcpkgcache \"\";\n" > "$1"/etc/apt/apt.conf.d/docker-clean' \
        --customize-hook='rm -rf "$1"/var/cache/apt/*.bin "$1"/etc/hostname "$1"/etc/resolv.conf' \
        bookworm "$BUILD/base.tar" || skip 'no base image can be pulled, and none can be made'
    "$ENGINE" import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        "$BUILD/base.tar" "$STAND_IN" > /dev/null
    rm "$BUILD/base.tar"
}

choose_base() {
    [ -z "${BASE_IMAGE:-}" ] || return 0
    BASE_IMAGE=python:3.11-slim-bookworm
    "$ENGINE" pull -q "$BASE_IMAGE" > /dev/null 2>&1 && return 0
    BASE_IMAGE=$STAND_IN
    "$ENGINE" image inspect "$STAND_IN" > /dev/null 2>&1 || make_stand_in
}

# Where the default index of torch cannot be reached, pip may know of a wheel without CUDA
# elsewhere. Another index was asked for: nothing else will do.
choose_torch() {
    if [ -z "${TORCH_WHEELS:-}" ]; then
        [ "$TORCH_INDEX_URL" = "$CPU_INDEX" ] || return 0
        python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1] + "/torch/", timeout=20)' \
            "$TORCH_INDEX_URL" 2> /dev/null && return 0
        TORCH_WHEELS=$BUILD/wheels
        say "$TORCH_INDEX_URL cannot be reached: asking pip for the wheel"
        python3 -m pip download --quiet --no-deps --dest "$TORCH_WHEELS" \
            "$(grep '^torch==' "$ROOT/constraints.txt")" || skip 'torch cannot be downloaded'
        ls "$TORCH_WHEELS"/torch-*+cpu-*.whl > /dev/null 2>&1 \
            || skip 'no wheel of torch without CUDA; put one into a folder, and set TORCH_WHEELS'
    fi
    TORCH_INDEX_URL=
    WHEELS_IMAGE=localhost/wheels:$(cat "$TORCH_WHEELS"/*.whl | sha256sum | cut -c 1-16)
    # The same wheels are not imported twice: a new image would make the engine forget its layers.
    "$ENGINE" image inspect "$WHEELS_IMAGE" > /dev/null 2>&1 \
        || tar -C "$TORCH_WHEELS" -c . | "$ENGINE" import - "$WHEELS_IMAGE" > /dev/null
}

choose_base
choose_torch
say "Building $IMAGE on $BASE_IMAGE with $ENGINE"
"$ENGINE" build --network=host \
    ${CA_BUNDLE:+--secret "id=ca_bundle,src=$CA_BUNDLE"} \
    --build-arg "BASE_IMAGE=$BASE_IMAGE" \
    --build-arg "WHEELS_IMAGE=${WHEELS_IMAGE:-scratch}" \
    --build-arg "TORCH_INDEX_URL=$TORCH_INDEX_URL" \
    --build-arg "APT_PACKAGES=${APT_PACKAGES:-}" \
    --build-arg "SOURCE_URL=${SOURCE_URL:-}" \
    --build-arg "IMAGE_REFERENCE=$IMAGE" \
    --tag "$IMAGE" "$ROOT"
"$ENGINE" image inspect --format '{{.Size}}' "$IMAGE" \
    | awk -v image="$IMAGE" '{printf "%s: %.2f GB\n", image, $1 / 1e9}'
