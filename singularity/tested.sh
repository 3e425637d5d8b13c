#!/usr/bin/env bash
# Which state of the containers was tested: `tested.sh record TEST` after it has passed, and
# `tested.sh check TEST`, which CI asks, tells whether anything has changed since.
#
# The answer is in singularity/tested, which is committed: any clone can tell, however it was made.
source "$(dirname "$0")/common.sh"
cd "$ROOT"
RECORD=singularity/tested

digest() {
    {
        sha256sum Dockerfile .dockerignore constraints.txt surreal_bids/cli/slurm.py \
            singularity/*.sh singularity/slim.py singularity/*.def \
            tests/containers/*.sh tests/containers/ants_works.py
        sed -n '/^dependencies = \[/,/^\]/p' pyproject.toml
    } | sha256sum | cut -d ' ' -f 1
}

case $1 in
    check) grep -qx "$2 $(digest)" "$RECORD" 2> /dev/null ;;
    record)
        { grep -v "^$2 " "$RECORD" 2> /dev/null || true; echo "$2 $(digest)"; } > "$RECORD.new"
        LC_ALL=C sort "$RECORD.new" > "$RECORD"
        rm "$RECORD.new"
        ;;
esac
