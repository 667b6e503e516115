"""What nodes say of their data sets: kept in one bounded row a node, and listed for people."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

import wire
from allocation.features.datasets.models import NodeCache
from allocation.features.datasets.services import KEPT_EVERY, data_of_site, nodes_with, size_words
from allocation.models import Node
from allocation.services.nodes.telemetry import samples_store
from tests.api.builders import Site, said
from tests.builders_allocation import NOW
from tests.features.datasets.builders import first_node, node_says
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


def kept() -> list[str]:
    with as_system():
        return [name for row in NodeCache.objects.all() for name in row.sets]


def test_the_newest_listing_of_a_node_replaces_the_one_before(site: Site) -> None:
    node = first_node().id
    node_says(node, "imagenet", "coco")
    node_says(node, "coco", "genomes", at=NOW + KEPT_EVERY)

    assert sorted(kept()) == ["coco", "genomes"]
    with as_system():
        assert nodes_with(["genomes", "imagenet"]) == {first_node().name: {"genomes"}}
        assert nodes_with([]) == {}


def test_telemetry_without_a_listing_changes_nothing(site: Site) -> None:
    node = first_node().id
    node_says(node, "imagenet")
    with as_system():
        samples_store([(node, wire.Telemetry(sent_at=1))], NOW + timedelta(hours=1))

    assert kept() == ["imagenet"]


def test_an_empty_folder_takes_all_back(site: Site) -> None:
    node_says(first_node().id, "imagenet")
    node_says(first_node().id, at=NOW + KEPT_EVERY)

    assert kept() == []


def test_a_lying_node_has_one_bounded_row_that_changes_seldom(site: Site) -> None:
    node = first_node().id
    for turn in range(3):
        node_says(node, *(f"set-{turn}-{number}" for number in range(1_000)))

    # The second and the third came too early.
    assert kept() == [f"set-0-{number}" for number in range(wire.DATA_SETS_MAX)]
    with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
        NodeCache.objects.update(sets={"x" * 30_000: [None, None]})


def test_the_largest_listing_fits_its_row(site: Site) -> None:
    names = [f"{number:03}{'x' * 61}" for number in range(wire.DATA_SETS_MAX)]
    data = tuple(wire.CachedData(name=name, size_mb=(1 << 31) - 1, used=(1 << 63) - 1) for name in names)
    with as_system():
        samples_store([(first_node().id, wire.Telemetry(sent_at=1, data=data))], NOW)
        # A time that no clock has is cut off at now.
        assert {row.used for row in data_of_site(NOW)} == {NOW.replace(microsecond=0)}

    assert len(kept()) == wire.DATA_SETS_MAX


@pytest.mark.parametrize("name", ["ImageNet", "../etc", "", "a/b", "a b", "x" * 65, ".hidden", "a\nb"])
def test_a_name_that_is_none_refuses_the_message(name: str) -> None:
    key = b"k" * 32
    message = wire.Telemetry(sent_at=1, data=(wire.CachedData(name=name),))

    with pytest.raises(wire.WireError):
        wire.open_report(wire.seal(message, key=key, key_version=1), {1: key})


def test_older_portals_get_no_field_that_they_do_not_know() -> None:
    key = b"k" * 32
    assert b"data" not in wire.seal(wire.Telemetry(sent_at=1), key=key, key_version=1).body
    message = wire.Telemetry(sent_at=1, data=(wire.CachedData(name="imagenet", size_mb=5, used=7),))
    assert wire.open_report(wire.seal(message, key=key, key_version=1), {1: key}) == message


def test_rest_lists_the_data_sets_of_the_site(site: Site) -> None:
    node_says(first_node().id, "imagenet", "coco")

    rows = said(site.researcher.get("data-sets"))["items"]

    assert [row["name"] for row in rows] == ["coco", "imagenet"]
    assert rows[0]["size_mb"] == 150_000
    assert rows[0]["nodes"] == [first_node().name]


def test_data_sets_of_rented_machines_are_nobody_elses(site: Site) -> None:
    node_says(first_node().id, "secret-corpus")
    with as_system():
        Node.objects.update(pool="plan-1")

    assert said(site.researcher.get("data-sets"))["items"] == []


def test_operators_see_them_on_the_page_of_the_node(site: Site) -> None:
    node_says(first_node().id, "imagenet")
    client = Client()
    client.force_login(site.people["operator"])

    text = flat(client.get(f"/ops/fleet/{first_node().name}").content.decode())

    assert "Data sets" in text
    assert re.search(r"imagenet</th><td[^>]*>146 GiB", text)


@pytest.mark.parametrize(
    ("size", "words"),
    [(None, ""), (0, "0 MiB"), (999, "999 MiB"), (1_000, "0.977 GiB"), (150_000, "146 GiB")],
)
def test_sizes_for_people(size: int | None, words: str) -> None:
    assert size_words(size) == words


def test_times_are_utc(site: Site) -> None:
    node_says(first_node().id, "imagenet")
    with as_system():
        (row,) = data_of_site(NOW)
    assert row.used == datetime.fromtimestamp(int(NOW.timestamp()) - 60, UTC)
