"""What holds work up: each signature with its evidence, and no verdict on what was not measured."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from allocation.rules.nodes.diagnosis import Kind, Moment, bottleneck_of
from tests.rings import holds_for

WORK = Moment(60, 60, 60, 70, 80, 30, 30, 100_000, 0)


def a_window(**values: float | None) -> list[Moment]:
    return [replace(WORK, **values)] * 30  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("idle", {"busy_min": 0, "busy": 0.5, "busy_max": 1}),
        ("throttled", {"throttled": 30}),
        ("memory", {"bandwidth": 80, "tensor": 8}),
        ("memory", {"bandwidth": 80, "tensor": None}),
        ("input", {"busy_min": 8, "busy": 43, "busy_max": 78, "pcie_kb": 7 << 20}),
        ("input", {"busy_min": 8, "busy": 43, "busy_max": 78, "pcie_kb": None}),
        ("compute", {"tensor": 50}),
        ("compute", {"busy": 95, "tensor": None}),
        ("steady", {}),
        ("steady", {"busy_min": 8, "busy_max": 78, "pcie_kb": 1000}),
    ],
)
def test_each_signature_is_recognised(kind: Kind, values: dict[str, float | None]) -> None:
    found = bottleneck_of(a_window(**values))
    assert found.kind == kind
    assert found.evidence


def test_a_sentence_names_the_numbers_it_rests_on() -> None:
    found = bottleneck_of(a_window(busy_min=8, busy=43, busy_max=78, pcie_kb=7 << 20))
    assert "70 points" in found.sentence
    assert "7.0 GiB/s" in found.sentence
    assert ("pcie_gib", 7.0) in found.evidence


IDLE = replace(WORK, busy_min=0, busy=0, busy_max=0)
UNKNOWN = Moment(60, 0)


def test_one_moment_that_was_not_measured_is_enough_to_not_call_it_idle() -> None:
    assert bottleneck_of([IDLE] * 30).kind == "idle"
    assert bottleneck_of([IDLE] * 29 + [UNKNOWN]).kind == "unknown"
    assert bottleneck_of([replace(IDLE, measured=40)] * 30).kind == "unknown"
    assert bottleneck_of([replace(IDLE, measured=55)] * 30).kind == "unknown"


def test_nothing_and_too_little_say_nothing() -> None:
    for window in ([], [UNKNOWN] * 50, [IDLE] * 9, [WORK] * 15 + [UNKNOWN] * 15):
        assert bottleneck_of(window).kind == "unknown"


def test_a_signal_that_was_seldom_measured_does_not_speak_for_all() -> None:
    seldom = [replace(WORK, bandwidth=95, tensor=1)] * 5
    assert bottleneck_of(seldom + a_window(bandwidth=None, tensor=None)[5:]).kind == "steady"


percent = st.none() | st.floats(0, 100)


@holds_for(
    st.lists(
        st.builds(
            Moment,
            seconds=st.just(60),
            measured=st.integers(0, 60),
            busy_min=percent,
            busy=percent,
            busy_max=percent,
            bandwidth=percent,
            tensor=percent,
            pcie_kb=st.none() | st.floats(0, 1e9),
            throttled=st.none() | st.integers(0, 60),
        ),
        max_size=20,
    ),
    few=100,
    many=1_000,
)
def test_idle_is_never_said_of_a_window_with_an_unknown_moment(window: list[Moment]) -> None:
    found = bottleneck_of(window)
    if found.kind == "idle":
        assert all(m.measured and m.busy is not None and m.busy < 5 for m in window)


@pytest.mark.parametrize(
    ("cpu", "words"),
    [
        (None, "larger batches help."),
        (50.0, "larger batches help."),
        (93.0, "Its host cores are 93 % busy, so more of them would help."),
        (12.0, "Its host cores are 12 % busy, so it is disks or the network that it waits for."),
    ],
)
def test_the_use_of_host_cores_is_evidence_of_work_that_waits_for_its_host(
    cpu: float | None, words: str
) -> None:
    moments = [Moment(300, 300, 38, 40, 42, bandwidth=10, tensor=8)] * 2
    found = bottleneck_of(moments, cpu=cpu)
    assert found.kind == "input"
    assert found.sentence.endswith(words)
    assert dict(found.evidence).get("cpu") == cpu
    assert (found.confidence > bottleneck_of(moments).confidence) == (cpu == 93.0)


def test_nodes_that_exchange_much_wait_for_each_other() -> None:
    window = a_window(busy_min=88, busy=92, busy_max=96, tensor=15)
    found = bottleneck_of(window, 8, network_gib=1.4)
    assert (found.kind, dict(found.evidence)["network_gib"]) == ("communication", 1.4)
    assert "each receives and sends 1.4 GiB/s" in found.sentence
    over_links = bottleneck_of(a_window(busy=92, tensor=15, nvlink_kb=300 << 20), 8, "h100")
    assert found.confidence < over_links.confidence, "how fast the network is, is not known"
    assert bottleneck_of(window, 8, network_gib=0.4).kind == "compute"
    assert bottleneck_of(window, 1, network_gib=1.4).kind == "compute"
    assert bottleneck_of(a_window(busy=92, tensor=60), 8, network_gib=1.4).kind == "compute"
