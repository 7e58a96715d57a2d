"""`text.format(…)` of a template: Jinja's sandboxed formatter, within :mod:`packer.render.limits`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2.sandbox
import markupsafe

from packer.render.limits import MAX_SETTING, Limits, over

_DIGITS = re.compile("[0-9]+")


class _Formatter(jinja2.sandbox.SandboxedFormatter):
    """One call of `format`; its fields together are no longer than a text may be."""

    def __init__(self, environment: Any, limits: Limits, **options: Any) -> None:
        super().__init__(environment, **options)
        self._limits = limits
        self._length = 0

    def format_field(self, value: Any, format_spec: str) -> Any:
        for width in _DIGITS.findall(format_spec):
            if len(width) > len(str(MAX_SETTING)) or int(width) > MAX_SETTING:
                over(f"a width, a precision or an indentation beyond {MAX_SETTING}")
        self._add(value)
        return super().format_field(value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is not None:
            self._add(value)
        return super().convert_field(value, conversion)

    def _add(self, value: Any) -> None:
        self._length += self._limits.weigh(value)
        self._limits.check_text(self._length)


class _EscapeFormatter(_Formatter, jinja2.sandbox.SandboxedEscapeFormatter):
    """The same for text that is marked safe."""


def formatted(environment: Any, limits: Limits, method: Any) -> Callable[..., str]:
    """What to call in place of `text.format` or `text.format_map`."""
    text: str = method.__self__
    by_map = method.__name__ == "format_map"

    def call(*args: Any, **kwargs: Any) -> str:
        positional: Sequence[Any] = args
        named: Mapping[str, Any] = kwargs
        if by_map:
            (named,), positional = args, ()
        formatter = (
            _EscapeFormatter(environment, limits, escape=text.escape)
            if isinstance(text, markupsafe.Markup)
            else _Formatter(environment, limits)
        )
        limits.check_text(len(text))
        return type(text)(formatter.vformat(text, positional, named))

    return call
