"""The data sets of the demo: cache folders of its nodes, and the library from which they are filled."""

from pathlib import Path

LIBRARY = {"imagenet": 12, "coco-2017": 6, "common-crawl": 24, "genomes": 9, "cityscapes": 4}
"""The data sets of the library, with their MiB. They stand for larger ones."""
CACHED = {
    "gpu-a1-01": ("imagenet", "common-crawl"),
    "gpu-a2-01": ("imagenet", "genomes"),
    "gpu-b1-01": ("coco-2017",),
    "gpu-c1-01": ("coco-2017", "cityscapes"),
}
_MEGABYTE = bytes(1 << 20)
_STAGE = """#!/bin/sh
# Fetches a data set from the library of the demo.
test -d "{library}/$GPU_DATA" || {{ echo "the library has no $GPU_DATA"; exit 1; }}
for part in "{library}/$GPU_DATA"/*; do
  cp "$part" "$GPU_DATA_FOLDER/" && sleep 0.5
done
"""


def hooks_write(var: Path) -> Path:
    """Writes the hooks of the demo's nodes; returns their folder."""
    folder = var / "hooks"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "stage"
    program.write_text(_STAGE.format(library=(var / "library").absolute()), encoding="utf-8")
    program.chmod(0o755)
    return folder


def data_sets_write(var: Path, nodes: dict[str, Path]) -> None:
    """Fills the library, and the cache folder of each node, which is below its state; what is there
    stays."""
    library = var / "library"
    for name, size in LIBRARY.items():
        _folder_write(library / name, size)
    for node, state in nodes.items():
        for name in CACHED.get(node, ()):
            _folder_write(state / "data" / name, LIBRARY[name])


def _folder_write(folder: Path, megabytes: int) -> None:
    if folder.exists():
        return
    folder.mkdir(parents=True)
    for number in range(megabytes):
        (folder / f"part-{number:03}").write_bytes(_MEGABYTE)
