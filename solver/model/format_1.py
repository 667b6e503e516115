"""Plans of format 1, whose reasons had sentences and fewer facts: read and compared as JSON."""

from typing import Any

_GROUPS = {
    "single GPU": "gpu",
    "NVLink domain": "domain",
    "node": "node",
    "rack": "rack",
    "class": "any",
}
"""Format 1's names of each `level`, in the fact `group`."""


def is_format_1(plan: Any) -> bool:  # noqa: ANN401  JSON is what it is
    """Whether a plan was written before plans named their format."""
    return isinstance(plan, dict) and "format" not in plan


def raised(older: Any) -> Any:  # noqa: ANN401
    """Returns a document of format 1 without its sentences, with today's names of facts."""
    if isinstance(older, list):
        return [raised(each) for each in older]
    if not isinstance(older, dict):
        return older
    if not _has_sentence(older):
        return {name: raised(each) for name, each in older.items()}
    found = {name: each for name, each in older.items() if name != "sentence"}
    return {**found, "numbers": sorted(map(_renamed, older["numbers"]))}


def lowered(newer: Any, older: Any) -> Any:  # noqa: ANN401
    """Returns the newer document without its format and without facts that the older lacks.

    Where the older one is not of format 1, nothing is left out.
    """
    if isinstance(newer, list) and isinstance(older, list) and len(newer) == len(older):
        return [lowered(*each) for each in zip(newer, older, strict=True)]
    if not isinstance(newer, dict) or not isinstance(older, dict):
        return newer
    if _has_sentence(older) and "numbers" in newer:
        known = {_renamed(fact)[0] for fact in older["numbers"]}
        return {**newer, "numbers": [fact for fact in newer["numbers"] if fact[0] in known]}
    return {
        name: lowered(each, older.get(name))
        for name, each in newer.items()
        if name != "format" or name in older
    }


def is_same_meaning(older: Any, newer: Any) -> bool:  # noqa: ANN401
    """Whether a plan decides what a plan of format 1 did, with every fact that it had."""
    return bool(lowered(newer, older) == raised(older))


def _has_sentence(value: dict[str, Any]) -> bool:
    return "sentence" in value and "code" in value


def _renamed(fact: list[Any]) -> list[Any]:
    name, value = fact
    return ["level", _GROUPS[value]] if name == "group" else [name, value]
