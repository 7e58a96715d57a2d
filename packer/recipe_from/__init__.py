"""Lists of rows as users of axolotl and LLaMA-Factory write them, as a recipe.

`read_config` reads a configuration of axolotl, one of LLaMA-Factory, or a bare `dataset_info.json`, and `write_recipe`
writes what it comes to. Each key of it is carried over, or told: none is passed over in silence, whether packer has no
word for it, means something else by it, leaves it to the trainer, or does not know it.
"""

from packer.recipe_from.read import Converted, read_config
from packer.recipe_from.told import Kind, Note
from packer.recipe_from.write import write_recipe

__all__ = ["Converted", "Kind", "Note", "read_config", "write_recipe"]
