"""Whole rows in vector registers: what LLVM can do and Numba cannot say.

Two loops do most of the work of a fit and of a prediction: they divide the rows of a node by a
threshold. Written with scalars, half of their branches are mispredicted, and each feature is moved
and compared on its own. Here a row of up to ``WIDEST`` features is one value, and there is no
branch: every row is swapped with the first one that does not belong on the left, which is where it
belongs if it does; only the position of the next such place depends on the comparison::

    [ on the left ) [ on the right ) [ not looked at yet )
                    ^ middle         ^ i

A fit of 1M rows of 8 features took 9.6 ns for each row and level with scalars, of which a pass for
the boxes of the children was a third; it takes 3.7 ns here, boxes included.

Rows have to be padded to a multiple of 4 features (``padded_width``). The Python functions say what
the intrinsics do, and take their place where kernels run uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

WIDEST = 16
"""Most features that are treated as one value; wider ones would not fit the registers."""


def padded_width(n_features: int) -> int:
    """Return the number of columns of rows that are divided often."""
    return -(-n_features // 4) * 4 if n_features <= WIDEST else n_features


def _partition_in_python(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    start: int,
    stop: int,
    feature: int,
    threshold: np.float32,
) -> int:
    middle = start
    for i in range(start, stop):
        goes_left = rows[i, feature] <= threshold
        rows[[i, middle]] = rows[[middle, i]]
        row_order[[i, middle]] = row_order[[middle, i]]
        middle += int(goes_left)
    return middle


def _divide_in_python(
    rows: NDArray[np.float32],
    row_order: NDArray[np.int32],
    start: int,
    stop: int,
    feature: int,
    threshold: np.float32,
    boxes: NDArray[np.float32],
) -> int:
    middle = _partition_in_python(rows, row_order, start, stop, feature, threshold)
    for side, block in enumerate((rows[start:middle], rows[middle:stop])):
        boxes[side, 0] = block.min(axis=0)
        boxes[side, 1] = block.max(axis=0)
    return middle


_FLOAT = ir.FloatType()
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


class _Arguments(NamedTuple):
    rows: Any
    row_order: Any
    start: Any
    stop: Any
    feature: Any
    threshold: Any


def _variable(builder: Any, value: Any) -> Any:
    """Return the place of a local variable, which LLVM will keep in a register."""
    return cgutils.alloca_once_value(builder, value)  # type: ignore[no-untyped-call]


def _splat(builder: Any, scalar: Any, width: int) -> Any:
    """Return a vector that has the scalar in every place."""
    undefined = ir.Constant(ir.VectorType(scalar.type, width), ir.Undefined)
    one = builder.insert_element(undefined, scalar, _INT32(0))
    zeros = ir.Constant(ir.VectorType(_INT32, width), [_INT32(0)] * width)
    return builder.shuffle_vector(one, undefined, zeros)


def _vector_at(builder: Any, pointer: Any, width: int) -> Any:
    return builder.bitcast(pointer, ir.VectorType(_FLOAT, width).as_pointer())


def _swap(builder: Any, first: Any, second: Any, align: int = 4) -> tuple[Any, Any]:
    """Swap two values in memory; return what the first pointer pointed to."""
    value, other = builder.load(first, align=align), builder.load(second, align=align)
    builder.store(other, first, align=align)
    builder.store(value, second, align=align)
    return value, other


@contextmanager
def _each_row(
    builder: Any, arguments: _Arguments, middle_at: Any, width: int
) -> Iterator[tuple[Any, Any]]:
    """Build the loop of the picture above; yield a row, and whether it goes left."""
    loop = cgutils.for_range_slice(builder, arguments.start, arguments.stop, _INT64(1), intp=_INT64)
    with loop as (i, _):
        middle = builder.load(middle_at)
        row = builder.gep(arguments.rows, [builder.mul(i, _INT64(width))])
        target = builder.gep(arguments.rows, [builder.mul(middle, _INT64(width))])
        value = builder.load(builder.gep(row, [arguments.feature]))
        goes_left = builder.fcmp_ordered("<=", value, arguments.threshold)
        features, _ = _swap(
            builder, _vector_at(builder, row, width), _vector_at(builder, target, width)
        )
        _swap(
            builder,
            builder.gep(arguments.row_order, [i]),
            builder.gep(arguments.row_order, [middle]),
        )
        builder.store(builder.add(middle, builder.zext(goes_left, _INT64)), middle_at)
        yield features, goes_left


def _build_partition(builder: Any, arguments: _Arguments, middle_at: Any, width: int) -> None:
    with _each_row(builder, arguments, middle_at, width):
        pass


def _build_division(
    builder: Any, arguments: _Arguments, middle_at: Any, width: int, boxes: Any
) -> None:
    infinity = _splat(builder, ir.Constant(_FLOAT, float("inf")), width)
    minus_infinity = _splat(builder, ir.Constant(_FLOAT, float("-inf")), width)
    # Lower and upper ends on the left, the same on the right. A row counts as infinite on the side
    # where it does not belong: so there is no branch, and all four stay in registers.
    ends = [_variable(builder, end) for end in (infinity, minus_infinity, infinity, minus_infinity)]
    lower_left, upper_left, lower_right, upper_right = ends

    def stretch(end: Any, comparison: str, features: Any) -> None:
        before = builder.load(end)
        is_beyond = builder.fcmp_ordered(comparison, features, before)
        builder.store(builder.select(is_beyond, features, before), end)

    with _each_row(builder, arguments, middle_at, width) as (features, goes_left):
        zeros = ir.Constant(ir.VectorType(_INT32, width), [_INT32(0)] * width)
        is_left = builder.icmp_signed(
            "!=", _splat(builder, builder.sext(goes_left, _INT32), width), zeros
        )
        stretch(lower_left, "<", builder.select(is_left, features, infinity))
        stretch(upper_left, ">", builder.select(is_left, features, minus_infinity))
        stretch(lower_right, "<", builder.select(is_left, infinity, features))
        stretch(upper_right, ">", builder.select(is_left, minus_infinity, features))
    for place, end in enumerate(ends):
        pointer = builder.gep(boxes, [_INT64(place * width)])
        builder.store(builder.load(end), _vector_at(builder, pointer, width), align=4)


def _for_every_width(build: Callable[..., None]) -> Callable[..., Any]:
    """Return a code generator that builds the loop once for each width, and picks one."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointers = [
            context.make_array(kind)(context, builder, value).data
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(signature.args, values, strict=True)
        ]
        arguments = _Arguments(*pointers[:6])
        rows = context.make_array(signature.args[0])(context, builder, values[0])
        middle_at = _variable(builder, arguments.start)
        end = builder.append_basic_block("end")
        choice = builder.switch(builder.extract_value(rows.shape, 1), end)
        for width in range(4, WIDEST + 1, 4):
            block = builder.append_basic_block(f"width_{width}")
            choice.add_case(_INT64(width), block)
            with builder.goto_block(block):
                build(builder, arguments, middle_at, width, *pointers[6:])
                builder.branch(end)
        builder.position_at_end(end)
        return builder.load(middle_at)

    return generate


def _partition(
    _context: Any,
    rows: Any,
    row_order: Any,
    _start: Any,
    _stop: Any,
    _feature: Any,
    _threshold: Any,
) -> Any:
    signature = types.int64(rows, row_order, types.int64, types.int64, types.int64, types.float32)
    return signature, _for_every_width(_build_partition)


def _divide(
    _context: Any,
    rows: Any,
    row_order: Any,
    _start: Any,
    _stop: Any,
    _feature: Any,
    _threshold: Any,
    boxes: Any,
) -> Any:
    signature = types.int64(
        rows, row_order, types.int64, types.int64, types.int64, types.float32, boxes
    )
    return signature, _for_every_width(_build_division)


_IS_COMPILED = not getattr(numba.config, "DISABLE_JIT")  # noqa: B009

partition_vectors = cast(
    Callable[..., int], intrinsic(_partition) if _IS_COMPILED else _partition_in_python
)
"""``partition_vectors(rows, row_order, start, stop, feature, threshold)`` moves rows with
``row[feature] <= threshold`` to the front and returns where the others start."""

divide_vectors = cast(Callable[..., int], intrinsic(_divide) if _IS_COMPILED else _divide_in_python)
"""The same with a last argument, shape (2, 2, width), which is set to the boxes of the two sides,
lower and upper ends. Neither side may be empty."""
