"""The script that a new machine runs first: it installs the agent and enrols with a one-time token."""

import shlex
from pathlib import Path

from django.conf import settings

from allocation.features.capacity.providers import Provider, ProviderFailed

_SCRIPT = """#!/bin/sh
set -eu
umask 077
GPU_AGENT_PORTAL={portal}
GPU_AGENT_NAME={name}
GPU_AGENT_TOKEN={token}
export GPU_AGENT_PORTAL GPU_AGENT_NAME GPU_AGENT_TOKEN
/usr/bin/python3 -m venv /opt/gpu-agent
/opt/gpu-agent/bin/pip install --quiet {agent}
exec /opt/gpu-agent/bin/gpu-agent
"""


def boot_script(provider: Provider, node: str, token: str) -> str:
    """The script of a machine. Raises ProviderFailed if the provider's own can't be read."""
    script = _SCRIPT
    if provider.boot_file:
        try:
            script = Path(provider.boot_file).read_text(encoding="utf-8")
        except OSError as error:
            raise ProviderFailed(f"{provider.boot_file} can't be read: {error.strerror}.") from None
    values = {
        "portal": provider.portal or settings.PUBLIC_URL,
        "name": node,
        "token": token,
        "agent": provider.agent,
    }
    for name, value in values.items():
        script = script.replace("{" + name + "}", shlex.quote(value))
    return script
