#!/usr/bin/env bash
# Run the scripts of a target, and note that it has passed unless one of them was skipped:
#   run.sh TARGET SCRIPT...
source "$(dirname "$0")/../../singularity/common.sh"
target=$1
shift
started=$SECONDS
for script in "$@"; do
    code=0
    "$ROOT/tests/containers/$script" || code=$?
    if [ "$code" = "$SKIPPED" ]; then exit 0; fi
    [ "$code" = 0 ] || fail "make $target: $script ended with $code"
done
"$ROOT/singularity/tested.sh" record "$target"
say "make $target has passed, in $(((SECONDS - started) / 60)) min; commit singularity/tested"
