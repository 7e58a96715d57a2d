"""The row schemas, by the names used in recipes and commands.

Adding a name here is enough to register a schema: the recipe, `--schema`, detection, the columns read from tables,
hints and the reference pages follow from the `SCHEMA` in its module (:class:`packer.source.row.RowSchema`).
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
"""Module of each schema. A row that fits several schemas gets the first of them."""
