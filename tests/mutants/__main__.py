"""Plants each fault of the list in a copy of the tree and runs the tests that must find it.

`python -m tests.mutants [--json FILE] [--only TEXT] [--part N/M]`. First all named tests run on the
copy without a fault, because a test that fails there proves nothing. Exit status 1: fewer than
SHARE of the faults were found, or a test fails without a fault.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tests.mutants.mutations import ROOT, Mutation, mutations

LIMIT_SECONDS, PATIENCE_SECONDS = 120, 20
SHARE = 0.85
Outcome = Literal["found", "missed", "broken"]
_PYTEST_FAILED, _PYTEST_PASSED = 1, 0


@dataclass(frozen=True)
class Result:
    """What became of a fault: `broken` means that its tests could not be run."""

    about: str
    package: str
    outcome: Outcome
    seconds: float
    said: str


def main() -> int:
    """Runs the list, or a part of it, and reports."""
    options = _options()
    number, of = map(int, options.part.split("/"))
    wanted = [each for each in mutations()[number - 1 :: of] if options.only in each.about]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        tree_copy(tree)
        is_clean = _is_clean(tree, wanted)
        results = []
        for each in wanted:
            results.append(mutation_run(tree, each))
            _say(f"{results[-1].outcome:8}{results[-1].seconds:6.1f} s  {each.about}")
    share = sum(each.outcome == "found" for each in results) / max(1, len(results))
    _say(f"{share:.0%} of {len(results)} found")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"share": share, "results": [asdict(each) for each in results]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if is_clean and share >= SHARE else 1


def tree_copy(target: Path) -> None:
    """Copies the tracked files of the working tree, which stays unchanged."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def mutation_run(tree: Path, mutation: Mutation) -> Result:
    """Plants one fault in the copy, runs its tests, and removes it."""
    path = tree / mutation.file().relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.find, mutation.replace), encoding="utf-8")
    began = time.monotonic()
    try:
        status, said = pytest_run(tree, mutation.node_ids())
    finally:
        path.write_text(text, encoding="utf-8")
    outcome: Outcome = "broken"
    if status in (_PYTEST_FAILED, None):
        outcome = "found"
    elif status == _PYTEST_PASSED:
        outcome = "missed"
    seconds = round(time.monotonic() - began, 1)
    return Result(mutation.about, mutation.package, outcome, seconds, said[-600:])


def pytest_run(tree: Path, node_ids: Sequence[str], limit: float = LIMIT_SECONDS) -> tuple[int | None, str]:
    """pytest's exit status, None when the time is over, and the end of what it said."""
    # No bytecode: a fault may have the same size and time stamp as the original.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *node_ids]
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as running:
        try:
            said, _ = running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _end(running)
            return None, f"not over after {limit:g} s"
    return running.returncode, said


def _end(running: subprocess.Popen[str]) -> None:
    """Lets pytest stop its servers, as after Ctrl-C; then kills the rest of its session."""
    running.send_signal(signal.SIGINT)
    try:
        running.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def _is_clean(tree: Path, wanted: Iterable[Mutation]) -> bool:
    node_ids = sorted({node_id for each in wanted for node_id in each.node_ids()})
    status, said = pytest_run(tree, node_ids, 3_600)
    _say(f"without a fault: {said.strip().splitlines()[-1]}")
    if status != _PYTEST_PASSED:
        _say(said[-3_000:])
    return status == _PYTEST_PASSED


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--only", default="", help="faults whose description has this text")
    parser.add_argument("--part", default="1/1", help="N/M: every M-th fault from the N-th on")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
