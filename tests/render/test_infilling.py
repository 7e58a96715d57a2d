"""Texts that are trained to be filled in: nothing is lost, each part is where its token says, real tokens are read."""

import json
import shutil

import pytest
from export.readers import cache_documents
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from packer import verify_cache
from packer.errors import RecipeError
from packer.pipeline.from_python import build
from packer.recipe.groups import Infilling
from packer.recipe.recipe import make_recipe, to_json
from packer.render.plain_rows import infilled

P, S, M = TOKENS = ("<P>", "<S>", "<M>")
CODE = [f"def add_{n}(first, second):\n    # {'x' * (n % 7)}é\n    return first + second + {n}\n" for n in range(400)]
REAL = {
    "qwen3": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "deepseek-coder": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
}


def read(text, tokens=TOKENS):
    """Its form, and the text before the cuts. Where the suffix comes first, all before it stands behind the last token."""
    before_prefix, before_suffix, before_middle = tokens
    if not text.startswith(before_prefix):
        return "plain", text
    prefix, _, rest = text.removeprefix(before_prefix).partition(before_suffix)
    suffix, _, middle = rest.partition(before_middle)
    return ("psm" if prefix else "spm"), prefix + middle + suffix


@given(st.text(min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_the_parts_make_the_text_in_either_order(text, rate, spm):
    found = infilled(text, Infilling(tokens=TOKENS, rate=rate, spm=spm))
    assert read(found)[1] == text
    assert len(found) == len(text) + (found != text) * len(P + S + M)
    assert found == infilled(text, Infilling(tokens=TOKENS, rate=rate, spm=spm))


def test_rows_are_chosen_by_their_text_at_the_rates_of_the_rule():
    def forms(**rates):
        return [read(infilled(text, Infilling(tokens=TOKENS, **rates)))[0] for text in CODE]

    assert {*forms(rate=0)} == {"plain"} and {*forms(rate=1, spm=1)} == {"spm"}
    assert forms(rate=1, spm=0).count("psm") > 380, "with an empty prefix, both forms are the same"
    found = forms(rate=0.6, spm=0.25)
    assert found.count("plain") == pytest.approx(160, abs=40) and found.count("spm") == pytest.approx(60, abs=25)
    cuts = {infilled(text, Infilling(tokens=TOKENS, rate=1, spm=0)).index(S) for text in CODE}
    assert len(cuts) > 30, "they fall anywhere"
    for text in ("", f"already {M} cut"):
        assert infilled(text, Infilling(tokens=TOKENS, rate=1)) == (text or P + S + M)


@pytest.fixture(params=["starter", pytest.param("qwen3", marks=pytest.mark.slow), "deepseek-coder"])
def tokenizer(request):
    """Its folder and tokens; those of the starter are others of its added tokens, as it has none for this."""
    if request.param == "starter":
        return request.getfixturevalue("starter") / "tokenizer", ("<think>", "<tool_call>", "</tool_call>")
    return request.getfixturevalue("real") / "tokenizers" / request.param, REAL[request.param]


def built(folder, tokenizer, tokens, *, rows=(), schema="text", **rates):
    rows = rows or [{"text": text} for text in CODE[:40]]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    recipe = {
        "sources": [{"path": str(folder / "rows.jsonl"), "schema": schema}],
        "tokenizer": str(tokenizer),
        "engine": "reference",
        "text": {"fim": {"tokens": list(tokens), **rates}},
        "pack": {"mode": "none"},
    }
    build(make_recipe(recipe), folder / "cache", jobs=1, progress=True)
    return folder / "cache"


def test_documents_have_the_tokens_of_a_real_tokenizer_between_the_parts(tokenizer, tmp_path):
    place, tokens = tokenizer
    cache = built(tmp_path, place, tokens)
    backend = Tokenizer.from_file(str(place / "tokenizer.json"))
    ids = [backend.token_to_id(token) for token in tokens]
    documents, forms = cache_documents(cache, "train"), []
    assert len(documents) == 40
    for text, (found, labels) in zip(CODE, documents, strict=False):
        decoded = backend.decode(found, skip_special_tokens=False)
        expected = infilled(text, Infilling(tokens=tokens))
        assert expected in decoded and labels[1:] == found[1:]
        forms.append(read(expected, tokens)[0])
        assert [found.count(token) for token in ids] == [int(forms[-1] != "plain")] * 3
    assert {*forms} == {"plain", "psm", "spm"}
    report = verify_cache(cache, level="full", sources=["/"], reencode=True)
    assert report.ok and report.num_reencoded == 40


def test_tokens_that_the_tokenizer_does_not_have_are_refused(starter, tmp_path):
    with pytest.raises(RecipeError, match="'<P>' is not an added token") as caught:
        built(tmp_path, starter / "tokenizer", TOKENS)
    assert "not trained to fill in" in caught.value.hint
    with pytest.raises(RecipeError, match="rate"):
        built(tmp_path, starter / "tokenizer", TOKENS, rate=1.5)


@pytest.mark.parametrize("trait", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"is_stop": True}])
def test_tokens_that_change_or_end_the_text_beside_them_are_refused(trait, starter, tmp_path):
    backend, folder = Tokenizer.from_file(str(starter / "tokenizer" / "tokenizer.json")), tmp_path / "tokenizer"
    shutil.copytree(starter / "tokenizer", folder)
    is_stop = trait.pop("is_stop", False)
    backend.add_tokens([AddedToken("<P>", **trait), "<S>", "<M>"])
    backend.save(str(folder / "tokenizer.json"))
    tokens = ("<|im_end|>", S, M) if is_stop else TOKENS
    with pytest.raises(RecipeError, match="ends texts" if is_stop else "changes the text beside it"):
        built(tmp_path, folder, tokens)


def test_tokens_are_three():
    with pytest.raises(RecipeError, match="three different"):
        make_recipe({"text": {"fim": {"tokens": [P, S, P]}}})


def test_texts_that_are_cut_already_or_masked_in_part_stay_whole(real, tmp_path):
    tokens, place = REAL["deepseek-coder"], real / "tokenizers" / "deepseek-coder"
    before_prefix, before_suffix, before_middle = tokens
    cut = f"{before_prefix}a{before_suffix}c{before_middle}b"
    segments = [{"text": "masked code\n", "label": False}, {"text": "trained code", "label": True}]
    cache = built(tmp_path, place, tokens, rows=[{"text": cut}, {"segments": segments}], rate=1)
    backend = Tokenizer.from_file(str(place / "tokenizer.json"))
    found = [backend.decode(ids[1:-1], skip_special_tokens=False) for ids, _ in cache_documents(cache, "train")]
    assert found == [cut, "masked code\ntrained code"]


@pytest.mark.parametrize("schema", ["text", "completion"])
def test_it_is_said_if_no_row_is_a_text(schema, starter, tmp_path, capsys):
    tokens, text = ("<think>", "<tool_call>", "</tool_call>"), {"text": "ab", "prompt": "a", "completion": "b"}
    built(tmp_path, starter / "tokenizer", tokens, rows=[text], schema=schema)
    assert ("`text.fim` has no effect" in capsys.readouterr().err) == (schema == "completion")


def test_without_it_a_recipe_is_what_it_was():
    assert to_json(make_recipe({}))["text"] == {"append_eos": True}
