"""Measure how a reader of a cycle jumps between modules: `python -m tests.solver.walk [GOLDEN]`.

The walk follows one golden snapshot from `solve` to its last reservation and notes each function
of the solver when it is called first. Properties and nested functions are part of what uses them.
A jump is a step to another module; it is a return when that module was left before.
"""

import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import solver
from solver import solve
from tests.golden.documents import golden_read

ROOT = str(Path(solver.__file__).parent)
SNAPSHOT = "quota-lender-starts"

Step = tuple[str, str]
"""Module, as a path below the solver, and the function's qualified name."""


def walk(run: Callable[[], object]) -> list[Step]:
    """The solver's functions in order of their first calls, up to the last reservation."""
    steps: dict[Step, None] = {}
    last = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal last
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or _is_nested(frame):
            return
        steps.setdefault((code.co_filename[len(ROOT) + 1 :], code.co_qualname))
        if code.co_name == "reserve":
            last = len(steps)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(steps)[:last]


def returns(steps: Iterable[Step]) -> list[Step]:
    """The steps that enter a module which was left before."""
    seen: set[str] = set()
    found = []
    for (before, _), step in pairwise([("", ""), *steps]):
        if step[0] != before and step[0] in seen:
            found.append(step)
        seen.add(step[0])
    return found


def _is_nested(frame: FrameType) -> bool:
    """True for comprehensions, lambdas, nested functions, and properties."""
    code = frame.f_code
    if "<" in code.co_qualname:
        return True
    kind = type(frame.f_locals.get("self"))
    return isinstance(getattr(kind, code.co_name, None), property)


def main() -> None:
    """Print the walk of a golden, with its returns marked."""
    golden = golden_read(sys.argv[1] if len(sys.argv) > 1 else SNAPSHOT)
    site, policy = golden.site, golden.policy
    solve(site, policy)
    steps = walk(lambda: solve(site, policy))
    back = set(returns(steps))
    for module, name in steps:
        sys.stdout.write(f"{'<-' if (module, name) in back else '  '} {module:32}{name}\n")
    modules = len({module for module, _ in steps})
    sys.stdout.write(f"{len(steps)} functions, {modules} modules, {len(back)} returns\n")


if __name__ == "__main__":
    main()
