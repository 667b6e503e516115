"""While PostgreSQL does not answer, each program writes one line a second, and no traceback."""

import io
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import django.db
import psycopg
import pytest
import redis

from devtools.launch.processes import start, stop
from portal.celery import app
from portal.logs import OutageFilter
from tests.servers.live import worker_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until


class Log:
    """A logger of its own, with a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0
        self.text = io.StringIO()
        handler = logging.StreamHandler(self.text)
        handler.addFilter(OutageFilter(lambda: self.now))
        self.logger = logging.Logger("outage")
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()


def no_database() -> None:
    """Fails as a query does when PostgreSQL is away."""
    try:
        psycopg.connect("postgresql://127.0.0.1:1/x", connect_timeout=2)
    except psycopg.OperationalError as error:
        raise django.db.OperationalError(*error.args) from error


def failed(log: Log, *, task: str) -> None:
    try:
        no_database()
    except django.db.OperationalError:
        log.logger.exception("Task %s failed", task)


def test_an_outage_is_one_line_a_second_and_counts_what_is_left_out() -> None:
    log = Log()
    for number in range(20):
        failed(log, task=f"one.{number}")
        try:
            no_database()
        except django.db.OperationalError as error:
            log.logger.warning("Reports wait: %s", error)
    log.now += 1
    failed(log, task="two")
    assert len(log.lines) == 2
    assert log.lines[0].startswith("Task one.0 failed: connection ")
    assert log.lines[1].startswith("Task two failed: connection ")
    assert log.lines[1].endswith("(39 more lines left out)")


def test_a_valkey_that_is_full_is_an_outage() -> None:
    log = Log()
    for _ in range(5):
        log.logger.error("Error in timer", exc_info=redis.exceptions.OutOfMemoryError("no memory"))
    assert log.lines == ["Error in timer: no memory"]


def test_other_errors_keep_their_traceback() -> None:
    log = Log()
    canceled = django.db.OperationalError("canceling statement")
    canceled.__cause__ = psycopg.errors.QueryCanceled("canceling statement")
    for error in (ZeroDivisionError(), canceled, django.db.IntegrityError("twice")):
        log.logger.error("It failed", exc_info=error)
        log.logger.error("It failed again: %s", error)
    assert log.lines.count("It failed") == 3
    assert len([line for line in log.lines if line.startswith("It failed again")]) == 3


@pytest.mark.faults
@pytest.mark.turn
def test_a_worker_writes_few_lines_while_postgresql_is_down(real_db: Servers, tmp_path: Path) -> None:
    path, tasks = tmp_path / "worker.log", ("allocation.publish", "mail.send", "outbox.relay")
    with path.open("wb") as log:
        worker = worker_program(real_db, "default")
        process = start(worker, log)
        try:
            real_db.postgres_killed()
            for task in tasks * 10:
                app.send_task(task)
            with app.connection_for_read() as connection:
                channel: Any = connection.default_channel
                link = channel.client
                wait_until(lambda: link.llen("default") == 0, seconds=90)
        finally:
            real_db.postgres_again()
            stop(process, worker)
    text = path.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert "more lines left out" in text or len(text.splitlines()) < len(tasks) * 10


@pytest.fixture(autouse=True)
def _empty_queue(request: pytest.FixtureRequest) -> None:
    if "real_db" in request.fixturenames:
        with suppress(LookupError):
            app.control.purge()
