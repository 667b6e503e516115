"""Trains a line for twelve steps with the `Trainer` of Hugging Face."""

import sys

import torch
from gpu_progress import GpuProgress
from transformers import Trainer, TrainingArguments


class Line(torch.nn.Module):
    """y = ax + b."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss of a batch."""
        return {"loss": ((self.layer(x) - y) ** 2).mean()}


data = [{"x": torch.tensor([float(n)]), "y": torch.tensor([2.0 * n])} for n in range(24)]
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=1,
    per_device_train_batch_size=2,
    logging_steps=4,
    report_to=[],
    use_cpu=True,
)
args.remove_unused_columns = False
Trainer(model=Line(), args=args, train_dataset=data, callbacks=[GpuProgress()]).train()
