"""Games against the pure core of charging: one booking's life, its holds, the oracle's count."""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from allocation.rules import charging
from billing.rates import NO_PEAKS, PeakHours, Rate, Spell, peak_hours
from billing.rules import UNITS_PER_GPU, cost_of
from tests.money.oracle import Oracle

START = datetime(2026, 11, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass
class Account:
    """What is held for a booking and what of it was charged, as the ledger keeps it."""

    rate: Rate
    held: Decimal
    charged: Decimal = Decimal(0)
    is_short: bool = False

    def cost(self, seconds: int, peak: int = 0) -> Decimal:
        """Counted without the product's rates."""
        rise = self.rate.peak - self.rate.plain
        return sum(
            (
                cost_of(per_gpu_hour=price, units=UNITS_PER_GPU, seconds=count)
                for price, count in ((self.rate.plain, seconds), (rise, peak))
            ),
            Decimal(0),
        )

    def settle(self, spell: Spell, keep: Decimal = Decimal(0)) -> None:
        """Charges a time and continues to hold an amount."""
        charge = self.rate.cost(spell)
        self.is_short = self.is_short or charge > self.held
        charge = min(self.held, charge)
        self.charged += charge
        self.held = min(self.held - charge, keep)


@dataclass
class Game:
    """Plays one life; `story` says what happened. `selfish`: all pauses are its own people's, and
    no hardware fails, so that every minute must be paid."""

    rng: random.Random
    selfish: bool
    has_peaks: bool
    story: list[str] = field(default_factory=list)

    def play(self) -> None:
        """From the request to the last line of the bill."""
        draw = self.rng
        hours, self.zone, self.hours = draw.choice(CALENDARS if self.has_peaks else PLAIN)
        day, hour = draw.choice(self.hours)
        begins = START.replace(tzinfo=self.zone) + timedelta(days=day, hours=hour)
        self.at = begins.astimezone(UTC) - draw.randrange(60) * MINUTE
        self.left = draw.choice((2, 5, 15, 40, 60))
        self.is_fixed, self.asked = draw.random() < 0.3, self.left
        self.oracle = Oracle(draw.choice((0, 3, 10, 30)), self.is_fixed)
        price = Decimal(draw.randrange(1, 20_000)) / 10_000
        rise = Decimal(draw.randrange(20_000)) / 10_000
        self.money = Account(Rate(price, price + rise, hours), Decimal(0))
        self.money.held = self.most = self._cost_of_rest()
        self.before, self.is_over = charging.EarlierRuns(), False
        while not self.is_over:
            self._run()

    def _cost_of_rest(self) -> Decimal:
        rate, rest = self.money.rate, self.left * MINUTE
        if self.is_fixed:
            return rate.cost(rate.between(self.at, self.at + rest))
        return rate.most(60 * self.left)

    def _is_peak(self, at: datetime) -> bool:
        local = at.astimezone(self.zone)
        return self.has_peaks and (local.weekday(), local.hour) in self.hours

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
                self.oracle.minute(is_peak=self._is_peak(self.at))
                self.at += MINUTE

    def _extend(self) -> None:
        more = self.rng.choice((1, 5, 20))
        rate, until = self.money.rate, self.ends + more * MINUTE
        extra = rate.cost(rate.between(self.ends, until))
        self.ends = until
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
        run = self._of_run().time(self.at)
        self._settle(charging.end_time(run, self.before, 60 * rest) + Spell(fee))
        owed = self.oracle.owes(given_up=rest)
        self._compare(60 * owed + 60 * rest * share // 100)

    def _end(self, why: str, given_up: int = 0) -> None:
        self.story.append(why)
        self.oracle.over()
        run = self._of_run(saved=self.saved).time(self.at)
        self._settle(charging.end_time(run, self.before, 60 * given_up))
        self._compare(60 * self.oracle.owes(given_up=given_up))

    def _contradicted(self) -> None:
        """A node says that the run is over, or is silent: charged until the portal heard of it."""
        self.oracle.over()
        self._counted(self._of_run(saved=self.saved).time(self.at))
        self.left = int((self.ends - self.at) / MINUTE)
        self._wait()

    def _break(self) -> None:
        """Hardware failed: what is saved counts, and the rest of the time is to be had again."""
        self.oracle.broke()
        run = self._of_run(saved=self.saved)
        kept = run.time(self.saved) if self.saved else Spell()
        self._counted(kept)
        length = int((self.ends - self.ready) / MINUTE)
        self.left = int((self.ends - self.at) / MINUTE) if self.is_fixed else length - kept.seconds // 60
        self._wait()

    def _of_run(
        self,
        *,
        noticed: datetime | None = None,
        own: bool = False,
        saved: datetime | None = None,
        broken: bool = False,
    ) -> charging.Run:
        hours = self.money.rate.hours
        return charging.Run(self.ready, noticed, own, saved, broken, hours)

    def _counted(self, spell: Spell) -> None:
        was = self.before
        self.before = charging.EarlierRuns(was.uncharged + spell, was.redo, was.credited)

    def _own_pause(self) -> bool | None:
        return self._pause(own=True)

    def _other_pause(self) -> bool | None:
        return self._pause(own=False)

    def _pause(self, *, own: bool) -> bool | None:
        noticed, grace = self.at, self.rng.choice((1, 3, 10))
        self.oracle.notified(own=own)
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
        run = self._of_run(noticed=noticed, own=own, saved=self.saved, broken=is_broken)
        if how.endswith("give_up"):
            rest = int((self.ends - self.at) / MINUTE)
            if is_broken:
                self.oracle.broke(is_pausing=True)
            else:
                self.oracle.over()
            self._settle(charging.end_time(run.time(self.at), self.before, 60 * rest))
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
            run,
            out=out,
            ends=self.ends,
            before=self.before,
            cap=60 * self.oracle.cap,
            is_fixed=self.is_fixed,
        )
        self.left = left if self.is_fixed else left + credit
        self.oracle.cut(self.left)
        assert bill.remaining == 60 * self.left, self.story
        self.money.settle(bill.charged, self._cost_of_rest())
        self.before = charging.EarlierRuns(Spell(), bill.redo, bill.credited)
        self._wait()

    def _wait(self) -> None:
        """In line: it continues, its owner gives it up, or it can't continue."""
        waited = self.rng.choice((0, 2, 10))
        self.at += waited * MINUTE
        if self.is_fixed:
            self.left = max(0, self.left - waited)
        what = self.rng.choice((*["on"] * 6, "given up", "no room")) if self.left else "no room"
        if what == "on":
            return
        self.story.append(f"in line: {what}")
        given_up = self.left if what == "given up" else 0
        self._settle(charging.end_time(Spell(), self.before, 60 * given_up))
        self._compare(60 * self.oracle.owes(given_up=given_up))

    def _settle(self, spell: Spell) -> None:
        self.is_over = True
        self.money.settle(spell)

    def _compare(self, owed: int) -> None:
        """The bill is what the oracle counts, and never less than the bound."""
        paid, cost = self.money.charged, self.money.cost
        # A bill has a line for each run, each rounded once, and once for its peak.
        nearly = Decimal("0.000002") * (2 + len(self.story))
        bill = cost(owed, 60 * self.oracle.owed_peak)
        if self.money.is_short:
            # Peaks that no time of this length has: nobody pays more than was held.
            assert paid <= min(self.most, bill) + nearly, (paid, owed, self.story)
        else:
            assert abs(paid - bill) <= nearly, (paid, owed, self.story)
        least = 60 * (len(self.oracle.minutes) if self.selfish else self.oracle.least())
        assert paid + nearly >= min(self.most, cost(least)), (paid, least, self.story)
        assert Decimal(0) <= paid <= self.most + nearly
        assert self.money.held == 0


def _calendar(seed: int) -> tuple[PeakHours, ZoneInfo, list[tuple[int, int]]]:
    """Peak hours, and the same as a list of hours for a count by the clock."""
    draw = random.Random(seed)  # noqa: S311 (a game, not a secret)
    zone = ("UTC", "Asia/Kathmandu", "Australia/Lord_Howe")[seed % 3]
    hours = [(day, hour) for day in (0, 1, 6) for hour in range(24) if draw.random() < 0.2]
    return peak_hours(zone, [(day, hour, hour + 1) for day, hour in hours]), ZoneInfo(zone), hours


# A life begins within an hour before a peak hour, which few random times are.
CALENDARS = tuple(_calendar(seed) for seed in range(6))
PLAIN = ((NO_PEAKS, ZoneInfo("UTC"), [(0, 1)]),)


def play(games: int, seed: int) -> int:
    """Plays so many; returns how many minutes were had in all."""
    rng, had = random.Random(seed), 0  # noqa: S311 (a game, not a secret)
    for number in range(games):
        game = Game(rng, selfish=number % 4 == 0, has_peaks=number % 8 in (0, 3))
        game.play()
        had += len(game.oracle.minutes)
    return had
