"""Whoever uses what was withdrawn is told, once and clearly, what takes its place."""

import importlib
import re
from pathlib import Path

import pytest
from command_line import assert_refused

from packer.errors import RecipeError, UsageError
from packer.recipe.recipe import make_recipe
from packer.withdrawn import BARE_DATASET_INFO, BLOCKS_OF_PAIRS, LANGUAGE, PREFERENCE_CONFIGURATION, WITHDRAWN, ZONE

CHANGES = (Path(__file__).parents[1] / "CHANGELOG.md").read_text("utf-8").partition("### Withdrawn")[2]
COMMANDS = [name for name in WITHDRAWN if name.startswith("packer ")]
NAMES = [name for name in WITHDRAWN if re.fullmatch(r"packer(\.\w+)+", name)]


def test_the_table_has_commands_and_names_and_the_changelog_all_of_them() -> None:
    others = {
        LANGUAGE,
        ZONE,
        BLOCKS_OF_PAIRS,
        BARE_DATASET_INFO,
        PREFERENCE_CONFIGURATION,
        "order curriculum",
        "order weighted",
    }
    assert {*COMMANDS, *NAMES, *others} == {*WITHDRAWN}
    said = CHANGES.partition("\n### ")[0]
    for name in WITHDRAWN:
        assert re.split("[ .]", name)[-1] in said, name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_or_an_option_says_what_to_use(name: str) -> None:
    """Also written with an equals sign, and beside other mistakes."""
    _, command, *option = name.split()
    assert_refused(f"{name} was withdrawn", command, "cache", *option, exit_code=2)
    assert_refused(f"{name} was withdrawn", command, "cache", "=".join(option) or "--json-lines", exit_code=2)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_what_to_use(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    with pytest.raises(UsageError, match=f"{name} was withdrawn") as caught:
        getattr(importlib.import_module(module), attribute)
    assert caught.value.hint == WITHDRAWN[name]


def test_a_key_of_a_recipe_says_what_to_use() -> None:
    with pytest.raises(RecipeError, match=r"unknown key 'filters\[0\]\.language'") as caught:
        make_recipe({"filters": [{"name": "german", "of": "answers", "language": ["de"]}]})
    assert caught.value.hint == WITHDRAWN[LANGUAGE]
