# A site of Headrace.
#
#   docker build --tag headrace .                                    # --build-arg EXTRAS=all: with Spark and its Java
#   docker run --volume ./site.toml:/etc/headrace/site.toml:ro --volume wx:/var/lib/headrace --publish 7447:7447 headrace
#   docker run --rm headrace queue --help                            # any other command
#
# docs/containers.md explains what to put into site.toml. compose.yaml runs two sites and a generator.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ARG EXTRAS=sites
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src src
RUN python -m venv /opt/headrace \
    && /opt/headrace/bin/pip install --no-cache-dir --disable-pip-version-check ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/headrace --create-home headrace
COPY --from=build /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/headrace
VOLUME /var/lib/headrace
EXPOSE 7447
# The site answers at its own endpoints. Links that are down do not count: a restart would not help.
HEALTHCHECK --interval=30s --timeout=20s --start-period=20s --retries=3 \
    CMD ["headrace", "sites", "/etc/headrace/site.toml", "--json"]
ENTRYPOINT ["headrace"]
CMD ["serve", "/etc/headrace/site.toml"]
