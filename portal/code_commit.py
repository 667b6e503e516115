"""The commit of the code that runs."""

import subprocess
from pathlib import Path

COMMIT_DIGITS = 16
"""Hexadecimal digits of a commit that are kept: enough to name it in any repository."""
_TIMEOUT_SECONDS = 10


def code_commit(root: Path, named: str) -> str:
    """Returns the commit of the code in `root`, as `1a2b3c4d5e6f7a8b`, or `unknown`.

    `named` is what whoever built the image says. Without it, git is asked; `+changes` follows where
    files differ from the commit. `unknown`: git is missing, or `root` is no repository of its own.
    """
    if named:
        return named[:COMMIT_DIGITS]
    top, commit = (_git(root, "rev-parse", what) for what in ("--show-toplevel", "HEAD"))
    if not top or not commit or Path(top).resolve() != root.resolve():
        return "unknown"
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return commit[:COMMIT_DIGITS] + ("+changes" if changed != "" else "")


def _git(root: Path, *words: str) -> str | None:
    """What git prints; None if it can't say."""
    try:
        done = subprocess.run(  # noqa: S603  the words above
            ["git", "-C", str(root), *words],  # noqa: S607  where git lies differs
            capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
