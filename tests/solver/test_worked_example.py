"""The worked example of docs/solver.md: what the page says is what the solver decides."""

from pathlib import Path

from solver import solve
from tests.solver.builders import HOUR, POLICY, a_limit, gpus, whole
from tests.solver.pausing import a_claim, a_site, given, notices, rules, running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "solver.md"
LIMITS = (
    a_limit("atlas", 3, borrow=1),
    a_limit("atlas-p", 3, parent="atlas", borrow=1),
    a_limit("boreal", 1, borrow=3),
    a_limit("boreal-p", 1, parent="boreal", borrow=3),
)
HELD = (
    *running("A1", whole("n1-0"), whole("n1-1"), tenant="atlas", tier="standard", ends=3 * HOUR),
    *running("B1", whole("n1-2"), tenant="boreal", since=-4 * HOUR, ends=6 * HOUR),
    *running("B2", whole("n1-3"), tenant="boreal", since=-2 * HOUR, ends=6 * HOUR),
)
WAITING = (
    a_claim("B3", 2, tier="flex", tenant="boreal", hours=4, submitted=0),
    a_claim("A2", 1, tenant="atlas", hours=2, submitted=100),
    a_claim("A3", 1, tenant="atlas", hours=1, submitted=200),
)


def clock(seconds: int) -> str:
    """The time of a day on which the example is at noon."""
    return f"{12 + seconds // HOUR}:{seconds % HOUR // 60:02}"


def test_the_page_shows_what_the_solver_decides() -> None:
    plan = solve(a_site(*WAITING, fleet=gpus(4), held=HELD, limits=LIMITS), POLICY)
    queue = sorted(plan.waits, key=lambda each: each.key)
    starts = {name: clock(at) for name, (_, at) in given(plan).items()}
    ends = {name: clock(at) for name, (_, at) in notices(plan).items()}
    strengths = {each.booking: each.strength for each in plan.waits}
    table = PAGE.read_text(encoding="utf-8").partition("<!-- decided -->")[2].partition("\n\n")[0]
    rows = [
        tuple(cell.strip() for cell in line.strip("| ").split("|")) for line in table.strip().splitlines()[2:]
    ]
    assert [each.booking for each in queue] == [name for name, *_ in rows if name in strengths]
    said = {name: (start, strength) for name, start, strength, _ in rows if name in strengths}
    assert said == {name: (starts[name], strengths[name]) for name in strengths}
    paused = {name: (at, rule) for name, at, rule, _ in rows if name not in strengths}
    assert paused == {name: (f"paused {at}", rules(plan)[name]) for name, at in ends.items()}
