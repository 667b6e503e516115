"""What the agent remembers, and what it refuses to follow."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from agent.plan.targets import Record
from agent.ports.suspender import Suspended
from agent.state.documents import DocumentFollower, Keys
from agent.state.enrol import Identity
from agent.state.store import Store, StoreError, folder_locked
from tests.agent.builders import (
    KEYS,
    NODE,
    NOW,
    a_document,
    a_slice,
    a_whole,
    cases,
    noticed,
    signed,
)

GPU = "GPU-1"


def a_store(folder: Path, *, epoch: int = 5, now: float = NOW) -> Store:
    return Store(folder / "state.json", keys=KEYS, epoch=epoch, now=now)


def follow(store: Store, *, epoch: int = 5, generation: int) -> None:
    desired = a_document({GPU: [a_slice()]}, epoch=epoch, generation=generation)
    store.accept(signed(desired), desired)
    store.save()


def test_a_new_life_follows_the_same_document_and_holds_the_same(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.held["a1"] = Record(a_slice(), GPU, given=True)
    follow(store, generation=7)
    again = a_store(tmp_path)

    assert again.desired == store.desired
    assert again.held == store.held
    assert (again.epoch, again.generation) == (5, 7)


def test_a_new_life_knows_of_notices_of_what_was_saved_and_of_what_is_suspended(
    tmp_path: Path,
) -> None:
    store = a_store(tmp_path)
    allocation = dataclasses.replace(noticed(a_whole()), resumes="w0")
    store.held["w1"] = Record(allocation, GPU, given=True, notice="p1", noticed=NOW, saved=NOW + 1)
    store.suspended["w0"] = Suspended("w0", "biology.BK-7", GPU, ((7, "x"), (8, "y")), "w1")
    follow(store, generation=7)
    again = a_store(tmp_path)

    assert again.held == store.held
    assert again.suspended == store.suspended


def test_the_state_of_an_agent_that_knew_nothing_of_pauses_is_read(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.held["a1"] = Record(a_slice(), GPU, given=True)
    follow(store, generation=7)
    path = tmp_path / "state.json"
    data = json.loads(path.read_text())
    del data["suspended"]
    new = {"notice", "noticed", "saved", "resumed", "note"}
    data["held"] = [{name: value for name, value in each.items() if name not in new} for each in data["held"]]
    for name in ("notice", "resumes", "share"):
        del data["held"][0]["allocation"][name]
    path.write_text(json.dumps(data))

    assert a_store(tmp_path).held == store.held


@pytest.mark.parametrize(
    ("epoch", "generation", "changed", "verdict"),
    cases(
        {
            "a higher generation": (5, 8, False, "new"),
            "a higher epoch, whatever its generation": (6, 1, False, "new"),
            "the same bytes again": (5, 7, False, "same"),
            "other bytes under the same number": (5, 7, True, "conflict"),
            "a lower generation": (5, 6, False, "stale"),
            "a lower epoch, whatever its generation": (4, 99, False, "stale"),
        }
    ),
)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart"])
def test_only_newer_documents_are_followed(
    epoch: int, generation: int, verdict: str, *, changed: bool, restarted: bool, tmp_path: Path
) -> None:
    store = a_store(tmp_path)
    follow(store, generation=7)
    if restarted:
        store = a_store(tmp_path)
    wanted = a_slice("other") if changed else a_slice()
    desired = a_document({GPU: [wanted]}, epoch=epoch, generation=generation)

    assert store.judge(signed(desired), desired) == verdict


def test_a_document_for_another_node_is_not_followed(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    keys = Keys(Identity(NODE, KEYS, 1, "redis://127.0.0.1:1/0"), tmp_path / "identity.json")
    follower = DocumentFollower(keys, store)
    foreign = a_document({GPU: [a_slice()]}, epoch=5, generation=9, node="another")
    assert follower.read(signed(foreign).to_json())
    assert follower.problem == "the desired state is for another"
    assert store.generation < 9


def test_without_the_file_an_old_document_would_be_followed(tmp_path: Path) -> None:
    """The negative control of the fence: forgetting it lets the damage in."""
    store = a_store(tmp_path)
    follow(store, generation=7)
    (tmp_path / "state.json").unlink()
    old = a_document({GPU: [a_slice()]}, epoch=5, generation=6)

    assert a_store(tmp_path).judge(signed(old), old) == "new"


def test_even_a_fresh_store_refuses_what_is_older_than_its_enrolment(tmp_path: Path) -> None:
    old = a_document({GPU: []}, epoch=4, generation=99)

    assert a_store(tmp_path).judge(signed(old), old) == "stale"


@pytest.mark.parametrize(
    "damage",
    cases(
        {
            "cut off": (lambda raw: raw[: len(raw) // 2],),
            "empty": (lambda _: b"",),
            "a document that someone changed": (lambda raw: raw.replace(b"ada", b"eve"),),
            "another generation than the document's": (
                lambda raw: json.dumps({**json.loads(raw), "generation": 99}).encode(),
            ),
            "a list": (lambda _: b"[]",),
        }
    ),
)
def test_a_damaged_file_is_refused(damage: object, tmp_path: Path) -> None:
    store = a_store(tmp_path)
    follow(store, generation=7)
    path = tmp_path / "state.json"
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(StoreError):
        a_store(tmp_path)


def test_the_file_is_synced_before_saving_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    follow(a_store(tmp_path), generation=7)

    # First the contents, under another name, then the folder that holds the name.
    assert synced == [str(tmp_path / "state.json.new"), str(tmp_path)]


def test_saving_without_a_change_writes_nothing(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    follow(store, generation=7)
    (tmp_path / "state.json").unlink()
    store.save()

    assert not (tmp_path / "state.json").exists()


def test_a_file_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    (tmp_path / "state.json").mkdir()

    with pytest.raises(StoreError):
        follow(store, generation=7)


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    follow(a_store(tmp_path), generation=7)

    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_numbers_rise_over_restarts_and_even_without_the_file(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    numbers = [store.next_seq(), store.next_seq()]
    follow(store, generation=7)
    numbers.append(a_store(tmp_path, now=NOW - 500).next_seq())
    (tmp_path / "state.json").unlink()
    numbers.append(a_store(tmp_path, now=NOW + 1).next_seq())

    assert numbers == sorted(set(numbers))


def test_a_second_agent_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with folder_locked(tmp_path), pytest.raises(StoreError), folder_locked(tmp_path):
        pytest.fail("both got the folder")
    with folder_locked(tmp_path):
        assert (tmp_path / "lock").exists()


def test_a_record_keeps_every_field(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    record = Record(a_slice("z", profile="1g.10gb+me", profile_id=20), GPU, given=True, emptied=True)
    store.held["z"] = record
    follow(store, generation=7)

    assert dataclasses.astuple(a_store(tmp_path).held["z"]) == dataclasses.astuple(record)


def test_numbers_rise_over_a_restart_even_if_the_clock_was_set_back(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    follow(store, generation=7)
    last = [store.next_seq() for _ in range(90)][-1]
    assert a_store(tmp_path, now=NOW - 3600).next_seq() > last
