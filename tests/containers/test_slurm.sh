#!/usr/bin/env bash
# A real scheduler: participants as an array, the group level after them, one participant who fails;
# then the steps of one participant as jobs of Nipype's SLURM plugin: `make test-slurm`.
#
# Slurm is that of Debian, on this machine alone, with its own ports and files in $BUILD/slurm.
source "$(dirname "$0")/../../singularity/common.sh"
BIN=$ROOT/.venv/bin
S=$BUILD/slurm
DATA=$BUILD/slurm_data/heads MODEL=$BUILD/slurm_data/model TEMPLATE=$BUILD/slurm_data/template
OUT=$S/out WORK=$S/work JOBS=$S/jobs
export LOGNAME=${LOGNAME:-root} SLURM_CONF=$S/slurm.conf
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

[ "$(id -u)" = 0 ] || skip 'only root can start a Slurm for itself'
for program in slurmctld slurmd munged; do
    command -v $program > /dev/null || install slurm-wlm munge || skip 'Slurm cannot be installed here'
done

stop_slurm() {
    local daemon
    for daemon in slurmd slurmctld munged; do
        [ -s "$S/$daemon.pid" ] && kill "$(cat "$S/$daemon.pid")" 2> /dev/null
    done
    return 0
}

start_slurm() {
    say 'Starting Slurm'
    rm -rf "$S"
    mkdir -p "$S"/{ctld,d,log,munge}
    local host
    host=$(hostname -s)
    cat > "$SLURM_CONF" << CONF
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$S/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$S/ctld
SlurmdSpoolDir=$S/d
SlurmctldPidFile=$S/slurmctld.pid
SlurmdPidFile=$S/slurmd.pid
SlurmctldLogFile=$S/log/slurmctld.log
SlurmdLogFile=$S/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
MinJobAge=3600
PropagateResourceLimits=NONE
DefMemPerCPU=1000
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=7000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    echo 'CgroupPlugin=cgroup/v1' > "$S/cgroup.conf"
    head -c 1024 /dev/urandom > "$S/munge/key"
    chmod 400 "$S/munge/key"
    chown -R munge "$S/munge"
    chmod 755 "$S/munge"
    runuser -u munge -- munged --force --socket="$S/munge/socket" --key-file="$S/munge/key" \
        --pid-file="$S/munge/munged.pid" --log-file="$S/munge/log" --seed-file="$S/munge/seed"
    ln -s munge/munged.pid "$S/munged.pid"
    trap stop_slurm EXIT
    slurmctld -c -f "$SLURM_CONF"
    slurmd -f "$SLURM_CONF"
    for _ in $(seq 60); do
        [ "$(sinfo -h -o %T 2> /dev/null)" = idle ] && return 0
        sleep 1
    done
    fail "the node is not ready: $(tail -n 5 "$S"/log/*.log)"
}

# A template as coarse as the heads: this is about the scheduler, not about brains.
write_template() {
    "$BIN/python" - "$TEMPLATE" << 'CODE'
import sys
from surreal_bids.files import write_image
from surreal_bids.imaging.template import builtin_template

template = builtin_template(resolution_mm=3.0)
start = f'{sys.argv[1]}/tpl-{template.name}'
write_image(f'{start}_T1w.nii.gz', template.t1w)
write_image(f'{start}_desc-brain_mask.nii.gz', template.mask)
for tissue, prior in template.priors.items():
    write_image(f'{start}_label-{tissue}_probseg.nii.gz', prior)
CODE
}

# Five heads, one of them damaged, and a model to apply: training would need more people.
prepare_data() {
    [ -e "$BUILD/slurm_data/complete" ] && return
    say 'Simulating five heads and training a model'
    "$BIN/surreal-simulate" cohort "$DATA" --n-cn 3 --n-pt 2 --sites 1 --patterns 1 \
        --voxel-size 3 --atlases 1 --nprocs 2
    truncate --size=-2000 "$DATA/sub-PT0002/anat/sub-PT0002_T1w.nii.gz"
    local table=$BUILD/slurm_data/table
    "$BIN/surreal-simulate" table "$table" --task basic --n-cn 16 --n-pt 16
    "$BIN/surreal-gan" fit "$table/roi_volumes.tsv" --participants "$table/participants.tsv" \
        --features muse139 --out "$MODEL" --n-patterns 2 --ortho 0.4 --repetitions 2 \
        --iterations 100
    write_template
    touch "$BUILD/slurm_data/complete"
}

check_array_and_group() {
    say 'An array of participants, and the group level after it'
    "$BIN/surreal-bids" "$DATA" "$OUT" participant group -w "$WORK" --skip-bids-validation \
        --atlas "$DATA/sourcedata/atlases" --segmentation-mode fast --template "$TEMPLATE" \
        --map-tissues --model "$MODEL" --nprocs 1 --write-slurm "$JOBS" \
        --slurm-partition debug --slurm-time 60 --slurm-memory 3
    "$JOBS/submit.sh" | tee "$S/submitted"
    local array group
    array=$(sed -n 's/^participant level: job //p' "$S/submitted")
    group=$(sed -n 's/^group level: job //p' "$S/submitted")
    squeue --array
    while squeue -h -j "$array,$group" -t PENDING,RUNNING,COMPLETING -o %i 2> /dev/null | grep -q .; do
        sleep 3
    done
    check_participants "$array"
    check_group "$group"
}

state_of() { scontrol show job "$1" | grep -oE 'JobState=[A-Z_]+' | cut -d= -f2; }

check_participants() {
    local array=$1 label number=0 state log
    while read -r label; do
        number=$((number + 1))
        state=$(state_of "${array}_$number")
        log=$JOBS/logs/participant-${array}_$number.log
        if [ "$label" = PT0002 ]; then
            [ "$state" = FAILED ] || fail "sub-$label is damaged, but its task is $state"
            grep 'sub-PT0002' "$log" || fail "the log does not say that sub-$label failed"
        else
            [ "$state" = COMPLETED ] || fail "sub-$label: $state; $(tail -n 20 "$log")"
            ls "$OUT/sub-$label/anat/"*_dseg.tsv > /dev/null || fail "no volumes of sub-$label"
        fi
    done < "$JOBS/participants.txt"
    pass 'four tasks are done; that of the damaged image failed, and its log names it'
}

check_group() {
    local log=$JOBS/logs/group-$1.log
    cat "$log"
    [ "$(state_of "$1")" = COMPLETED ] || fail 'the group job failed'
    grep -q 'sub-PT0002' "$log" || fail 'the group job does not say who is missing'
    grep -q 'PT0002' "$OUT/group_exclusions.tsv" || fail 'the table of the excluded does not'
    [ "$(wc -l < "$OUT/phenotype/rindices.tsv")" = 5 ] || fail 'R-indices are not of four people'
    pass 'the group job ran after them, has R-indices of four people and names the missing one'
}

check_plugin() {
    say 'The steps of one participant as jobs of the SLURM plugin of Nipype'
    printf '%s\n' 'plugin: SLURM' 'plugin_args:' '  sbatch_args: "--mem=3G --time=30"' \
        > "$S/plugin.yml"
    "$BIN/surreal-bids" "$DATA" "$S/out_plugin" participant --participant-label CN0001 \
        -w "$S/work_plugin" --atlas "$DATA/sourcedata/atlases" --segmentation-mode fast \
        --template "$TEMPLATE" --use-plugin "$S/plugin.yml"
    ls "$S/out_plugin/sub-CN0001/anat/"*_dseg.tsv > /dev/null || fail 'no volumes'
    pass "the SLURM plugin ran $(scontrol show job | grep -c 'JobName=.*participants_wf') steps as jobs"
}

start_slurm
prepare_data
check_array_and_group
check_plugin
"$ROOT/singularity/tested.sh" record test-slurm
