# The image of `make image`, for docker: docker build --platform linux/arm64 --build-arg REVISION=$(git rev-parse HEAD) .
# The program and the libraries are those of the builder's Debian, so builder and image agree on glibc.
# Another one, or the same by its digest: --build-arg BUILDER=rust:1.95.0-bookworm@sha256:…
ARG BUILDER="rust:1.95.0-bookworm"
FROM ${BUILDER} AS builder
WORKDIR /sluice
COPY . .
ARG REVISION=""
ARG CREATED=""
RUN SLUICE_GIT_COMMIT="$REVISION" SLUICE_BUILD_DATE="$CREATED" \
    cargo build --release --locked --package sluice --bin sluice \
    && cargo run --release --locked --package sluice-release -- rootfs --program target/release/sluice /rootfs

# Only the program, the libraries that it needs, and the files by which glibc finds users and hosts: no shell.
FROM scratch
ARG VERSION="0.1.0"
ARG REVISION=""
ARG CREATED=""
ARG LIBRARIES="libc6 and libgcc-s1 of Debian 12"
COPY --from=builder /rootfs/ /
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.description="Kueue-compatible quota scheduler for Kubernetes" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.licenses="Apache-2.0 AND LGPL-2.1-or-later AND GPL-3.0-or-later WITH GCC-exception-3.1" \
      sluice.dev/libraries="$LIBRARIES"
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/sluice"]
