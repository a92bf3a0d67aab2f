# hf_trainer.py
"""The Trainer of Hugging Face: it finds rank, world size and device in the environment."""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Sum(nn.Module):
    """Learns to add eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, numbers: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        predicted = self.layer(numbers).squeeze(1)
        return {"loss": nn.functional.mse_loss(predicted, labels), "logits": predicted}


torch.manual_seed(0)
samples = [{"numbers": one, "labels": one.sum()} for one in torch.randn(256, 8)]
arguments = TrainingArguments(
    output_dir="output",
    max_steps=40,
    per_device_train_batch_size=16,
    learning_rate=0.1,
    logging_steps=20,
    save_strategy="no",
    use_cpu=not torch.cuda.is_available(),  # otherwise each rank on CPUs would train alone
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model=Sum(), args=arguments, train_dataset=samples)
trainer.train()
print(f"process {arguments.process_index} of {arguments.world_size} has finished")
