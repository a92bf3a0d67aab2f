"""poptorch.DataLoader against ipu.md 4.4."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.standin_loaders import batches, numbers, options_of


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["Async", "AsyncRebatched"])
def test_asynchronous_modes_give_the_same_batches(poptorch: Any, mode: str, workers: int) -> None:
    """4.4: for map-style data AsyncRebatched behaves as Async; several epochs, then terminate."""
    loader = poptorch.DataLoader(
        options_of(poptorch), numbers(10), 2, num_workers=workers, mode=poptorch.DataLoaderMode[mode]
    )
    for _ in range(3):
        assert batches(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    for (batch,) in loader:
        assert batch.tolist() == [0, 1]
        break
    assert batches(loader)[0] == [0, 1]
    loader.terminate()


def test_an_asynchronous_batch_must_be_cloned_to_be_kept(poptorch: Any) -> None:
    """4.4: shared memory is used again."""
    loader = poptorch.DataLoader(options_of(poptorch), numbers(60), 2, mode=poptorch.DataLoaderMode.Async)
    kept, cloned = [], []
    for (batch,) in loader:
        kept.append(batch)
        cloned.append(batch.clone())
    loader.terminate()
    assert torch.equal(torch.cat(cloned), torch.arange(60))
    assert any(not torch.equal(one, other) for one, other in zip(kept, cloned, strict=True))


class Unpicklable(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.transform: Callable[[Any], Any] = lambda value: value

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        return self.transform(index)


def test_asynchronous_data_must_pickle(poptorch: Any) -> None:
    """4.4: data set and transform must pickle (not with the sharing strategy Fork)."""
    with pytest.raises((AttributeError, TypeError), match=r"pickle|local"):
        poptorch.DataLoader(options_of(poptorch), Unpicklable(), mode=poptorch.DataLoaderMode.Async)
    fork = {"sharing_strategy": poptorch.SharingStrategy.Fork}
    loader = poptorch.DataLoader(
        options_of(poptorch), Unpicklable(), 2, mode=poptorch.DataLoaderMode.Async, async_options=fork
    )
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    loader.terminate()


class Broken(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> None:
        raise KeyError(f"sample {index} is damaged")


def test_an_asynchronous_loader_hands_errors_on(poptorch: Any) -> None:
    """What the data set raises reaches who iterates."""
    loader = poptorch.DataLoader(options_of(poptorch), Broken(), mode=poptorch.DataLoaderMode.Async)
    with pytest.raises(KeyError, match="sample 0 is damaged"):
        next(iter(loader))
    loader.terminate()


class Seeding(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: Any) -> Any:
        torch.manual_seed(index)
        return torch.rand(())


def test_batches_made_ahead_draw_no_random_number_of_this_process(poptorch: Any) -> None:
    """Whatever the data set seeds and draws, the program's own numbers stay as they are without a loader."""
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    loader = poptorch.DataLoader(options_of(poptorch), Seeding(), 2, mode=poptorch.DataLoaderMode.Async)
    assert len([batch.clone() for batch in loader]) == 4
    assert torch.equal(torch.rand(3), expected)
    loader.terminate()


class Killing(Seeding):
    def __getitem__(self, index: Any) -> Any:
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_killed_loader_is_an_error_and_no_wait(poptorch: Any) -> None:
    loader = poptorch.DataLoader(options_of(poptorch), Killing(), 2, mode=poptorch.DataLoaderMode.Async)
    with pytest.raises(RuntimeError, match="exit code -9"):
        list(loader)
