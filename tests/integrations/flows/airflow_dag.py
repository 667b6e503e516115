"""A DAG that books, waits and releases; `dag.test()` runs it in this process."""

import os
import sys
from datetime import timedelta

from airflow.sdk import DAG, task
from gpu_booking import GpuBook, GpuReady, GpuRelease

with DAG("gpu", schedule=None, catchup=False) as dag:
    booked = GpuBook(
        task_id="book",
        project="folding",
        request="1 h100 1h",
        external_ref="{{ dag.dag_id }}",
        labels={"team": "vision"},
        retries=2,
        retry_delay=timedelta(0),
    )
    ready = GpuReady(task_id="ready", booking=booked.output, poke_interval=0.1, mode="poke")

    @task
    def train(number: str) -> None:
        """Stands for the work on the GPUs."""
        sys.stdout.write(f"trains on {number}\n")
        if os.environ.get("FAILS"):
            sys.exit(1)

    booked >> ready >> train(booked.output) >> GpuRelease(task_id="end", booking=booked.output)

if __name__ == "__main__":
    run = dag.test()
    sys.stdout.write(f"run: {run.state}\n")
