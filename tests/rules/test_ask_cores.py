"""Lines that ask for cores without a GPU."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from allocation.rules.ask import AskDocument, Catalogue, ClassEntry, Parsed, parse_ask
from allocation.rules.ask.line.text import document_text

ZURICH = ZoneInfo("Europe/Zurich")
NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
GPUS = (
    ClassEntry("h100", "H100 80 GB", ("h100-80gb",), 81_559, ("1g.10gb",)),
    ClassEntry("l40s", "L40S 48 GB", (), 46_068, ()),
)
CPU = ClassEntry("cpu", "CPU cores", ("host-core",), 4_096, ())
EPYC = ClassEntry("epyc", "EPYC cores", (), 8_192, ())
SITE = Catalogue(GPUS, hosts=(EPYC, CPU))


def parsed(line: str, catalogue: Catalogue = SITE) -> Parsed:
    return parse_ask(line, catalogue=catalogue, now=NOW, zone=ZURICH)


def asked(line: str, catalogue: Catalogue = SITE) -> AskDocument:
    found = parsed(line, catalogue)
    assert not found.problems, found.problems
    return found.document()


@pytest.mark.parametrize(
    ("line", "count", "memory", "hours"),
    [
        ("16 cores 64 GB 4h", 16, 4, 4),
        ("4h 64gb ram 16 cores", 16, 4, 4),
        ("16 cpus 64 GB 4h", 16, 4, 4),
        ("16 CPU cores, 4 GB each, for 4 hours", 16, 4, 4),
        ("16 cores 4 GB per core 4h", 16, 4, 4),
        ("16 cores with 4 gb ram each for 4h", 16, 4, 4),
        ("16 Kerne 64 GB Arbeitsspeicher für 4 Stunden", 16, 4, 4),
        ("16 CPU-Kerne 64 GB für 4 Stunden", 16, 4, 4),
        ("16 Prozessorkerne 4 Std", 16, 0, 4),
        ("16 cores 70 GB 4h", 16, 5, 4),
        ("1 core 64 GB 2h", 1, 64, 2),
        ("8 cores without a gpu 2h", 8, 0, 2),
    ],
)
def test_cores_without_a_gpu_are_what_is_asked_for(line: str, count: int, memory: int, hours: int) -> None:
    found = asked(line)
    assert (found.classes, found.host, found.count, found.cores) == (("cpu",), True, count, 0)
    assert (found.memory, found.duration) == (memory, hours * 3600)
    assert (found.together, found.required) == (("node", True) if count > 1 else ("any", False))
    assert asked(document_text(found, ZURICH)) == found
    assert AskDocument.from_json(found.to_json()) == found


def test_words_say_the_memory_of_all_cores_and_of_each() -> None:
    meanings = {part.field: part.meaning for part in parsed("16 cores 70 GB 4h").parts}
    assert meanings["count"] == "16 host cores, without a GPU"
    assert meanings["memory"] == "80 GiB of host memory, 5 with each core"


@pytest.mark.parametrize(
    ("line", "classes"),
    [
        ("2 h100 16 cores 64gb ram 4h", ("h100",)),
        ("h100 16 cores 4h", ("h100",)),
        ("any gpu 16 cores 4h", ("h100", "l40s")),
        ("1g.10gb 4 cores 4h", ("h100",)),
    ],
)
def test_cores_of_gpus_stay_theirs(line: str, classes: tuple[str, ...]) -> None:
    found = asked(line)
    assert (found.classes, found.host) == (classes, False)
    assert found.cores


def test_no_gpu_stands_for_any_core_and_no_core_for_any_gpu() -> None:
    assert asked("2 any 4h").classes == ("h100", "l40s")
    assert parsed("2 gpus 16 cores 4h").missing is not None
    assert parsed("16 cores 4h", Catalogue(GPUS)).missing is not None


def test_a_named_class_of_cores_is_taken_and_written_again() -> None:
    found = asked("8 cores epyc 32 GB 1h")
    assert (found.classes, found.count, found.memory) == (("epyc",), 8, 4)
    text = document_text(found, ZURICH)
    assert text == "8 cores epyc 1h 32 gb ram"
    assert asked(text) == found
    assert asked("8 cores 1h", Catalogue(GPUS, hosts=(EPYC,))).classes == ("epyc",)


def test_memory_that_a_gpu_has_needs_a_word_more() -> None:
    found = parsed("16 cores 80 GB 4h")
    (problem,) = found.problems
    assert problem.code == "which_memory"
    cores, gpu = (parsed(each.text).document() for each in problem.repairs)
    assert (cores.host, cores.count, cores.memory) == (True, 16, 5)
    assert (gpu.host, gpu.classes, gpu.cores) == (False, ("h100",), 16)


def test_gpus_and_cores_are_no_alternatives() -> None:
    found = parsed("2 h100 or epyc 4h")
    assert [each.code for each in found.problems] == ["cores_or_gpus"]
    assert {asked(each.text).classes for each in found.repairs} == {("h100",), ("epyc",)}


def test_too_many_cores_are_refused_at_their_words() -> None:
    (problem,) = parsed("5000 cores 4h").problems
    assert problem.code == "count_out_of_bounds"
    assert asked(problem.repairs[0].text).count == 512


def test_no_other_number_stands_for_too_many_cores_or_none() -> None:
    many, none = parsed("600 cores 4h"), parsed("0 cores 4h")
    assert many.is_for_rules
    assert many.count == 600
    assert not none.is_for_rules
    assert asked(none.problems[0].repairs[0].text).count == 1
