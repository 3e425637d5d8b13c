#!/usr/bin/env bash
# The image: built, small enough, nothing left in it, and both levels run without network, with a
# read-only root, as a user that the image does not know: `make test-image`.
source "$(dirname "$0")/../../singularity/common.sh"
source "$ROOT/tests/containers/levels.sh"
MOST_BYTES=2200000000
find_engine

contained() {
    "$ENGINE" run --rm --network none --read-only --tmpfs /tmp:size=512m -u 1234:1234 \
        --cap-drop all --security-opt no-new-privileges "$@"
}

in_container() {
    local program=$1
    shift
    local -a entry=(--entrypoint "$program")
    if [ "$program" = app ]; then entry=(-e HOME=/nowhere); fi
    contained "${entry[@]}" -v "$DATA":/data:ro -v "$OUT":/out -v "$WORK":/work "$IMAGE" "$@"
}

check_size() {
    local bytes
    bytes=$("$ENGINE" image inspect --format '{{.Size}}' "$IMAGE")
    [ "$bytes" -le "$MOST_BYTES" ] || fail "the image has $bytes bytes, more than $MOST_BYTES"
    pass "the image has $bytes bytes"
}

# Certificates are those of Debian and of certifi; wheels those that Python brings for venv.
check_leftovers() {
    local found
    found=$(contained --user 0:0 --entrypoint sh "$IMAGE" -c '
        find / -xdev -type f \( -name "*.pem" -o -name "*.crt" -o -name "*.key" -o -name "*.p12" \) \
            -not -path "/etc/ssl/certs/*" -not -path "/usr/share/ca-certificates/*" \
            -not -name cacert.pem
        find /run/secrets -type f 2> /dev/null
        find / -xdev -name "*.whl" -not -path "*/ensurepip/*" -not -path "*/python-wheels/*"
        ls -d /root/.cache /root/.config /tmp/* /build /wheel/* /wheels/* /etc/pip.conf 2> /dev/null
        find /usr/local/share/ca-certificates -type f') || true
    [ -z "$found" ] || fail "left in the image: $found"
    pass 'no secret, certificate, wheel or cache was left'
}

# The image has only a part of ANTs: that which the app calls must work.
check_ants() {
    contained -i --entrypoint python "$IMAGE" - < "$ROOT/tests/containers/ants_works.py" \
        || fail 'a function of ANTs is missing in the image'
    pass 'N4, Atropos, registration and resampling of ANTs work'
}

"$ROOT/singularity/build_image.sh"
"$ENGINE" image inspect "$IMAGE" > /dev/null 2>&1 || exit 0
check_size
check_leftovers
check_ants
check_levels image
