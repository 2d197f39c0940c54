"""What kernels hand over to Python."""

import ast
from pathlib import Path

import mondrian_forest

PACKAGE = Path(mondrian_forest.__file__).parent
KERNELS = {"kernel", "inner_kernel", "reordering_kernel"}


def functions(tree):
    """Yield each function of a module, whether it is a kernel, and the names that it calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            is_kernel = any(
                isinstance(mark, ast.Name) and mark.id in KERNELS for mark in node.decorator_list
            )
            calls = {
                call.func.id
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            }
            yield node, is_kernel, calls


def test_kernels_return_neither_arrays_nor_named_tuples_to_python():
    # Numba runs Python code to make these, and fails when an interrupt arrives in that moment.
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    named = {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any("NamedTuple" in ast.dump(b) for b in node.bases)
    }
    assert "Workspace" in named
    named.add("NDArray")
    returning = {
        node.name
        for tree in trees
        for node, is_kernel, _ in functions(tree)
        if is_kernel
        and node.returns is not None
        and any(isinstance(part, ast.Name) and part.id in named for part in ast.walk(node.returns))
    }
    assert "allocate_scratch" in returning  # which kernels alone may call
    for tree in trees:
        for node, is_kernel, calls in functions(tree):
            assert is_kernel or not calls & returning, f"{node.name} calls {calls & returning}"
