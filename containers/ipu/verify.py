"""Runs a small model on one IPU and on the CPU. The exit code is 0 if the outputs agree, else 1."""

import sys


def main() -> int:
    """Return 0 if the outputs of IPU and CPU differ only by rounding, else 1."""
    try:
        import poptorch
        import torch
    except ImportError as error:
        sys.stdout.write("NOT OK: %s can't be imported (%s)\n" % (error.name, error))
        return 1
    torch.manual_seed(0)
    model, inputs = torch.nn.Linear(8, 4).eval(), torch.rand(2, 8)
    on_cpu = model(inputs)
    try:
        on_ipu = poptorch.inferenceModel(model)(inputs)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises: no IPU, no partition, a wrong driver
        sys.stdout.write("NOT OK: no model runs on an IPU from here: %s\n" % error)
        return 1
    apart = float((on_cpu - on_ipu).abs().max())
    sys.stdout.write("torch %s, poptorch %s: " % (torch.__version__, poptorch.__version__))
    sys.stdout.write("%s: outputs of IPU and CPU are %.1e apart\n" % ("OK" if apart < 1e-3 else "NOT OK", apart))
    return 0 if apart < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
