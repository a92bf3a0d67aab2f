"""Settings by name that can be made read-only."""

from __future__ import annotations

import copy
from typing import Any, Dict, TypeVar

Self = TypeVar("Self", bound="Settings")


class Settings:
    """Attributes that were given values at first, and no others; frozen, they can't be changed."""

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_frozen", False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_values" not in self.__dict__ or name not in self._values:
            raise AttributeError("%s has no attribute %s" % (type(self).__name__, name))
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        if name not in self._values:
            raise AttributeError("%s has no option %s" % (type(self).__name__, name))
        self._values[name] = value

    def _set(self: Self, name: str, value: Any) -> Self:
        """Set `name`, which may be new, and return these settings, to chain the next."""
        if self._frozen:
            raise AttributeError("Can't modify frozen Options")
        self._values[name] = value
        return self

    def _freeze(self) -> None:
        object.__setattr__(self, "_frozen", True)
        for value in self._values.values():
            if isinstance(value, Settings):
                value._freeze()

    def _thaw(self) -> None:
        object.__setattr__(self, "_frozen", False)
        for value in self._values.values():
            if isinstance(value, Settings):
                value._thaw()

    def clone(self: Self) -> Self:
        """Return a copy that can be changed."""
        found = copy.copy(self)
        object.__setattr__(found, "_values", copy.deepcopy(self._values))
        found._thaw()
        return found

    def toDict(self) -> Dict[str, Any]:
        """Return all values, those of groups under their names."""
        return {name: value.toDict() if isinstance(value, Settings) else value for name, value in self._values.items()}
