"""Each figure of the demo is the same in all places that show it."""

import json
from collections.abc import Iterator

import pytest
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from allocation.services.record.forecasts import forecasts_store
from devtools.demo.site import seed
from tenants.models import Tenant, User
from tests.api.builders import Api, said
from tests.figures.places import World, differences
from tests.roles import as_owner
from tests.servers.servers import Servers

# Half a minute of processor time for the demo's week.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def demo(
    servers: Servers,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """The demo of today."""
    from django.db import connections  # noqa: PLC0415 (settings are not there on import)

    path, now = tmp_path_factory.mktemp("demo") / "demo.json", timezone.now()
    with django_db_blocker.unblock():
        try:
            with as_owner():
                seed(now=now, path=path, url="http://127.0.0.1:8000")
                forecasts_store(now)
                people = {each.username: each for each in User.objects.all()}
                tenant = Tenant.objects.get(slug="helix")
            tokens = json.loads(path.read_text())["tokens"]
            yield World(
                tenant,
                people["ada"],
                people["olaf"],
                Api(tokens["tenant_admin"]),
                Api(tokens["operator"]),
                now,
            )
        finally:
            connections.close_all()
            servers.database_renew()


def test_all_places_of_the_demo_show_the_same_figures(demo: World) -> None:
    assert differences(demo) == []


@pytest.mark.parametrize(
    ("name", "bottleneck", "advice"),
    [
        ("augment-train", "input", "cores"),
        ("llm-decode", "memory", "bandwidth"),
        ("tensor-parallel", "communication", "group"),
        ("sweep-notebook", "idle", "shorter"),
        ("embed-small", "input", "slice"),
    ],
)
def test_a_week_names_advises_and_diverts_each_kind_of_work(
    demo: World, name: str, bottleneck: str, advice: str
) -> None:
    """On both of its classes the same holds it up, and what a step cost is close to what was predicted."""
    found = said(demo.admin_api.get(f"workloads/{name}"))
    assert [each["bottleneck"]["kind"] for each in found["profile"]] == [bottleneck] * 2
    assert advice in {each["code"] for each in found["advice"]}
    (state,) = found["diversion"]
    assert (state["mode"], state["runs"], state["is_stopped"]) == ("automatic", 2, False)
    predicted, measured, otherwise = (float(state[each]) for each in ("predicted", "measured", "otherwise"))
    assert measured == pytest.approx(predicted, rel=0.1)
    assert measured < 0.95 * otherwise
