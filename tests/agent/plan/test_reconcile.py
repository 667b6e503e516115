"""The difference between desired and there, as a table."""

import dataclasses

import pytest

from agent.plan.reconcile import Plan, Problem, plan
from agent.plan.steps import (
    Create,
    Destroy,
    EndProcesses,
    HandOver,
    SetMode,
    Step,
    TakeBack,
)
from agent.plan.targets import Record, gpu_targets, records_of
from agent.ports.gpu import FoundInstance, Place, Truth
from tests.agent.builders import HOUR, NOW, a_document, a_slice, a_whole, cases
from wire import DesiredAllocation, Mode

GPU = "GPU-1"
SLICE = a_slice("a1")
NEXT = a_slice("a2", booking="BK-2", starts=NOW + 10)
WHOLE = a_whole("w1")
GONE = dataclasses.replace(SLICE, state="release")
LATE = a_slice("a1", starts=NOW - HOUR, ends=NOW)


def there(
    number: int = 1,
    *,
    slot: int = 0,
    profile_id: int = 14,
    size: int = 2,
    uuid: str | None = "MIG-1",
    processes: int | None = 0,
) -> FoundInstance:
    return FoundInstance(number, Place(profile_id, slot, size), "2g.20gb", uuid, processes)


def sliced(*instances: FoundInstance) -> Truth:
    return Truth(GPU, "sliced", instances)


def whole(processes: int | None = 0) -> Truth:
    return Truth(GPU, "whole", processes=processes)


def held(allocation: DesiredAllocation, *, given: bool = True, emptied: bool = False) -> Record:
    return Record(allocation, GPU, given=given, emptied=emptied)


def planned(
    wanted: list[DesiredAllocation],
    truth: Truth,
    *,
    records: tuple[Record, ...] = (),
    given: dict[str, str] | None = None,
    mode: Mode | None = None,
    problems: dict[str, Problem] | None = None,
) -> Plan:
    """One pass at NOW."""
    desired = a_document({GPU: wanted}, mode=mode)
    kept = records_of(desired, {h.allocation.id: h for h in records}, NOW)
    (target,) = gpu_targets(desired, kept, NOW)
    return plan(target, truth, given or {}, problems or {})


AT = Place(14, 0, 2)


@pytest.mark.parametrize(
    ("wanted", "truth", "records", "given", "steps", "states"),
    cases(
        {
            "a slice that is not there is made": (
                [SLICE],
                sliced(),
                (),
                {},
                [Create("a1", AT)],
                {"a1": "preparing"},
            ),
            "a slice before its start is left alone": (
                [NEXT],
                sliced(),
                (),
                {},
                [],
                {},
            ),
            "an empty slice that fits is adopted": (
                [SLICE],
                sliced(there()),
                (),
                {},
                [HandOver(SLICE, "MIG-1")],
                {"a1": "preparing"},
            ),
            "a slice that was handed over is ready": (
                [SLICE],
                sliced(there(processes=1)),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [],
                {"a1": "ready"},
            ),
            "a slice in use whose folder was lost is handed over again": (
                [SLICE],
                sliced(there(processes=1)),
                (held(SLICE),),
                {},
                [HandOver(SLICE, "MIG-1")],
                {"a1": "preparing"},
            ),
            "a slice that came back under another name is handed over anew": (
                [SLICE],
                sliced(there(uuid="MIG-2")),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [HandOver(SLICE, "MIG-2")],
                {"a1": "preparing"},
            ),
            "a slice that a reboot took is made again": (
                [SLICE],
                sliced(),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [Create("a1", AT)],
                {"a1": "preparing"},
            ),
            "a half-made slice is removed first": (
                [SLICE],
                sliced(there(uuid=None)),
                (),
                {},
                [Destroy(1, "a1")],
                {"a1": "preparing"},
            ),
            "an idle slice of nobody is removed when it is in the way": (
                [SLICE],
                sliced(there(slot=0, size=4, profile_id=9)),
                (),
                {},
                [Destroy(1, "a1")],
                {"a1": "preparing"},
            ),
            "a used slice of nobody is never removed": (
                [SLICE],
                sliced(there(slot=0, size=4, profile_id=9, processes=2)),
                (),
                {},
                [],
                {"a1": "preparing"},
            ),
            "a slice of nobody whose processes can't be counted is never removed": (
                [SLICE],
                sliced(there(slot=0, size=4, profile_id=9, processes=None)),
                (),
                {},
                [],
                {"a1": "preparing"},
            ),
            "a slice of nobody with a process is not handed to someone else": (
                [SLICE],
                sliced(there(processes=1)),
                (),
                {},
                [],
                {"a1": "preparing"},
            ),
            "a slice of nobody that is not in the way stays": (
                [SLICE],
                sliced(there(slot=4)),
                (),
                {},
                [Create("a1", AT)],
                {"a1": "preparing"},
            ),
            "a released slice is taken back before it is removed": (
                [GONE],
                sliced(there()),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [TakeBack("a1"), Destroy(1, "a1")],
                {"a1": "ending"},
            ),
            "a released slice in use is asked to end first": (
                [GONE],
                sliced(there(processes=1)),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [TakeBack("a1"), EndProcesses("a1", 1)],
                {"a1": "ending"},
            ),
            "a released slice that is gone is empty": (
                [GONE],
                sliced(),
                (held(SLICE),),
                {},
                [],
                {"a1": "empty"},
            ),
            "a released slice is not empty while its folder is there": (
                [GONE],
                sliced(),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [TakeBack("a1")],
                {"a1": "ending"},
            ),
            "a slice past its end goes without a release": (
                [LATE],
                sliced(there()),
                (held(LATE),),
                {"a1": "MIG-1"},
                [TakeBack("a1"), Destroy(1, "a1")],
                {"a1": "ending"},
            ),
            "a slice that vanished from the document goes": (
                [],
                sliced(there()),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [TakeBack("a1"), Destroy(1, "a1")],
                {"a1": "ending"},
            ),
            "a release of what never began touches nothing": (
                [dataclasses.replace(NEXT, state="release")],
                sliced(there(processes=1)),
                (),
                {},
                [],
                {"a2": "empty"},
            ),
            "a release over a running booking touches nothing": (
                [SLICE, dataclasses.replace(GONE, id="a0")],
                sliced(there(processes=1)),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [],
                {"a0": "empty", "a1": "ready"},
            ),
            "a release whose records were lost still ends what is there": (
                [GONE],
                sliced(there(processes=1)),
                (),
                {},
                [EndProcesses("a1", 1)],
                {"a1": "ending"},
            ),
            "the next booking waits until the last has left": (
                [a_slice("a0", booking="BK-9"), GONE],
                sliced(there()),
                (held(SLICE),),
                {},
                [Destroy(1, "a1")],
                {"a0": "preparing", "a1": "ending"},
            ),
            "the next booking starts as soon as the last is proven gone": (
                [a_slice("a0", booking="BK-9"), GONE],
                sliced(),
                (held(SLICE, emptied=True),),
                {},
                [Create("a0", AT)],
                {"a0": "preparing", "a1": "empty"},
            ),
            "a neighbour's end does not keep a booking waiting": (
                [a_slice("a0", slot=2), GONE],
                sliced(there(processes=1)),
                (held(SLICE),),
                {},
                [EndProcesses("a1", 1), Create("a0", Place(14, 2, 2))],
                {"a0": "preparing", "a1": "ending"},
            ),
            "an extended booking that had ended starts again": (
                [SLICE],
                sliced(),
                (held(LATE, emptied=True),),
                {},
                [Create("a1", AT)],
                {"a1": "preparing"},
            ),
            "a moved booking leaves its old place first": (
                [a_slice("a1", slot=4)],
                sliced(there()),
                (held(SLICE),),
                {"a1": "MIG-1"},
                [TakeBack("a1"), Destroy(1, "a1")],
                {"a1": "ending"},
            ),
            "a moved booking that has left takes its new place": (
                [a_slice("a1", slot=4)],
                sliced(),
                (held(SLICE, emptied=True),),
                {},
                [Create("a1", Place(14, 4, 2))],
                {"a1": "preparing"},
            ),
            "a whole GPU is handed over": (
                [WHOLE],
                whole(),
                (),
                {},
                [HandOver(WHOLE, GPU)],
                {"w1": "preparing"},
            ),
            "a whole GPU in use by its booking is ready": (
                [WHOLE],
                whole(3),
                (held(WHOLE),),
                {"w1": GPU},
                [],
                {"w1": "ready"},
            ),
            "a whole GPU with an unbooked process is not handed over": (
                [WHOLE],
                whole(1),
                (),
                {},
                [],
                {"w1": "preparing"},
            ),
            "a whole GPU whose processes can't be counted is not handed over": (
                [WHOLE],
                whole(None),
                (),
                {},
                [],
                {"w1": "preparing"},
            ),
            "a released whole GPU is empty when no process is left": (
                [dataclasses.replace(WHOLE, state="release")],
                whole(),
                (held(WHOLE),),
                {},
                [],
                {"w1": "empty"},
            ),
            "a released whole GPU in use is asked to end": (
                [dataclasses.replace(WHOLE, state="release")],
                whole(1),
                (held(WHOLE),),
                {},
                [EndProcesses("w1", None)],
                {"w1": "ending"},
            ),
            "a released whole GPU whose processes can't be counted is not empty": (
                [dataclasses.replace(WHOLE, state="release")],
                whole(None),
                (held(WHOLE),),
                {},
                [],
                {"w1": "ending"},
            ),
            "a released whole GPU that was never given leaves unbooked processes alone": (
                [dataclasses.replace(WHOLE, state="release")],
                whole(1),
                (held(WHOLE, given=False),),
                {},
                [],
                {"w1": "empty"},
            ),
            "an empty GPU is switched before slices are made": (
                [SLICE],
                whole(),
                (),
                {},
                [SetMode("sliced")],
                {"a1": "preparing"},
            ),
            "a GPU with an unbooked process is not switched": (
                [SLICE],
                whole(1),
                (),
                {},
                [],
                {"a1": "preparing"},
            ),
            "idle slices of nobody go before a switch": (
                [WHOLE],
                sliced(there()),
                (),
                {},
                [Destroy(1, None)],
                {"w1": "preparing"},
            ),
            "used slices of nobody keep the mode": (
                [WHOLE],
                sliced(there(processes=1)),
                (),
                {},
                [],
                {"w1": "preparing"},
            ),
            "the mode stays until the last slice is given back": (
                [WHOLE],
                sliced(there()),
                (held(SLICE),),
                {},
                [Destroy(1, "a1")],
                {"a1": "ending", "w1": "preparing"},
            ),
        }
    ),
)
def test_what_is_done_next(
    wanted: list[DesiredAllocation],
    truth: Truth,
    records: tuple[Record, ...],
    given: dict[str, str],
    steps: list[Step],
    states: dict[str, str],
) -> None:
    mode: Mode = "whole" if any(a.profile_id is None for a in wanted) else "sliced"
    found = planned(wanted, truth, records=records, given=given, mode=mode)

    assert found.steps == steps
    assert {name: state.state for name, state in found.states.items()} == states


def test_a_stranger_in_the_way_is_named_as_the_reason() -> None:
    found = planned([SLICE], sliced(there(slot=0, size=4, profile_id=9, processes=2)))

    assert found.states["a1"].error == "an unbooked slice with a process is in the way"


def test_waiting_for_another_booking_names_it() -> None:
    found = planned([a_slice("a0"), GONE], sliced(there()), records=(held(SLICE),))

    assert found.states["a0"].error == "waits until BK-2041 has left"


def test_of_two_claims_on_one_place_the_running_one_stays_and_the_other_waits() -> None:
    found = planned(
        [SLICE, a_slice("a0", booking="BK-9")],
        sliced(there(processes=1)),
        records=(held(SLICE),),
        given={"a1": "MIG-1"},
    )

    assert found.steps == []
    assert found.states["a1"].state == "ready"
    assert found.states["a0"].state == "preparing"


def test_a_whole_booking_on_a_gpu_that_shall_be_sliced_fails() -> None:
    found = planned([WHOLE], sliced(), mode="sliced")

    assert found.steps == []
    assert found.states["w1"].state == "failed"


def test_what_failed_for_good_is_not_tried_again() -> None:
    lasting = {"a1": Problem("the driver knows no such place", lasting=True)}
    found = planned([SLICE], sliced(), problems=lasting)

    assert found.steps == []
    assert found.states["a1"].state == "failed"
    assert found.states["a1"].error == "the driver knows no such place"


def test_what_failed_for_now_is_tried_again_and_says_why() -> None:
    found = planned([SLICE], sliced(), problems={"a1": Problem("busy")})

    assert found.steps == [Create("a1", AT)]
    assert (found.states["a1"].state, found.states["a1"].error) == ("preparing", "busy")


def test_a_gpu_of_no_document_is_left_as_it_is() -> None:
    desired = a_document({})
    (target,) = gpu_targets(desired, {"a1": held(SLICE, emptied=True)}, NOW)
    found = plan(target, sliced(there(slot=4)), {}, {})

    assert (target.mode, found.steps) == (None, [])
    assert found.states["a1"].state == "empty"
