"""Which rows are trained on: filters, duplicates, splits, decided by facts of rows and recorded with their reasons.

`traits.TraitMaker` makes the traits of a batch of rows; `select.select_rows` decides about all rows from their traits
alone. Nothing is imported here: builds without rules about rows load `trait_rules` and no more.
"""
