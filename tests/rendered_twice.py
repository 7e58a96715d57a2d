"""Rows rendered with skeletons and without, to be held to each other."""

import copy
import dataclasses

import numpy as np
from supervised import Stages

from packer.batches import RowBatch
from packer.recipe import make_recipe


def renderers(made, folder, template, *overrides):
    """One that fills in, and one that renders."""
    stages = Stages.load(folder).with_template(template, make_recipe({}, overrides))
    rendering = copy.copy(stages.renderer)
    rendering._skeletons = rendering._renderings = None
    assert (stages.renderer._skeletons is not None) == made
    return stages.renderer, rendering


def batch(rows):
    return RowBatch(samples=tuple(rows), rejections=(), num_rows=len(rows))


def assert_same(one, other):
    for column in dataclasses.fields(one):
        a, b = getattr(one, column.name), getattr(other, column.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b, column.name
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype


def count_filled(renderer, rows):
    return sum(renderer._skeletons.fill(row) is not None for row in rows)
