"""Arrays in the one-line request: `array of 500: 1 h100 2h`, `500 runs of 1 h100 2h 20 at once`."""

import re
from collections.abc import Sequence

from lark import Token

from allocation.rules.arrays import MOST_ELEMENTS, MOST_PARALLEL
from allocation.rules.ask.words.numbers import WORD_NUMBER, number_of
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Repair
from allocation.rules.ask.words.reading import Reading, span_of
from tenants.platform.coded import coded

_NUMBER = re.compile(rf"\d+|{WORD_NUMBER}")
_TIMES = re.compile(r"(.+?)\s*[x*]\s*(.+)")


def read_array(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `array of 500`, `500 runs`."""
    span, number = span_of(*tokens), _number(tokens[0])
    if not 1 <= number <= MOST_ELEMENTS:
        why = coded("ask_array_size", most_elements=f"{MOST_ELEMENTS:,}")
        colon = "" if reading.text[span[1] :].lstrip().startswith(":") else ":"
        words = f"array of {max(1, min(number, MOST_ELEMENTS))}{colon}"
        reading.add_problem("bad_array", why, span, reading.replacements(span, words))
        return
    reading.set_value("array", number, f"an array of {number:,} runs", span)


def read_parallel(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `20 at once`: how many runs of an array are open at a time."""
    span, number = span_of(*tokens), _number(tokens[0])
    if not 1 <= number <= MOST_PARALLEL:
        why = coded("ask_parallel", most_parallel=f"{MOST_PARALLEL:,}")
        words = f"{max(1, min(number, MOST_PARALLEL))} at once"
        reading.add_problem("bad_parallel", why, span, reading.replacements(span, words))
        return
    reading.set_value("parallel", number, f"at most {number:,} at once", span)


def _number(token: str) -> int:
    found = _NUMBER.search(re.sub(r"^(?:at\s+most|up\s+to|max(?:imum)?)\s+", "", token))
    return number_of(found[0]) if found else 0


def array_check(reading: Reading) -> None:
    """Adds problems for an array with a start or a repetition, and for `20 at once` alone."""
    values, spans = reading.values, reading.spans
    if "array" not in values:
        if "parallel" in values:
            repairs = [Repair("without it", reading.replaced(spans["parallel"], ""))]
            why = coded("ask_no_array")
            reading.add_problem("no_array", why, spans["parallel"], repairs)
        return
    if "repeat" in values or "rrule" in values:
        why = coded("ask_array_repeats")
        repairs = [Repair("without the array", reading.replaced(spans["array"], ""))]
        reading.add_problem("array_repeats", why, spans["array"], repairs)
    elif "starts" in values:
        why = coded("ask_array_start")
        repairs = [Repair("without a start", reading.replaced(spans["starts"], ""))]
        reading.add_problem("array_fixed", why, spans["starts"], repairs)


def refuse_runs_or_gpus(reading: Reading, token: Token) -> None:
    """`array of 500 h100`: 500 runs of one GPU each, or an array of something with 500 GPUs?"""
    span, number = span_of(token), _NUMBER.search(token)
    said = number[0] if number else token
    repairs = [
        Repair(f"{said} runs of 1 GPU", reading.replaced(span, f"array of {said}: 1")),
        Repair(f"{said} GPUs at once", reading.replaced(span, said)),
    ]
    why = coded("ask_runs_or_gpus", said=said)
    reading.add_problem(NOT_UNDERSTOOD, why, span, repairs)


def refuse_gpus_or_dates(reading: Reading, token: Token) -> None:
    """`h100 every mon 9-17 5x`: five GPUs, or five dates of one?"""
    span, number = span_of(token), _NUMBER.search(token)
    said = number[0] if number else token
    why = coded("ask_gpus_or_dates", said=said)
    repairs = reading.replacements(span, f"{said} times", f"{said} gpus")
    reading.add_problem(NOT_UNDERSTOOD, why, span, repairs)


def refuse_product(reading: Reading, token: Token) -> None:
    """`500 x 1 h100`: 500 runs, or one booking with the product?"""
    span, found = span_of(token), _TIMES.fullmatch(token)
    runs, each = found.groups() if found else (token, "1")
    repairs = [Repair(f"{runs} runs", reading.replaced(span, f"array of {runs}: {each}"))]
    if runs.isdecimal() and each.isdecimal():
        product = int(runs) * int(each)
        repairs.append(Repair(f"{product} GPUs at once", reading.replaced(span, str(product))))
    what = f"{each} GPU{'s' * (each != '1')} each" if each.isdecimal() else f"{each} of a GPU"
    why = coded("ask_runs_or_product", runs=runs, what=what)
    reading.add_problem(NOT_UNDERSTOOD, why, span, repairs)


def array_text(text: str, array: int | None, parallel: int | None) -> str:
    """The line of one run as that of an array: `array of 500: 1 h100 2h 20 at once`."""
    if array is None:
        return text
    return f"array of {array}: {text}" + (f" {parallel} at once" if parallel else "")
