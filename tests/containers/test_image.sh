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
    contained "${entry[@]}" -v "$DATA:/data:$DATA_ACCESS" -v "$OUT:/out" -v "$WORK:/work" \
        "$IMAGE" "$@"
}

check_size() {
    local bytes
    bytes=$("$ENGINE" image inspect --format '{{.Size}}' "$IMAGE")
    [ "$bytes" -le "$MOST_BYTES" ] || fail "the image has $bytes bytes, more than $MOST_BYTES"
    pass "the image has $bytes bytes"
}

# Certificates are those of certifi and of Debian, whose bundle has no other; wheels are those that
# Python brings for venv. The last line tells that the search came to its end.
check_leftovers() {
    local found
    found=$(contained --user 0:0 --entrypoint sh "$IMAGE" -c '
        debian=/usr/share/ca-certificates
        find / -xdev -type f -regex ".*\.\(pem\|crt\|key\|p12\)" \
            -not -path "$debian/*" -not -path /etc/ssl/certs/ca-certificates.crt \
            -not -name cacert.pem
        [ "$(grep -c BEGIN /etc/ssl/certs/ca-certificates.crt)" = \
            "$(find $debian -name "*.crt" | wc -l)" ] || echo "certificates that Debian has not"
        find / -xdev -name "*.whl" -not -path "*/ensurepip/*" -not -path "*/python-wheels/*"
        find /run/secrets /usr/local/share/ca-certificates -type f 2> /dev/null
        ls -d /root/.cache /root/.config /tmp/* /build /wheels/* /etc/pip.conf 2> /dev/null
        echo searched')
    [ "$found" = searched ] || fail "left in the image: $found"
    pass 'no secret, certificate, wheel or cache was left'
}

# The weights of the network that finds brains are used only where a head has more than a brain.
check_brain_extraction() {
    local sidecar=$OUT/sub-PT0001/anat/sub-PT0001_desc-brain_mask.json
    grep -q '"Method": "deepbet"' "$sidecar" || fail "the network found no brain: $(cat "$sidecar")"
    pass 'the weights of the brain extraction are in the image'
}

# The image has only a part of ANTs: that which the app calls must work.
check_ants() {
    contained -i --entrypoint python "$IMAGE" - < "$ROOT/tests/containers/ants_works.py" \
        || fail 'a function of ANTs is missing in the image'
    pass 'ANTs reads composite transforms'
}

# The label is what `test_licences.py` compares with the wheel; here it is that of the built image.
check_licences() {
    contained -i --entrypoint python "$IMAGE" - < "$ROOT/tests/containers/licences.py" \
        || fail 'the text of a licence is missing in the image'
    [[ $("$ENGINE" image inspect "$IMAGE") == *LicenseRef-surreal-bids-atlas* ]] \
        || fail 'the labels of the image do not name its licences'
    pass 'everything in the image has the text of its licence'
}

"$ROOT/singularity/build_image.sh"
check_size
check_leftovers
check_ants
check_licences
check_levels image
check_brain_extraction
