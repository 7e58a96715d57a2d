"""Which rows are learned: filters, duplicates, splits, decided by facts of rows and recorded with their reasons.

`TraitMaker` makes the traits of a batch of rows; `select_rows` decides about all rows from their traits alone.
"""

from packer.curate.contamination import Questions
from packer.curate.select import rule_names, select_rows
from packer.curate.traits import TraitMaker, TraitRules

__all__ = [
    "Questions",
    "TraitMaker",
    "TraitRules",
    "rule_names",
    "select_rows",
]
