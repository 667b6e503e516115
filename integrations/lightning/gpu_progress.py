"""PyTorch Lightning: a callback of the `Trainer` that says how far the training is.

Copy this file next to your script and install the client from a checkout of the portal
(`pip install .`, see docs/cli.md; it is in no package index):

    trainer = Trainer(max_epochs=10, callbacks=[GpuProgress()])

Outside of a booking it does nothing. With several processes only the first one writes.
"""

from math import isfinite

from lightning.pytorch import Callback, LightningModule, Trainer

from gpu_client.progress import EVERY_SECONDS, TrainingProgress


class GpuProgress(Callback):
    """Writes steps and the newest logged numbers to the file of the booking."""

    def __init__(self, every: float = EVERY_SECONDS) -> None:
        """At most one report in `every` seconds."""
        self._progress = TrainingProgress(every)
        self._steps: float | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says the number of steps at once, if it is known."""
        steps = float(trainer.estimated_stepping_batches)
        self._steps = steps if isfinite(steps) else None
        self._report(trainer, always=True)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Says how far it is, if a report is due."""
        self._report(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says the last step."""
        self._report(trainer, always=True)

    def _report(self, trainer: Trainer, *, always: bool = False) -> None:
        if trainer.is_global_zero:
            self._progress.report(
                trainer.global_step, self._steps, always=always, metrics=lambda: trainer.callback_metrics
            )
