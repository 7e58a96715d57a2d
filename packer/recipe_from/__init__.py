"""Configurations of axolotl and LLaMA-Factory as recipes, each key of them carried over or reported.

config_keys       the keys of a configuration, the rules of tables (*.yaml), the report of what becomes of each key
config_sources    how a recipe names its files, and says what their rows look like
axolotl           what one key alone cannot say
llamafactory      the same, with dataset_info.json
convert           reads a configuration, writes a recipe
"""

from packer.recipe_from.convert import Converted, read_config, write_recipe

__all__ = ["Converted", "read_config", "write_recipe"]
