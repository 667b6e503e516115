"""When paused bookings run again, in backlogs as sites have them."""

from tests.solver.builders import HOUR, NOON, a_limit
from tests.solver.claims.story import GRACE, Story, asks, many, story_of


def starts_of(story: Story) -> dict[str, list[int]]:
    """The seconds at which each booking starts and resumes."""
    found: dict[str, list[int]] = {}
    for _, plan in story.plans:
        for row in plan.assigns:
            found.setdefault(row.booking, []).append(row.starts - NOON)
    return found


def test_who_is_paused_for_own_work_resumes_before_own_work_that_never_began() -> None:
    """All of it is inside the guarantee, which the claim takes from those that are last."""
    jobs = [
        *many(24, "ann", "lab", "flex", 4),
        asks("paper", "lab", "prem", 6, at=HOUR // 2, count=2, owner="bob"),
    ]
    story = story_of(jobs, (a_limit("lab", 8, borrow=None),), hours=10)
    starts = starts_of(story)
    assert starts["paper"] == [HOUR // 2 + GRACE]
    assert starts["ann000"] == starts["ann001"] == [0, 4 * HOUR]
    assert story.pauses == {"paper": 2}


def test_eight_that_are_paused_at_once_resume_together_before_spot() -> None:
    limits = (a_limit("firm", 0, borrow=None), a_limit("lab", 8), a_limit("hub", 0, borrow=None))
    jobs = [
        *many(8, "run", "firm", "flex", 6),
        *many(8, "claim", "lab", "std", 1, at=HOUR),
        *many(8, "spot", "hub", "spot", 1, at=3 * HOUR // 2),
    ]
    starts = starts_of(story_of(jobs, limits, hours=12))
    first = HOUR + GRACE
    for n in range(8):
        assert starts[f"claim{n:03}"] == [first]
        assert starts[f"run{n:03}"] == [0, first + HOUR]
        assert starts[f"spot{n:03}"] == [7 * HOUR]
