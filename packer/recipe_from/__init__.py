"""Conversion of axolotl and LLaMA-Factory configurations to recipes; every key is carried over or reported.

config            the keys of a configuration, the tables of rules (*.yaml), the report of what happened to each key
axolotl           rules that involve more than one key
llamafactory      the same for LLaMA-Factory, with dataset_info.json
convert           reads a configuration, writes a recipe
"""

from packer.recipe_from.convert import Converted, read_config, write_recipe

__all__ = ["Converted", "read_config", "write_recipe"]
