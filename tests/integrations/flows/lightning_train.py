"""Trains a line for twelve steps with the `Trainer` of Lightning."""

import sys

import lightning.pytorch as pl
import torch
from gpu_progress import GpuProgress


class Line(pl.LightningModule):
    """y = ax + b."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        loss = ((self.layer(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=1e-4)


x = torch.arange(24.0)[:, None]
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x), batch_size=2)
trainer = pl.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    default_root_dir=sys.argv[1],
    callbacks=[GpuProgress()],
)
trainer.fit(Line(), loader)
