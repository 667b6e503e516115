# One image for every process of the portal; the command says which one it is.
FROM python:3.11-slim-bookworm AS portal

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 STATIC_COLLECTED=1
WORKDIR /app

COPY requirements.lock .
RUN pip install --no-cache-dir --require-hashes -r requirements.lock

COPY manage.py .
COPY portal portal
COPY tenants tenants
COPY billing billing
COPY allocation allocation
COPY solver solver
COPY agent agent
COPY wire wire
COPY templates templates
COPY static static

# Collecting static files reads the settings; these values live in this one step only.
RUN SECRET_KEY="$(python -c 'import secrets; print(secrets.token_hex(32))')" \
    AGENTS_MASTER_KEY="$(python -c 'import secrets; print(secrets.token_hex(32))')" \
    DATABASE_URL=postgresql:///build REDIS_URL=redis://build AGENTS_REDIS_URL=redis://agents \
    python manage.py collectstatic --no-input --verbosity 0 \
 && useradd --uid 10001 --no-create-home portal \
 && mkdir -p /app/var/tokens /var/lib/gpu-agent \
 && chown -R portal:portal /app/var /var/lib/gpu-agent

# Decisions name the commit of the code that made them: `unknown` without
# `--build-arg PORTAL_COMMIT=$(git rev-parse HEAD)`.
ARG PORTAL_COMMIT=""
ENV PORTAL_COMMIT=$PORTAL_COMMIT

USER portal
EXPOSE 8000

# Demo data and simulated nodes, for docker-compose.yml: `docker build --target devtools`.
FROM portal AS devtools
COPY devtools devtools

FROM portal
