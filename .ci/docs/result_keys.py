"""The keys of what a function returns, read from its code and from that of the functions that it calls."""

import ast
import inspect
import sys
import textwrap
from dataclasses import fields


class FunctionKeys:
    """The keys of the dict that a function returns; those of dicts inside it are not among them.

    Args:
        function: It may join dicts, name them, add to them, and call functions and methods that return some.
        owner: The class of ``self``, where it is a method.
    """

    def __init__(self, function, owner: type | None = None) -> None:
        self._function, self._owner = function, owner
        self._tree = ast.parse(textwrap.dedent(inspect.getsource(function)))

    def names(self) -> list[str]:
        """The keys in the order of the code, each once.

        Raises:
            ValueError: A part of the dict comes from an expression that is not understood; it is named.
        """
        returned = [node.value for node in ast.walk(self._tree) if isinstance(node, ast.Return) and node.value]
        ordered = sorted(returned, key=lambda node: node.lineno)
        return list(dict.fromkeys(key for node in ordered for key in self._keys(node)))

    def _keys(self, node: ast.expr) -> list[str]:
        match node:
            case ast.Dict():
                return [key for name, value in zip(node.keys, node.values) for key in self._entry(name, value)]
            case ast.BinOp(op=ast.BitOr()):
                return [*self._keys(node.left), *self._keys(node.right)]
            case ast.IfExp():
                return [*self._keys(node.body), *self._keys(node.orelse)]
            case ast.Name():
                return self._assigned(node.id)
            case ast.DictComp(key=ast.Name()):
                return self._texts(node.generators[0].iter)
            case ast.DictComp(key=ast.JoinedStr()):
                return self._entry(node.key, node.value)
            case ast.Call():
                return self._called(node)
            case ast.Attribute() if self._annotation(node).startswith("Mapping["):
                return []  # its keys are those of the workspace
        raise ValueError(f"{self._function.__qualname__}: no keys are known of {ast.unparse(node)}")

    def _entry(self, name: ast.expr | None, value: ast.expr) -> list[str]:
        if name is None:
            return self._keys(value)
        parts = name.values if isinstance(name, ast.JoinedStr) else [name]
        return ["".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts)]

    def _assigned(self, name: str) -> list[str]:
        """What is assigned to a local variable, and to its items."""
        found: list[tuple[int, list[str]]] = []
        for node in ast.walk(self._tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)]) if target == name:
                    found.append((node.lineno, self._keys(node.value)))
                case ast.AnnAssign(target=ast.Name(id=target)) | ast.AugAssign(target=ast.Name(id=target)):
                    if target == name and node.value is not None:
                        found.append((node.lineno, self._keys(node.value)))
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=target), slice=ast.Constant(value=key))]):
                    if target == name:
                        found.append((node.lineno, [key]))
        if not found:
            raise ValueError(f"{self._function.__qualname__}: {name} is not assigned")
        return [key for _, keys in sorted(found) for key in keys]

    def _texts(self, node: ast.expr) -> list[str]:
        """The texts of a loop: of a tuple, written down or named, the first of what is zipped, the keys of a dict."""
        match node:
            case ast.Tuple():
                return [ast.literal_eval(element) for element in node.elts]
            case ast.Call(func=ast.Name(id="zip")):
                return self._texts(node.args[0])
            case ast.Call(func=ast.Attribute(value=value, attr="items")):
                return self._keys(value)
            case ast.Name():
                for one in ast.walk(self._tree):
                    match one:
                        case ast.Assign(targets=[ast.Name(id=name)]) if name == node.id:
                            return self._texts(one.value)
        raise ValueError(f"{self._function.__qualname__}: no texts are known of {ast.unparse(node)}")

    def _called(self, node: ast.Call) -> list[str]:
        match node.func:
            case ast.Name(id="asdict" | "vars"):
                return [field.name for field in fields(self._type(node.args[0]))]
            case ast.Name(id="dict") if not node.args and not node.keywords:
                return []
            case ast.Subscript(value=ast.Name(id="dict")):
                return []
            case ast.Name(id=name):
                return FunctionKeys(_named(sys.modules[self._function.__module__], name)).names()
            case ast.Attribute(value=value, attr=name):
                owner = self._type(value)
                return FunctionKeys(getattr(owner, name), owner).names()
        raise ValueError(f"{self._function.__qualname__}: no keys are known of {ast.unparse(node)}")

    def _type(self, node: ast.expr) -> type:
        """The class of an expression that begins with ``self``; of a list or tuple that of its elements."""
        if isinstance(node, ast.Name) and node.id == "self" and self._owner is not None:
            return self._owner
        if isinstance(node, ast.Subscript):
            return self._type(node.value)
        if not isinstance(node, ast.Attribute):
            raise ValueError(f"{self._function.__qualname__}: no class is known of {ast.unparse(node)}")
        annotation = ast.parse(self._annotation(node), mode="eval").body
        while not isinstance(annotation, ast.Name):
            match annotation:
                case ast.BinOp(left=first) | ast.Subscript(slice=ast.Tuple(elts=[first, *_])):
                    annotation = first
                case ast.Subscript(slice=first):
                    annotation = first
                case _:
                    raise ValueError(f"{self._function.__qualname__}: no class is known of {ast.unparse(node)}")
        return _named(sys.modules[self._type(node.value).__module__], annotation.id)

    def _annotation(self, node: ast.Attribute) -> str:
        """The type of an attribute as its class writes it."""
        owner = self._type(node.value)
        declared = {name: text for one in owner.__mro__[::-1] for name, text in inspect.get_annotations(one).items()}
        if node.attr not in declared:
            declared = inspect.get_annotations(getattr(owner, node.attr).fget)
        return str(declared.get(node.attr, declared.get("return")))


def _named(module, name: str):
    """What a name means in a module, imports for types and inside functions among it."""
    if hasattr(module, name):
        return getattr(module, name)
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and any((one.asname or one.name) == name for one in node.names):
            original = next(one.name for one in node.names if (one.asname or one.name) == name)
            return getattr(__import__(str(node.module), fromlist=[original]), original)
    raise ValueError(f"{module.__name__} has no {name}")
