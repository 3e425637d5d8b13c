#!/usr/bin/env bash
# A real scheduler: participants as an array, the group level after them, one participant who fails;
# then a participant whose steps are jobs of Nipype's SLURM plugin, and one in the Apptainer image:
# `make test-slurm`.
#
# Slurm is that of Debian, on this machine alone, with its own ports and files in $BUILD/slurm.
source "$(dirname "$0")/../../singularity/common.sh"
source "$ROOT/tests/containers/options.sh"
BIN=$ROOT/.venv/bin
S=$BUILD/slurm
DATA=$S/heads MODEL=$S/model
MOST_SECONDS=1800
OUT=$S/out WORK=$S/work JOBS=$S/jobs
export LOGNAME=${LOGNAME:-root} SLURM_CONF=$S/slurm.conf
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

[ "$(id -u)" = 0 ] || skip 'only root can start a Slurm for itself'
for program in slurmctld slurmd munged; do
    command -v $program > /dev/null || install slurm-wlm munge \
        || skip 'Slurm is missing, and cannot be installed'
done

# The number of a process may since have become that of another.
stop_slurm() {
    local daemon number
    for daemon in slurmd slurmctld munged; do
        [ -s "$S/$daemon.pid" ] || continue
        number=$(cat "$S/$daemon.pid")
        [ "$(cat "/proc/$number/comm" 2> /dev/null)" = "$daemon" ] && kill "$number"
    done
    return 0
}

start_slurm() {
    say 'Starting Slurm'
    stop_slurm
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

# Five brains, one of them damaged, and a model to apply, for which three controls are enough. All
# is as coarse as it can be: this is about the scheduler.
prepare_data() {
    say 'Simulating five brains and training a model'
    "$BIN/surreal-simulate" cohort "$DATA" --n-cn 3 --n-pt 2 --sites 1 --patterns 1 \
        --voxel-size 3 --skull-stripped --nprocs 2
    truncate --size=-2000 "$DATA/sub-PT0002/anat/sub-PT0002_T1w.nii.gz"
    local table=$S/table
    "$BIN/surreal-simulate" table "$table" --task basic --n-cn 16 --n-pt 16
    "$BIN/surreal-gan" fit "$table/roi_volumes.tsv" --participants "$table/participants.tsv" \
        --features muse139 --out "$MODEL" "${TRAINING[@]}"
}

# The scripts of singularity/slurm with the paths of this test: write_jobs FOLDER OUT WORK SIF N.
write_jobs() {
    local jobs=$1 out=$2 work=$3 sif=$4 tasks=$5 name
    mkdir -p "$jobs/logs"
    for name in participant.sbatch group.sbatch submit.sh; do
        sed -e "s#/data/jobs#$jobs#g" -e "s#/data/study#$DATA#g" \
            -e "s#/data/derivatives/surreal_bids#$out#g" -e "s#/scratch/surreal_bids#$work#g" \
            -e "s#/images/surreal_bids.sif#$sif#g" -e "s#-B $DATA:#-B $BUILD:$BUILD -B $DATA:#" \
            -e 's#--partition=normal#--partition=debug#' -e "s#1-3#1-$tasks#" -e "s#n=3#n=$tasks#" \
            -e 's#--cpus-per-task=.*#--cpus-per-task=1#' -e 's#--mem=.*#--mem=3G#' \
            -e 's#--mem-gb [0-9]*#--mem-gb 3#' "$ROOT/singularity/slurm/$name" > "$jobs/$name"
        chmod +x "$jobs/$name"
    done
    # Without the validation, a step finds that an image is damaged, as it would any other trouble.
    printf '%s\n' 'template_resolution = 3.0' 'skip_bids_validation = true' 'map_tissues = []' \
        "work_dir = \"$work\"" "model = \"$MODEL\"" > "$jobs/options.toml"
}

# An apptainer that runs this installation instead of an image: what follows the image are options.
stand_in_for_apptainer() {
    mkdir -p "$S/bin"
    printf '%s\n' '#!/bin/bash' 'while [[ $1 != *.sif ]]; do shift; done' 'shift' \
        "exec '$BIN/surreal-bids' \"\$@\"" > "$S/bin/apptainer"
    chmod +x "$S/bin/apptainer"
}

check_array_and_group() {
    say 'An array of participants, and the group level after it'
    stand_in_for_apptainer
    write_jobs "$JOBS" "$OUT" "$WORK" none.sif 5
    ls "$DATA" | sed -n 's/^sub-//p' > "$JOBS/participants.txt"
    PATH=$S/bin:$PATH "$JOBS/submit.sh" | tee "$S/submitted"
    local array group
    array=$(sed -n 's/^participant level: job //p' "$S/submitted")
    group=$(sed -n 's/^group level: job //p' "$S/submitted")
    squeue --array
    wait_for "$array,$group"
    check_participants "$array"
    check_group "$group"
}

wait_for() {
    local until=$((SECONDS + MOST_SECONDS))
    while squeue -h -j "$1" -t PENDING,RUNNING,COMPLETING -o %i 2> /dev/null | grep -q .; do
        [ "$SECONDS" -lt "$until" ] || fail "not done in $MOST_SECONDS s: $(squeue --array)"
        sleep 3
    done
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
    grep -q 'PT0002.*excluded' "$OUT/phenotype/rindices.tsv" || fail 'the table does not name it'
    [ "$(wc -l < "$OUT/phenotype/rindices.tsv")" = 6 ] || fail 'R-indices are not of four people'
    pass 'the group job ran after them, has R-indices of four people and names the missing one'
}

# Jobs call apptainer by its name. Where it is not installed, ours runs as a user of its own, who
# sees only $BUILD, and must be able to write to the folders that root makes for the job.
name_apptainer() {
    if command -v apptainer singularity > /dev/null; then return; fi
    mkdir -p "$S/bin" "$S/tmp"
    printf '%s\n' '#!/bin/bash' "PATH=\${PATH#$S/bin:}" "chmod a+rwx $S/tmp/*" \
        "exec '$ROOT/singularity/apptainer.sh' \"\$@\"" > "$S/bin/apptainer"
    chmod +x "$S/bin/apptainer"
    export PATH=$S/bin:$PATH TMPDIR=$S/tmp
}

check_container() {
    say 'A participant in the Apptainer image'
    local sif=$BUILD/apptainer/surreal_bids.sif out=$S/out_container jobs=$S/jobs_container job
    [ -e "$sif" ] || "$ROOT/singularity/build_sif.sh"
    mkdir -p "$out" "$S/work_container"
    chmod a+rwx "$out" "$S/work_container"
    write_jobs "$jobs" "$out" "$S/work_container" "$sif" 1
    echo CN0001 > "$jobs/participants.txt"
    rm -f "$S/bin/apptainer"
    job=$(
        name_apptainer
        sbatch --parsable "$jobs/participant.sbatch"
    )
    wait_for "$job"
    [ "$(state_of "${job}_1")" = COMPLETED ] || fail "$(cat "$jobs"/logs/*)"
    ls "$out/sub-CN0001/anat/"*_dseg.tsv > /dev/null || fail 'no volumes of sub-CN0001'
    pass 'the job ran in the Apptainer image'
}

check_plugin() {
    say 'The steps of one participant as jobs of the SLURM plugin of Nipype'
    printf '%s\n' 'plugin: SLURM' 'plugin_args:' '  sbatch_args: "--mem=3G --time=30"' \
        > "$S/plugin.yml"
    "$BIN/surreal-bids" "$DATA" "$S/out_plugin" participant --participant-label CN0001 \
        -w "$S/work_plugin" "${QUICK[@]}" --use-plugin "$S/plugin.yml"
    ls "$S/out_plugin/sub-CN0001/anat/"*_dseg.tsv > /dev/null || fail 'no volumes of sub-CN0001'
    local steps
    steps=$(scontrol show job | grep -c 'JobName=.*participants_wf') || true
    [ "$steps" -ge 10 ] || fail "only $steps steps were jobs: $(scontrol show job | grep JobName)"
    pass "the SLURM plugin ran $steps steps as jobs"
}

start_slurm
prepare_data
check_array_and_group
check_plugin
check_container
