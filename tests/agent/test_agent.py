"""The whole agent on simulated GPUs and a clock that tests move; no sockets."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import wire
from agent.act.endings import KILL_AFTER_S
from agent.ports.link import Connected
from devtools.simulated.programs import SimulatedUsers
from tests.agent.builders import (
    HOUR,
    KEY,
    KEYS,
    NODE,
    NOW,
    Rig,
    a_document,
    a_rig,
    a_slice,
    a_whole,
)


def environment(rig: Rig, state: Path, booking: str = "BK-2041", name: str = "a1") -> dict[str, str]:
    text = (state / "bookings" / f"biology.{booking}" / name / "env").read_text()
    return dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines())


def test_a_booking_gets_its_slice_and_its_owner_gets_the_device(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}, generation=3))

    report = rig.sent.report()
    (found,) = report.allocations
    assert (found.id, found.state, found.error, found.since) == ("a1", "ready", None, NOW)
    assert rig.instances() == [("2g.20gb", 0)]
    assert report.observed_generation == 3
    (instance,) = report.gpus[0].instances
    assert found.devices == (instance.uuid,)
    assert instance.allocation == "a1"
    assert environment(rig, tmp_path)["CUDA_VISIBLE_DEVICES"] == instance.uuid
    described = json.loads((tmp_path / "bookings/biology.BK-2041/a1/booking.json").read_text())
    assert (described["owner"], described["ends"]) == ("ada", NOW + HOUR)


def test_a_whole_gpu_is_handed_over_as_it_is(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))

    assert rig.sent.states() == {"w1": "ready"}
    assert environment(rig, tmp_path, "BK-7", "w1")["CUDA_VISIBLE_DEVICES"] == rig.gpu


def test_every_gpu_is_reported_even_if_no_document_names_it(rig: Rig) -> None:
    rig.agent.turn(rig.sent)

    assert [gpu.uuid for gpu in rig.sent.report().gpus] == [g.uuid for g in rig.hardware.gpus]
    assert rig.sent.report().allocations == ()


def test_nothing_is_made_before_its_start(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice(starts=NOW + 60)]}))
    assert rig.sent.states() == {}

    assert rig.agent.wait_s() <= 5
    rig.later(59)
    assert rig.instances() == []
    assert rig.agent.wait_s() == 1
    rig.later(1)
    assert rig.sent.states() == {"a1": "ready"}


def test_a_booking_ends_on_the_agents_own_clock_without_any_word(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_slice(ends=NOW + 3)]}))
    assert rig.agent.wait_s() == 3
    rig.later(2)
    assert rig.instances() == [("2g.20gb", 0)]
    rig.later(1)

    assert rig.sent.states() == {"a1": "empty"}
    assert rig.instances() == []
    assert not (tmp_path / "bookings" / "biology.BK-2041").exists()


def test_a_neighbour_is_not_touched_when_a_booking_ends(rig: Rig) -> None:
    neighbour = a_slice("a2", slot=2, booking="BK-2")
    rig.desire(a_document({rig.gpu: [a_slice(ends=NOW + 3), neighbour]}))
    rig.hardware.process_start(rig.sent.report().allocations[1].devices[0], label="a2")
    rig.later(3)

    assert rig.sent.states() == {"a1": "empty", "a2": "ready"}
    assert len(rig.hardware.gpus[0].processes) == 1


def test_a_program_is_asked_to_end_and_killed_if_it_does_not(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    device = rig.sent.report().allocations[0].devices[0]
    rig.hardware.process_start(device, label="x", stubborn=True)
    rig.hardware.process_start(device, label="y")

    rig.desire(a_document({rig.gpu: [a_slice(state="release")]}, generation=2))
    assert rig.sent.states() == {"a1": "ending"}
    assert [p.label for p in rig.hardware.gpus[0].processes.values()] == ["x"]
    assert rig.agent.wait_s() <= 0.25

    rig.later(KILL_AFTER_S - 0.5)
    assert rig.sent.states() == {"a1": "ending"}
    rig.later(0.5)
    assert rig.sent.states() == {"a1": "empty"}
    assert rig.instances() == []


def test_empty_is_said_as_long_as_the_document_names_it_and_then_no_more(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    rig.desire(a_document({rig.gpu: [a_slice(state="release")]}, generation=2))
    assert rig.sent.states() == {"a1": "empty"}
    rig.delivered()
    rig.later(60)
    assert rig.sent.states() == {"a1": "empty"}

    rig.desire(a_document({rig.gpu: []}, generation=3, mode="sliced"))
    assert rig.sent.states() == {"a1": "empty"}
    rig.delivered()
    rig.later(60)
    assert rig.sent.states() == {}


def test_what_vanished_is_said_to_be_empty_until_that_was_delivered(tmp_path: Path) -> None:
    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [a_slice()]}))
        rig.desire(a_document({rig.gpu: []}, generation=2, mode="sliced"))
        assert rig.sent.states() == {"a1": "empty"}
    with a_rig(tmp_path, at=NOW + 60) as rig:
        rig.agent.turn(rig.sent)
        assert rig.sent.states() == {"a1": "empty"}
        rig.delivered()
        rig.later(60)
        assert rig.sent.states() == {}


def test_after_kill_and_restart_running_slices_are_adopted_as_they_are(tmp_path: Path) -> None:
    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [a_slice()]}))
        before = rig.sent.report()
        rig.hardware.process_start(before.allocations[0].devices[0], label="a1")
    with a_rig(tmp_path, at=NOW + 60) as rig:
        made = dict(rig.hardware.gpus[0].instances)
        rig.agent.turn(rig.sent)
        after = rig.sent.report()

        # The steps of the first agent were for its own reports.
        same = tuple(dataclasses.replace(each, steps=()) for each in before.allocations)
        assert after.allocations == same
        assert rig.hardware.gpus[0].instances == made
        assert len(rig.hardware.gpus[0].processes) == 1
        assert after.seq > before.seq


def test_after_a_restart_past_the_end_the_booking_is_ended_without_the_portal(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [a_slice()]}))
    with a_rig(tmp_path, at=NOW + HOUR) as rig:
        rig.agent.turn(rig.sent)

        assert rig.sent.states() == {"a1": "empty"}
        assert rig.instances() == []


def test_after_a_reboot_slices_are_made_again_and_handed_over_anew(tmp_path: Path) -> None:
    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [a_slice()]}))
    (tmp_path / "simulated.json").unlink()
    with a_rig(tmp_path, at=NOW + 60) as rig:
        assert rig.instances() == []
        rig.agent.turn(rig.sent)

        assert rig.sent.states() == {"a1": "ready"}
        assert rig.instances() == [("2g.20gb", 0)]


def test_a_gpu_goes_from_slices_to_whole_and_back_as_bookings_come_and_go(rig: Rig) -> None:
    first = a_slice(ends=NOW + 10)
    then = a_whole(starts=NOW + 10, ends=NOW + 20)
    last = a_slice("a3", slot=4, starts=NOW + 20)
    rig.desire(a_document({rig.gpu: [first]}))
    rig.desire(a_document({rig.gpu: [first, then]}, generation=2, mode="sliced"))
    rig.later(10)
    assert rig.sent.states() == {"a1": "empty", "w1": "failed"}

    rig.desire(a_document({rig.gpu: [then]}, generation=3))
    assert rig.sent.states() == {"a1": "empty", "w1": "ready"}
    rig.later(10)
    rig.desire(a_document({rig.gpu: [last]}, generation=4))
    assert rig.sent.states()["a3"] == "ready"
    assert rig.instances() == [("2g.20gb", 4)]


@pytest.mark.turn
def test_no_two_claims_ever_meet_on_the_hardware_over_a_day_of_turnover(rig: Rig) -> None:
    """Back-to-back bookings on one place: each starts only when the last is proven gone."""
    wanted = [
        a_slice(f"a{n}", booking=f"BK-{n}", starts=NOW + n * HOUR, ends=NOW + (n + 1) * HOUR)
        for n in range(24)
    ]
    rig.desire(a_document({rig.gpu: wanted}))
    for hour in range(24):
        ready = [name for name, state in rig.sent.states().items() if state == "ready"]
        assert ready == [f"a{hour}"]
        assert rig.instances() == [("2g.20gb", 0)]
        rig.later(HOUR)
    assert set(rig.sent.states().values()) == {"empty"}


def test_a_crash_right_after_a_turnover_does_not_harm_the_next_booking(tmp_path: Path) -> None:
    first, then = a_slice("a0", ends=NOW + 60), a_slice("a1", starts=NOW + 60)
    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [first, then]}))
        rig.later(60)
        (device,) = rig.sent.report().allocations[1].devices
        rig.hardware.process_start(device, label="a1")
    with a_rig(tmp_path, at=NOW + 61) as rig:
        rig.agent.turn(rig.sent)

        assert rig.sent.states() == {"a0": "empty", "a1": "ready"}
        assert len(rig.hardware.gpus[0].processes) == 1


def test_a_quiet_node_says_nothing_new_but_a_heartbeat(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    rig.sent.outgoing.clear()
    for _ in range(10):
        rig.later(5)

    assert len(rig.sent.messages("heartbeat")) == 10
    assert len(rig.sent.messages("telemetry")) == 5
    assert rig.sent.messages("report") == []
    rig.later(10)
    assert len(rig.sent.messages("report")) == 1


def test_after_redis_was_away_inventory_and_report_are_said_again(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    rig.sent.outgoing.clear()
    rig.agent.handle(Connected(), rig.sent)
    rig.agent.turn(rig.sent)

    (inventory,) = rig.sent.messages("inventory")
    assert isinstance(inventory, wire.Inventory)
    assert (inventory.hostname, len(inventory.gpus)) == (NODE, 2)
    assert rig.sent.states() == {"a1": "ready"}


def test_telemetry_names_the_allocation_and_leaves_out_what_is_unknown(tmp_path: Path) -> None:
    with a_rig(tmp_path, owners=lambda hardware: (SimulatedUsers(hardware),)) as rig:
        rig.desire(a_document({rig.gpu: [a_slice()], rig.hardware.gpus[1].uuid: [a_whole()]}))
        rig.later(30)
        rig.later(30)
        last = rig.sent.messages("telemetry")[-1]

    assert isinstance(last, wire.Telemetry)
    parent, part, whole = last.samples
    assert (parent.utilisation, parent.processes, parent.allocation) == (None, None, None)
    assert (part.allocation, part.slot, part.size, part.processes) == ("a1", 0, 2, 1)
    assert part.power_mw is None
    assert (whole.allocation, whole.slot, whole.processes) == ("w1", None, 1)
    assert whole.power_mw is not None


def test_of_too_many_readings_those_of_bookings_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "SAMPLES_MAX", 1)
    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.hardware.gpus[1].uuid: [a_whole()]}))
        rig.later(30)
        last = rig.sent.messages("telemetry")[-1]

    assert isinstance(last, wire.Telemetry)
    assert [sample.allocation for sample in last.samples] == ["w1"]


def test_the_largest_telemetry_fits_a_message_many_times() -> None:
    values: dict[str, Any] = {field.name: 1 << 40 for field in dataclasses.fields(wire.Sample)}
    full = wire.Sample(**{**values, "gpu": "GPU-" + "f" * 36, "allocation": "f" * 32})
    telemetry = wire.Telemetry(sent_at=NOW, samples=(full,) * wire.SAMPLES_MAX)
    assert len(wire.seal(telemetry, key=KEY, key_version=1).body) < wire.MAX_BYTES / 4


def test_simulated_people_start_programs_and_leave_when_asked(tmp_path: Path) -> None:
    with a_rig(tmp_path, owners=lambda hardware: (SimulatedUsers(hardware),)) as rig:
        rig.desire(a_document({rig.gpu: [a_whole(ends=NOW + 60)]}))
        rig.later(30)
        assert rig.node.port.truth(rig.gpu).processes == 1
        rig.later(30)
        assert rig.sent.states() == {"w1": "empty"}
        assert rig.node.port.truth(rig.gpu).processes == 0


def test_a_program_that_was_about_to_start_does_not_outlive_its_booking(tmp_path: Path) -> None:
    with a_rig(tmp_path, owners=lambda hardware: (SimulatedUsers(hardware),)) as rig:
        rig.desire(a_document({rig.gpu: [a_whole(ends=NOW + 1)]}))
        rig.later(1)
        rig.later(60)

        assert rig.node.port.truth(rig.gpu).processes == 0


def test_every_message_is_signed_with_the_newest_key(tmp_path: Path) -> None:
    with a_rig(tmp_path, keys={1: KEY, 2: b"n" * 32}) as rig:
        rig.agent.turn(rig.sent)

        assert {o.envelope.key_version for o in rig.sent.outgoing} == {2}
        with pytest.raises(wire.WireError, match="unknown_key"):
            wire.open_report(rig.sent.outgoing[0].envelope, KEYS)
