"""Messages: what goes in comes out, and nothing else comes out."""

import dataclasses
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wire
from tests.agent.builders import KEY, KEYS, NOW, a_document, a_slice, a_whole, cases, signed
from wire import envelope

INVENTORY = wire.Inventory(
    hostname="n1",
    driver="580",
    agent="0.1.0",
    boot="b",
    cores=12,
    memory_mb=1024,
    gpus=(
        wire.InventoryGpu(
            index=0,
            uuid="GPU-1",
            name="NVIDIA H100 80GB HBM3",
            memory_mb=81559,
            mig_capable=True,
            mode="whole",
            numa=None,
            pci="00000000:10:00.0",
            nvlink_domain=0,
            placements=(wire.Placement(profile="1g.10gb", profile_id=19, start=0, size=1, compute=1, max=7),),
        ),
    ),
)
REPORT = wire.Report(
    epoch=1,
    observed_generation=2,
    seq=3,
    gpus=(wire.ReportedGpu(uuid="GPU-1", mode="whole", error="busy"),),
    allocations=(wire.ReportedAllocation(id="a1", state="ready", devices=("MIG-1",), error=None, since=NOW),),
)
HEARTBEAT = wire.Heartbeat(seq=1, observed_generation=2, sent_at=NOW)
TELEMETRY = wire.Telemetry(
    sent_at=NOW,
    samples=(
        wire.Sample(
            gpu="GPU-1",
            slot=None,
            size=None,
            allocation=None,
            utilisation=None,
            memory_used_mb=5,
            memory_total_mb=None,
            power_mw=1,
            temperature_c=-3,
            processes=0,
        ),
    ),
)
DESIRED = a_document({"GPU-1": [a_slice()], "GPU-2": [a_whole()]})


def resigned(body: bytes) -> wire.Envelope:
    """As a portal with a bug, or with a newer program, would sign it."""
    return wire.Envelope(body, 1, envelope._mac(body, KEY))


def changed(desired: wire.Desired, **values: object) -> wire.Envelope:
    return resigned(envelope._canonical({**json.loads(signed(desired).body), **values}))


@pytest.mark.parametrize("message", [INVENTORY, REPORT, HEARTBEAT, TELEMETRY], ids=lambda m: m.kind)
def test_what_an_agent_says_comes_out_of_the_stream_as_it_went_in(message: wire.FromAgent) -> None:
    fields = wire.seal(message, key=KEY, key_version=1).to_fields()
    as_redis_returns = {k.encode(): v if isinstance(v, bytes) else v.encode() for k, v in fields.items()}

    assert wire.open_report(wire.Envelope.from_fields(as_redis_returns), KEYS) == message


def test_a_desired_state_comes_out_of_its_key_as_it_went_in() -> None:
    raw = signed(DESIRED).to_json()

    assert wire.open_desired(wire.Envelope.from_json(raw), KEYS) == DESIRED


def test_an_inventory_survives_plain_json() -> None:
    plain = json.loads(json.dumps(wire.inventory_to_plain(INVENTORY)))

    assert wire.inventory_from_plain(plain) == INVENTORY


def test_the_same_message_gives_the_same_bytes_under_any_hash_seed() -> None:
    program = (
        "from tests.agent.builders import *;"
        "print(signed(a_document({'GPU-1': [a_slice()], 'GPU-2': [a_whole()]})).sha256())"
    )
    sums = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert sums == {signed(DESIRED).sha256()}


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    good = signed(DESIRED)
    at = data.draw(st.integers(0, len(good.body) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != good.body[at]))
    bad = dataclasses.replace(good, body=good.body[:at] + bytes([byte]) + good.body[at + 1 :])

    with pytest.raises(wire.WireError) as refused:
        wire.open_desired(bad, KEYS)
    assert refused.value.reason == "bad_mac"


@given(st.binary(max_size=200))
def test_no_bytes_make_the_envelope_reader_fail_in_another_way(raw: bytes) -> None:
    with pytest.raises(wire.WireError) as refused:
        wire.Envelope.from_json(raw)
    assert refused.value.reason == "malformed"


@pytest.mark.parametrize(
    ("envelope", "reason"),
    cases(
        {
            "signed with another key": (signed(DESIRED, key=b"x" * 32), "bad_mac"),
            "an empty signature": (wire.Envelope(signed(DESIRED).body, 1, ""), "bad_mac"),
            "a signature that is no hex": (wire.Envelope(signed(DESIRED).body, 1, "é"), "bad_mac"),
            "an unknown key version": (wire.seal(DESIRED, key=KEY, key_version=2), "unknown_key"),
            "a newer version": (changed(DESIRED, version=2), "unknown_version"),
            "true for a version": (changed(DESIRED, version=True), "unknown_version"),
            "an unknown field": (changed(DESIRED, force=1), "unknown_field"),
            "a report for a desired state": (
                wire.seal(REPORT, key=KEY, key_version=1),
                "unknown_kind",
            ),
            "no kind": (resigned(b'{"version":1}'), "malformed"),
            "no JSON": (resigned(b"{"), "malformed"),
            "no object": (resigned(b"[]"), "malformed"),
            "no UTF-8": (resigned(b"\xff"), "malformed"),
            "nested too deep": (resigned(b"[" * 100_000), "malformed"),
            "a name twice": (resigned(b'{"kind":"desired","kind":"desired"}'), "malformed"),
            "text for a number": (changed(DESIRED, epoch="1"), "malformed"),
            "true for a number": (changed(DESIRED, epoch=True), "malformed"),
            "a fraction": (changed(DESIRED, epoch=1.5), "malformed"),
            "not a number": (changed(DESIRED, epoch=float("nan")), "malformed"),
            "a number beyond 64 bits": (changed(DESIRED, epoch=1 << 63), "malformed"),
            "null where something must be": (changed(DESIRED, node=None), "malformed"),
            "a path for a node": (changed(DESIRED, node="../x"), "malformed"),
            "an object for a list": (changed(DESIRED, gpus={}), "malformed"),
            "too large": (resigned(b" " * (wire.MAX_BYTES + 1)), "too_large"),
        }
    ),
)
def test_a_desired_state_is_refused_with_its_reason(envelope: wire.Envelope, reason: str) -> None:
    with pytest.raises(wire.WireError) as refused:
        wire.open_desired(envelope, KEYS)
    assert refused.value.reason == reason


@pytest.mark.parametrize("name", ["", ".", "..", "../../etc", "a/b", "a\n", "a:b", "x" * 65])
def test_names_that_could_leave_their_folder_or_key_are_refused(name: str) -> None:
    bad = a_document({"GPU-1": [dataclasses.replace(a_slice(), booking=name)]})

    with pytest.raises(wire.WireError, match="booking"):
        wire.open_desired(signed(bad), KEYS)


def test_a_message_over_the_limit_is_not_even_signed() -> None:
    many = a_document({"GPU-1": [a_slice(f"a{n}") for n in range(8000)]})

    with pytest.raises(wire.WireError, match="too_large"):
        signed(many)


@pytest.mark.parametrize(
    "fields",
    [
        {"body": b"{}", "key": b"1"},
        {"body": b"{}", "key": b"one", "mac": b""},
        {"body": b"{}", "key": b"1", "mac": b"\xff"},
        {"body": b"{}", "key": b"1", "mac": b"", "more": b""},
    ],
    ids=str,
)
def test_stream_entries_that_are_no_envelopes_are_refused(fields: dict[str, bytes]) -> None:
    with pytest.raises(wire.WireError, match="malformed"):
        wire.Envelope.from_fields(fields)


@pytest.mark.parametrize("hidden", ["", "zz" * 32, "ab" * 31, "AB" * 32, "ab" * 33])
def test_what_can_not_be_a_hidden_key_is_refused(hidden: str) -> None:
    with pytest.raises(wire.WireError, match="malformed"):
        wire.key_unwrap(old=KEY, hidden=hidden, node="n1", version=2)


def test_a_hidden_key_is_hidden_in_another_way_for_each_node_version_and_old_key() -> None:
    new = b"n" * 32
    hidden = {
        wire.key_wrap(old=old, new=new, node=node, version=version)
        for old in (KEY, b"o" * 32)
        for node in ("n1", "n2")
        for version in (2, 3)
    }

    assert len(hidden) == 8
    assert new.hex() not in hidden


def test_a_field_that_came_later_is_not_written_where_it_says_nothing() -> None:
    turning = dataclasses.replace(DESIRED, rotation=wire.Rotation(version=2, hidden="ab" * 32))

    assert b"rotation" not in signed(DESIRED).body
    assert wire.open_desired(signed(turning), KEYS) == turning


def test_what_belongs_to_pauses_and_shares_comes_out_as_it_went_in_and_is_else_not_written() -> None:
    notice = wire.Notice(id="p1", told=NOW, at=NOW + 60, method="suspend")
    paused = dataclasses.replace(a_whole(), notice=notice, ends=NOW + 60)
    shared = dataclasses.replace(a_whole("s1"), share=250, resumes="s0")
    desired = a_document({"GPU-1": [paused], "GPU-2": [shared]}, mode="shared")
    for full in (desired, dataclasses.replace(desired, suspended=())):
        assert wire.open_desired(signed(full), KEYS) == full
    steps = (wire.PreparedStep(name="slice", began=NOW * 1000 + 7, took=940),)
    reported = dataclasses.replace(REPORT.allocations[0], noticed=1, saved=2, suspended=True, steps=steps)
    report = dataclasses.replace(REPORT, allocations=(reported,))
    assert wire.open_report(wire.seal(report, key=KEY, key_version=1), KEYS) == report
    for word in (b"notice", b"share", b"resumes", b"suspended"):
        assert word not in signed(DESIRED).body
    assert b"steps" not in wire.seal(REPORT, key=KEY, key_version=1).body


def test_each_node_and_key_version_has_its_own_key() -> None:
    master = b"m" * 32
    made = {wire.node_key(master, node, version) for node in ("n1", "n11") for version in (1, 11)}

    assert len(made) == 4
    assert wire.node_key(master, "n1", 1) == wire.node_key(master, "n1", 1)
