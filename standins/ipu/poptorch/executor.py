"""The result of poptorch.trainingModel and poptorch.inferenceModel: a model that runs on the device."""

from __future__ import annotations

import copy
import time
import weakref
from collections import OrderedDict
from functools import partial
from typing import Any, Callable, Dict, List, Optional

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from trainjob_standins.announce import log, say_what_this_is, warn

from poptorch import arguments, cache, devices, option_lines, values
from poptorch.enums import ConnectionType
from poptorch.errors import Error
from poptorch.grouping import WeightOfExecutor, grouped_weights
from poptorch.inspecting import Inspection
from poptorch.optim import Optimizer, accumulates_in_half
from poptorch.optimizer_lines import Unexpected
from poptorch.options import Options
from poptorch.program import Program
from poptorch.stages import refuse_accumulation, refuse_options_apart, refuse_short_pipeline
from poptorch.training import TrainingProgram

_before_compiling: "OrderedDict[int, Callable[[], object]]" = OrderedDict()
_after_compiling: "OrderedDict[int, Callable[[], object]]" = OrderedDict()
# How often a training model has given its weights to a module of the user's: inference follows.
_versions: Any = weakref.WeakKeyDictionary()
# The training model that has a module of the user's, by that module.
_training_models: Any = weakref.WeakKeyDictionary()


class _Unwrapping:
    """`destroy` of a module that a training model has: it lets go of it."""

    def __get__(self, model: Any, owner: object = None) -> Any:
        executor = _training_models.get(model, lambda: None)()
        if executor is None:
            raise AttributeError("destroy")
        return executor.destroy


nn.Module.destroy = _Unwrapping()  # type: ignore[attr-defined]


class PoplarExecutor(Inspection):
    """A model with options, compiled at its first call and on the device from then on."""

    def __init__(self, model: nn.Module, options: Optional[Options], training: bool, optimizer: Any = None) -> None:
        say_what_this_is()
        if options is not None and not isinstance(options, Options):
            raise Error("Invalid type: 'options' is of type %s (Expected poptorch.Options)" % type(options))
        self._user_model = model
        self._options = (Options() if options is None else options.clone()).settled(training, optimizer)
        if options is not None:
            options._freeze()
        self._options._freeze()
        self._training = training
        self._optimizer = optimizer
        # As documented, a later train() or eval() of the user's model makes no difference.
        self._modes = {module: module.training for module in model.modules()}
        self._program: Any = None
        self._ipus = 0
        self.per_replica_params: Dict[str, Any] = {}  # by the weight's name, what replicaGrouping was told
        self._expected: List[Any] = []  # the form of the arguments that it was compiled for
        self._begin_inspection()
        self._device: Any = None
        self._version = _versions.get(model, 0)
        self._shown: Optional[nn.Module] = None
        self._unexpected: Optional[Unexpected] = None
        self._read: Optional[Dict[str, Any]] = None  # the optimizer's state, as it was read since it changed
        if not training:
            refuse_accumulation(self._options)
        if isinstance(optimizer, Optimizer):
            self._follow(optimizer)
        if training:
            _training_models[model] = weakref.ref(self)

    # -- running -------------------------------------------------------------------------------

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Return the results of all micro batches of one call, as the output mode says. Raises Error."""
        if self._options.connection_type == ConnectionType.Never:
            raise AssertionError(
                "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead "
                "of model(inputs)"
            )
        call = arguments.bound(self._user_model.forward, args, kwargs)
        if self._program is None:
            self._compile(call)
        arguments.refuse_others(self._expected, arguments.form(self._user_model.forward, call))
        if self._device is None:
            self.attachToDevice()
        if not self._training and _versions.get(self._user_model, 0) != self._version:
            self.copyWeightsToDevice()
        self._write_optimizer_state()
        self._read = None
        with self._timed():
            outputs = self._program.run(call)
        if self._training:
            # A real executor copies when the host's weights are looked at: seen from outside it is the same.
            self._program.weights_to_host()
            _versions[self._user_model] = _versions.get(self._user_model, 0) + 1
        return _without_backward(outputs)

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile for inputs of these shapes. Raises Error for what the compiler refuses."""
        if self._program is not None:
            warn("Call to compile() ignored: the executable is already compiled")
            return
        self._compile(arguments.bound(self._user_model.forward, args, kwargs))

    def _compile(self, call: Any) -> None:
        refuse_options_apart(self._options)
        for tensor in values.flat(call):
            if not tensor.numel():
                raise Error("Zero-sized tensors are unsupported (Got shape %s)" % list(tensor.shape))
        option_lines.tell(self._options)
        for hook in _before_compiling.values():
            hook()
        program = self._new_program()
        started = time.perf_counter()
        self._ipus = self._ipus_for(program.trace(call))
        self._compiled_in = time.perf_counter() - started
        self._expected = arguments.form(self._user_model.forward, call)
        is_found = cache.finds(self._options, self._user_model, self._expected)
        if self._options.compilation_progress_bar and not is_found:
            cache.show_progress(self._compiled_in)
        self._program = program
        cache.leave_profile(self._options, self._training)
        if self._options.connection_type == ConnectionType.Always:
            try:
                self.attachToDevice()
            except Error:
                self._program = None
                raise
        for hook in _after_compiling.values():
            hook()

    def _new_program(self) -> Program:
        if self._shown is not None and self._shown.training != self._modes[self._user_model]:
            self._modes = {module: module.training for module in self._user_model.modules()}
            self._modes[self._user_model] = self._shown.training
        how = self._options, self._options.output_mode, self._modes
        is_training, model = self._training, self._user_model
        program = TrainingProgram(model, *how, self._optimizer) if is_training else Program(model, *how)
        named = dict(model.named_parameters())
        program.hold_apart(grouped_weights(self.per_replica_params, named, self._options))
        self._mark_settings_sent()
        return program

    def _mark_settings_sent(self) -> None:
        """Note that the device has the optimizer's settings as they are."""
        self._read = None
        if isinstance(self._optimizer, Optimizer):
            self._optimizer._numbers_count = False
        if self._training and self._unexpected is None:
            self._unexpected = Unexpected(self._optimizer)
        elif self._unexpected is not None and not self._options.relax_optimizer_checks:
            self._unexpected.warn(self._optimizer)

    def _ipus_for(self, highest_ipu: int) -> int:
        options, stages = self._options, highest_ipu + 1
        if stages > 1 and options.execution_strategy.is_pipelined:
            refuse_short_pipeline(options, stages, self._training)
        return int(devices.ipus_of_replica(highest_ipu, options.auto_round_num_ipus) * options.replication_factor)

    # -- weights, optimizer --------------------------------------------------------------------

    def setOptimizer(self, optimizer: Any) -> None:
        """Tell the device the optimizer's settings as they are now; until then it keeps those it knows."""
        if not self._training:
            raise Error("setOptimizer is for a training model")
        if self._program is not None:
            is_other = self._program.optimizer.accumulators_are_half != accumulates_in_half(optimizer)
            if is_other and self._options.is_mean():
                raise ValueError(
                    "accum_type asks for another mean reduction strategy, and the model is already compiled"
                )
        if isinstance(self._optimizer, Optimizer) and optimizer is not self._optimizer:
            self._optimizer._loaded = self._optimizer._on_ipu()
            self._optimizer._reader = None
        self._optimizer = optimizer
        if isinstance(optimizer, Optimizer):
            self._follow(optimizer)
        if self._program is not None:
            self._program.optimizer.take(optimizer)
            self._mark_settings_sent()

    def _follow(self, optimizer: Optimizer) -> None:
        """Let the optimizer's state_dict read the state on the device, without keeping this model alive."""
        me = weakref.ref(self)

        def read() -> Optional[Dict[str, Any]]:
            executor = me()
            if executor is None or executor._program is None or optimizer._loaded is not None:
                return None
            if executor._options.connection_type == ConnectionType.Never:
                return None
            return executor._optimizer_state()

        optimizer._reader = read

    def _optimizer_state(self) -> Dict[str, Any]:
        if self._read is None:
            log("DEBUG", "Writing optimiser state tensors from IPU to host.")
            on_device = self._program.optimizer
            self._read = {"ipu_state": on_device.read(), "ipu_param": on_device.numbers()}
        else:
            log("DEBUG", "Using cached optimiser state dict")
        return self._read

    def _write_optimizer_state(self) -> None:
        loaded = self._optimizer._loaded if isinstance(self._optimizer, Optimizer) else None
        if loaded is not None:
            self.copyWeightsToHost()
            log("DEBUG", "Writing optimiser state tensors from host to IPU memory.")
            numbers = loaded["ipu_param"] if self._optimizer._numbers_count else {}
            self._program.optimizer.write(loaded["ipu_state"], numbers)
            self._optimizer._loaded = self._read = None

    def copyWeightsToHost(self) -> None:
        """Give the host's model the device's weights. Raises Error unless it is compiled."""
        log("DEBUG", "copyWeightsToHost()")
        self._compiled().weights_to_host()

    def copyWeightsToDevice(self) -> None:
        """Give the device the host's weights. Raises Error unless it is compiled."""
        self._compiled().weights_to_device()
        self._version = _versions.get(self._user_model, 0)

    def copyNamedBuffersToDevice(self) -> None:
        """Give the device the buffers that options.updatableNamedBuffers names."""
        self._compiled().buffers_to_device(self._options.updatable_named_buffers)

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True) -> Any:
        """Load into the host's model, and give it to the device."""
        keys = self._user_model.load_state_dict(state_dict, strict)
        if self._program is not None:
            self.copyWeightsToDevice()
        return keys

    # -- device --------------------------------------------------------------------------------

    def attachToDevice(self) -> None:
        """Take the device. Raises Error if its IPUs are taken."""
        self._compiled()
        if self._device is not None:
            return
        self._device = devices.Device(self, self._ipus, self._options.ipu_id)
        # The host's weights, and what a checkpoint has given the optimizer, are the device's from now on.
        self.copyWeightsToDevice()
        self._write_optimizer_state()

    def detachFromDevice(self) -> None:
        """Let the device go; the host's model has the weights."""
        if self._device is None:
            raise Error("Device is not attached")
        if isinstance(self._optimizer, Optimizer):
            self._optimizer._on_ipu()
        self._device.let_go()
        self._device = None

    def isAttachedToDevice(self) -> bool:
        """Return whether it holds a device."""
        return self._device is not None

    def destroy(self) -> None:
        """Forget what was compiled, and let the device go; weights and optimizer state stay with the host."""
        if self._training:
            _training_models.pop(self._user_model, None)
        if self._program is None:
            return
        if isinstance(self._optimizer, Optimizer):
            self._optimizer._loaded = self._optimizer._on_ipu()
        if self._device is not None:
            self.detachFromDevice()
        self._program = None

    # -- files ---------------------------------------------------------------------------------

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the compiled model to `filename`. Raises Error unless it is compiled."""
        self._compiled()
        kept = {"expected": self._expected, "ipus": self._ipus, "options": self._options, "training": self._training}
        kept["per_replica_params"] = self.per_replica_params
        kept.update(model=None, rng_state=self.rng_state if save_rng_state else None, attributes=None)
        if export_model:
            modes = [self._modes.get(module, module.training) for module in self._user_model.modules()]
            kept.update(model=self._user_model, optimizer=self._optimizer, modes=modes)
        cache.write(kept, filename)

    def compileAndExport(self, filename: str, *args: object, export_model: bool = True, **kwargs: object) -> None:
        """Compile for these inputs and write it to `filename`."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model=export_model)

    def loadExecutable(self, filename: str) -> None:
        """Take what was compiled from `filename` instead of compiling. Raises Error if it is of another model."""
        kept = cache.read(filename)
        if kept["training"] != self._training:
            raise Error("%s holds a %s model" % (filename, "training" if kept["training"] else "inference"))
        self.per_replica_params = kept["per_replica_params"]
        self._program = self._new_program()
        self._expected, self._ipus = kept["expected"], kept["ipus"]
        if kept["rng_state"] is not None:
            self.rng_state = kept["rng_state"]
        if self._options.connection_type == ConnectionType.Always:
            self.attachToDevice()

    # -- the model it wraps --------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """Return the user's own model; of one for inference a copy with the same parts, whose eval() counts."""
        if self._training:
            return self._user_model
        if self._shown is None:
            self._shown = copy.copy(self._user_model)
        return self._shown

    @property
    def options(self) -> Options:
        """Return the options."""
        options: Options = self._options
        return options

    def train(self, mode: bool = True) -> PoplarExecutor:
        """Return itself; a compiled model stays as it was when it was compiled."""
        self._user_model.train(mode)
        if self._program is None:
            self._modes = {module: module.training for module in self._user_model.modules()}
        return self

    def eval(self) -> PoplarExecutor:
        """Return itself, with the user's model made to evaluate."""
        return self.train(False)

    def __repr__(self) -> str:
        return repr(self._user_model)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_user_model":
            raise AttributeError(name)
        value = getattr(self._user_model, name)
        return WeightOfExecutor(value, partial(self._hold_apart, name)) if isinstance(value, nn.Parameter) else value

    def _hold_apart(self, name: str, grouping: object) -> None:
        if self._program is not None:
            raise Error("replicaGrouping of %s: the model is compiled already. Call it before the first call" % name)
        self.per_replica_params[name] = grouping


def registerPreCompileHook(hook: Callable[[], object]) -> RemovableHandle:
    """Call `hook` before each compilation, until the handle removes it. Raises RuntimeError if it can't be called."""
    return _register(_before_compiling, hook, "Pre-compile")


def registerPostCompileHook(hook: Callable[[], object]) -> RemovableHandle:
    """Call `hook` after each compilation, until the handle removes it. Raises RuntimeError if it can't be called."""
    return _register(_after_compiling, hook, "Post-compile")


def _register(hooks: Any, hook: Callable[[], object], kind: str) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError("%s hook must be callable" % kind)  # noqa: TRY004 - poptorch's own
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def _without_backward(outputs: object) -> Any:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise Error(
            "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, "
            "the backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, "
            "you should use a trainingModel instead."
        )

    for tensor in values.flat(outputs):
        tensor.backward = refuse
    return outputs


def trainingModel(model: Any, options: Optional[Options] = None, optimizer: Any = None) -> PoplarExecutor:
    """Return `model` as one that trains on the device; no optimizer means SGD with a learning rate of 0.01."""
    model = model._user_model if isinstance(model, PoplarExecutor) else model
    if _training_models.get(model, lambda: None)() is not None:
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return PoplarExecutor(model, options, True, optimizer)


def inferenceModel(model: Any, options: Optional[Options] = None) -> PoplarExecutor:
    """Return `model` as one that gives results on the device."""
    model = model._user_model if isinstance(model, PoplarExecutor) else model
    if model.training:
        warn("the model of an inferenceModel is in training mode: call model.eval() before it is wrapped")
    return PoplarExecutor(model, options, False)


def load(filename: str, edit_opts_fn: Optional[Callable[[Options], None]] = None) -> PoplarExecutor:
    """Return the model that `save` wrote with its weights to `filename`, compiled and on a device. Raises Error."""
    kept = cache.read(filename)
    if kept["model"] is None:
        raise Error("%s holds no model: it was written with export_model=False" % filename)
    # An offline target was there to compile; what is loaded is there to run.
    options = kept["options"].clone().connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    for module, mode in zip(kept["model"].modules(), kept["modes"]):
        module.training = mode
    make = trainingModel if kept["training"] else inferenceModel
    more = {"optimizer": kept["optimizer"]} if kept["training"] else {}
    loaded: PoplarExecutor = make(kept["model"], options, **more)
    loaded.loadExecutable(filename)
    return loaded
