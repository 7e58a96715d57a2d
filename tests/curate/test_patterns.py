"""A pattern that takes other engines for ever."""

import json

from packer.curate import TraitRules
from packer.curate.traits import TraitMaker
from packer.recipe.recipe import make_recipe
from packer.source.row import FileRow
from packer.source.rows import read_batch


def test_a_pattern_that_doubles_with_every_letter_elsewhere_ends():
    rule = [{"name": "a", "of": "answers", "not_matches": "(a+)+$"}]
    maker = TraitMaker(TraitRules.of(make_recipe({"sources": [{"path": "x"}], "filters": rule}).row_rules, 0))
    texts = ["a" * 2**20 + "b", "b" + "a" * 2**20]
    rows = [{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}]} for text in texts]
    files = [FileRow(json.dumps(row).encode(), None, 0) for row in rows]
    batch = read_batch(files, 0, first_line=0, schema="messages", columns={}, roles={})
    assert maker.make(batch).column("failed").to_pylist() == [0, 1]
