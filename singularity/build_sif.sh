#!/usr/bin/env bash
# Turn the image into surreal_bids.sif, with apptainer as an ordinary user: `make sif`.
source "$(dirname "$0")/common.sh"
find_engine
"$ENGINE" image inspect "$IMAGE" > /dev/null 2>&1 || "$(dirname "$0")/build_image.sh"
SIF=$BUILD/apptainer/surreal_bids.sif
mkdir -p "$BUILD/apptainer"
"$(dirname "$0")/apptainer.sh" --version

say "Saving $IMAGE"
rm -f "$BUILD/apptainer/surreal_bids.tar"
case $ENGINE in
    podman) podman save --format docker-archive -o "$BUILD/apptainer/surreal_bids.tar" "$IMAGE" ;;
    docker) docker save -o "$BUILD/apptainer/surreal_bids.tar" "$IMAGE" ;;
esac
chmod a+r "$BUILD/apptainer/surreal_bids.tar"
sed "s|^From: .*|From: $BUILD/apptainer/surreal_bids.tar|" "$ROOT/singularity/surreal_bids.def" \
    > "$BUILD/apptainer/surreal_bids.def"

say "Building $SIF"
"$(dirname "$0")/apptainer.sh" build --force \
    --mksquashfs-args='-comp zstd -Xcompression-level 1' "$SIF" "$BUILD/apptainer/surreal_bids.def"
rm "$BUILD/apptainer/surreal_bids.tar"
stat -c '%s' "$SIF" | awk -v sif="$SIF" '{printf "%s: %.2f GB\n", sif, $1 / 1e9}'
