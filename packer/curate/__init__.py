"""Decides which rows are trained on (filters, duplicates, splits), from facts about each row, and records the reasons.

`traits.TraitMaker` computes the traits of a batch of rows; `select.select_rows` decides about all rows from their
traits alone. Nothing is imported here: builds without rules about rows load only `trait_rules`.
"""
