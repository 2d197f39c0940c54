"""What kernels hand over to Python."""

import ast
from pathlib import Path

import mondrian_forest

PACKAGE = Path(mondrian_forest.__file__).parent
KERNELS = {"kernel", "borrowing_kernel", "inner_kernel", "reordering_kernel"}


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


def renamed_kernels(tree):
    """Yield pairs of names, such as ``merge = inner_kernel(merge_in_python)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker, arguments = node.value.func, node.value.args
            if isinstance(maker, ast.Name) and maker.id in KERNELS:
                yield node.targets[0].id, arguments[0].id


def test_kernels_return_neither_arrays_nor_named_tuples_to_python():
    # Numba runs Python code to make these, and fails when an interrupt arrives in that moment.
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    named = {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any("NamedTuple" in ast.dump(b) for b in node.bases)
    }
    assert "LearningSpace" in named
    named.add("NDArray")
    new_names = {old: new for tree in trees for new, old in renamed_kernels(tree)}
    returning = {
        new_names.get(node.name, node.name)
        for tree in trees
        for node, is_kernel, _ in functions(tree)
        if (is_kernel or node.name in new_names)
        and node.returns is not None
        and any(isinstance(part, ast.Name) and part.id in named for part in ast.walk(node.returns))
    }
    assert {"allocate_scratch", "merge"} <= returning  # only kernels may call these
    for tree in trees:
        for node, is_kernel, calls in functions(tree):
            assert is_kernel or not calls & returning, f"{node.name} calls {calls & returning}"
