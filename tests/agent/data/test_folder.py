"""What an agent lists of its cache folder: names, sizes and times, in bounded size, and nothing of files."""

import os
from pathlib import Path

import pytest

import wire
from agent.data import folder as module
from agent.data.folder import DataFolder

AT = 1_800_000_000


def a_file(path: Path, size: int = 3 << 20, at: int = AT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))
    return path


def listed(root: Path) -> dict[str, wire.CachedData]:
    folder = DataFolder(root)
    folder.look()
    assert folder.listing is not None
    return {each.name: each for each in folder.listing}


def test_lists_each_folder_with_its_size_and_newest_use(tmp_path: Path) -> None:
    a_file(tmp_path / "imagenet" / "train" / "a", at=AT - 50)
    a_file(tmp_path / "imagenet" / "b", at=AT)
    (tmp_path / "empty").mkdir()

    found = listed(tmp_path)

    assert found["imagenet"] == wire.CachedData(name="imagenet", size_mb=6, used=AT)
    assert found["empty"] == wire.CachedData(name="empty", size_mb=0, used=None)


def test_files_links_and_other_names_are_no_data_sets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a_file(tmp_path / "readme.txt")
    (tmp_path / "outside").symlink_to("/etc")
    for name in ("ImageNet", ".staging", "a b", "ümlaut", "x" * 65):
        (tmp_path / name).mkdir()
    (tmp_path / "coco").mkdir()
    (tmp_path / "coco" / "link").symlink_to("/etc")

    assert listed(tmp_path).keys() == {"coco"}
    assert "is not listed" in caplog.text
    assert not DataFolder(tmp_path).has("outside")
    assert not DataFolder(tmp_path).has("../etc")
    assert DataFolder(tmp_path).has("coco")


def test_no_more_than_the_most_are_listed(tmp_path: Path) -> None:
    for number in range(wire.DATA_SETS_MAX + 3):
        (tmp_path / f"set-{number:04}").mkdir()

    found = listed(tmp_path)

    assert len(found) == wire.DATA_SETS_MAX
    assert f"set-{wire.DATA_SETS_MAX:04}" not in found
    message = wire.Telemetry(sent_at=AT, data=tuple(found.values()))
    assert len(wire.seal(message, key=b"k" * 32, key_version=1).body) < wire.MAX_BYTES


def test_a_very_large_one_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES_MOST", 2)
    for name in "abc":
        a_file(tmp_path / "crawl" / name, size=1)

    assert listed(tmp_path)["crawl"].size_mb is None


def test_measures_again_after_a_change_and_each_hour(tmp_path: Path) -> None:
    now = [0.0]
    folder = DataFolder(tmp_path, steady=lambda: now[0])
    a_file(tmp_path / "genomes" / "deep" / "a", size=1 << 20)

    def size() -> int | None:
        folder.look()
        assert folder.listing is not None
        return folder.listing[0].size_mb

    assert size() == 1
    # Deep in the folder: its own time stays, and nothing is walked.
    a_file(tmp_path / "genomes" / "deep" / "b", size=1 << 20)
    assert size() == 1
    now[0] += module.MEASURE_EVERY_S
    assert size() == 2
    a_file(tmp_path / "genomes" / "c", size=1 << 20)
    assert size() == 3


def test_a_folder_that_cant_be_read_says_nothing(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "gone")

    folder.look()

    assert folder.listing is None


def test_follows_the_folder_in_its_thread(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.start()
    try:
        (tmp_path / "later").mkdir()
        folder.look_soon()
    finally:
        folder.stop()
    folder.look()

    assert [each.name for each in folder.listing or ()] == ["later"]
