"""The portal's side of an engine, as a fixture that the folders of engines import."""

from collections.abc import Iterator

import pytest
import redis

import wire
from tests.agent.builders import NODE
from tests.agent.processes import Portal


@pytest.fixture
def portal(redis_client: "redis.Redis") -> Iterator[Portal]:
    # Settings are not there when this module is imported.
    from allocation.services.nodes.redis_accounts import (  # noqa: PLC0415
        account_password,
        account_url,
        agent_account_open,
        agent_account_replace,
    )

    redis_client.delete(wire.desired_key(NODE), wire.lease_key(NODE), wire.report_stream(NODE))
    password, digest = account_password()
    agent_account_open(NODE, digest)
    found = Portal(redis_client, account_url(NODE, password), digest)
    yield found
    agent_account_replace(NODE, None)
    found.close()
