# Sourced: both levels of the app on simulated data, through whatever runs the container.
# The one who sources it defines
#   in_container PROGRAM ARGUMENTS...   a program of the image, with $DATA, $OUT and $WORK in it as
#                                       /data, /out and /work; `app` is the entry point
VALIDATOR=$ROOT/.venv/bin/bids-validator-deno

# The smallest data that both levels accept: a head of 3 mm, and a table. Template and atlas are
# those that are built in.
simulate() {
    [ -e "$DATA/complete" ] && return
    say 'Simulating heads and a table, in the container'
    in_container surreal-simulate cohort /out/heads --n-cn 1 --n-pt 1 --sites 1 --patterns 1 \
        --voxel-size 3 --nprocs 2
    in_container surreal-simulate table /out/table --task basic --n-cn 16 --n-pt 16
    cp "$OUT/heads/dataset_description.json" "$OUT/table/"
    mv "$OUT/heads" "$OUT/table" "$DATA/"
    touch "$DATA/complete"
    pass 'data were simulated in the container'
}

check_participant_level() {
    say 'Participant level'
    in_container app /data/heads /out participant --participant-label PT0001 -w /work \
        --segmentation-mode fast --nprocs 2
    local file
    for file in anat/sub-PT0001_desc-preproc_T1w.nii.gz anat/sub-PT0001_desc-brain_mask.nii.gz \
        anat/sub-PT0001_space-MNI152NLin2009cAsym_label-GM_ravens.nii.gz; do
        [ -s "$OUT/sub-PT0001/$file" ] || fail "no sub-PT0001/$file"
    done
    [ -s "$OUT/sub-PT0001.html" ] || fail 'no report'
    [ "$(wc -l < "$(ls "$OUT"/sub-PT0001/anat/*_dseg.tsv)")" -gt 100 ] || fail 'too few regions'
    pass 'participant level: images, volumes of more than 100 regions, report'
}

check_group_level() {
    say 'Group level'
    in_container app /data/table /out group --roi-table /data/table/roi_volumes.tsv -w /work \
        --n-patterns 2 --ortho 0.4 --repetitions 2 --iterations 100 --map-tissues --nprocs 2
    [ "$(wc -l < "$OUT/phenotype/rindices.tsv")" = 33 ] || fail 'R-indices are not of 32 people'
    [ -s "$OUT/models/model.safetensors" ] && [ -s "$OUT/group.html" ] || fail 'no model or report'
    pass 'group level: R-indices of 32 people, model, report'
}

check_outputs_are_bids() {
    if [ ! -x "$VALIDATOR" ]; then
        echo 'NOT CHECKED: bids-validator-deno is missing (make setup)' >&2
        return
    fi
    "$VALIDATOR" "$OUT" || fail 'the outputs are no valid BIDS derivatives'
    pass 'the outputs are valid BIDS derivatives'
}

check_levels() {
    DATA=$BUILD/data OUT=$BUILD/$1/out WORK=$BUILD/$1/work
    rm -rf "$OUT" "$WORK"
    mkdir -p "$DATA" "$OUT" "$WORK"
    chmod a+rwx "$DATA" "$OUT" "$WORK"
    simulate
    check_participant_level
    check_group_level
    check_outputs_are_bids
}
