"""Configurations of axolotl and LLaMA-Factory as recipes, each key of them carried over or reported.

config            the keys of a configuration, the rules of tables (*.yaml), the report of what becomes of each key
axolotl           what one key alone cannot say
llamafactory      the same, with dataset_info.json
convert           reads a configuration, writes a recipe
"""

from packer.recipe_from.convert import Converted, read_config, write_recipe

__all__ = ["Converted", "read_config", "write_recipe"]
