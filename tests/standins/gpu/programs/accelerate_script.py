"""A script on accelerate, in the style of its examples: prepare, accumulate, backward, gather."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    set_seed(0)
    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
    inputs = torch.randn(64, 8)
    targets = (inputs.sum(dim=1) > 0).long()
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    assert accelerator.device.type == "cuda"
    assert next(model.parameters()).is_cuda
    for _ in range(8):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    model.eval()
    right = []
    with torch.no_grad():
        for x, y in loader:
            predicted, expected = accelerator.gather_for_metrics((model(x).argmax(dim=1), y))
            right.append((predicted == expected).float())
    accuracy = torch.cat(right).mean().item()
    accelerator.wait_for_everyone()
    accelerator.save_state("state")
    accelerator.wait_for_everyone()
    accelerator.load_state("state")
    accelerator.print("accelerate ok" if accuracy > 0.8 else "accelerate learnt nothing: %g" % accuracy)
    accelerator.end_training()


if __name__ == "__main__":
    main()
