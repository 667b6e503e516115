"""The commit of the running code."""

import subprocess
from pathlib import Path

COMMIT_DIGITS = 16
"""Hexadecimal digits that are kept of a commit: enough to identify it in any repository."""
_TIMEOUT_SECONDS = 10


def code_commit(root: Path, named: str) -> str:
    """Returns the commit of the code in `root`, as `1a2b3c4d5e6f7a8b`, or `unknown`.

    `named` is the commit that the image was built with. If it is empty, the commit is read from
    git, with `+changes` after it if files differ. Returns `unknown` if git is missing, or if `root`
    is not the top folder of a repository.
    """
    if named:
        return named[:COMMIT_DIGITS]
    top, commit = (_git(root, "rev-parse", what) for what in ("--show-toplevel", "HEAD"))
    if not top or not commit or Path(top).resolve() != root.resolve():
        return "unknown"
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return commit[:COMMIT_DIGITS] + ("+changes" if changed != "" else "")


def _git(root: Path, *words: str) -> str | None:
    """Returns the output of git, or None if the command fails."""
    try:
        done = subprocess.run(  # noqa: S603  fixed arguments
            ["git", "-C", str(root), *words],  # noqa: S607  the path of git differs
            capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
