"""Compilation for CUDA, switched on in this one place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar, cast

import torch

Function = TypeVar('Function', bound=Callable)


def fused(function: Function, device: torch.device) -> Function:
    """Compile a function for CUDA, where fused kernels save most of the traffic to memory.

    On other devices, and where what torch needs to compile is missing, the function itself.
    """
    tools = find_spec('triton') is not None and (shutil.which('gcc') or shutil.which('clang'))
    if device.type != 'cuda' or not tools:
        return function
    return cast('Function', torch.compile(function))
