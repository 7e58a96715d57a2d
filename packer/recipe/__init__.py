"""A recipe: what a build is asked for, the rules in it for rows and readers, and how it is read from YAML.

Adding a name to :data:`ROW_SCHEMAS` is enough to register a schema: the recipe, `--schema`, detection, the columns that
are read from tables, hints and the reference pages follow from the `SCHEMA` in its module, a
:class:`~packer.source.row.RowSchema`.
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
"""Module of each schema, by the name used in recipes and commands. A row that fits several gets the first of them."""
