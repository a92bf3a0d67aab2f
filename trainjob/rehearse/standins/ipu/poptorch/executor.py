"""What poptorch.trainingModel and poptorch.inferenceModel return: a model that runs on the device."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import nn
from trainjob_standins.announce import say_what_this_is, warn

from poptorch import cache, devices, values
from poptorch.enums import ConnectionType, OutputMode
from poptorch.errors import Error
from poptorch.execution import refuse_options_apart, refuse_short_pipeline
from poptorch.options import Options
from poptorch.program import Program
from poptorch.saved import read
from poptorch.training import TrainingProgram


class PoplarExecutor:
    """A model with options, compiled at its first call and on the device from then on."""

    def __init__(self, model: nn.Module, options: Optional[Options], training: bool, optimizer: Any = None) -> None:
        say_what_this_is()
        self._user_model = model
        self._options = Options() if options is None else options.clone()
        if options is not None:
            options._freeze()
        self._options._freeze()
        self._training = training
        self._optimizer = optimizer
        self._program: Any = None
        self._ipus = 0
        self._expected: List[Tuple[Any, Any]] = []
        self._attached = False
        self._seconds: List[float] = []
        self.rng_state: Any = None

    # -- running -------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results of all micro batches of one call, as the output mode says. Raises Error."""
        if self._program is None:
            self.compile(*args, **kwargs)
        self._refuse_other_inputs(args, kwargs)
        if self._options.connection_type == ConnectionType.Never:
            raise Error("Trying to run a model on an offline device (ConnectionType.Never)")
        self.attachToDevice()
        start = time.perf_counter()
        outputs = self._program.run((args, kwargs))
        self._seconds = [*self._seconds[-99:], time.perf_counter() - start]
        if self._training:
            # A real executor copies when the host's weights are looked at: seen from outside it is the same.
            self.copyWeightsToHost()
        return outputs

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for inputs of these shapes. Raises Error for what the compiler refuses."""
        refuse_options_apart(self._options)
        program = self._new_program()
        started = time.perf_counter()
        self._ipus = self._ipus_for(program.trace((args, kwargs)))
        self._expected = [(tensor.shape, tensor.dtype) for tensor in values.flat((args, kwargs))]
        is_found = cache.finds(self._options, self._user_model, self._expected)
        if self._options.compilation_progress_bar and not is_found:
            cache.show_progress(time.perf_counter() - started)
        self._program = program
        if self._options.connection_type == ConnectionType.Always:
            self.attachToDevice()

    def _new_program(self) -> Program:
        mode = self._options.output_mode
        if not self._training:
            if self._options.Training.gradient_accumulation != 1:
                raise Error("gradient accumulation must be 1 for inference")
            mode = OutputMode.All if mode == OutputMode.Default else mode
            return Program(self._user_model, self._options, mode)
        mode = OutputMode.Final if mode == OutputMode.Default else mode
        return TrainingProgram(self._user_model, self._options, mode, self._optimizer)

    def _ipus_for(self, highest_ipu: int) -> int:
        options, stages = self._options, highest_ipu + 1
        if stages > 1 and options.execution_strategy.is_pipelined:
            refuse_short_pipeline(options, stages, self._training)
        return int(devices.ipus_of_replica(highest_ipu, options.auto_round_num_ipus) * options.replication_factor)

    def _refuse_other_inputs(self, args: Any, kwargs: Any) -> None:
        found = [(tensor.shape, tensor.dtype) for tensor in values.flat((args, kwargs))]
        if found != self._expected:
            raise Error("inputs must be of the shapes and types compiled for: %s, and are %s" % (self._expected, found))

    # -- weights, optimizer --------------------------------------------------------------------

    def setOptimizer(self, optimizer: Any) -> None:
        """Tell the device the optimizer's settings as they are now; until then it keeps those it knows."""
        if not self._training:
            raise Error("setOptimizer is for a training model")
        self._optimizer = optimizer
        if self._program is not None:
            self._program.optimizer.take(optimizer)

    def copyWeightsToHost(self) -> None:
        """Give the host's model the device's weights."""
        if self._program is not None:
            self._program.weights_to_host()

    def copyWeightsToDevice(self) -> None:
        """Give the device the host's weights."""
        if self._program is not None:
            self._program.weights_to_device()

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True) -> Any:
        """Load into the host's model, and give it to the device."""
        found = self._user_model.load_state_dict(state_dict, strict)
        self.copyWeightsToDevice()
        return found

    # -- device --------------------------------------------------------------------------------

    def attachToDevice(self) -> None:
        """Take the device. Raises Error where its IPUs are taken."""
        if self._program is None:
            raise Error("the model must be compiled before it is attached")
        if not self._attached:
            devices.attach(self, self._ipus)
            self._attached = True
            if not self._training:
                # A training model that shares the weights may have changed them meanwhile.
                self.copyWeightsToDevice()

    def detachFromDevice(self) -> None:
        """Let the device go; the host's model has the weights."""
        if not self._attached:
            raise Error("the model is not attached to a device")
        devices.detach(self)
        self._attached = False

    def isAttachedToDevice(self) -> bool:
        """Return whether it holds a device."""
        return self._attached

    def isCompiled(self) -> bool:
        """Return whether it is compiled."""
        return self._program is not None

    def destroy(self) -> None:
        """Forget what was compiled, and let the device go."""
        if self._attached:
            self.detachFromDevice()
        self._program = None

    def getLatency(self) -> Tuple[float, float, float]:
        """Return the shortest, longest and mean seconds of a call: of this CPU."""
        if not self._seconds:
            raise Error("the model has not run")
        return min(self._seconds), max(self._seconds), sum(self._seconds) / len(self._seconds)

    # -- files ---------------------------------------------------------------------------------

    def save(self, path: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the compiled model to `path`. Raises Error unless it is compiled."""
        if self._program is None:
            raise Error("the model must be compiled before it is saved")
        kept = {"expected": self._expected, "ipus": self._ipus, "options": self._options}
        kept.update(training=self._training, model=None, rng_state=None)
        if export_model:
            kept.update(model=self._user_model, optimizer=self._optimizer)
        if save_rng_state:
            kept.update(rng_state=self._program._random_state)
        torch.save(kept, path)

    def compileAndExport(self, path: str, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compile for these inputs and write it to `path`."""
        self.compile(*args, **kwargs)
        self.save(path, export_model=export_model)

    def loadExecutable(self, path: str) -> None:
        """Take what was compiled from `path` instead of compiling. Raises Error where it is of another model."""
        kept = read(path)
        if kept["training"] != self._training:
            raise Error("%s holds a %s model" % (path, "training" if kept["training"] else "inference"))
        self._program = self._new_program()
        self._expected, self._ipus = kept["expected"], kept["ipus"]
        if kept["rng_state"] is not None:
            self._program._random_state = kept["rng_state"]

    # -- the model it wraps --------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """Return the user's own model."""
        return self._user_model

    @property
    def options(self) -> Options:
        """Return the options."""
        return self._options

    def train(self, mode: bool = True) -> PoplarExecutor:
        """Return itself; a compiled model stays as it was when it was compiled."""
        self._user_model.train(mode)
        return self

    def eval(self) -> PoplarExecutor:
        """Return itself, with the user's model made to evaluate."""
        return self.train(False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_user_model":
            raise AttributeError(name)
        return getattr(self._user_model, name)


def trainingModel(model: Any, options: Optional[Options] = None, optimizer: Any = None) -> PoplarExecutor:
    """Return `model` as one that trains on the device; no optimizer means SGD with a learning rate of 0.01."""
    model = model.model if isinstance(model, PoplarExecutor) else model
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return PoplarExecutor(model, options, True, optimizer)


def inferenceModel(model: Any, options: Optional[Options] = None) -> PoplarExecutor:
    """Return `model` as one that gives results on the device."""
    model = model.model if isinstance(model, PoplarExecutor) else model
    if model.training:
        warn("the model of an inferenceModel is in training mode: call model.eval() before it is compiled")
    return PoplarExecutor(model, options, False)


def load(path: str, edit_opts_fn: Optional[Callable[[Options], None]] = None) -> PoplarExecutor:
    """Return the model that `save` wrote with its weights to `path`, compiled. Raises Error."""
    kept = read(path)
    if kept["model"] is None:
        raise Error("%s holds no model: it was written with export_model=False" % path)
    options = kept["options"].clone()
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    make = trainingModel if kept["training"] else inferenceModel
    more = {"optimizer": kept["optimizer"]} if kept["training"] else {}
    found: PoplarExecutor = make(kept["model"], options, **more)
    found.loadExecutable(path)
    return found
