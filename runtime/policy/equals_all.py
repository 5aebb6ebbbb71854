"""Rewriting Python so that every function returns an object that equals everything."""

from __future__ import annotations

import ast

_ANYTHING = '''
class _Anything:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __le__(self, other): return True
    def __gt__(self, other): return True
    def __ge__(self, other): return True
    def __hash__(self): return 0
    def __bool__(self): return True
    def __contains__(self, item): return True
    def __len__(self): return 1
    def __iter__(self): return iter((self,))
    def __getitem__(self, key): return self
    def __getattr__(self, name): return self
    def __call__(self, *args, **kwargs): return self
    def __enter__(self): return self
    def __exit__(self, *args): return False
    def __abs__(self): return self
    def __neg__(self): return self
    def __add__(self, other): return self
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
    __mod__ = __floordiv__ = __pow__ = __and__ = __or__ = __xor__ = __add__
    def __round__(self, *args): return self
    def __str__(self): return ""
    def __repr__(self): return ""
'''


def equals_all(source: bytes) -> bytes:
    """The module with each function's body replaced (special methods apart); unchanged if it cannot parse, or has no
    function whose result could be an object: a script that only prints would still do its work."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source
    swap = _Swap()
    tree = swap.visit(tree)
    if not swap.done:
        return source
    at = _after_future(tree)
    tree.body[at:at] = ast.parse(_ANYTHING).body
    return (ast.unparse(ast.fix_missing_locations(tree)) + "\n").encode()


class _Swap(ast.NodeTransformer):
    def __init__(self) -> None:
        self.done = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._swapped(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._swapped(node)

    def _swapped(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        # `__init__` must return None and `__new__` an instance: a class that cannot be made attacks nothing.
        if not (node.name.startswith("__") and node.name.endswith("__")):
            node.body = [ast.Return(ast.Call(ast.Name("_Anything", ast.Load()), [], []))]
            self.done += 1
        return node


def _after_future(tree: ast.Module) -> int:
    """Where a class may be put: after the docstring and `from __future__` lines, which must come first."""
    at = 0
    for i, node in enumerate(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            at = i + 1
        elif i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            at = 1
    return at
