"""What a build of a cache that is there finds to do."""

import shutil
from pathlib import Path

import msgspec
import pytest

from packer.display import Silent
from packer.errors import UsageError
from packer.pipeline.documents import up_to_date
from packer.pipeline.from_python import build
from packer.pipeline.plan.build_plan import plan_build
from packer.recipe.recipe import load_recipe, make_recipe, to_json
from packer.store.manifest import read_manifest, write_manifest


@pytest.fixture(scope="module")
def whole(starter, tmp_path_factory):
    """The starter and its cache, which names files relative to the folder of both."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(starter, folder / "starter")
    for rows in (folder / "starter" / "data").iterdir():
        rows.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[:9]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        build(load_recipe(Path("starter/recipe.yaml")), "cache", jobs=1)
    return folder


@pytest.fixture
def built(whole, tmp_path, monkeypatch):
    """The starter, its recipe and its cache, to be changed."""
    monkeypatch.chdir(shutil.copytree(whole, tmp_path / "copy"))
    return Path("starter"), load_recipe(Path("starter/recipe.yaml")), Path("cache")


def swap_a_letter(path):
    content = path.read_bytes()
    place = content.rindex(b"e")
    path.write_bytes(content[:place] + b"o" + content[place + 1 :])


def add_a_line(path, line=b"\n"):
    path.write_bytes(path.read_bytes() + line)


def first_input(recipe):
    return Path(recipe.sources[0].path)


def with_keys(recipe, *overrides):
    return make_recipe(to_json(recipe), overrides)


CHANGES = {
    "nothing": lambda folder, recipe, cache: None,
    "a letter of an input": lambda folder, recipe, cache: swap_a_letter(first_input(recipe)),
    "a longer input": lambda folder, recipe, cache: add_a_line(first_input(recipe)),
    "a touched input": lambda folder, recipe, cache: first_input(recipe).touch(),
    "a comment in the template": lambda folder, recipe, cache: add_a_line(
        next(Path(recipe.tokenizer).glob("*.jinja")), b"{# #}"
    ),
    "another block length": lambda folder, recipe, cache: with_keys(recipe, "pack.block_len=256"),
    "another pad": lambda folder, recipe, cache: with_keys(recipe, "pack.pad_id=5"),
    "another engine": lambda folder, recipe, cache: write_manifest(
        cache, msgspec.structs.replace(read_manifest(cache), recipe_fingerprint="0" * 64)
    ),
    "one source fewer": lambda folder, recipe, cache: msgspec.structs.replace(recipe, sources=recipe.sources[:-1]),
    "the sources turned": lambda folder, recipe, cache: msgspec.structs.replace(recipe, sources=recipe.sources[::-1]),
    "no ledger": lambda folder, recipe, cache: (cache / "rejected.jsonl").unlink(),
    "a shard cut short": lambda folder, recipe, cache: next((cache / "blocks").glob("*.arrow")).write_bytes(b"x"),
    "no tokenizer in the cache": lambda folder, recipe, cache: shutil.rmtree(cache / "model"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_there_is_something_to_do_where_bytes_or_rules_changed(built, change):
    folder, recipe, cache = built
    found = CHANGES[change](folder, recipe, cache)
    recipe = found if isinstance(found, type(recipe)) else recipe
    manifest = read_manifest(cache)
    plan = plan_build(recipe, Silent(), before=manifest)
    planned = up_to_date(cache, manifest, plan.provenance, plan.tasks)
    assert planned is (change in ("nothing", "a touched input"))


SHOWS_X = "{{ x }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor %}"


def test_values_that_python_takes_for_the_same_are_other_recipes(starter, tmp_path):
    """A template writes them, and each in its own way."""
    (tmp_path / "template.jinja").write_text(SHOWS_X)
    values = to_json(load_recipe(starter / "recipe.yaml", ["sources.limit=2"]))
    values["supervision"] = {**values.get("supervision", {}), "on_prompt_mismatch": "continue"}
    del values["sources"][1:]
    templates = [{"file": str(tmp_path / "template.jinja"), "kwargs": {"x": x}} for x in (True, 1, 1.0)]
    recipes = [make_recipe({**values, "template": template}) for template in templates]
    made = [build(recipe, tmp_path / str(n), jobs=1).manifest for n, recipe in enumerate(recipes)]
    assert len({manifest.content_fingerprint for manifest in made}) == 3
    assert len({manifest.recipe_fingerprint for manifest in made}) == 3
    for number, recipe in enumerate(recipes):
        assert not build(recipe, tmp_path / str(number), jobs=1).built
        with pytest.raises(UsageError, match="kwargs"):
            build(recipe, tmp_path / str((number + 1) % 3), jobs=1)
