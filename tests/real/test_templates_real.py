"""Every real template, with every shape of conversation and every real tokenizer: the definition, or a reason in words."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from conversation_shapes import SHAPES, WORDS, sample
from fitted_tokenizers import Fitted, compiled, templates
from oracle import Oracle
from search_effort import IS_DEEP, one_in
from supervision_stages import ALLOW_ALL, Outcome

from packer.recipe.recipe import make_recipe
from packer.rejections import CODES

pytestmark = pytest.mark.real

TOKENIZERS = ("minimind", "qwen3", "llama-2", "llama-3", "phi-3", "deepseek-coder", "gpt-2")
RULES = (
    *(
        "on_prompt_mismatch=continue",
        "history_rewrite=last",
        "history_rewrite=as_rendered",
    ),
    *("reasoning=field", "reasoning=inline", "no_terminator=append"),
)
SOME, HALF, ALL = 12, 2, 1
"""`make test` asks every twelfth template for every twelfth shape, each for others. `make deep` asks all once, and under
other tokenizers and rules every second."""

MATRIX = [
    ("minimind", "", SOME),
    *(
        pytest.param(tokenizer, rule, ALL if (tokenizer, rule) == ("minimind", "") else HALF, marks=pytest.mark.slow)
        for tokenizer, rule in [
            *((tokenizer, "") for tokenizer in TOKENIZERS),
            *((tokenizer, "engine=fast") for tokenizer in TOKENIZERS if tokenizer != "deepseek-coder"),
            *(("minimind", rule) for rule in RULES),
        ]
    ),
]


def by_definition(oracle: Oracle, shape: str) -> Outcome:
    row = sample(shape)
    return oracle.documents([message.fields for message in row.messages], tools=row.tools)


@pytest.mark.parametrize(("tokenizer", "rule", "every"), MATRIX)
def test_every_template_and_shape_ends_in_the_definition_or_in_words(
    tokenizer: str, rule: str, every: int, real: Path, fitted: Fitted
) -> None:
    base, definition = fitted.load(tokenizer)
    rules = dict([rule.split("=")]) if rule else {}
    base = base.with_engine(rules.pop("engine", "reference"))
    recipe = make_recipe({}, [ALLOW_ALL, *(f"supervision.{key}={value}" for key, value in rules.items())])
    seen: Counter[str] = Counter()
    names = [*templates(real)]
    for number, name in enumerate(names[::every]):
        source = templates(real)[name]
        if (tokenizer, rule) == ("minimind", ""):
            stages, oracle = fitted.stages(name, ALLOW_ALL), fitted.definition(name)
        else:
            stages, oracle = base.with_template(source, recipe), definition.with_template(source, **rules)
        for shape in list(SHAPES)[number % every :: every]:
            (outcome,) = stages.outcomes([sample(shape)])
            assert outcome == by_definition(oracle, shape), f"{name} {shape}"
            assert not isinstance(outcome, str) or outcome in CODES, f"{name} {shape}"
            seen[outcome if isinstance(outcome, str) else "supervised"] += 1
    print(f"{tokenizer} {rule}: {dict(seen.most_common())}")
    assert seen["supervised"] > seen.total() * (0.58 if every < SOME else 0.5)
    assert len(names) == 138
    assert seen.total() == sum(len(list(SHAPES)[number % every :: every]) for number in range(len(names[::every])))


SWITCHED = {
    "enable_thinking": (
        "axolotl__exaone4", "axolotl__qwen3", "axolotl__qwen3_5", "llamacpp__Bielik-11B-v3.0-Instruct",
        "llamacpp__CohereForAI-c4ai-command-r7b-12-2024-tool_use", "llamacpp__GLM-4.6", "llamacpp__GLM-4.7-Flash",
        "llamacpp__MiroThinker", "llamacpp__Qwen-QwQ-32B", "llamacpp__Qwen-Qwen3-0.6B", "llamacpp__Qwen3.5-4B",
        "llamacpp__deepseek-ai-DeepSeek-V3.1", "llamacpp__deepseek-ai-DeepSeek-V3.2", "trl__qwen3",
        "trl__qwen3_5_nothink", "trl__qwen3_5_nothink_training", "trl__qwen3_5_think_training", "trl__qwen3_training",
    ),
    "thinking": ("llamacpp__deepseek-ai-DeepSeek-V3.1", "llamacpp__deepseek-ai-DeepSeek-V3.2"),
    "reasoning": ("llamacpp__Cohere2MoE",),
    "reasoning_effort": ("llamacpp__Cohere2MoE",),
}  # fmt: skip
"""Variables that choose the prompt, and the templates that have them: read from the templates by eye."""


def test_prompt_modes_of_every_template_are_those_it_has(real: Path) -> None:
    """In `make test` of every twelfth, and of every sixth that has some."""
    switched = {
        name: {switch for switch, names in SWITCHED.items() if name in names} for name in sum(SWITCHED.values(), ())
    }
    names = {*one_in(SOME, [*templates(real)]), *(f"{name}.jinja" for name in one_in(6, [*switched]))}
    found = {name.removesuffix(".jinja"): {*compiled(real, name).switches.names} for name in names}
    assert found == {name: switched.get(name, set()) for name in found}
    assert len([*filter(None, found.values())]) >= (len(switched) if IS_DEEP else 4)


@pytest.mark.slow
def test_nothing_is_refused_that_can_be_learned(real: Path, fitted: Fitted) -> None:
    """Where every turn has a prompt, a rendering that continues it in some mode, and a stop token, it is kept."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name in templates(real):
        stages, oracle = fitted.stages(name, ALLOW_ALL), fitted.definition(name)
        for shape in SHAPES:
            row = sample(shape)
            (outcome,) = stages.outcomes([row])
            possible = oracle.is_possible([message.fields for message in row.messages], row.tools)
            assert not (possible and isinstance(outcome, str)) or outcome in (
                "nothing_trained",
                "mangled_call",
                "mangled_text",
                "open_reasoning",
            ), f"{name} {shape} {outcome}"
            counts[shape][outcome if isinstance(outcome, str) else "supervised"] += 1
            counts[shape]["possible"] += possible
    assert sum(count["possible"] for count in counts.values()) > 1900
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "templates.md").read_text("utf-8")
    columns = (
        "supervised",
        "prompt_diverges",
        "template_error",
        "no_terminator",
        "nothing_trained",
        "mangled_call",
        "mangled_text",
        "open_reasoning",
    )
    measured = [f"| {shape} | {' | '.join(str(counts[shape][column]) for column in columns)} |" for shape in SHAPES]
    total = [sum(counts[shape][column] for shape in SHAPES) for column in columns]
    measured.append(f"| all | {' | '.join(map(str, total))} |")
    print("\n".join(measured))
    assert measured[-1] in page.splitlines()


@pytest.mark.parametrize("every", [SOME, pytest.param(ALL, marks=pytest.mark.slow)])
def test_every_word_of_a_row_is_in_its_documents_or_the_row_is_refused(every: int, real: Path, fitted: Fitted) -> None:
    _, definition = fitted.load("minimind")
    seen: Counter[str] = Counter()
    for number, name in enumerate([*templates(real)][::every]):
        stages = fitted.stages(name)
        for shape in list(SHAPES)[number % every :: every]:
            (outcome,) = stages.outcomes([sample(shape)])
            if not isinstance(outcome, str):
                written = "".join(definition.tokenizer.decode(ids, skip_special_tokens=False) for ids, _ in outcome)
                assert [word for word in words_of(shape) if word not in written] == [], f"{name} {shape}"
            seen[outcome if isinstance(outcome, str) else "supervised"] += 1
    print(dict(seen.most_common()))
    assert seen["supervised"] > 1000 // every**2
    if every != ALL:
        return
    lost = {code: number for code, number in seen.items() if code.startswith("dropped_")}
    assert len(lost) == 5
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "templates.md").read_text("utf-8")
    figures = (f"{seen['supervised']:,} of {seen.total():,}", *(f"`{code}` {number}" for code, number in lost.items()))
    assert [figure for figure in figures if figure not in page.replace("\n", " ")] == []


def words_of(shape: str) -> list[str]:
    """The words of a shape that are learned or context: not those after the last answer."""
    messages = [message.fields for message in sample(shape).messages]
    last = max(k for k, message in enumerate(messages) if message["role"] == "assistant")
    text = json.dumps(messages[: last + 1])
    return [word for word in WORDS if word in text]


@pytest.mark.parametrize(
    ("template", "codes"),
    [
        ("trl__llama3.jinja", {"reasoning": "dropped_reasoning", "call": "dropped_tool_call"}),
        ("axolotl__gemma.jinja", {"system": "template_error", "two users": "template_error"}),
        ("mistralcommon__v13.jinja", {"reasoning": "dropped_reasoning", "two assistants": "prompt_diverges"}),
        ("llamacpp__meta-llama-Llama-3.1-8B-Instruct.jinja", {"parallel calls": "template_error"}),
        ("llamacpp__llama-cpp-deepseek-r1.jinja", {"single": "prompt_diverges", "reasoning": "prompt_diverges"}),
    ],
)
def test_known_losses_of_real_templates_are_named(
    template: str, codes: dict[str, str], real: Path, fitted: Fitted
) -> None:
    stages = fitted.stages(template)
    assert {shape: stages.outcomes([sample(shape)])[0] for shape in codes} == codes
