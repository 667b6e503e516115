"""The solver decides the same in a process whose hashes have another seed."""

import os
import subprocess
import sys

HASHED = """
from solver import digest, solve
from tests.bench.solver.cycle import a_site, the_next
from tests.solver.builders import POLICY
from tests.solver.state.test_planned_rows_properties import SEARCHED, worlds
site = a_site(32, 30)
plan = solve(site, POLICY)
(moves,) = [solve(world, POLICY) for world in worlds(SEARCHED)]
assert moves.moves
later = solve(the_next(site, plan), POLICY)
digests = f"{digest(site)} {digest(plan)} {digest(later)} {digest(moves)}"
"""


def test_the_hash_seed_of_the_process_does_not_matter() -> None:
    here: dict[str, str] = {}
    exec(HASHED, here)  # noqa: S102  the same lines as there
    # This process's own seed is drawn by chance, if it was not set.
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", f"{HASHED}print(digests)"],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert there.split() == here["digests"].split()
    assert len(there.split()) == 4
