"""Rows rendered from what is known of others and by the letter, to be held to each other."""

import dataclasses

import numpy as np
from supervision_stages import Stages

from packer.batches import RowBatch
from packer.recipe import make_recipe


def renderers(made, folder, template, *overrides):
    """One that fills in, and one that renders."""
    stages = Stages.load(folder).with_template(template, make_recipe({}, overrides))
    assert (stages.renderer._filling is not None) == made
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


def count_filled(renderer, rows):
    return len(renderer._filling.fill(rows))


def filling_in(renderer, rows):
    """What a renderer makes of rows, where it compares none; as many as can be are filled in."""
    turns = renderer._render(batch(rows), ())
    assert turns is not None
    return turns


def assert_composed(renderer, rows):
    """Render rows with composed renderings, and by reference: both are the same. Return what was recorded."""
    found = renderer._render(rows, ())
    assert found is not None
    assert_same(found, renderer.by_reference().render(rows))
    assert renderer._template is not None
    assert renderer._template.recordings is not None
    return renderer._template.recordings
