"""The command line: one module a command; parse, call, print. No other package imports it."""

import gc

# Loading modules makes objects that stay: looking for garbage among them took 4 % of the time of `render`.
gc.set_threshold(100_000, 50, 50)
