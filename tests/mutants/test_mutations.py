"""The list of faults fits the source and the tests; `make mutants` runs it."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.mutations import ROOT, AmbiguousMutation, Mutation, mutations

MUTATIONS = mutations()
PACKAGES = {
    "solver": 15,
    "allocation/services": 12,
    "agent": 6,
    "allocation/rules": 4,
    "billing": 4,
    "tenants": 4,
    "allocation/web": 2,
    "allocation/api": 2,
}


def test_every_fault_is_a_change_of_one_text_that_is_there_once() -> None:
    for each in MUTATIONS:
        path = each.file()
        text = path.read_text(encoding="utf-8")
        compile(text.replace(each.find, each.replace), str(path), "exec")
        assert each.find != each.replace
        assert each.node_ids()


def test_the_list_is_long_enough_and_reaches_every_part() -> None:
    assert len(MUTATIONS) >= 60
    assert len({each.about for each in MUTATIONS}) == len(MUTATIONS)
    found = Counter(each.package for each in MUTATIONS)
    assert not {name: fewest for name, fewest in PACKAGES.items() if found[name] < fewest}


def test_a_text_that_is_gone_or_there_twice_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "one.py").write_text("a = 1\nb = 1\nc = 2\n")
    assert Mutation("", "package", "= 2", "= 3", ()).file(tmp_path) == package / "one.py"
    for text in ("= 1", "= 4"):
        with pytest.raises(AmbiguousMutation):
            Mutation("", "package", text, "", ()).file(tmp_path)
    assert ROOT.joinpath("tests").is_dir()
