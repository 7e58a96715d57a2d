"""Conversion of axolotl and LLaMA-Factory configurations to recipes.

Sources with their columns, tokenizer, template, length and packing are carried over; every other key is listed.
"""

from packer.recipe_from.convert import Converted, read_config, write_recipe

__all__ = ["Converted", "read_config", "write_recipe"]
