#!/bin/bash
# Arguments go to sbatch, as in: submit.sh --account=NAME --mail-type=END
# Written by surreal-bids --write-slurm.
set -euo pipefail
cd "$(dirname "$0")"
{% if participants %}
participant=$(sbatch --parsable "$@" participant.sbatch)
echo "participant level: job ${participant%%;*}"
{% endif %}
{% if group %}
group=$(sbatch --parsable {{ '--dependency="afterany:${participant%%;*}" ' if participants }}"$@" group.sbatch)
echo "group level: job ${group%%;*}"
{% endif %}
