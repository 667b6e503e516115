"""A worker that decides shards of a large site, on this or another machine.

`python -m celery -A portal.launch.shards worker -Q decide -c N`. It needs `REDIS_URL` alone.
"""

import logging

from allocation.services.shards.task import worker_app
from portal.env import env_str, redis_database

logging.basicConfig(
    format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    level=env_str("LOG_LEVEL", "INFO").upper(),
)

app = worker_app(redis_database(env_str("REDIS_URL"), 0))
