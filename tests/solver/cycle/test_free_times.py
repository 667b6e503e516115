"""Free stretches of a calendar, compared with the plain way second by second."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from solver import Gpu
from solver.cycle.quote import Availability
from tests.rings import holds_for
from tests.solver.builders import DAY, HOUR, MODELS, NOON, POLICY, a_held, a_snapshot, gpus

SPAN = 12
WINDOWS = st.lists(st.tuples(st.integers(0, 2), st.integers(-3, SPAN), st.integers(1, 8)), max_size=6)


def fleet() -> tuple[Gpu, ...]:
    """Three that may be booked whole, one fixed to slices, one out of service."""
    return (
        *gpus(3),
        *gpus(1, "a100", "a100-40gb", node="n2", mode="sliced"),
        *gpus(1, node="n3", usable=False),
    )


@holds_for(WINDOWS, few=25)
def test_what_is_free_is_what_nothing_is_on(windows: list[tuple[int, int, int]]) -> None:
    held = tuple(
        replace(
            a_held(f"n1-{gpu}", starts=starts, ends=starts + length, booking=f"b{number}"),
            id=f"{number}",
        )
        for number, (gpu, starts, length) in enumerate(windows)
        if starts + length > 0
    )
    found = Availability(a_snapshot(fleet=fleet(), held=held), POLICY).free(NOON, NOON + SPAN)
    assert set(found) == {"n1-0", "n1-1", "n1-2"}
    for gpu, stretches in found.items():
        seconds = {second for begin, end in stretches for second in range(begin, end)}
        taken = {
            NOON + second
            for row in held
            if row.place.gpu == gpu
            for second in range(row.starts - NOON, row.ends - NOON)
        }
        assert seconds == set(range(NOON, NOON + SPAN)) - taken
        assert all(one[1] < other[0] for one, other in pairwise(stretches))


def test_a_gpu_in_slices_is_free_as_a_whole_when_it_can_have_been_reset() -> None:
    fleet = gpus(2, "a100", "a100-40gb", stands="sliced")
    (seconds,) = {model.switch_seconds for model in MODELS if model.slug == "a100-40gb"}
    slices = a_held("n1-1", starts=HOUR, ends=2 * HOUR, profile="3g.20gb", size=4)
    found = Availability(a_snapshot(fleet=fleet, held=(slices,)), POLICY).free(NOON, NOON + DAY)
    assert seconds > 0
    assert found["n1-0"] == ((NOON + seconds, NOON + DAY),)
    assert found["n1-1"] == (
        (NOON + seconds, NOON + HOUR - seconds),
        (NOON + 2 * HOUR + seconds, NOON + DAY),
    )
