#!/usr/bin/env bash
# Which state of the containers was tested: `tested.sh check TARGET`, which CI asks, tells whether
# `make TARGET` has passed with these files; `tested.sh record TARGET` notes that it just has.
#
# The note is in singularity/tested, which is committed: any clone can tell, however it was made.
# The code of the app itself does not count, since `make test` tests it with every change.
source "$(dirname "$0")/common.sh"
cd "$ROOT"
RECORD=singularity/tested

files_of() {
    case $1 in
        test-image)
            echo Dockerfile .dockerignore run.py \
                singularity/{common,build_image,build_sif,apptainer}.sh \
                singularity/{slim.py,surreal_bids.def} \
                tests/containers/{levels,test_image,test_sif}.sh \
                tests/containers/{ants_works,licences}.py
            ;;
        test-slurm)
            echo singularity/common.sh singularity/slurm/{participant.sbatch,group.sbatch,submit.sh} \
                tests/containers/test_slurm.sh
            ;;
        *) fail "tested.sh: $1 is neither test-image nor test-slurm" ;;
    esac
}

# What pyproject.toml says of dependencies, programs and the build, but not of linters and tests.
packaging() {
    sed -n -e '/^dependencies = \[/,/^\]/p' -e '/^\[build-system\]/,/^$/p' \
        -e '/^\[project.scripts\]/,/^$/p' -e '/^\[tool.hatch/,/^$/p' pyproject.toml
}

# Comments do not count: they change nothing that could be tested.
without_comments() {
    local file
    for file in "$@"; do
        echo "$file"
        sed -e '/^[[:space:]]*# /d' "$file" || exit 1
    done
}

digest() {
    local files
    files=$(files_of "$1") || exit 1
    # Unquoted: these are several files.
    { without_comments constraints.txt $files || exit 1; packaging; } | sha256sum | cut -d ' ' -f 1
}

state=$(digest "$2")
case $1 in
    check) grep -qsx "$2 $state" "$RECORD" ;;
    record)
        { grep -sv "^$2 " "$RECORD" || true; echo "$2 $state"; } | LC_ALL=C sort > "$RECORD.new"
        mv "$RECORD.new" "$RECORD"
        ;;
    *) fail "tested.sh: $1 is neither check nor record" ;;
esac
