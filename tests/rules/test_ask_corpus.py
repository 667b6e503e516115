"""What people type: a table of phrases, every order of the parts, and no word without a meaning."""

import itertools
import time
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from allocation.errors import AskError
from allocation.rules.ask import Catalogue, Parsed
from allocation.rules.ask.line.repairs import repairs_useful
from allocation.rules.ask.line.tokens import tokens_of
from allocation.rules.ask.words.names import names_of
from allocation.rules.ask.words.parsed import Problem, Repair
from tenants.platform.coded import coded
from tests.rings import holds_for
from tests.rules.ask_corpus import SITE, corpus, meaning_of, read

TABLES = ("asks.tsv", "unseen.tsv", "german.tsv", "fresh.tsv", "further.tsv")


@pytest.mark.parametrize("table", TABLES)
def test_every_phrase_of_the_corpus_means_what_its_table_says(table: str) -> None:
    found = {text: meaning_of(read(text), text) for text, _ in corpus(table)}
    assert found == dict(corpus(table))


def test_the_corpus_is_large_and_most_unseen_phrases_can_be_booked_or_repaired() -> None:
    assert len(dict(corpus("asks.tsv"))) >= 300
    unseen = dict(corpus("unseen.tsv"))
    assert len(unseen) >= 100
    helped = [each for each in unseen.values() if "→ nothing" not in each.split(" & ")[0]]
    assert len(helped) >= 0.85 * len(unseen)


def test_what_is_offered_as_a_repair_is_a_request() -> None:
    left = 0
    for table in TABLES:
        for text, _ in corpus(table):
            parsed = read(text)
            wrong = parsed.problems or ((parsed.missing,) if parsed.missing else ())
            offered = [read(repair.text) for problem in wrong for repair in problem.repairs]
            whole = [each for each in offered if not each.problems and each.missing is None]
            if whole or not offered:
                assert whole == offered, text
                continue
            left += 1
            assert all(len(each.problems) < max(len(parsed.problems), 1) for each in offered), text
    assert left <= 10, "only where no line is complete, one with fewer problems is offered"


def test_german_words_stand_where_they_were_typed() -> None:
    text = "2 h100 heute 14 Uhr für 3 Std, Zwölf Kerne"
    parts = {part.field: text[part.start : part.end] for part in read(text).parts}
    assert parts["starts"] == "heute 14 Uhr"
    assert parts["duration"] == "für 3 Std"
    assert "Kerne" in parts["cores"]


def test_a_word_of_the_site_s_names_is_not_read_as_another() -> None:
    names = names_of(Catalogue(SITE.classes, (), SITE.tiers, (("nacht", "Nacht und Tag"),)))
    kinds = {token.value: token.type for token in tokens_of("h100 2h nacht", names)}
    assert kinds["nacht"] == "PROJECT"
    assert {"night"} <= {token.value for token in tokens_of("h100 2h nacht", names_of(SITE))}


PARTS = {
    "count": ("2 gpus", "x2", "two gpus"),
    "class": ("h100", "A100-40GB", "l40s or a100-40"),
    "duration": ("2h", "for half a day", "90 min"),
    "day": ("friday", "on friday", "tomorrow", "2026-11-27", "27 nov"),
    "time": ("at 22:00", "14:00", "at 9", "at 2pm"),
    "place": ("on n0003", "on gpu-a1-01/2 or n0004"),
    "tier": ("spot", "tier standard"),
    "near": ("same node", "preferably same rack"),
    "host": ("16 cores", "64gb ram"),
    "project": ("project folding", "cheapest"),
}
WINDOWS = ("14:00-18:00", "from 22:00 to 23:00", "9-17", "2-4pm", "from 9 to 17", "22:00-02:00")
LINES = st.fixed_dictionaries(
    {"class": st.sampled_from(PARTS["class"])},
    optional={name: st.sampled_from(words) for name, words in PARTS.items() if name != "class"},
)


ORDERED = LINES.flatmap(lambda said: st.tuples(st.just(said), st.permutations(list(said))))


def _meant(parsed: Parsed) -> object:
    """All that is asked for, without where it was said."""
    names = "count classes profile share duration starts not_before deadline together required"
    names += " pin cores memory tier project cheapest workload repeat"
    wrong = sorted(problem.code for problem in parsed.problems)
    missing = parsed.missing.code if parsed.missing else ""
    return wrong, missing, [getattr(parsed, name) for name in names.split()]


@holds_for(LINES.flatmap(lambda said: st.tuples(st.just(said), st.permutations(list(said)))), few=60)
def test_parts_mean_the_same_in_every_order(drawn: tuple[dict[str, str], list[str]]) -> None:
    said, order = drawn
    plain = read(" ".join(said[name] for name in PARTS if name in said))
    other = read(" ".join(said[name] for name in order))
    assert _meant(other) == _meant(plain)
    assert not plain.problems


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("day", ["on friday", "on 2026-11-27", "on 27 nov"])
def test_a_day_and_a_window_are_one_wherever_they_stand(window: str, day: str) -> None:
    parts = ("1 h100", window, day, "spot")
    meant = [_meant(read(" ".join(order))) for order in itertools.permutations(parts)]
    assert all(each == meant[0] for each in meant)
    starts = read(f"1 h100 {day} {window}").starts
    assert starts is not None
    assert starts.day in (20, 27)


@holds_for(LINES.flatmap(lambda said: st.tuples(st.just(said), st.permutations(list(said)))), few=25)
def test_leaving_a_word_out_changes_the_meaning_or_is_refused(
    drawn: tuple[dict[str, str], list[str]],
) -> None:
    said, order = drawn
    words = " ".join(said[name] for name in order).split()
    whole = _meant(read(" ".join(words)))
    for at, word in enumerate(words):
        left = read(" ".join(words[:at] + words[at + 1 :]))
        spared = ["a", "gpus", "at", "on", "tier", "for", "project"]
        # A clock time that is over today is that of tomorrow.
        spared += ["tomorrow"] if "time" in said else []
        assert word in spared or left.problems or left.missing or _meant(left) != whole, word


WORDS = """
2 two 513 x2 h100 h100s a100 80gb 80 gb or and any >=40gb 3g.40gb mig slice half quarter 1.5 6h for
from to at on by before until between mon next friday 9 25 14:00 24:00 3 2pm noon midnight tonight
today tomorrow morning weekend overnight all day 2026-02-30 27/11 same nvlink node prefer gpus now
- every times until asap cheapest spot not please project folding rtx 4090 16 cores 64gb ram in week
"""


@holds_for(
    st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join)),
    few=60,
    many=5_000,
)
def test_every_word_is_meant_refused_or_a_courtesy(text: str) -> None:
    try:
        parsed = read(text)
    except AskError:
        return
    covered = set[int]()
    wrong = (*parsed.problems, *((parsed.missing,) if parsed.missing else ()))
    for start, end in [
        *((part.start, part.end) for part in parsed.parts),
        *((problem.start, problem.end) for problem in parsed.problems),
        *parsed.noise,
    ]:
        assert 0 <= start < end <= len(text)
        covered |= set(range(start, end))
    left = [char for at, char in enumerate(text) if at not in covered and char.isalnum()]
    assert not left or parsed.problems, (left, parsed)
    assert bool(wrong) != (not parsed.problems and parsed.missing is None)


def test_an_ask_is_read_in_less_than_five_milliseconds() -> None:
    texts = [text for text, meaning in corpus("asks.tsv") if not meaning.startswith("!")]
    read(texts[0])
    begun = time.process_time()
    for text in texts:
        read(text)
    assert (time.process_time() - begun) / len(texts) < 0.005


def test_repairs_of_a_part_that_stays_missing_end() -> None:
    asked: list[str] = []

    def never(line: str) -> Parsed:
        asked.append(line)
        repairs = tuple(Repair(each, f"{line} {each}") for each in ("1h", "4h", "1d"))
        lacks = Problem(0, len(line), "no_duration", coded("ask_duration"), repairs)
        return replace(read("1 h100 2h"), missing=lacks)

    lacks = never("1 h100").missing
    assert lacks is not None
    assert len(repairs_useful([lacks], never, 200)) == 1
    assert len(asked) < 40, "each repair was tried after each other one: 3 ** 60 lines"
