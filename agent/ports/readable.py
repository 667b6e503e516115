"""Folders and files that people read, whatever umask the agent was started with."""

from pathlib import Path

FOLDER, FILE = 0o755, 0o644


def folder_readable(folder: Path) -> None:
    """Makes a folder, and what is missing above it, that everybody may read and only the agent
    changes. Raises OSError."""
    missing = [each for each in folder.parents if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in (*missing, folder):
        each.chmod(FOLDER)


def folder_ensure(folder: Path) -> None:
    """Makes a missing folder as `folder_readable` does; an existing one is unchanged. Raises
    OSError."""
    if not folder.is_dir():
        folder_readable(folder)
