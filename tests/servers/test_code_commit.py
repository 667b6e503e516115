"""The commit that decisions name: of this code, and never of a repository around it."""

import subprocess
from pathlib import Path

from portal.env import code_commit

WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_clone_is_its_commit_and_says_when_files_were_changed(tmp_path: Path) -> None:
    assert code_commit(tmp_path, "") == "unknown"
    git(tmp_path, "init", "-q")
    assert code_commit(tmp_path, "") == "unknown"
    (tmp_path / "solver.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    commit = git(tmp_path, "rev-parse", "HEAD")[:16]
    (tmp_path / "notes").write_text("of nobody's concern")
    assert code_commit(tmp_path, "") == commit
    (tmp_path / "solver.py").write_text("2")
    assert code_commit(tmp_path, "") == f"{commit}+changes"
    # A folder of code inside another repository does not have that repository's commit.
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    assert code_commit(unpacked, "") == "unknown"
    assert code_commit(unpacked, "f" * 40) == "f" * 16
