# Sourced: both levels of the app on simulated data, through whatever runs the container.
# The one who sources it defines
#   in_container PROGRAM ARGUMENTS...   a program of the image, with $DATA, $OUT and $WORK in it as
#                                       /data, /out and /work; /data may be written to only if
#                                       $DATA_ACCESS is rw; `app` is the entry point
source "$ROOT/tests/containers/options.sh"
VALIDATOR=$ROOT/.venv/bin/bids-validator-deno

# The smallest data that both levels accept: heads of 3 mm, and a table. Arguments say more of the
# heads. Template and atlas are those that are built in.
simulate() {
    say 'Simulating heads and a table, in the container'
    DATA_ACCESS=rw
    in_container surreal-simulate cohort /data/heads --n-cn 1 --n-pt 1 --sites 1 --patterns 1 \
        --voxel-size 3 --nprocs 2 "$@"
    in_container surreal-simulate table /data/table --task basic --n-cn 16 --n-pt 16
    DATA_ACCESS=ro
    pass "data were simulated in the container, as user $(in_container id -u)"
}

check_participant_level() {
    say 'Participant level'
    in_container app /data/heads /out participant --participant-label PT0001 -w /work \
        "${QUICK[@]}" --nprocs 2
    local file
    for file in anat/sub-PT0001_desc-preproc_T1w.nii.gz anat/sub-PT0001_desc-brain_mask.nii.gz \
        anat/sub-PT0001_space-MNI152NLin2009cAsym_label-GM_ravens.nii.gz; do
        [ -s "$OUT/sub-PT0001/$file" ] || fail "no sub-PT0001/$file in $OUT"
    done
    [ -s "$OUT/sub-PT0001.html" ] || fail "no report in $OUT"
    [ "$(wc -l < "$(ls "$OUT"/sub-PT0001/anat/*_dseg.tsv)")" -gt 100 ] || fail 'too few regions'
    pass 'participant level: images, volumes of at least 100 regions, report'
}

check_group_level() {
    say 'Group level'
    in_container app /data/table /out group --roi-table /data/table/roi_volumes.tsv -w /work \
        "${TRAINING[@]}" --map-tissues --nprocs 2
    [ "$(wc -l < "$OUT/phenotype/rindices.tsv")" = 33 ] || fail 'R-indices are not of 32 participants'
    [ -s "$OUT/models/model.safetensors" ] && [ -s "$OUT/group.html" ] || fail 'no model or report'
    pass 'group level: R-indices of 32 participants, model, report'
}

check_outputs_are_bids() {
    [ -x "$VALIDATOR" ] || fail "$VALIDATOR is missing: make setup"
    "$VALIDATOR" --format json "$OUT" > "$OUT.validation.json" \
        || fail "the outputs are no valid BIDS derivatives: see $OUT.validation.json"
    pass 'the outputs are valid BIDS derivatives'
}

# check_levels NAME HEADS_OPTIONS...: everything in $BUILD/NAME, which is emptied first.
check_levels() {
    local folder=$BUILD/$1
    shift
    DATA=$folder/data OUT=$folder/out WORK=$folder/work
    rm -rf "$folder" || fail "$folder has files of another user from an earlier run: delete it"
    mkdir -p "$DATA" "$OUT" "$WORK"
    chmod a+rwx "$DATA" "$OUT" "$WORK"
    simulate "$@"
    check_participant_level
    check_group_level
    check_outputs_are_bids
}
