# syntax=docker/dockerfile:1@sha256:87999aa3d42bdc6bea60565083ee17e86d1f3339802f543c0d03998580f9cb89

# The operator's image: no compiler, no pip, no `kubernetes` package (that is for kubeconfigs, on people's machines).
# It runs as any user, with a read-only root file system: nothing is written outside of /tmp, and nothing needs that.

FROM python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285 AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# Dependencies first: this layer changes only when they do.
RUN python -m venv /opt/trimtab
COPY requirements/image.txt requirements/build.txt requirements/
RUN /opt/trimtab/bin/pip install --only-binary :all: --require-hashes --requirement requirements/image.txt \
    && pip install --only-binary :all: --require-hashes --requirement requirements/build.txt

COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/trimtab/bin/pip install --no-deps dist/*.whl \
    && /opt/trimtab/bin/pip uninstall --yes pip \
    && /opt/trimtab/bin/python -m compileall -q /opt/trimtab/lib


FROM python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
LABEL org.opencontainers.image.title="trimtab" \
      org.opencontainers.image.description="Keeps a Kubernetes cluster trimmed to its policies" \
      org.opencontainers.image.source="https://github.com/trimtab-dev/trimtab" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["trimtab"]
CMD ["run"]
