"""The portal's side of an engine, as a fixture that the folders of engines import."""

from collections.abc import Iterator

import pytest
import redis

import wire
from tests.agent.processes import Portal, PortalOfEngine


@pytest.fixture
def portal(redis_client: "redis.Redis") -> Iterator[Portal]:
    # Settings are not there when this module is imported.
    from allocation.services.nodes.redis_accounts import (  # noqa: PLC0415
        account_password,
        account_url,
        agent_account_open,
        agent_account_replace,
    )

    node = PortalOfEngine.node
    redis_client.delete(wire.desired_key(node), wire.lease_key(node), wire.report_stream(node))
    password, digest = account_password()
    agent_account_open(node, digest)
    found = PortalOfEngine(redis_client, account_url(node, password), digest)
    yield found
    agent_account_replace(node, None)
    found.close()
