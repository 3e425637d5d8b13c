#!/usr/bin/env bash
# Run apptainer as an ordinary user, as on a cluster: apptainer.sh ARGUMENTS...
#
# An installed apptainer or singularity is used as it is. Debian 12 has none: there, as root, the
# package of Debian sid runs from a root of its own, as user 4321, who sees only the folders in
# APPTAINER_FOLDERS (separated by colons; default: $BUILD), under their own paths.
source "$(dirname "$0")/common.sh"
SID=$BUILD/sid

for program in apptainer singularity; do
    if command -v "$program" > /dev/null; then exec "$program" "$@"; fi
done

make_sid() {
    [ "$(id -u)" = 0 ] || return 1
    command -v mmdebstrap > /dev/null || install mmdebstrap || return 1
    say 'No apptainer here: making a root of Debian sid with it' >&2
    rm -rf "$SID"
    mmdebstrap --quiet --variant=apt --include=apptainer,squashfuse,fuse2fs,fuse-overlayfs \
        --dpkgopt=force-unsafe-io --aptopt='Acquire::Check-Valid-Until "false"' sid "$SID" >&2 \
        || return 1
    # Apptainer binds these into every container, and fails without them.
    cp /etc/hosts "$SID/etc/hosts"
    touch "$SID/etc/resolv.conf" "$SID/etc/localtime"
    echo 'hpc:x:4321:4321::/home/hpc:/bin/bash' >> "$SID/etc/passwd"
    echo 'hpc:x:4321:' >> "$SID/etc/group"
    mkdir -p "$SID/home/hpc" "$SID/old"
    chown 4321:4321 "$SID/home/hpc"
    touch "$SID/.complete"
}

[ -e "$SID/.complete" ] || make_sid \
    || skip 'apptainer is missing, and cannot be had from Debian sid'

# Inside: a mount namespace of its own, whose root becomes sid (a plain chroot is refused).
enter() {
    mount --make-rprivate /
    mount --rbind "$SID" "$SID"
    cd "$SID"
    local folder
    for folder in /proc /sys /dev ${APPTAINER_FOLDERS//:/ }; do
        mkdir -p ".$folder"
        mount --rbind "$folder" ".$folder"
    done
    # On a cluster, every user may open it.
    [ -c fuse ] || mknod -m 0666 fuse c 10 229
    [ -e dev/fuse ] || touch dev/fuse
    mount --bind fuse dev/fuse
    pivot_root . old
    cd /home/hpc
    umount -l /old
    exec setpriv --reuid 4321 --regid 4321 --clear-groups \
        env -i HOME=/home/hpc USER=hpc PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        APPTAINER_CACHEDIR="$BUILD/apptainer" APPTAINER_TMPDIR="$BUILD/apptainer" \
        apptainer "$@"
}

export SID BUILD APPTAINER_FOLDERS=${APPTAINER_FOLDERS:-$BUILD}
mkdir -p "$BUILD/apptainer"
chown 4321:4321 "$BUILD/apptainer"
exec unshare --mount bash -c "$(declare -f enter); set -e; enter \"\$@\"" apptainer "$@"
