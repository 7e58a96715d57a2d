"""The row schemas, by the names that recipes and commands have for them.

A name here is all it takes for a schema to be known: the recipe, `--schema`, detection, the columns that are read of a
table, hints and the reference pages follow from the `SCHEMA` of its module (:class:`packer.source.row.RowSchema`).
"""

ROW_SCHEMAS = {
    "tokens": "packer.source.tokens",
    "preference": "packer.source.preference",
    "rated": "packer.source.rated",
    "messages": "packer.source.chat",
    "sharegpt": "packer.source.sharegpt",
    "completion": "packer.source.completion",
    "alpaca": "packer.source.alpaca",
    "text": "packer.source.text",
}
"""Name → module, in the order in which a row that fits several is taken."""

PREFERENCE_SCHEMAS = {"preference": "pairs", "rated": "rated answers"}
"""Schemas of preference data, and what their rows are."""

EXAMPLES = "examples to imitate"
"""What the rows of all other schemas are."""
