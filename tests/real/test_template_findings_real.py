"""A preview of every real template, and of well-known ones the findings that were checked by hand."""

import functools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fitted_tokenizers import STOPS, Fitted, templates
from hints import settings_in
from search_effort import one_in
from tokenizers import AddedToken, Tokenizer

from packer.audit import TEMPLATE_CODES
from packer.audit.preview import Preview, preview
from packer.errors import TemplateError
from packer.recipe.recipe import make_recipe

pytestmark = pytest.mark.real

Fit = Callable[..., Path]


@pytest.fixture(scope="module")
def fit(real: Path, fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """Copies of the smallest real tokenizer where every marker of every template is a token, by what they stop at."""
    backend = Tokenizer.from_file(str(real / "tokenizers" / "minimind" / "tokenizer.json"))
    special = [AddedToken(marker, normalized=False, special=True) for marker in (*fitted.markers, "<unk>")]
    backend.add_special_tokens(special)

    @functools.cache
    def copy(*stops: str) -> Path:
        folder = tmp_path_factory.mktemp("fitted")
        config = {"bos_token": "<s>", "eos_token": stops[0], "pad_token": "<unk>"}
        backend.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
        ids = [backend.token_to_id(stop) for stop in stops]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}), "utf-8")
        return folder

    return copy


def preview_of(tokenizer: Path, real: Path, template: str, *overrides: str) -> Preview:
    file = real / "templates" / template
    return preview(make_recipe({"tokenizer": str(tokenizer), "template": {"file": str(file)}}, overrides))


@pytest.mark.parametrize(
    ("tokenizer", "part"),
    [
        *(pytest.param("fitted", slice(n, None, 3), marks=pytest.mark.slow) for n in range(3)),
        pytest.param("phi-3", slice(None), marks=pytest.mark.slow),
    ],
)
def test_every_template_has_a_preview_and_the_first_key_of_its_hint_helps(
    tokenizer: str, part: slice, real: Path, fit: Fit
) -> None:
    folder = fit(*STOPS) if tokenizer == "fitted" else real / "tokenizers" / tokenizer
    seen: Counter[str] = Counter()
    helped = 0
    names = sorted(templates(real))[part]
    for name in names:
        try:
            found = preview_of(folder, real, name)
        except TemplateError:
            seen["refused"] += 1
            continue
        codes = [finding.code for finding in found.findings]
        assert len(set(codes)) == len(codes), f"{name}: a code is told twice"
        assert set(codes) <= set(TEMPLATE_CODES), name
        for finding in found.findings:
            assert finding.message, f"{name} {finding.code}"
            assert "\n" not in finding.message, f"{name} {finding.code}"
            for example in finding.examples:
                start, end = example.mark or (0, 0)
                assert 0 <= start <= end <= len(example.text), f"{name} {finding.code}"
        seen.update([*codes, *found.totals.rejected])
        keys = settings_in(found.rows[0].hint or "")
        if tokenizer == "fitted" and keys:
            assert preview_of(folder, real, name, keys[0]).totals.kept == 1, name
            helped += 1
    print(f"{dict(seen.most_common())}, {helped} helped")
    assert len(templates(real)) == 138
    assert len(seen) >= 3
    assert len(names) >= 44
    assert helped or tokenizer != "fitted"


CHATML, LLAMA_3, MISTRAL = ("<|im_end|>",), ("<|eot_id|>",), ("</s>",)
COHERE, DEEPSEEK, GEMMA = ("<|END_OF_TURN_TOKEN|>",), ("<｜end▁of▁sentence｜>",), ("<end_of_turn>",)

KNOWN: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "llamacpp__Qwen-Qwen3-0.6B": (CHATML, set()),
    "trl__qwen3_training": (CHATML, set()),
    "vllm__tool_chat_template_hermes": (CHATML, set()),
    "llamacpp__NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": (CHATML, {"template_error"}),
    "llamacpp__meta-llama-Llama-3.2-3B-Instruct": (LLAMA_3, set()),
    "trl__llama3_training": (LLAMA_3, set()),
    "mistralcommon__v3": (MISTRAL, set()),
    "ct__llama-2-chat": (MISTRAL, set()),
    "llamacpp__google-gemma-2-2b-it": (GEMMA, set()),
    "axolotl__command_a": (COHERE, set()),
    "axolotl__command_a_rag": (COHERE, {"opening_learned"}),
    "llamacpp__Cohere2MoE": (COHERE, {"opening_learned"}),
    "llamacpp__llama-cpp-deepseek-r1": (DEEPSEEK, {"opening_learned"}),
    "llamacpp__deepseek-ai-DeepSeek-V3.2": (DEEPSEEK, set()),
    "llamacpp__GLM-4.6": (("<|endoftext|>", "<|user|>", "<|observation|>"), set()),
    "trl__phi3": (("<|endoftext|>",), set()),
    "axolotl__phi_35": (("<|end|>",), set()),
    "llamacpp__microsoft-Phi-3.5-mini-instruct": (("<|endoftext|>", "<|end|>"), set()),
    "axolotl__exaone": (("[|endofturn|]",), set()),
}  # fmt: skip
"""Template → the tokens generation stops at, and the findings on it, or the code of the plain chat that it refuses."""


@pytest.mark.parametrize("template", one_in(2, list(KNOWN)))
def test_of_a_well_known_template_exactly_what_is_true_is_reported(template: str, real: Path, fit: Fit) -> None:
    stops, expected = KNOWN[template]
    found = preview_of(fit(*stops), real, f"{template}.jinja")
    assert {finding.code for finding in found.findings} | {*found.totals.rejected} == expected
