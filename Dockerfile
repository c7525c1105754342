# The command `orchestrator` with its bundled servers. Built from uv.lock, so it holds what the tests ran with.

FROM python:3.12-slim AS build
RUN pip install --no-cache-dir uv
WORKDIR /src
ENV UV_PROJECT_ENVIRONMENT=/opt/orchestrator UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY orchestrator orchestrator
COPY agents agents
COPY mcp_servers mcp_servers
RUN uv sync --locked --no-dev --no-editable --no-cache --compile-bytecode --extra servers --extra cjk

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 orchestrator \
    && install --directory --owner=orchestrator --group=orchestrator /workspace /var/lib/orchestrator
COPY --from=build /opt/orchestrator /opt/orchestrator
ENV PATH=/opt/orchestrator/bin:$PATH ORCHESTRATOR_HOME=/var/lib/orchestrator
USER orchestrator
WORKDIR /workspace
VOLUME ["/workspace", "/var/lib/orchestrator"]
ENTRYPOINT ["orchestrator"]
CMD ["--help"]
