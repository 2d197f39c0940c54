"""The one way in which a function becomes a compiled kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile ``function`` without the interpreter lock and cache the machine code on disk.

    Inside a kernel ``float(x)`` leaves a float32 as it is: write ``np.float64(x)``. Division
    follows IEEE rules (``error_model="numpy"``): the engine relies on infinities, for example for
    the time of a leaf. Numba has no type stubs, hence the cast.
    """
    compiled = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return cast(Function, compiled)
