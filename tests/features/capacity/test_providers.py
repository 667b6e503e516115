"""The file of providers, and machines by Libcloud: its dummy, and an OpenStack on loopback."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from allocation.features.capacity.cloud import Cloud, leaves_of
from allocation.features.capacity.nodes import boot_script
from allocation.features.capacity.providers import (
    Provider,
    ProviderFailed,
    ProvidersFault,
    providers,
    providers_parse,
)
from devtools.cloud.machines import NOTICE_SECONDS, SPOT_SECONDS, Machines, boot_values
from devtools.cloud.openstack import OpenStack, server_open
from tenants.platform.errors import Refused
from tests.features.capacity.builders import FILE, providers_file

PASSWORD = "a-password-of-the-cloud"


@pytest.fixture
def openstack(tmp_path: Path) -> Iterator[OpenStack]:
    machines = Machines(tmp_path, 30, clock=lambda: 1_000.0, runs=False)
    cloud = OpenStack(machines, "demo", PASSWORD, clock=lambda: 1_000.0)
    server = server_open(cloud, "127.0.0.1", 0)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield cloud
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def provider(openstack: OpenStack, monkeypatch: pytest.MonkeyPatch) -> Provider:
    monkeypatch.setenv("CLOUD_PASSWORD", PASSWORD)
    (found,) = providers_parse(FILE, "EUR")
    return replace(
        found,
        driver="openstack",
        key="demo",
        secret_env="CLOUD_PASSWORD",
        image="agent",
        arguments={
            "ex_force_auth_url": openstack.base,
            "ex_force_auth_version": "3.x_password",
            "ex_tenant_name": "demo",
        },
    )


def test_a_machine_of_openstack_is_requested_listed_and_given_back(
    openstack: OpenStack, provider: Provider
) -> None:
    cloud = Cloud(provider)
    assert cloud.listing() == []
    boot = boot_script(replace(provider, portal="https://gpus.example.org"), "cloud-1", "a token's")
    key = cloud.acquire("gpu-burst-portal-1-abc", provider.offers[0], boot)
    (machine,) = openstack.machines.all.values()
    assert (machine.id, machine.name, machine.fleet) == (key, "gpu-burst-portal-1-abc", "s")
    assert boot_values(machine.boot) == {
        "GPU_AGENT_PORTAL": "https://gpus.example.org",
        "GPU_AGENT_NAME": "cloud-1",
        "GPU_AGENT_TOKEN": "a token's",
    }
    (listed,) = cloud.listing()
    assert (listed.id, listed.name, listed.is_running) == (key, machine.name, False)
    machine.state = "ACTIVE"
    assert [each.is_running for each in cloud.listing()] == [True]
    machine.state = "ERROR"
    assert [each.has_failed for each in cloud.listing()] == [True]
    cloud.release(key)
    cloud.release(key)
    assert cloud.listing() == []


@pytest.mark.parametrize(
    ("extra", "leaves"),
    [
        ({}, None),
        ({"metadata": {}}, None),
        ({"metadata": {"leaves-at": "2026-11-21T14:02:00Z"}}, 2),
        ({"tags": {"leaves-at": "2026-11-21T15:03:00+01:00"}}, 3),
        (
            {
                "metadata": {
                    "items": [{"key": "a", "value": "b"}, {"key": "leaves-at", "value": "2026-11-21 14:04"}]
                }
            },
            4,
        ),
        ({"metadata": {"leaves-at": "soon"}}, None),
        ({"metadata": {"items": "none"}}, None),
        ({"metadata": "none", "tags": {"leaves-at": "2026-11-21T14:02:00Z"}}, None),
    ],
)
def test_a_notice_is_read_from_metadata_or_tags(extra: dict[str, Any], leaves: int | None) -> None:
    found = leaves_of(extra)
    assert found == (None if leaves is None else datetime(2026, 11, 21, 14, leaves, tzinfo=UTC))


def test_the_simulated_cloud_gives_notice_and_takes_a_machine_back(
    openstack: OpenStack, provider: Provider, tmp_path: Path
) -> None:
    cloud, kept = Cloud(provider), openstack.machines
    offer = provider.offers[0]
    spot = cloud.acquire("a", replace(offer, size="l40s:2@spot"), "")
    plain = cloud.acquire("b", replace(offer, size="l40s:2"), "")

    def turned_at(seconds: float) -> dict[str, datetime | None]:
        kept._clock = lambda: 1_000.0 + seconds
        openstack.turn()
        return {each.id: each.leaves for each in cloud.listing()}

    assert turned_at(SPOT_SECONDS - 1) == {spot: None, plain: None}
    leaves = datetime.fromtimestamp(1_000 + SPOT_SECONDS + NOTICE_SECONDS, UTC)
    assert turned_at(SPOT_SECONDS) == {spot: leaves, plain: None}
    # A cloud that starts again knows its notices.
    assert Machines(tmp_path, 30, runs=False).all[spot].leaves == leaves.timestamp()
    assert turned_at(SPOT_SECONDS + NOTICE_SECONDS - 1) == {spot: leaves, plain: None}
    assert turned_at(SPOT_SECONDS + NOTICE_SECONDS) == {plain: None}


def test_a_fault_of_a_provider_is_said_without_its_secret(
    openstack: OpenStack, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = Cloud(provider)
    assert cloud.listing() == []
    openstack.faults.append(503)
    with pytest.raises(ProviderFailed, match=r"cloud did not list machines: .*503"):
        cloud.listing()
    assert cloud.listing() == []
    monkeypatch.setenv("CLOUD_PASSWORD", "another-password")
    with pytest.raises(ProviderFailed, match="Invalid credentials") as found:
        Cloud(provider).listing()
    assert "another-password" not in str(found.value)
    monkeypatch.delenv("CLOUD_PASSWORD")
    with pytest.raises(ProviderFailed, match="CLOUD_PASSWORD, the secret of cloud, is not set"):
        Cloud(provider).listing()


def test_the_dummy_driver_of_libcloud_has_machines() -> None:
    (provider,) = providers_parse(FILE, "EUR")
    cloud = Cloud(replace(provider, key="nobody", image="i"))
    before = {each.id for each in cloud.listing()}
    key = cloud.acquire("name", provider.offers[0], "")
    assert {each.id for each in cloud.listing()} - before == {key}
    cloud.release(key)
    assert {each.id for each in cloud.listing()} == before


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('driver = "dummy"', "", r"provider\[0\].driver: missing"),
        ('price = "12"', "price = 12", "price: must be a text in quotes"),
        ('price = "12"', 'price = "-1"', "price: must be more than 0"),
        ('price = "12"', 'price = "1e"', "price: write an amount"),
        ("gpus = 4", "gpus = 0", "at least 1"),
        (
            'driver = "dummy"',
            'driver = "dummy"\ncurrency = "CHF"',
            "currency: Amounts of this site are in EUR",
        ),
        ("gpus = 4", "gpus = 4\nturbo = true", "turbo: unknown key"),
        ('driver = "dummy"', 'driver = "dummy"\nsecret = "x"', "secret: name a variable"),
        ("[[provider]]", "[[provider]", "Expected"),
    ],
)
def test_a_fault_in_the_file_names_its_key(old: str, new: str, fault: str) -> None:
    with pytest.raises(ProvidersFault, match=fault):
        providers_parse(FILE.replace(old, new), "EUR")


@pytest.mark.django_db
def test_a_file_that_can_not_be_read_is_an_operators_fault(settings: Any, tmp_path: Path) -> None:  # noqa: ANN401
    providers_file(settings, tmp_path)
    assert [each.name for each in providers()] == ["cloud"]
    providers_file(settings, tmp_path, "x")
    with pytest.raises(Refused, match="The file of providers can't be read") as found:
        providers()
    assert found.value.owner == "operator"
    settings.PROVIDERS_FILE = ""
    assert providers() == ()
