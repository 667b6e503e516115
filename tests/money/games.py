"""Games against the pure core of charging: one booking's life, its holds, the oracle's count."""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from allocation.rules import charging
from billing.rules import UNITS_PER_GPU, cost_of
from tests.money.oracle import Oracle

START = datetime(2026, 11, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass
class Account:
    """What is held for a booking and what of it was charged, as the ledger keeps it."""

    price: Decimal
    held: Decimal
    charged: Decimal = Decimal(0)

    def cost(self, seconds: int) -> Decimal:
        return cost_of(per_gpu_hour=self.price, units=UNITS_PER_GPU, seconds=seconds)

    def settle(self, seconds: int, keep: int = 0) -> None:
        """Charges so many seconds and goes on holding so many."""
        charge = min(self.held, self.cost(seconds))
        self.charged += charge
        self.held = min(self.held - charge, self.cost(keep))


@dataclass
class Game:
    """Plays one life; `story` says what happened. `selfish`: all pauses are its own people's, and
    no hardware fails, so that every minute must be paid."""

    rng: random.Random
    selfish: bool
    story: list[str] = field(default_factory=list)

    def play(self) -> None:
        """From the request to the last line of the bill."""
        draw = self.rng
        self.at, self.left = START, draw.choice((2, 5, 15, 40, 60))
        self.is_fixed, self.asked = draw.random() < 0.3, self.left
        self.oracle = Oracle(draw.choice((0, 3, 10, 30)), self.is_fixed)
        price = Decimal(draw.randrange(1, 20_000)) / 10_000
        self.money = Account(price, Decimal(0))
        self.money.held = self.most = self.money.cost(60 * self.left)
        self.before, self.is_over = charging.EarlierRuns(), False
        while not self.is_over:
            self._run()

    def _run(self) -> None:
        self.ready, self.ends = self.at, self.at + self.left * MINUTE
        self.saved: datetime | None = None
        self.oracle.begin()
        while True:
            self._pass(self.rng.choice((0, 1, 1, 3, 8)))
            if self.at >= self.ends:
                return self._end("ended")
            act = self.rng.choice(self._acts())
            self.story.append(f"{act} at {self._minute()}")
            if act == "save":
                self.saved = self.at
                self.oracle.save()
            elif act == "extend":
                self._extend()
            elif getattr(self, f"_{act}")() is not False:
                return None

    def _acts(self) -> list[str]:
        acts = ["save", "extend", *["own_pause"] * 3, "contradicted"]
        # Long lives are where errors add up.
        last = [self.rng.choice(("give_up", "no_show"))] if self.rng.random() < 0.3 else []
        others = [] if self.selfish else [*["other_pause"] * 4, "break"]
        return [*acts, *last, *others]

    def _minute(self) -> int:
        return int((self.at - START) / MINUTE)

    def _pass(self, minutes: int) -> None:
        for _ in range(minutes):
            if self.at < self.ends:
                self.at += MINUTE
                self.oracle.minute()

    def _extend(self) -> None:
        more = self.rng.choice((1, 5, 20))
        self.ends += more * MINUTE
        extra = self.money.cost(60 * more)
        self.money.held, self.most = self.money.held + extra, self.most + extra

    # Ways out of a run.

    def _give_up(self) -> None:
        self._end("given up", int((self.ends - self.at) / MINUTE))

    def _no_show(self) -> None:
        rest = int((self.ends - self.at) / MINUTE)
        is_first = self.before == charging.EarlierRuns() and not self.money.charged
        share = self.rng.choice((0, 20, 50, 100)) if is_first else 0
        fee = charging.no_show_fee(60 * rest, share)
        self.oracle.over()
        run = charging.Run(self.ready).seconds(self.at)
        self._settle(charging.end_seconds(run, self.before, 60 * rest) + fee)
        owed = self.oracle.owes(given_up=rest)
        self._compare(60 * owed + 60 * rest * share // 100)

    def _end(self, why: str, given_up: int = 0) -> None:
        self.story.append(why)
        self.oracle.over()
        run = charging.Run(self.ready, saved=self.saved).seconds(self.at)
        self._settle(charging.end_seconds(run, self.before, 60 * given_up))
        self._compare(60 * self.oracle.owes(given_up=given_up))

    def _contradicted(self) -> None:
        """A node says that the run is over, or is silent: charged until the portal heard of it."""
        self.oracle.over()
        run = charging.Run(self.ready, saved=self.saved).seconds(self.at)
        self._counted(run)
        self.left = int((self.ends - self.at) / MINUTE)
        self._wait()

    def _break(self) -> None:
        """Hardware failed: what is saved counts, and the rest of the time is to be had again."""
        self.oracle.broke()
        run = charging.Run(self.ready, saved=self.saved)
        kept = run.seconds(self.saved) if self.saved else 0
        self._counted(kept)
        length = int((self.ends - self.ready) / MINUTE)
        self.left = int((self.ends - self.at) / MINUTE) if self.is_fixed else length - kept // 60
        self._wait()

    def _counted(self, seconds: int) -> None:
        was = self.before
        self.before = charging.EarlierRuns(was.uncharged + seconds, was.redo, was.credited)

    def _own_pause(self) -> bool | None:
        return self._pause(own=True)

    def _other_pause(self) -> bool | None:
        return self._pause(own=False)

    def _pause(self, *, own: bool) -> bool | None:
        noticed, grace = self.at, self.rng.choice((1, 3, 10))
        self.oracle.told(own=own)
        self._pass(self.rng.randrange(grace + 1))
        how = self.rng.choice(("out", "saved", "withdrawn", "give_up", *self._hard()))
        self.story.append(f"{'own' if own else 'other'} pause {how}")
        if how == "withdrawn":
            self.oracle.untold()
            return False
        if how == "saved":
            self.saved = self.at
            self.oracle.saved = max(self.oracle.saved, self.oracle.noticed or 0)
        is_broken = how.startswith("broken")
        run = charging.Run(self.ready, noticed, own, self.saved, broken=is_broken)
        if how.endswith("give_up"):
            rest = int((self.ends - self.at) / MINUTE)
            if is_broken:
                self.oracle.broke(is_pausing=True)
            else:
                self.oracle.over()
            self._settle(charging.end_seconds(run.seconds(self.at), self.before, 60 * rest))
            self._compare(60 * self.oracle.owes(given_up=rest))
            return None
        self._billed(run, is_broken=is_broken)
        return None

    def _hard(self) -> tuple[str, ...]:
        return () if self.selfish else ("broken", "broken, give_up")

    def _billed(self, run: charging.Run, *, is_broken: bool) -> None:
        out, left = self.at, int((self.ends - self.at) / MINUTE)
        if is_broken:
            left = int((self.ends - (run.noticed or out)) / MINUTE)
            credit = self.oracle.broke(is_pausing=True)
        else:
            credit = self.oracle.paused()
        bill = charging.pause_bill(
            run, out=out, ends=self.ends, before=self.before, cap=60 * self.oracle.cap,
            is_fixed=self.is_fixed,
        )  # fmt: skip
        self.left = left if self.is_fixed else left + credit
        self.oracle.cut(self.left)
        assert bill.remaining == 60 * self.left, self.story
        self.money.settle(bill.charged, bill.remaining)
        self.before = charging.EarlierRuns(0, bill.redo, bill.credited)
        self._wait()

    def _wait(self) -> None:
        """In line: it goes on, its owner gives it up, or it can't go on."""
        waited = self.rng.choice((0, 2, 10))
        self.at += waited * MINUTE
        if self.is_fixed:
            self.left = max(0, self.left - waited)
        what = self.rng.choice((*["on"] * 6, "given up", "no room")) if self.left else "no room"
        if what == "on":
            return
        self.story.append(f"in line: {what}")
        given_up = self.left if what == "given up" else 0
        self._settle(charging.end_seconds(0, self.before, 60 * given_up))
        self._compare(60 * self.oracle.owes(given_up=given_up))

    def _settle(self, seconds: int) -> None:
        self.is_over = True
        self.money.settle(seconds)

    def _compare(self, owed: int) -> None:
        """The bill is what the oracle counts, and never less than the bound."""
        paid, cost = self.money.charged, self.money.cost
        # A bill has a line for each run, each rounded once.
        nearly = Decimal("0.000001") * (2 + len(self.story))
        assert abs(paid - min(self.most, cost(owed))) <= nearly, (paid, owed, self.story)
        least = 60 * (len(self.oracle.minutes) if self.selfish else self.oracle.least())
        assert paid + nearly >= min(self.most, cost(least)), (paid, least, self.story)
        assert Decimal(0) <= paid <= self.most + nearly
        assert self.money.held == 0


def play(games: int, seed: int) -> int:
    """Plays so many; returns how many minutes were had in all."""
    rng, had = random.Random(seed), 0  # noqa: S311 (a game, not a secret)
    for number in range(games):
        game = Game(rng, selfish=number % 4 == 0)
        game.play()
        had += len(game.oracle.minutes)
    return had
