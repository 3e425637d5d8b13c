"""Documented parameters are those of the signature."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ('surreal_bids', 'workflows')
    for path in (ROOT / folder).rglob('*.py')
    if not path.is_relative_to(ROOT / 'surreal_bids' / 'workflows')
)
SECTION = re.compile(r'Parameters\n-+\n(.*?)(?=\n\n[A-Z][\w ]+\n-+\n|\Z)', re.DOTALL)


def documented(docstring: str) -> list[str] | None:
    """Names in the section on parameters; None without one."""
    section = SECTION.search(docstring)
    if section is None:
        return None
    heads = re.findall(r'^(\S.*)$', section[1], re.MULTILINE)
    return [name.strip().lstrip('*') for head in heads for name in head.split(' :')[0].split(',')]


def signature(node: ast.AST) -> list[str]:
    """Names of the arguments: of a function, of `__init__`, or the fields of a dataclass."""
    body = getattr(node, 'body', [])
    if isinstance(node, ast.ClassDef):
        made_by = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == '__init__']
        if not made_by:
            return [n.target.id for n in body if isinstance(n, ast.AnnAssign)]
        node = made_by[0]
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs]
    names = [each.arg for each in [*given, arguments.kwarg] if each is not None]
    return [name for name in names if name not in ('self', 'cls')]


def mismatches(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        found = documented(ast.get_docstring(node) or '')
        if found is not None and sorted(found) != sorted(signature(node)):
            yield f'line {node.lineno}, {node.name}: documented {found}, takes {signature(node)}'


@pytest.mark.parametrize('module', MODULES)
def test_documented_parameters_are_those_of_the_signature(module):
    assert not list(mismatches(ast.parse((ROOT / module).read_text())))
