#!/bin/bash
# Arguments go to sbatch, as in: submit.sh --account=NAME --mail-type=END
set -euo pipefail
cd "$(dirname "$0")"
participant=$(sbatch --parsable "$@" participant.sbatch)
echo "participant level: job ${participant%%;*}"
group=$(sbatch --parsable --dependency="afterany:${participant%%;*}" "$@" group.sbatch)
echo "group level: job ${group%%;*}"
