# The HTTP service with its solver; no torch. Written and linted (hadolint), not built: the machines it was written on
# have no container engine.
#
#   docker build -t parallel-planner .
#   docker compose -f deploy/compose.yaml up

FROM python:3.11-slim AS build
WORKDIR /source
RUN python -m venv /opt/planner
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY planner planner
COPY api api
COPY profiles profiles
RUN /opt/planner/bin/pip install --no-cache-dir -c constraints.txt '.[solver,api]'

FROM python:3.11-slim
RUN groupadd --gid 10001 planner \
    && useradd --uid 10001 --gid planner --home-dir /var/lib/planner --create-home --shell /usr/sbin/nologin planner
COPY --from=build /opt/planner /opt/planner
ENV PATH=/opt/planner/bin:$PATH \
    PYTHONUNBUFFERED=1
# The store (SQLite) lies in the working directory.
WORKDIR /var/lib/planner
VOLUME /var/lib/planner
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
CMD ["planner", "serve", "--port", "8000"]
