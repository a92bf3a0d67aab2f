"""poptorch.ctc_beam_search_decoder: the likeliest paths of a connectionist temporal classification."""

from __future__ import annotations

import math
from typing import Any, Dict, Tuple

import torch

_Path = Tuple[int, ...]
_NEVER = -math.inf


def ctc_beam_search_decoder(
    probs: Any, lengths: Any, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> Tuple[Any, Any, Any]:
    """Return log-probabilities and lengths of paths, (batch, paths), and the paths, (batch, paths, input length).

    `probs` are log-probabilities, (input length, batch, classes).
    """
    steps, batch, _classes = probs.shape
    scores = torch.full((batch, top_paths), _NEVER)
    found_lengths = torch.zeros((batch, top_paths), dtype=torch.int32)
    paths = torch.full((batch, top_paths, steps), blank, dtype=torch.int32)
    for sample in range(batch):
        beams = _beams(probs[: int(lengths[sample]), sample].tolist(), blank, beam_width)
        best = sorted(beams.items(), key=lambda item: -_either(*item[1]))[:top_paths]
        for place, (path, ends) in enumerate(best):
            scores[sample, place] = _either(*ends)
            found_lengths[sample, place] = len(path)
            paths[sample, place, : len(path)] = torch.tensor(path, dtype=torch.int32)
    return scores, found_lengths, paths


def _beams(rows: Any, blank: int, width: int) -> Dict[_Path, Tuple[float, float]]:
    """Return the likeliest prefixes, each with the log-probability that a blank is last, and that none is."""
    beams: Dict[_Path, Tuple[float, float]] = {(): (0.0, _NEVER)}
    for row in rows:
        grown: Dict[_Path, Tuple[float, float]] = {}
        for path, (with_blank, without) in beams.items():
            for label, score in enumerate(row):
                if label == blank:
                    _add(grown, path, _either(with_blank, without) + score, _NEVER)
                elif path and path[-1] == label:
                    _add(grown, path, _NEVER, without + score)
                    _add(grown, (*path, label), _NEVER, with_blank + score)
                else:
                    _add(grown, (*path, label), _NEVER, _either(with_blank, without) + score)
        beams = dict(sorted(grown.items(), key=lambda item: -_either(*item[1]))[:width])
    return beams


def _add(beams: Dict[_Path, Tuple[float, float]], path: _Path, with_blank: float, without: float) -> None:
    old = beams.get(path, (_NEVER, _NEVER))
    beams[path] = _either(old[0], with_blank), _either(old[1], without)


def _either(one: float, other: float) -> float:
    """Return the logarithm of the sum of two probabilities."""
    high, low = max(one, other), min(one, other)
    return high if low == _NEVER else high + math.log1p(math.exp(low - high))
