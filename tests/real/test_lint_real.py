"""The template report of every real template, and of well-known ones the facts that were checked by hand."""

import functools
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fitted_tokenizers import STOPS, markers, templates
from tokenizers import AddedToken, Tokenizer

from packer.audit import LintReport, lint
from packer.audit.lint import CODES
from packer.recipe import make_recipe

pytestmark = pytest.mark.real

Fit = Callable[..., Path]


@pytest.fixture(scope="module")
def fit(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """Copies of the smallest real tokenizer where every marker of every template is a token, by what they stop at."""
    backend = Tokenizer.from_file(str(real / "tokenizers" / "minimind" / "tokenizer.json"))
    special = [AddedToken(marker, normalized=False, special=True) for marker in (*markers(real), "<unk>")]
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


def report_of(tokenizer: Path, real: Path, template: str, *overrides: str) -> LintReport:
    file = real / "templates" / template
    return lint(make_recipe({"tokenizer": str(tokenizer), "template": {"file": str(file)}}, overrides))


@pytest.mark.parametrize(
    ("tokenizer", "part"),
    [
        *(pytest.param("fitted", slice(n, None, 3), marks=pytest.mark.slow) for n in range(3)),
        pytest.param("phi-3", slice(None), marks=pytest.mark.slow),
    ],
)
def test_every_template_has_a_report_and_the_key_of_its_error_helps(
    tokenizer: str, part: slice, real: Path, fit: Fit
) -> None:
    folder = fit(*STOPS) if tokenizer == "fitted" else real / "tokenizers" / tokenizer
    seen: Counter[str] = Counter()
    helped = 0
    names = sorted(templates(real))[part]
    for name in names:
        report = report_of(folder, real, name)
        codes = [finding.code for finding in report.findings]
        assert codes, name
        assert len(set(codes)) == len(codes), f"{name}: a code is told twice"
        assert set(codes) <= set(CODES), name
        for finding in report.findings:
            assert finding.message, f"{name} {finding.code}"
            assert "\n" not in finding.message, f"{name} {finding.code}"
            for example in finding.examples:
                start, end = example.mark or (0, 0)
                assert 0 <= start <= end <= len(example.text), f"{name} {finding.code}"
        seen.update(codes)
        errors = [finding for finding in report.findings if finding.level == "error"]
        keys = SET.findall(errors[0].hint or "") if errors else []
        if tokenizer == "fitted" and keys and "markers" not in keys[0]:
            again = report_of(folder, real, name, shlex.split(keys[0].rstrip(";:,"))[0])
            assert codes[0] not in [finding.code for finding in again.findings if finding.level == "error"], name
            helped += 1
    print(f"{dict(seen.most_common())}, {helped} helped")
    assert len(templates(real)) == 138
    assert len(seen) > 15
    assert seen["terminator"] > 0.8 * len(names) >= 36
    assert helped > 5 or tokenizer != "fitted"


SET = re.compile(r"--set ('[^']*'|\S+)")

DROPS_ALL_TOOLS = {"dropped_tool_call", "dropped_tools"}
CHATML, LLAMA_3, MISTRAL = ("<|im_end|>",), ("<|eot_id|>",), ("</s>",)
COHERE, DEEPSEEK, GEMMA = ("<|END_OF_TURN_TOKEN|>",), ("<｜end▁of▁sentence｜>",), ("<end_of_turn>",)

KNOWN: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "trl__qwen3": (CHATML, {"chat_rewritten", "reasoning_forgotten", "prompt_modes", "terminator", "shapes_rejected"}),
    "llamacpp__Qwen-Qwen3-0.6B": (CHATML, {"chat_rewritten", "reasoning_forgotten", "prompt_modes", "terminator", "shapes_rejected"}),
    "trl__qwen3_training": (CHATML, {"marks_differ", "prompt_modes", "terminator", "shapes_rejected"}),
    "trl__qwen3_instruct_2507": (CHATML, {"dropped_reasoning", "terminator", "shapes_rejected"}),
    "llamacpp__Qwen3.5-4B": (CHATML, {"chat_rewritten", "reasoning_forgotten", "prompt_modes", "terminator", "shapes_rejected"}),
    "llamacpp__Qwen-Qwen2.5-7B-Instruct": (CHATML, {"dropped_reasoning", "terminator", "default_system", "shapes_rejected"}),
    "llamacpp__Qwen-QwQ-32B": (CHATML, {"prompt_diverges"}),
    "axolotl__chatml": (CHATML, {"dropped_reasoning", "terminator"} | DROPS_ALL_TOOLS),
    "vllm__tool_chat_template_hermes": (CHATML, {"dropped_content", "dropped_reasoning", "shapes_rejected", "terminator", "default_system"}),
    "llamacpp__NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": (CHATML, {"plain_chat_refused"}),
    "llamacpp__Bielik-11B-v3.0-Instruct": (CHATML, {"prompt_modes", "terminator", "shapes_rejected"}),
    "trl__qwen2_5_training": (CHATML, {"dropped_reasoning", "marks_differ", "terminator", "default_system", "shapes_rejected"}),
    "llamacpp__meta-llama-Llama-3.1-8B-Instruct": (LLAMA_3, {"dropped_content", "dropped_reasoning", "terminator", "default_system", "shapes_rejected"}),
    "llamacpp__meta-llama-Llama-3.2-3B-Instruct": (LLAMA_3, {"dropped_content", "dropped_reasoning", "terminator", "default_system", "reads_clock", "shapes_rejected"}),
    "trl__llama3": (LLAMA_3, {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "trl__llama3_training": (LLAMA_3, {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "vllm__tool_chat_template_toolace": (LLAMA_3, {"dropped_content", "dropped_reasoning", "terminator", "default_system"}),
    "llamacpp__fireworks-ai-llama-3-firefunction-v2": (LLAMA_3, {"plain_chat_refused"}),
    "axolotl__mistral_v1": (MISTRAL, {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "mistralcommon__v3": (MISTRAL, {"dropped_reasoning", "terminator", "shapes_rejected"}),
    "axolotl__mistral_v3_tekken": (MISTRAL, {"dropped_content", "dropped_reasoning", "shapes_rejected", "terminator"}),
    "mistralcommon__v7_image": (MISTRAL, {"dropped_reasoning", "terminator", "shapes_rejected"}),
    "mistralcommon__v13": (MISTRAL, {"dropped_reasoning", "terminator", "shapes_rejected"}),
    "mistralcommon__v13_think": (MISTRAL, {"terminator", "shapes_rejected"}),
    "ct__llama-2-chat": (MISTRAL, {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "ct__zephyr": (MISTRAL, {"prompt_diverges"}),
    "axolotl__alpaca": (MISTRAL, {"dropped_reasoning", "dropped_tool_result", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "llamacpp__google-gemma-2-2b-it": (GEMMA, {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "trl__gemma_training": (GEMMA, {"dropped_reasoning", "marks_differ", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "axolotl__gemma3": (GEMMA, {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "axolotl__command_a": (COHERE, {"dropped_reasoning", "dropped_tool_result", "terminator", "default_system", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "axolotl__command_a_rag": (COHERE, {"header_learned", "dropped_content", "dropped_reasoning", "dropped_tools", "terminator", "default_system", "shapes_rejected"}),
    "llamacpp__Cohere2MoE": (COHERE, {"prompt_diverges"}),
    "trl__cohere": (COHERE, {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "llamacpp__llama-cpp-deepseek-r1": (DEEPSEEK, {"prompt_diverges"}),
    "llamacpp__deepseek-ai-DeepSeek-V3.1": (DEEPSEEK, {"dropped_reasoning", "dropped_tools", "prompt_modes", "terminator", "shapes_rejected"}),
    "llamacpp__deepseek-ai-DeepSeek-V3.2": (DEEPSEEK, {"opening_learned", "chat_rewritten", "reasoning_forgotten", "prompt_modes", "terminator", "shapes_rejected"}),
    "llamacpp__GLM-4.6": (("<|endoftext|>", "<|user|>", "<|observation|>"), {"reasoning_forgotten", "prompt_modes", "terminator", "shapes_rejected"}),
    "trl__phi3": (("<|endoftext|>",), {"turn_end_is_no_stop", "dropped_reasoning", "dropped_tool_result", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "axolotl__phi_35": (("<|end|>",), {"dropped_reasoning", "dropped_tool_result", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "llamacpp__microsoft-Phi-3.5-mini-instruct": (("<|endoftext|>", "<|end|>"), {"dropped_reasoning", "dropped_tool_result", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
    "axolotl__exaone": (("[|endofturn|]",), {"dropped_reasoning", "terminator", "shapes_rejected"} | DROPS_ALL_TOOLS),
}  # fmt: skip
"""Template → the tokens generation stops at, and the codes of its report."""


AT_ONCE = {
    "llamacpp__Qwen-Qwen3-0.6B", "trl__qwen3_training", "vllm__tool_chat_template_hermes",
    "llamacpp__NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "llamacpp__meta-llama-Llama-3.2-3B-Instruct",
    "trl__llama3_training", "ct__llama-2-chat", "mistralcommon__v3", "llamacpp__google-gemma-2-2b-it",
    "axolotl__command_a", "axolotl__command_a_rag", "llamacpp__Cohere2MoE", "llamacpp__llama-cpp-deepseek-r1",
    "llamacpp__deepseek-ai-DeepSeek-V3.2", "llamacpp__GLM-4.6", "trl__phi3", "axolotl__phi_35", "llamacpp__microsoft-Phi-3.5-mini-instruct", "axolotl__exaone",
}  # fmt: skip
"""What `make test` asks; `make deep` asks all."""


def test_every_finding_family_and_publisher_is_among_the_templates_asked_at_once() -> None:
    asked = {name: KNOWN[name] for name in AT_ONCE}
    for told in (
        lambda known: {code for _, codes in known.values() for code in codes},
        lambda known: {stops for stops, _ in known.values()},
        lambda known: {name.partition("__")[0] for name in known},
    ):
        assert told(asked) == told(KNOWN)


@pytest.mark.parametrize(
    "template", [pytest.param(name, marks=() if name in AT_ONCE else pytest.mark.slow) for name in KNOWN]
)
def test_of_a_well_known_template_exactly_what_is_true_is_told(template: str, real: Path, fit: Fit) -> None:
    stops, expected = KNOWN[template]
    report = report_of(fit(*stops), real, f"{template}.jinja")
    assert {finding.code for finding in report.findings} == expected
