"""Compare the goldens of two versions of the plan format by what they mean.

`python -m tests.golden.meaning COMMIT` reads the goldens of COMMIT from git, brings both sides to
one form, and prints every golden whose meaning differs from the one in the working tree. Sentences
are not part of the meaning: code, rule, check, numbers and times are. Facts that a reason of plan
format 1 did not have yet are left out of what is compared with it. Exit status 1: some differ.
"""

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solver.model.format_1 import lowered, raised
from tests.golden.documents import FOLDER, difference, names

ROOT = Path(__file__).resolve().parents[2]
RENAMED: Mapping[str, str] = {}
"""Field of an older format -> its name today. Whoever renames a field adds a row here."""


def meaning_of(value: Any) -> Any:  # noqa: ANN401  JSON
    """An answer or a snapshot of any version with today's field names."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): meaning_of(each) for key, each in value.items()}
    return [meaning_of(each) for each in value] if isinstance(value, list) else value


def compare(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> dict[str, str]:
    """What differs, by golden: the lines of a diff, or that one of them is missing."""
    found = {}
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            found[name] = "is new" if name in after else "is gone"
        elif lines := _difference(_read(name, before[name]), _read(name, after[name])):
            found[name] = lines
    return found


def files_of(commit: str) -> dict[str, bytes]:
    """The golden files of a commit, by name."""
    folder = FOLDER.relative_to(ROOT)
    listed = _git("ls-tree", "--name-only", commit, f"{folder}/").decode().split()
    return {Path(path).name: _git("show", f"{commit}:{path}") for path in listed}


def files_here() -> dict[str, bytes]:
    """The golden files of the working tree, by name."""
    files = (FOLDER / f"{name}{end}" for name in names() for end in (".json", ".snapshot.gz"))
    return {path.name: path.read_bytes() for path in files}


def main() -> int:
    """Print the differences. Returns 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    found = compare(files_of(parser.parse_args().commit), files_here())
    for name, lines in found.items():
        sys.stdout.write(f"{name}: {lines}\n")
    sys.stdout.write(f"{len(found)} differ in meaning\n")
    return 1 if found else 0


def _difference(older: Any, newer: Any) -> str:  # noqa: ANN401  JSON
    return difference(meaning_of(raised(older)), meaning_of(lowered(newer, older)))


def _read(name: str, data: bytes) -> Any:  # noqa: ANN401  JSON
    if name.endswith(".gz"):
        return json.loads(gzip.decompress(data))
    document = json.loads(data)
    return {key: document[key] for key in ("policy", "question", "answer")}


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


if __name__ == "__main__":
    sys.exit(main())
