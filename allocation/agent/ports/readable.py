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
    """The same for a folder that may be somebody else's: one that is there stays as it is. Raises
    OSError."""
    if not folder.is_dir():
        folder_readable(folder)
