"""The Celery application of the shard workers, and the task that decides one shard.

A worker needs the solver and Redis: no database, no key and no Django. Its application has keys of
its own, `shards:*`, so that an account at Redis with no other rights is enough. A message is taken
off the queue before its task runs: when a worker dies the leader decides the shard itself, and a
second delivery would only repeat that work.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import redis
from celery import Celery
from kombu import Queue
from redis.exceptions import RedisError

from allocation.services.gc_paused import gc_paused
from allocation.services.shards.letters import CODE, answered, opened
from solver.cycle.solve import solve as solve_whole
from tenants.platform.stores.broker import broker_transport_register
from tenants.platform.stores.redis_servers import broker_address, redis_client
from tenants.platform.watchdog.workers import QueuePulse

logger = logging.getLogger(__name__)

PREFIX = "shards:"
QUEUE = "decide"
TASK = "shards.decide"
# A claim that is not renewed for so long is of a worker that died or stands still.
CLAIM_SECONDS = 5
SOCKET_SECONDS = 10


def key_of(job: str, kind: str, shard: int | str = "") -> str:
    """The key of an input, a claim, or of the list of answers."""
    return f"{PREFIX}{job}:{kind}:{shard}"


def shards_app(url: str, **transport: object) -> Celery:
    """The application, without tasks. Not Django's: a worker has no settings of the portal."""
    broker_transport_register()
    address, server = broker_address(url)
    app = Celery("shards", set_as_current=False, fixups=[])
    app.conf.update(
        broker_url=address,
        broker_transport_options={
            "global_keyprefix": PREFIX,
            "socket_keepalive": True,
            **server,
            **transport,
        },
        broker_connection_retry_on_startup=True,
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_create_missing_queues=False,
        task_default_queue=QUEUE,
        task_queues=[Queue(QUEUE)],
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        enable_utc=True,
    )
    return app


def worker_app(url: str) -> Celery:
    """The application of a worker, which decides what it finds in the queue."""
    app = shards_app(url)
    app.steps["consumer"].add(QueuePulse)

    @app.task(name=TASK)
    def decide(**message: Any) -> None:  # noqa: ANN401 (JSON)
        with redis_client(url, socket_timeout=SOCKET_SECONDS) as server:
            shard_decide(server, **message)

    return app


def shard_decide(
    server: "redis.Redis", *, job: str, shard: int, digest: str, code: str, seconds: int
) -> None:
    """Decides one shard unless another has it, and answers. Answers are kept for `seconds`."""
    if code != CODE:
        logger.warning("The leader has another version of the code: shard %s is left to it.", shard)
        _answer(server, job, answered(shard, digest, None), seconds)
        return
    claim = key_of(job, "claim", shard)
    if not server.set(claim, "worker", nx=True, ex=CLAIM_SECONDS):
        return
    is_answered = False
    try:
        with _renewed(server, claim):
            data = server.get(key_of(job, "input", shard))
            if not isinstance(data, bytes):
                return  # The leader is done with it.
            snapshot, policy = opened(data, digest)
            with gc_paused():
                plan = solve_whole(snapshot, policy)
        server.set(claim, "answered", ex=seconds)
        _answer(server, job, answered(shard, digest, plan), seconds)
        is_answered = True
    finally:
        if not is_answered:
            server.delete(claim)


def _answer(server: "redis.Redis", job: str, answer: bytes, seconds: int) -> None:
    key = key_of(job, "answers")
    with server.pipeline() as pipe:
        pipe.rpush(key, answer)
        pipe.expire(key, seconds)
        pipe.execute()


@contextmanager
def _renewed(server: "redis.Redis", claim: str) -> Iterator[None]:
    """Renews a claim in a thread while this process computes."""
    is_over = Event()

    def renew() -> None:
        while not is_over.wait(CLAIM_SECONDS / 5):
            try:
                server.expire(claim, CLAIM_SECONDS)
            except RedisError as error:
                logger.warning("A claim was not renewed: %s", error)

    thread = Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
