"""How functions are compiled and their machine code is cached; an instruction that Numba lacks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.caching import FunctionCache, NullCache
from numba.extending import intrinsic, overload_method
from numpy.typing import NDArray

IS_COMPILED = not getattr(numba.config, "DISABLE_JIT")  # noqa: B009 (not in Numba's type stubs)
"""False if kernels run as plain Python; intrinsics then need a substitute."""

_LOGGER = logging.getLogger("mondrian_forest")

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile ``function`` without the interpreter lock and cache the machine code on disk.

    A kernel that Python calls returns numbers and fills the arrays that it is given. It must not
    return an array or a NamedTuple. Numba would run Python code to make one, and if an interrupt
    arrives at that moment, the interpreter crashes or the interrupt becomes a SystemError.

    Inside a kernel ``float(x)`` leaves a float32 as it is: write ``np.float64(x)``. Division
    follows IEEE rules (``error_model="numpy"``), since the engine relies on infinities, for example
    for the time of a leaf.
    """
    return _compiled(function)


def borrowing_kernel(function: Function) -> Function:
    """Compile as ``kernel`` does, without reference counts.

    For functions that only borrow arrays: they allocate none and return none. Otherwise Numba
    counts a reference whenever an array is passed on, sliced or taken out of a tuple, and each
    count is an atomic operation. Without them, a stream of single rows is learned 1.3 times as
    fast. Functions that borrow may call functions that count, and the other way round.
    """
    return _compiled(function, _nrt=False)


def inner_kernel(function: Function) -> Function:
    """Compile as ``borrowing_kernel`` does, and always inline the code where it is called.

    This is for small functions in hot loops. An array is passed as up to eleven numbers, most of
    them on the stack, so that a call can take longer than the function itself. For the excess of a
    row over a box, the call took 50 of 100 cycles; inlining it took a stream of 1M rows from 6 to
    4.9 s. Besides, a loop around an inlined function can be vectorised.
    """
    return _compiled(function, forceinline=True, _nrt=False)


def reordering_kernel(function: Function) -> Function:
    """Compile as ``kernel`` does, and let sums be taken in any order.

    They are then taken in vector registers. Their rounding may differ between processors.
    """
    return _compiled(function, fastmath={"reassoc", "contract"})


Class = TypeVar("Class", bound=type)
_known_methods: set[str] = set()


def kernel_methods(named_tuple: Class) -> Class:
    """Let kernels call those methods of a NamedTuple that are kernels themselves.

    So classes with the same methods are interchangeable parts. Numba compiles a kernel that takes
    such a part separately for each class, and each time only the code of that class.
    """
    for name, method in vars(named_tuple).items():
        if IS_COMPILED and hasattr(method, "py_func") and name not in _known_methods:
            _known_methods.add(name)
            choose = _chooser(name, inspect.signature(method.py_func))
            options: dict[str, Any] = {"jit_options": method.targetoptions}
            for kind in (types.NamedTuple, types.NamedUniTuple):
                overload_method(kind, name, **options)(choose)
    return named_tuple


def _chooser(name: str, signature: inspect.Signature) -> Callable[..., Any]:
    """Return the function that tells Numba which code a call of a method means."""

    def choose(self: Any, *_arguments: Any) -> Any:
        return getattr(getattr(self.instance_class, name, None), "py_func", None)

    choose.__signature__ = signature  # type: ignore[attr-defined]
    return choose


def has_cached_code(function: Callable[..., object]) -> bool:
    """Return whether the cache on disk has machine code for a kernel."""
    cache = getattr(function, "_cache", None)
    return isinstance(cache, _Cache) and cache.has_code()


def _compiled(function: Function, **options: Any) -> Function:
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    if IS_COMPILED:
        # The place where ``cache=True`` would put Numba's own cache; it has no public name.
        dispatcher._cache = _cache_of(function)  # noqa: SLF001
    return cast(Function, dispatcher)  # Numba has no type stubs


def _cache_of(function: Callable[..., object]) -> Any:
    try:
        return _Cache(function)
    except RuntimeError:  # Numba finds no folder that it can write to
        return _NoCache()


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk. If the cache fails, the kernel is compiled, and the fit goes on."""

    def has_code(self) -> bool:
        """Return whether there is code of the source as it is now, for any types."""
        try:
            # Numba has no public way to ask.
            return len(self._cache_file._load_index()) > 0  # noqa: SLF001
        except Exception:  # a damaged file: unpickling it can raise anything
            return False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # a damaged file: unpickling it can raise anything
            with suppress(OSError):  # saving fails as well then, and warns
                self.flush()
            return None
        # If two processes compile a kernel at the same time for different types, the index may name
        # the other process's file.
        is_ours = found is not None and tuple(found.signature.args) == tuple(sig)
        return found if is_ours else None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:  # a full disk, or a folder that has become read-only
            _warn_once(f"{self.cache_path!r}: {error}")


class _NoCache(NullCache):  # type: ignore[misc]
    """Keeps nothing, and warns when the first kernel is compiled."""

    def save_overload(self, _sig: Any, _data: Any) -> None:
        _warn_once("neither the folder of the package nor the home folder can be written to")


_has_warned = False


def _warn_once(reason: str) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        _LOGGER.warning(
            "Compiled code cannot be saved (%s), so each process compiles for up to half a minute. "
            "Set NUMBA_CACHE_DIR to a folder that can be written to.",
            reason,
        )


@kernel
def doubled(array: NDArray[Any]) -> NDArray[Any]:
    """Return a two-dimensional array with twice as many rows.

    ``np.concatenate`` and assigning arrays to slices would take seconds to compile, since their
    error messages bring in text.
    """
    larger = np.empty((2 * len(array), array.shape[1]), dtype=array.dtype)
    for i in range(len(array)):
        for j in range(array.shape[1]):
            larger[i, j] = array[i, j]
    return larger


wide = cast(Callable[[Any], int], np.int64)
"""Turns any integer into one of 64 bits. Kernels are compiled once for each combination of types,
and a narrower integer would be another type. In a kernel, ``int`` leaves an integer as it is."""


AHEAD = 16
"""How many steps ahead a loop prefetches."""


def _prefetch(_typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        structure = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(structure.strides, 0)
        offset = builder.mul(builder.sext(arguments[1], stride.type), stride)
        byte_pointer = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(structure.data, byte_pointer), [offset])
        number = ir.IntType(32)
        prefetch_type = ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        module = builder.module
        function = module.globals.get("llvm.prefetch.p0") or ir.Function(
            module, prefetch_type, "llvm.prefetch.p0"
        )
        builder.call(function, [address, number(0), number(3), number(1)])  # to read, soon, data
        return context.get_dummy_value()

    return types.void(array, index), generate


def _do_nothing(_array: NDArray[Any], _index: int) -> None:
    pass


prefetch = cast(
    Callable[[NDArray[Any], int], None], intrinsic(_prefetch) if IS_COMPILED else _do_nothing
)
"""``prefetch(array, index)`` requests the cache line of ``array[index]`` and does not wait for it.

It saves a third of the time of a walk down a tree that is larger than the cache.
"""
