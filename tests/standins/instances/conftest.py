"""The stand-ins, importable while a test asks for them."""

from tests.support.standin_poptorch import poptorch

__all__ = ["poptorch"]
