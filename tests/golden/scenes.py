"""Where the input of each golden comes from; see `make.py` for the kinds of sources."""

from dataclasses import dataclass
from pathlib import Path

DECISION = "decision"
_LIST = Path(__file__).with_name("scenes.txt")


@dataclass(frozen=True)
class Scene:
    """`source` is the name of a test, a world with its seed, or a stored decision; `number` says
    which of its questions is meant."""

    name: str
    source: str
    number: int
    about: str

    @property
    def test(self) -> str:
        """The test that asks; empty for another source."""
        return self.source if self.source.startswith("test_") else ""


def _read(line: str) -> Scene:
    name, origin, about = line.split(" | ")
    source, _, number = origin.rpartition("#")
    return Scene(name, source, int(number), about)


SCENES = tuple(map(_read, _LIST.read_text(encoding="utf-8").splitlines()))
"""One a line: its name, its source with the number of the question, and what it is about."""
