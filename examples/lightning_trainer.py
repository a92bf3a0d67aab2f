# lightning_trainer.py
"""Lightning: it finds that the ranks are started already, and starts none of its own."""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sum(lightning.LightningModule):
    """Learns to add eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        numbers, sums = batch
        return nn.functional.mse_loss(self.layer(numbers).squeeze(1), sums)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
numbers = torch.randn(256, 8)
trainer = lightning.Trainer(
    max_epochs=3,
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Sum(), DataLoader(TensorDataset(numbers, numbers.sum(1)), batch_size=16))
print(f"rank {trainer.global_rank} of {trainer.world_size} has finished")
