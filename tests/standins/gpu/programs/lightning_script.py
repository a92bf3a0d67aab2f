"""A script on Lightning: a module, a Trainer on GPUs with DDP, a checkpoint and its validation."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

    def training_step(self, batch, _):
        x, y = batch
        assert x.is_cuda
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("accuracy", (self.layers(x).argmax(dim=1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main():
    L.seed_everything(0)
    inputs = torch.randn(64, 8)
    data = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    trainer = L.Trainer(
        accelerator="gpu",
        devices=2,
        strategy="ddp",
        precision="16-mixed",
        max_epochs=8,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))
    accuracy = trainer.callback_metrics["accuracy"].item()
    if trainer.is_global_zero:
        print("lightning ok" if accuracy > 0.8 else "lightning learnt nothing: %g" % accuracy)


if __name__ == "__main__":
    main()
