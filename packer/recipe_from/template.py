"""Which chat template a recipe names, where a configuration has words for several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packer.recipe_from.places import Places
from packer.recipe_from.told import Keys

TEMPLATE_FILE = "chat_template.jinja"

_OWN = ("tokenizer_default", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a configuration, or an entry of its lists, says of a template."""

    keys: Keys
    name: str | None
    jinja: str | None

    def __bool__(self) -> bool:
        return self.name is not None or self.jinja is not None

    def is_same(self, other: "Wanted") -> bool:
        return (self.name, self.jinja) == (other.name, other.jinja)


@dataclass(slots=True, kw_only=True)
class TemplateFiles:
    """Where templates lie, and the text of one that has to be written beside the recipe."""

    places: Places
    text: str | None = field(default=None)


def read_template(
    whole: Wanted, entries: Sequence[Wanted], *, kwargs: Mapping[str, Any], files: TemplateFiles
) -> dict[str, Any]:
    """Keys of `template`. A recipe has one: the configuration's, or else that of the first entry with one.

    Args:
        whole: Of the configuration.
        entries: Of its lists; what differs from the template that is taken is told.
        kwargs: Variables for the template.
        files: What it may name, and what has to be written.

    """
    taken = next((wanted for wanted in (whole, *entries) if wanted), whole)
    for wanted in entries:
        if wanted and wanted is not taken and not wanted.is_same(taken):
            for key in ("chat_template", "chat_template_jinja"):
                wanted.keys.tell(
                    key,
                    "a recipe has one template: build this source into a cache of its own, and read both as a Mixture",
                )
    template: dict[str, Any] = {}
    if taken.jinja is not None:
        template |= _file(taken, files)
    elif taken.name not in _OWN:
        fallback = str(taken.name).removeprefix("tokenizer_default_fallback_")
        own = "the tokenizer's own is taken, and there is no other to fall back on"
        named = "packer has none by name, and takes the tokenizer's own; or give the Jinja of this one as template.file"
        taken.keys.tell("chat_template", own if fallback != taken.name else named)
    if kwargs:
        template["kwargs"] = dict(kwargs)
    return template


def _file(taken: Wanted, files: TemplateFiles) -> dict[str, Any]:
    assert taken.jinja is not None
    if "{" in taken.jinja:
        files.text = taken.jinja
        return {"file": TEMPLATE_FILE}
    found = files.places.find(taken.jinja)
    if found is None or not Path(found).is_file():
        taken.keys.tell("chat_template_jinja", "no such file from here: the tokenizer's own template is taken")
        return {}
    return {"file": files.places.written(found, like=taken.jinja)}
