"""Simulators of other policies, given as files, to compare with the product."""

import importlib.util
from pathlib import Path
from types import ModuleType


def peers_of(path: Path) -> ModuleType:
    """Imports the simulator. Raises SystemExit if it is missing or not Python."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_peers", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"no such simulator: {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
