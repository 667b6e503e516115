"""No text asks people to install a package by a name that anybody could register."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

FOLDERS = (
    "agent",
    "allocation",
    "billing",
    "deploy",
    "devtools",
    "docs",
    "gpu_client",
    "integrations",
    "portal",
    "solver",
    "templates",
    "tenants",
    "wire",
)
# The package is in no index: it is installed from a checkout or from a file.
BY_NAME = re.compile(r"\b(?:install|uvx|add|run|requires?)\b[^\n|]*[\s'\"`]gpu[-_]portal(?:\[|[\s'\"`=]|$)")


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file that people read or run, with its content."""
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in files:
        if "__pycache__" in path.parts or path.suffix in {".lock", ".png", ".woff2", ".mo"}:
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_no_text_installs_the_package_by_its_bare_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path, text in texts()
        for line in text.splitlines()
        if BY_NAME.search(line) and not line.lstrip().startswith("name:")
    ]
    assert found == []


def test_the_rule_knows_a_name_from_a_file() -> None:
    for line in ("pip install 'gpu-portal[cli]'", "uvx gpu-portal", "pip install gpu_portal==1"):
        assert BY_NAME.search(line)
    for line in ("pip install '.[cli]'", "pip install ./gpu_portal-….whl", "cd /opt/gpu-portal"):
        assert not BY_NAME.search(line)
