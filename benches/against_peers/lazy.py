"""PyTorch and others' kernels, imported where they are first used: without them rows can still be read and listed."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any


class Lazy:
    """A module, imported when something of it is asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
else:
    torch, F = Lazy("torch"), Lazy("torch.nn.functional")

__all__ = ["F", "late", "load", "torch"]


def load() -> None:
    """Imports PyTorch, and puts it into all modules that wait for it: `torch.compile` sees through modules, not through what stands for them."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if type(value) is Lazy:
                setattr(module, name, importlib.import_module(value._name))


def late(module: str, path: str) -> Callable[..., Any]:
    """A function by its module and name, `Class.method` too, imported when it is first called."""

    @functools.cache
    def found() -> Callable[..., Any]:
        return functools.reduce(getattr, path.split("."), importlib.import_module(module))

    return lambda *args, **options: found()(*args, **options)
