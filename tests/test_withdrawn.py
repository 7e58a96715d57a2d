"""Whoever uses what was withdrawn is told, once and clearly, what takes its place."""

import importlib
import inspect
import re
from operator import attrgetter

import pytest
from command_line import assert_refused

import packer
import packer.load
from packer.errors import RecipeError, UsageError
from packer.recipe.recipe import make_recipe
from packer.store.cache import Cache
from packer.withdrawn import (
    BARE_DATASET_INFO,
    BLOCKS_OF_PAIRS,
    BUDGET_OF_PADDED,
    LANGUAGE,
    MARKS,
    OF_DATALOADERS,
    PIPED,
    PREFERENCE_CONFIGURATION,
    RAY_CLIENT,
    TEXT_CONFIGURATION,
    WITHDRAWN,
    WORKERS,
    ZONE,
)

COMMANDS = [name for name in WITHDRAWN if name.startswith("packer ")]
ARGUMENTS = [name for name in WITHDRAWN if name.endswith("=)")]
METHODS = ["PackedLoader.set_micro_batch_size", "PackedLoader.set_shares"]
NAMES = [name for name in WITHDRAWN if re.fullmatch(r"packer(\.\w+)+", name)]


def test_the_table_has_commands_and_names_and_what_caches_and_recipes_have() -> None:
    others = {
        LANGUAGE,
        MARKS,
        ZONE,
        WORKERS,
        BUDGET_OF_PADDED,
        BLOCKS_OF_PAIRS,
        BARE_DATASET_INFO,
        PREFERENCE_CONFIGURATION,
        TEXT_CONFIGURATION,
        RAY_CLIENT,
        PIPED,
        "order curriculum",
        "order weighted",
        "order windowed",
        "PACKER_CACHE_BYTES",
    }
    assert {*COMMANDS, *NAMES, *ARGUMENTS, *METHODS, *others} == {*WITHDRAWN}


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


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_says_what_to_use(name: str) -> None:
    """Before anything is looked at that is passed with it."""
    pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")
    path, _, argument = name.removesuffix("=)").partition("(")
    first, *rest = path.split(".")
    with pytest.raises(UsageError, match=re.escape(f"{name} was withdrawn")) as caught:
        attrgetter(".".join(rest) or "__call__")(getattr(packer, first, None) or getattr(packer.load, first))(
            "no cache", **{argument: 1}
        )
    assert caught.value.hint == WITHDRAWN[name]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_to_use(name: str) -> None:
    pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")
    kind, _, method = name.partition(".")
    made = getattr(packer.load, kind)
    with pytest.raises(UsageError, match=f"{name} was withdrawn"):
        getattr(made.__new__(made), method)
    assert not hasattr(made.__new__(made), "set_other")


def test_a_variable_of_the_environment_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKER_CACHE_BYTES", "1GB")
    with pytest.raises(UsageError, match="PACKER_CACHE_BYTES was withdrawn"):
        Cache.open("s3://bucket/cache")


def test_a_key_of_a_recipe_says_what_to_use() -> None:
    with pytest.raises(RecipeError, match=r"unknown key 'filters\[0\]\.language'") as caught:
        make_recipe({"filters": [{"name": "german", "of": "answers", "language": ["de"]}]})
    assert caught.value.hint == WITHDRAWN[LANGUAGE]
    with pytest.raises(RecipeError, match=r"unknown key 'supervision\.source'") as caught:
        make_recipe({}, ["supervision.source=generation_tags"])
    assert caught.value.hint == WITHDRAWN[MARKS]


@pytest.mark.parametrize("name", OF_DATALOADERS)
def test_a_name_of_a_dataloader_is_answered_with_that_of_the_loader(name: str) -> None:
    pytest.importorskip("torch", reason="TORCH MISSING: the loader is not tested")
    from packer.load import PackedLoader

    with pytest.raises(UsageError, match="is an argument of a DataLoader") as caught:
        PackedLoader("cache", **{name.partition("(")[2].removesuffix("=)"): 1})
    assert set(re.findall(r"\w+", str(caught.value.hint))) & {*inspect.signature(PackedLoader).parameters}
