"""Rows rendered by the fast way and by the letter of the definition, to be held to each other."""

import dataclasses

import numpy as np
from supervision_stages import Stages

from packer.batches import Rejection, RowBatch
from packer.recipe.recipe import make_recipe

ENDING = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def framed(body):
    """A loop over messages as ChatML has it, with something more behind each text."""
    return f"{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{{{{ m.content }}}}{body}<|im_end|>\n{{% endfor %}}"


def renderers(folder, template, *overrides):
    """One that takes the fast way, and one that does not."""
    stages = Stages.load(folder).with_template(template, make_recipe({}, overrides))
    return stages.renderer, literal(stages.renderer)


def literal(renderer):
    """The same renderer, by the letter of the definition."""
    return renderer.by_reference()


def batch(rows):
    return RowBatch(samples=tuple(rows), rejections=(), num_rows=len(rows))


def assert_same(one, other):
    for column in dataclasses.fields(one):
        a, b = getattr(one, column.name), getattr(other, column.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b, column.name
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype


@dataclasses.dataclass
class Held:
    """How many rows each fast way renders, and how many the definition keeps."""

    filled: int = 0
    cut: int = 0
    kept: int = 0
    different: list = dataclasses.field(default_factory=list)
    """Rows that would be rendered differently, if nothing compared them."""


def held(renderer, rows):
    """Ask both fast ways for every row, whatever its neighbors, and compare with the definition."""
    found = Held()
    for sample in rows:
        defined = renderer._rendered(sample)
        found.kept += not isinstance(defined, Rejection)
        filled, cut = renderer._fill(sample), renderer._cut(sample)
        found.filled += filled is not None
        found.cut += cut is not None
        for row in (filled, cut):
            if row is not None and row != defined:
                found.different.append((sample, row, defined))
    return found


def hold(renderer, rows):
    """As :func:`held`; nothing differs."""
    found = held(renderer, rows)
    assert not found.different, found.different[0]
    return found
