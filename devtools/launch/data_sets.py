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
