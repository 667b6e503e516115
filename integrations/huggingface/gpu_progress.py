"""Hugging Face: a callback of the `Trainer` that says how far the training is.

Copy this file next to your script and install the client from a checkout of the portal
(`pip install .`, see docs/cli.md; it is in no package index):

    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[GpuProgress()])

Outside of a booking it does nothing. With several processes only the first one writes.
"""

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from gpu_client.progress import EVERY_SECONDS, TrainingProgress


class GpuProgress(TrainerCallback):
    """Writes steps and the newest logged numbers to the file of the booking."""

    def __init__(self, every: float = EVERY_SECONDS) -> None:
        """At most one report in `every` seconds."""
        self._progress = TrainingProgress(every)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        """Says the number of steps at once."""
        self._report(state, always=True)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **more: object,
    ) -> None:
        """Keeps what is logged: loss, learning rate, metrics of an evaluation."""
        self._progress.measured(logs or {})
        self._report(state)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        """Says how far it is, if a report is due."""
        self._report(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        """Says the last step."""
        self._report(state, always=True)

    def _report(self, state: TrainerState, *, always: bool = False) -> None:
        if state.is_world_process_zero:
            self._progress.report(state.global_step, state.max_steps, always=always)
