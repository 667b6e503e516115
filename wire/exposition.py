"""Metrics in Prometheus's text format (version 0.0.4)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Value:
    """One number with its labels. None, NaN and infinity are left out.

    The numbers of a histogram have a `suffix`: `_bucket` with the label `le`, `_sum` and `_count`.
    """

    number: float | None
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A name with what it means; a counter's name ends in `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    values: tuple[Value, ...]


def exposition(metrics: Iterable[Metric]) -> str:
    """One block per metric that has a value; unknown is left out, never zero."""
    lines = []
    for metric in metrics:
        known = [_line(metric.name, value) for value in metric.values if _is_known(value.number)]
        if known:
            lines.append(f"# HELP {metric.name} {_help(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += known
    return "\n".join([*lines, ""])


def _is_known(number: float | None) -> bool:
    return number is not None and math.isfinite(number)


def _line(name: str, value: Value) -> str:
    number = value.number or 0
    text = str(number) if isinstance(number, int) else repr(float(number))
    labels = ",".join(f'{key}="{_label(text)}"' for key, text in sorted(value.labels.items()))
    return f"{name}{value.suffix}{{{labels}}} {text}" if labels else f"{name}{value.suffix} {text}"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
