#!/usr/bin/env bash
# The Apptainer image: built, and both levels run as an ordinary user with nothing of the host but
# the folders that were bound, no variable of its environment and no network: `make test-image`.
source "$(dirname "$0")/../../singularity/common.sh"
source "$ROOT/tests/containers/levels.sh"
SIF=$BUILD/apptainer/surreal_bids.sif

in_container() {
    local program=$1
    shift
    local -a how=(exec) what=("$program")
    if [ "$program" = app ]; then how=(run) what=(); fi
    "$ROOT/singularity/apptainer.sh" "${how[@]}" --containall --cleanenv --net --network none \
        -B "$DATA:/data:$DATA_ACCESS" -B "$OUT:/out" -B "$WORK:/work" "$SIF" "${what[@]}" "$@"
}

"$ROOT/singularity/build_sif.sh"
check_levels sif --skull-stripped
