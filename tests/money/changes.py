"""Games against the pure core of changes: a booking changes its size, window and price book many
times, is given up in part, runs, and gives GPUs back.

The oracle keeps the price of each minute as a fraction and counts the GPUs that are given up one
by one.
"""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from allocation.rules.charging import Granted, given_up
from billing.price_lines import (
    PriceLine,
    Size,
    line_cost,
    line_seconds,
    lines_after,
    lines_cut,
    lines_data,
    lines_read,
)
from billing.rules import UNITS_PER_GPU

START = datetime(2026, 11, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NOTICE = 40 * MINUTE


@dataclass
class Game:
    """One booking, from its first price to the last charge."""

    rng: random.Random
    story: list[str] = field(default_factory=list)

    def play(self) -> None:
        """Asks, changes, runs and is charged."""
        draw = self.rng
        self.price = self._new_price()
        self.cheapest = self.price
        minutes, gpus = draw.randint(1, 90), draw.randint(1, 8)
        self.granted = Granted(START, START + minutes * MINUTE, gpus)
        self.lines: tuple[PriceLine, ...] = (PriceLine(60 * minutes, self.price * gpus),)
        self.minutes = [Fraction(self.price) * gpus] * minutes
        for _ in range(draw.randint(1, 12)):
            act = draw.choice((self._resize, self._resize, self._resize, self._move, self._reprice))
            act()
            self._compare()
        self._run()

    def _new_price(self) -> Decimal:
        return Decimal(self.rng.randrange(1, 40_000)) / 10_000

    def _reprice(self) -> None:
        """A new price book: what is booked keeps its price."""
        self.price = self._new_price()
        self.cheapest = min(self.cheapest, self.price)
        self.story.append(f"price {self.price}")

    @property
    def _size(self) -> Size:
        return Size(60 * len(self.minutes), self.granted.count * UNITS_PER_GPU)

    def _resize(self) -> None:
        draw, old = self.rng, self.granted
        gpus = draw.choice((old.count, draw.randint(1, 8)))
        minutes = draw.choice((len(self.minutes), draw.randint(1, 90)))
        self.story.append(f"{old.count} x {len(self.minutes)} becomes {gpus} x {minutes}")
        new = replace(old, ends=old.starts + minutes * MINUTE, count=gpus)
        self._give_up(new)
        size = Size(60 * minutes, gpus * UNITS_PER_GPU)
        self.lines = lines_after(self.lines, self._size, size, self.price)
        self.minutes = [self._scaled(each, old.count, gpus) for each in self.minutes[:minutes]]
        self.minutes += [Fraction(self.price) * gpus] * (minutes - len(self.minutes))
        self.granted = new
        # As it is stored and read again.
        self.lines = lines_read(lines_data(self.lines)) or self.lines

    def _scaled(self, price: Fraction, old: int, new: int) -> Fraction:
        return price * new / old if new <= old else price + Fraction(self.price) * (new - old)

    def _move(self) -> None:
        by = self.rng.choice((-30, -5, 5, 30, 200)) * MINUTE
        self.story.append(f"moved by {by}")
        new = replace(self.granted, starts=self.granted.starts + by, ends=self.granted.ends + by)
        self._give_up(new)
        self.granted = new

    def _give_up(self, new: Granted) -> None:
        """GPU-minutes within the notice that it has no more, counted one by one."""
        old, now = self.granted, START + self.rng.randint(-60, 10) * MINUTE
        for kept in (new, None):
            found = sum(
                ((ends - begins) / MINUTE * old.count * part)
                for begins, ends, part in given_up(old, kept, now, now + NOTICE)
            )
            lost = 0
            for minute in range(int((old.ends - old.starts) / MINUTE)):
                at = old.starts + minute * MINUTE
                if now <= at < now + NOTICE:
                    is_kept = kept is not None and kept.starts <= at < kept.ends
                    lost += max(0, old.count - (kept.count if kept and is_kept else 0))
            assert found == lost, (found, lost, self.story)

    def _run(self) -> None:
        """It runs, gives GPUs back on the way, and is charged for what it had."""
        had, spent = Fraction(0), 0
        used = 0
        while spent < len(self.minutes):
            step = min(self.rng.randint(1, 40), len(self.minutes) - spent)
            had += sum(self.minutes[spent : spent + step])
            used += step * self.granted.count
            spent += step
            if self.rng.random() < 0.3:
                break
            if self.granted.count > 1 and spent < len(self.minutes):
                self._give_back(spent)
        charged = line_cost(self.lines, 60 * spent)
        # Each line and each change of it is rounded once.
        nearly = Fraction(1, 10**6) * (len(self.lines) + 1) * (len(self.story) + 2)
        nearly *= 1 + Fraction(60 * spent, 3600)
        assert abs(Fraction(charged) - had / 60) <= nearly, (charged, had / 60, self.story)
        least = Fraction(self.cheapest) * used / 60
        assert Fraction(charged) >= least - nearly, (charged, least, self.story)
        assert charged <= line_cost(self.lines, 60 * len(self.minutes)), self.story
        if charged:
            again = line_cost(self.lines, line_seconds(self.lines, charged))
            assert abs(again - charged) <= max(each.per_hour for each in self.lines) / 3600

    def _give_back(self, spent: int) -> None:
        was, will = self.granted.count, self.rng.randint(1, self.granted.count - 1)
        self.story.append(f"{was - will} GPUs back after {spent}")
        units = (will * UNITS_PER_GPU, was * UNITS_PER_GPU)
        self.lines = lines_cut(self.lines, 60 * spent, 60 * len(self.minutes), *units)
        rest = [each * will / was for each in self.minutes[spent:]]
        self.minutes = self.minutes[:spent] + rest
        self.granted = replace(self.granted, count=will)

    def _compare(self) -> None:
        """What is held for all of it is what the oracle counts."""
        held = line_cost(self.lines, 60 * len(self.minutes))
        exact = sum(self.minutes, Fraction(0)) / 60
        nearly = Fraction(1, 10**6) * (len(self.lines) + 1) * (len(self.story) + 2)
        nearly *= 1 + Fraction(len(self.minutes), 60)
        assert abs(Fraction(held) - exact) <= nearly, (held, exact, self.story)


def play(games: int, seed: int) -> int:
    """Plays so many; returns the changes that were made."""
    made = 0
    for number in range(seed, seed + games):
        game = Game(random.Random(number))  # noqa: S311 (a game, not a secret)
        game.play()
        made += len(game.story)
    return made
