"""Filters by language: what passes, and what is said where it cannot be told."""

import json
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from packer.curate import trait_rules
from packer.curate.trait_rules import TraitRules
from packer.errors import RecipeError
from packer.pipeline.identity import TRAITS_VERSION, same_traits
from packer.recipe.recipe import make_recipe
from packer.source.row import FileRow
from packer.source.rows import read_batch

GERMAN = "Das ist ein schöner Tag, und ich gehe gern im Wald spazieren."
ENGLISH = "This is a lovely day, and I like to go for a walk in the woods."
CHINESE = "今天天气很好，我喜欢在树林里散步，然后和朋友们一起喝一杯热茶。"


def rules_of(**rule):
    asked = {"sources": [{"path": "x"}], "filters": [{"name": "german", "of": "answers", **rule}]}
    return TraitRules.of(make_recipe(asked).row_rules, 0)


def talks_of(conversations):
    return [
        {"messages": [{"role": role, "content": text} for pair in talk for role, text in zip(ROLES, pair, strict=True)]}
        for talk in conversations
    ]


def passes(rules, rows, schema="messages"):
    from packer.curate.traits import TraitMaker

    files = [FileRow(json.dumps(row).encode(), None, 0) for row in rows]
    batch = read_batch(files, 0, first_line=0, schema=schema, columns={}, roles={})
    return [failed == 0 for failed in TraitMaker(rules).make(batch, 0).column("failed").to_pylist()]


ROLES = ("user", "assistant")


def test_answers_in_one_of_the_languages_pass_and_those_too_short_to_tell():
    pytest.importorskip("py3langid")
    talks = talks_of(
        [
            [(ENGLISH, GERMAN)],
            [(GERMAN, ENGLISH)],
            [("?", CHINESE)],
            [("?", "Ok.")],
            [("?", "12 + 30 = 42")],
            [("?", "Ja."), ("?", GERMAN)],  # the answers are taken together
        ]
    )
    assert passes(rules_of(language=["de"]), talks) == [True, False, False, True, True, True]
    assert passes(rules_of(language=["zh", "de"]), talks) == [True, False, True, True, True, True]
    assert passes(rules_of(language=["de"], not_matches="Wald"), talks[:1]) == [False]


def test_both_sides_of_a_pair_are_in_the_language():
    pytest.importorskip("py3langid")
    pairs = [
        {"prompt": "?", "chosen": chosen, "rejected": rejected}
        for chosen, rejected in ((f"{GERMAN} {GERMAN}", ENGLISH), (ENGLISH, GERMAN), (GERMAN, f"Ja. {GERMAN}"))
    ]
    assert passes(rules_of(language=["de"]), pairs, schema="preference") == [False, False, True]


def test_a_language_that_is_not_known_is_refused():
    pytest.importorskip("py3langid")
    with pytest.raises(RecipeError, match="'german' is not a language that py3langid knows"):
        passes(rules_of(language=["de", "german"]), [])


def test_without_the_library_the_filter_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    from packer.curate import filters

    filters._identifier.cache_clear()
    with pytest.raises(RecipeError, match="py3langid is not installed") as error:
        passes(rules_of(language=["de"]), [])
    assert "token-packer[language]" in error.value.hint


def test_another_version_of_the_library_makes_the_traits_again(monkeypatch):
    monkeypatch.setattr(trait_rules, "version", lambda _: "1.0")
    first = rules_of(language=["de"])
    monkeypatch.setattr(trait_rules, "version", lambda _: "1.1")
    assert first != rules_of(language=["de"])
    assert rules_of(chars={"min": 1}).language is None


def test_a_cache_is_up_to_date_where_the_library_is_missing_but_not_by_another_version(monkeypatch):
    filters = [{"name": "german", "of": "answers", "language": ["de"]}]
    recipe = make_recipe({"sources": [{"path": "x"}], "filters": filters})
    monkeypatch.setattr(trait_rules, "version", lambda _: "1.0")
    made = SimpleNamespace(selection=(), versions={TRAITS_VERSION: trait_rules.traits_version(recipe.row_rules)})
    assert same_traits(made, recipe) and not same_traits(SimpleNamespace(selection=(), versions={}), recipe)
    monkeypatch.setattr(trait_rules, "version", lambda _: "1.1")
    assert not same_traits(made, recipe)

    def missing(_):
        raise PackageNotFoundError

    monkeypatch.setattr(trait_rules, "version", missing)
    assert same_traits(made, recipe)


@pytest.mark.parametrize(
    ("rule", "words"),
    [({"language": []}, "length >= 1"), ({"of": None, "field": "a", "language": ["de"]}, "language is of texts")],
)
def test_a_language_that_cannot_be_asked_for_is_refused(rule, words):
    with pytest.raises(RecipeError, match=words):
        rules_of(**rule)
