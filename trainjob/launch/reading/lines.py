"""One printed line: the progress of a training, and its loss. A line is unchecked text.

Everything else that a line may have, such as an accuracy or what an evaluation found, is quoted and not interpreted.

Programs print progress in few shapes: a bar of tqdm, Rich or Keras; `name value` pairs such as `step 10/100 loss 2.3`,
which also make up JSON and Python's dictionaries; and counts in brackets behind an epoch, as in `Epoch: [0][10/500]`.
"""

from __future__ import annotations

import math
import re
from typing import Dict, Iterator, Mapping, Match, NamedTuple, Optional, Pattern, Tuple

from trainjob.contract.forms import FIGURES
from trainjob.records.tracked import Logged

UNNAMED = "count"  # the source of counts that may be of batches, of samples, or of something else
_MOST_CHARACTERS = 2000
_LARGEST = 1 << 50
_MOST_HEAD = 40
# Colours and cursor movements, and what else a terminal acts on.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")

_WHOLE = r"\d[\d,]{0,15}"
_NUMBER = r"[-+]?(?:\d[\d,]{0,15}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?"
# A name of up to four words, and its value, in quotes or brackets, with a total or an average in parentheses behind it.
_PAIR = re.compile(
    r"(?P<name>[A-Za-z][\w@/().-]{0,40}(?: [A-Za-z][\w@/().]{0,20}){0,3}(?: \([A-Za-z_ ]{1,20}\))?)"
    r"[\"']?(?:\s{0,12}[:=|]\s{0,20}|\s{1,12})[\"'\[(]{0,2}\s{0,8}"
    r"(?P<value>%s)(?!\w|[:.,]\d|\s{0,3}:?\s{1,8}[-+]?\d[\d.]{0,20}(?:[\s:]|\Z))"  # neither of two numbers
    r"(?:\s?%%)?(?:(?:\s{0,8}/\s{0,8}| of )(?P<of>%s)(?![\w.]))?"
    r"(?:\s{1,8}\(\s{0,8}(?P<average>%s)\s{0,8}\))?" % (_NUMBER, _WHOLE, _NUMBER)
)
# As tqdm prints it: its description, percentage, blocks, count, total, times, rate and postfix.
_TQDM = re.compile(
    r"(?P<before>[^|]{0,300}?(?:\|[^|%%]{0,60}?){0,3}?)\d{1,3}%%\|[^|]{0,400}\|\s{0,8}(?P<count>%s)/(?P<of>%s)"
    r"\s\[(?P<rest>[^\n]{0,800})" % (_WHOLE, _WHOLE)
)
# Without a total: `120it [00:05, 20.1it/s, loss=2.3]`.
_ENDLESS = re.compile(
    r"(?P<before>.{0,300}?)(?P<count>%s)\s?(?:it|step|steps|batch|batches|iter|iters)\s\[\d{1,4}:\d\d(?P<rest>.{0,800})"
    % _WHOLE
)
# Rich and Keras: the count before the bar, or behind it.
_BLOCKS = r"[━╸╺─-]{3,400}"
_RICH = re.compile(
    r"(?P<before>.{0,300}?)%s\s{1,4}(?P<count>%s)/(?P<of>%s)(?P<rest>.{0,800})" % (_BLOCKS, _WHOLE, _WHOLE)
)
_KERAS = re.compile(
    r"(?P<before>)\s{0,12}(?P<count>%s)/(?P<of>%s)\s{1,4}(?:%s|\[[=>.]{3,100}\]|- )(?P<rest>.{0,800})"
    % (_WHOLE, _WHOLE, _BLOCKS)
)
# A count within an epoch: `[0][  10/500]`, `1 [640/60000 (1%)]`, `001:    100 / 1234`, `|   200/ 2983 batches`.
_WITHIN = re.compile(
    r"(?:\[|[:|]\s{1,12}|,\s)\s{0,8}(?P<count>%s)\s?/\s{0,8}(?P<of>%s)(?![\w.])(?!/)" % (_WHOLE, _WHOLE)
)
_BRACKET = re.compile(r"\[\s{0,8}(?P<count>%s)\s?/\s{0,8}(?P<of>%s)\]" % (_WHOLE, _WHOLE))
_LEADING = re.compile(r"\s{0,8}(?:[IWE]\d{4} [^\]]{0,80}\]\s)?\[(?P<count>%s)\]\s" % _WHOLE)

_WORDS_BEFORE = r"(?:(?:\w{1,20} )?(?:train|training|train_inner|completed|global|current|optimizer|at|info|on) ?)?"
# What counts updates, the surest first.
_UPDATES = tuple(
    re.compile(_WORDS_BEFORE + words + r"\Z")
    for words in (
        r"(?:num_updates|(?:train/)?global[_ ]?steps?|current_steps?|total_timesteps|trainer/global_step)",
        r"(?:steps?|train_step|training_step)",
        r"(?:iters?|iterations?|iter\(train\)|it)",
        r"updates?",
    )
)
_BATCH = re.compile(r"(?:.{0,20} )?(?:batch|batches|batch_idx|minibatch|mini-batch)\Z")
_TOTAL = re.compile(
    r"(?:total|max|num|train|training|num_training|num_train|lr_decay)[-_ ](?:optimization |train |training )?"
    r"(?:steps|iters|iterations|updates)\Z"
)
# Not the best one, or how many there are, or what takes place in each.
_EPOCH = re.compile(
    r"(?:(?!.{0,30}(?:best.{0,20}|per|num|max|total|warmup|stop)[ _-]epoch|.{0,30}start_epoch).{0,30}[ /_(])?"
    r"epoch(?:\(train\))?\Z|ep\Z|train\Z"
)
_EPOCHS = re.compile(r"(?:(?:num|max|total|train|num_train|number of)[-_ ](?:train[-_ ])?)?epochs\Z")
_HELD_OUT = re.compile(
    r"(?:\A|(?<!no)[^a-z])(?:val|valid|validation|eval|evaluation|evaluate|evaluating|test|testing|dev)(?![a-z])"
)
# The first word of a line, behind what loggers put before it.
_HELD_OUT_FIRST = re.compile(
    r"(?:[\W\d]|(?:info|debug|root|main|rank|cuda)\b){0,80}(?:val|valid|validation|eval|test)\b|\s{0,8}\*\s{1,8}acc"
)
# Bars that count something else than training.
_ASIDE = re.compile(
    r"\b(?:sanity|predict|infer|download|load|fetch|map|token|filter|sav|writ|copy|upload|generat|process|preprocess|"
    r"prepar|pack|cach|extract|creat|read|scan|build|resolv|install|import|group|comput|check|warm|shuffl|collect)\w*"
)
_NOT_UPDATES = re.compile(r"\d[kMGT]?i?B/s|\d ?(?:examples|files|shards|rows|lines|docs|tokens)/s")

# Words that the loss may have in its name; with any other it is a part, or another loss.
_LOSS = {"loss", "total", "average", "averaged", "avg", "mean", "epoch", "batch", "step", "iter", "iteration", "lm"}
_LOSS |= {"train", "training", "current", "cur"}
_LOSSES = {"loss", "losses", "xent", "nll", "logloss", "mlogloss", "rmse", "mse", "cost", "error"}
# What else makes a line worth quoting, and its count one of a training.
_TELLING = {"acc", "accuracy", "acc1", "acc@1", "top1", "prec@1", "lr", "learning", "f1", "auc", "bleu", "ppl"}


class Reading(NamedTuple):
    """The values in one line. Readings of the same `source` count the same thing."""

    source: str
    update: Optional[int] = None
    total: Optional[int] = None
    epoch: Optional[float] = None
    epochs: Optional[int] = None
    within_epoch: bool = False  # the count begins again with each epoch
    is_bar: bool = False
    is_weak: bool = False  # a count without anything that belongs to a training
    figures: Mapping[str, float] = {}  # of training: the loss, or what an expression of the job has found
    is_telling: bool = False  # it names figures, perhaps those of an evaluation
    names_training: bool = False  # its name, or a held-out loss beside it, says that the loss is the training's
    at: Optional[float] = None  # in seconds since 1970; None: when it was read


def plain(line: str) -> str:
    """Return a line without colours and control characters, cut to what is read of it."""
    return _ESCAPES.sub("", line[:_MOST_CHARACTERS])


def is_held_out_heading(line: str) -> bool:
    """Return whether a line says that the next one is of an evaluation."""
    text = plain(line).strip().lower()
    return text.endswith(":") and _HELD_OUT_FIRST.match(text) is not None


def read(line: str) -> Optional[Reading]:
    """Return what a line says of a training; None if that is nothing."""
    text = plain(line)
    if not any(map(str.isdigit, text)):
        return None
    for kind, shape in (("tqdm", _TQDM), ("tqdm", _ENDLESS), ("rich", _RICH), ("keras", _KERAS)):
        match = shape.match(text)
        if match is not None:
            return _of_bar(kind, match)
    return _of_pairs(text)


def read_by(pattern: Pattern[str], line: str) -> Optional[Reading]:
    """Return what the job's own `pattern` finds in a line."""
    match = pattern.search(plain(line))
    if match is None:
        return None
    found = {name: number for name, text in match.groupdict().items() if (number := _number(text)) is not None}
    figures = {name: found[name] for name in FIGURES if name in found}
    update, total, epochs = (_whole(found.get(name)) for name in ("update", "total", "epochs"))
    return Reading("pattern", update, total, found.get("epoch"), epochs, figures=figures)


def of_values(source: str, logged: Logged) -> Reading:
    """Return what a file says of a training with the values that it has logged at one step."""
    named = _NamedValues("")
    for name, value in logged.values.items():
        named.figure(name.lower(), value)
    return named.reading(source, logged.step, logged.total, logged.epoch)._replace(at=logged.at)


def _of_bar(kind: str, match: "Match[str]") -> Optional[Reading]:
    before, rest = match["before"], match["rest"]
    lower = before.lower()
    if _NOT_UPDATES.search(rest) or _ASIDE.search(lower):
        return None
    count, of = _whole(_number(match["count"])), _whole(_number(match.groupdict().get("of")))
    named = _NamedValues("%s , %s" % (before, rest))
    # Behind the training's loss, it is the name of another figure.
    if count is None or _HELD_OUT.search(lower.partition("loss")[0] if "loss" in named.figures else lower):
        return Reading("aside", is_telling=named.is_telling)
    epoch, epochs = named.epoch, named.epochs
    if kind == "rich" and epoch is not None and epochs is not None:
        # Lightning counts from 0, up to the number of the last epoch.
        epoch, epochs = epoch + 1, epochs + 1
    label = " ".join(re.sub(r"[\d.,]+|\b(?:nan|inf)\b", "#", before).split())
    # Another total is another loop where bars have no name: an evaluation within Hugging Face's Trainer.
    source = "%s %s" % (kind, label[:80] or of or "")
    within = kind == "keras" or epoch is not None
    return named.reading(source, count, of, epoch, epochs, within)._replace(is_bar=True)


def _of_pairs(text: str) -> Optional[Reading]:
    named = _NamedValues(text)
    head = text[: named.begins_at].lower()
    is_held_out = _HELD_OUT.search(head[-_MOST_HEAD:]) or _HELD_OUT_FIRST.match(text.lower())
    is_bare = named.update is None and named.epoch is None and named.is_telling
    leading = _LEADING.match(text) if is_bare else None
    if leading is not None:
        return named.reading("brackets", _whole(_number(leading["count"])))
    within_match = None
    if named.update is None and named.epoch is not None:
        within_match = _WITHIN.search(text, named.epoch_at)
    elif named.update is None and named.figures:
        within_match = _BRACKET.search(text)
    if is_held_out:
        return Reading("aside", is_telling=named.is_telling)
    if named.is_of_train_word and within_match is None:
        named.epoch = None
    if within_match is not None:
        count, of = _whole(_number(within_match["count"])), _whole(_number(within_match["of"]))
        return named.reading(UNNAMED, count, of, named.epoch, named.epochs, True)
    if named.is_batch and named.total is None and (named.epoch is None or not named.figures):
        named.update = None  # the size of a batch
    if named.update is not None:
        is_weak = named.total is None and not named.is_telling
        counts = (named.update, named.total, named.epoch, named.epochs, named.is_within)
        return named.reading("line %s" % named.update_name, *counts)._replace(is_weak=is_weak)
    if (named.total, named.epoch, named.epochs) == (None, None, None) and not named.is_telling:
        return None
    source = "epoch" if named.epoch is not None else "figures"
    return named.reading(source, None, named.total, named.epoch, named.epochs)


class _NamedValues:
    """The `name value` pairs of a line, sorted by what they are about."""

    def __init__(self, text: str) -> None:
        self.update: Optional[int] = None
        self.update_name = ""
        self.is_batch = self.is_within = self.is_of_train_word = self._is_whole_epoch = False
        self.total: Optional[int] = None
        self.epoch: Optional[float] = None
        self.epochs: Optional[int] = None
        self.figures: Dict[str, float] = {}
        self.is_telling = False
        self.epoch_at = 0
        self.begins_at = len(text)  # the first count or figure
        self._order = len(_UPDATES) + 1
        self._has_held_out_loss = self._names_training = False
        for match, name, value in _pairs(text):
            self._add(match, name, value)

    def _add(self, match: "Match[str]", name: str, value: float) -> None:
        whole, of = _whole(value), _whole(_number(match["of"]))
        order = next((number for number, shape in enumerate(_UPDATES) if shape.match(name)), None)
        is_batch = order is None and _BATCH.match(name) is not None
        if is_batch:
            order = len(_UPDATES)
        if order is None and _TOTAL.match(name) and whole:
            self.total = self.total or whole
        elif _EPOCHS.match(name) and whole:
            self.epochs = self.epochs or whole
        elif order is not None and whole is not None:
            self.begins_at = min(self.begins_at, match.start("value"))
            if order < self._order:
                self._order, self.update, self.update_name, self.is_batch = order, whole, name[-40:], is_batch
                self.total = of or self.total
                # `Epoch 1/5, step 100/600`; a surer name counts over all epochs.
                self.is_within = is_batch or (order > 0 and of is not None and self._is_whole_epoch)
        elif _EPOCH.match(name) and value >= 0 and self.epoch is None:
            self.epoch, self.epochs, self.epoch_at = value, of or self.epochs, match.end("value")
            self.is_of_train_word, self._is_whole_epoch = name == "train", "." not in match["value"]
            self.begins_at = min(self.begins_at, match.start("value"))
        else:
            average = _number(match["average"])  # over the batches so far, behind the newest one's
            if self.figure(name, value if average is None else average):
                self.begins_at = min(self.begins_at, match.start())

    def reading(
        self,
        source: str,
        update: Optional[int],
        total: Optional[int] = None,
        epoch: Optional[float] = None,
        epochs: Optional[int] = None,
        within_epoch: bool = False,
    ) -> Reading:
        """Return these figures with the counts to which they belong."""
        counts = (update, total, epoch, epochs, within_epoch)
        # A loss beside one that is named as that of an evaluation is the training's.
        told = (self.is_telling, self._has_held_out_loss or self._names_training)
        return Reading(source, *counts, False, False, self.figures, *told)

    def figure(self, name: str, value: float) -> bool:
        """Note a value, and return whether its lower-case name is that of a figure."""
        words = set(re.split(r"[ _/.()-]+", name)) - {""}
        is_figure = bool(words & (_LOSSES | _TELLING))
        self.is_telling |= is_figure
        if "loss" in words and _HELD_OUT.search(name):
            self._has_held_out_loss = True
        elif "loss" in words and words <= _LOSS:
            self._names_training |= not words.isdisjoint(("train", "training"))
            self.figures.setdefault("loss", value)
        return is_figure


def _pairs(text: str) -> Iterator[Tuple["Match[str]", str, float]]:
    for match in _PAIR.finditer(text):
        value = _number(match["value"])
        if value is not None:
            name = match["name"].lower().strip("/.-")
            yield match, name if ")" in name else name.rpartition("(")[2], value


def _number(text: Optional[str]) -> Optional[float]:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(value: Optional[float]) -> Optional[int]:
    return int(value) if value is not None and 0 <= value < _LARGEST and value == int(value) else None
