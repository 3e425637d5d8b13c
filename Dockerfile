# surreal_bids as an image. Build: make image. Run:
#   docker run --rm -v BIDS:/data:ro -v OUT:/out -v WORK:/work IMAGE /data /out participant -w /work
#
# BASE_IMAGE       any image with Python 3.11 and its venv module
# TORCH_INDEX_URL  where torch comes from; empty: the default index.
#                  For CUDA: https://download.pytorch.org/whl/cu130
# WHEELS_IMAGE     an image that holds wheels in its root, used before any index
# SOURCE_URL       where this source was taken from; a label, and part of the outputs' provenance
# IMAGE_REFERENCE  the name that the image will have; part of the outputs' provenance
# APT_PACKAGES     further Debian packages; "gcc libc6-dev" lets torch compile kernels for CUDA
# Secret ca_bundle certificates that pip trusts while building, where HTTPS passes a private CA
ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG WHEELS_IMAGE=scratch

FROM ${WHEELS_IMAGE} AS wheels

# Dependencies come before the code, so that a change of code does not install them again.
FROM ${BASE_IMAGE} AS dependencies
ARG TORCH_INDEX_URL="https://download.pytorch.org/whl/cpu"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PIP_PROGRESS_BAR=off
RUN python3 -m venv /opt/venv
COPY pyproject.toml constraints.txt /build/
RUN --mount=type=secret,id=ca_bundle,target=/run/secrets/ca_bundle \
    --mount=type=bind,from=wheels,target=/wheels \
    set -eu; \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    /opt/venv/bin/pip install --no-compile --find-links /wheels \
        ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} \
        "$(grep '^torch==' /build/constraints.txt)"; \
    /opt/venv/bin/python -c 'import tomllib; \
print(*tomllib.load(open("/build/pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
        > /build/requirements.txt; \
    /opt/venv/bin/pip install --no-compile --constraint /build/constraints.txt \
        --requirement /build/requirements.txt
COPY singularity/slim.py /build/
RUN /opt/venv/bin/python -B /build/slim.py

FROM dependencies AS code
WORKDIR /build/code
COPY . .
RUN --mount=type=secret,id=ca_bundle,target=/run/secrets/ca_bundle \
    set -eu; \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    /opt/venv/bin/pip install --no-deps --prefix /build/installed .

FROM ${BASE_IMAGE}
ARG APT_PACKAGES=""
ARG SOURCE_URL=""
ARG IMAGE_REFERENCE=surreal_bids
RUN if [ -n "$APT_PACKAGES" ]; then \
        apt-get update && apt-get install -y --no-install-recommends $APT_PACKAGES \
        && rm -rf /var/lib/apt/lists/*; \
    fi
LABEL org.opencontainers.image.title="surreal_bids" \
      org.opencontainers.image.description="A BIDS App: R-indices of disease-related brain patterns from T1-weighted MRI" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.authors="The surreal_bids developers" \
      org.opencontainers.image.url="https://openreview.net/forum?id=nf3A0WZsXS5" \
      org.opencontainers.image.source="${SOURCE_URL}" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT AND LicenseRef-surreal-bids-network AND LicenseRef-surreal-bids-tables AND LicenseRef-surreal-bids-atlas"
# Nothing is written but to the output, the work folder and /tmp, whoever runs it. One thread a
# process, because the app starts as many processes as it may use cores. No telemetry.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    MPLCONFIGDIR=/tmp/.matplotlib \
    NIPYPE_CONFIG_DIR=/tmp/.nipype \
    NIPYPE_NO_ET=1 \
    NO_ET=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONNOUSERSITE=1 \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    MKL_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS=1 \
    SURREAL_BIDS_IMAGE="${IMAGE_REFERENCE}" \
    SURREAL_BIDS_SOURCE="${SOURCE_URL}"
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=code /build/installed /opt/venv
COPY run.py /opt/surreal_bids/run.py
# The build checks itself: everything imports, the entry point runs, nothing was left behind.
RUN python -c "import ants, deepbet, nipype, torch" \
    && python -c "import surreal_bids.cli.app, surreal_bids.cli.gan, surreal_bids.cli.simulate" \
    && /opt/surreal_bids/run.py --version \
    && rm -rf /tmp/* /tmp/.[!.]* /root/.cache /root/.nipype
USER 1000:1000
WORKDIR /tmp
ENTRYPOINT ["/opt/venv/bin/python", "/opt/surreal_bids/run.py"]
