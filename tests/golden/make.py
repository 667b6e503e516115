"""Make the goldens that are missing: `python -m tests.golden.make [--rewrite] [NAME ...]`.

A scene says where the input of a golden comes from: question number K of a test (`test_name#K`),
or of a made-up world (`dense:SEED`, `lived:SEED/ARRIVALS#K`, `schedule:SEED#K`). What is stored is
the input itself, so a golden stays as it is when the test or the world that it was made from
changes. With `--answers` the stored inputs are kept and only their answers are made again: for a
change of the solver that is meant. A scene `decision` is one that a portal has stored: give its
snapshot and policy with `--decision FILE`, a JSON object.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import solver
from solver import Policy, Snapshot, decode, encode
from tests.golden import sites
from tests.golden.capture import Asked, Recorder
from tests.golden.documents import Golden, canonical, golden_read, names
from tests.golden.scenes import DECISION, SCENES, Scene
from tests.simulation.schedules.schedule import schedule_run
from tests.solver.builders import POLICY
from tests.solver.dense import a_dense_site
from tests.solver.preemption.test_preemption_properties import lived

TESTS = Path(__file__).resolve().parents[1]


def main() -> int:
    """Write the goldens that are asked for. Returns 1 when a scene has no such question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rewrite", action="store_true", help="make stored inputs again, too")
    parser.add_argument("--answers", action="store_true", help="make stored answers again")
    parser.add_argument("--decision", type=Path, help="what a portal has stored of a decision")
    options = parser.parse_args()
    if options.answers:
        for name in options.names or names():
            answered(golden_read(name)).write()
        return 0
    wanted = [scene for scene in SCENES if not options.names or scene.name in options.names]
    if not options.rewrite:
        wanted = [scene for scene in wanted if scene.name not in names()]
    found = asked_by(wanted, options.decision)
    for scene in wanted:
        if scene.name in found:
            golden_of(scene, found[scene.name]).write()
    missing = [scene.name for scene in wanted if scene.name not in found]
    sys.stdout.write(f"{len(found)} made\n" + "".join(f"no input for {n}\n" for n in missing))
    return 1 if missing else 0


def golden_of(scene: Scene, asked: Asked) -> Golden:
    """The golden of a question."""
    snapshot = encode(asked.snapshot)
    made = Golden(scene.name, asked.kind, scene.about, snapshot, asked.policy, None, asked.question)
    return answered(made)


def answered(golden: Golden) -> Golden:
    """The golden with the answer of today."""
    return replace(golden, answer=golden.solved())


def asked_by(scenes: Iterable[Scene], decision: Path | None) -> dict[str, Asked]:
    """The questions of scenes, by their names; without those that asked less often."""
    scenes = list(scenes)
    recorder = Recorder()
    recorder.install()
    _run_tests([scene.test for scene in scenes if scene.test], recorder)
    found = {}
    for scene in scenes:
        if scene.test:
            recorder.now = recorder.tests.get(scene.test, [])
        elif scene.source == DECISION:
            recorder.now = _stored(decision)
        else:
            recorder.now = []
            _world(scene)
        if scene.number < len(recorder.now):
            found[scene.name] = recorder.now[scene.number]
    return found


def _run_tests(tests: list[str], recorder: Recorder) -> None:
    """Run the files that have the tests, and of them only these."""
    plain = sorted({test.split("[")[0] for test in tests})
    if not plain:
        return
    words = [word for name in plain for word in ("-e", f"def {name}(")]
    listed = subprocess.run(
        ["grep", "-rlF", "--include=*.py", *words, str(TESTS)],
        capture_output=True,
        check=True,
        text=True,
    )
    wanted = " or ".join(plain)
    # The worlds below have imported what pytest would like to import first.
    quiet = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    pytest.main([*quiet, "-k", wanted, *listed.stdout.split()], [recorder])


def _stored(decision: Path | None) -> list[Asked]:
    if decision is None:
        return []
    document = json.loads(decision.read_bytes())
    snapshot = decode(Snapshot, canonical(document["snapshot"]))
    return [Asked("plan", snapshot, decode(Policy, canonical(document["policy"])))]


def _world(scene: Scene) -> None:
    kind, _, seed = scene.source.partition(":")
    WORLDS[kind](seed)


def _dense(seed: str) -> None:
    solver.solve(a_dense_site(int(seed)), POLICY)


def _lived(seed: str) -> None:
    number, _, arrivals = seed.partition("/")
    lived(int(number), int(arrivals))


def _schedule(seed: str) -> None:
    schedule_run(int(seed))


def _made(name: str) -> None:
    site = getattr(sites, name)()
    if site is not None:
        solver.solve(site, sites.POLICIES.get(name, POLICY))


WORLDS: dict[str, Callable[[str], None]] = {
    "dense": _dense,
    "lived": _lived,
    "made": _made,
    "schedule": _schedule,
}

if __name__ == "__main__":
    sys.exit(main())
