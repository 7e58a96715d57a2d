"""packer's stages give what the definition gives: id for id, label for label, refusal for refusal."""

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import twins
from conversations import conversations
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle, Unmodelled
from search_effort import percent_of_examples
from supervision_stages import ALLOW_ALL, Stages, assistant, chat, samples, system, user
from tokenizers import AddedToken, Tokenizer

TOOLS = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{ '<call>' + call.function.name + ' ' + call.function.arguments | tojson + '</call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""Renders calls and reads null contents as empty."""

HEADED = """\
{% for message in messages %}
{{ '### ' + message.role + ':\\n' + message.content + eos_token + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '### assistant:\\n' }}{% endif %}"""
"""The header before a reply is plain text, so that nothing but the words keeps prompt and reply apart."""

SPACED = HEADED.replace("assistant:\\n", "assistant: ").replace(":\\n'", ": '")
"""As HEADED, but the prompt ends in a space."""

TRIMMED = """\
{% for message in messages %}
{% set text = message.content if loop.last or message.role == 'user' else message.content | trim %}
{{ '<|' + message.role + '|>' + text + '<|end|>' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
"""Earlier answers are trimmed: with tokens that swallow white space other text gives the same ids."""

R1_LIKE = """\
{% for message in messages %}
{% set text = message.content or '' %}
{% if message.role == 'assistant' and '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}
{{ '<|im_start|>' + message.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '</think>' }}{% else %}{{ '\\n' }}{% endif %}{% endif %}"""
"""The prompt opens the reasoning, or closes it at once; what is rendered of a turn never has any."""

R1_OPENS = R1_LIKE.replace("not enable_thinking", "false")
"""The prompt always opens it; a plain answer begins with the line that closes it again."""

MARKED = """\
{% for message in messages %}
{% if message.role == 'assistant' %}
{{ '<|im_start|>assistant' }}{% generation %}{{ '\\n' + (message.content or '') + '<|im_end|>\\n' }}{% endgeneration %}
{% else %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""The blocks take in the line that ends the header, and the one behind the terminator."""

DEFINED = vars(twins) | globals()
NAMES = {name: source for name, source in DEFINED.items() if name.isupper() and isinstance(source, str)}

PAIRS: list[tuple[Callable[..., Path], str, set[str]]] = [
    (twins.byte_level, "CHATML", {"documents"}),
    (twins.byte_level, "TOOLS", {"documents"}),
    (twins.byte_level, "QWEN3_LIKE", {"several", "prompt_diverges"}),
    (twins.byte_level, "PHI_LIKE", {"documents", "several"}),
    (twins.byte_level, "NO_TERMINATOR", {"no_terminator"}),
    (twins.double_newline, "CHATML", {"documents", "merged"}),
    (twins.double_newline, "QWEN3_LIKE", {"several"}),
    (twins.nfc, "CHATML", {"documents", "merged"}),
    (twins.nfc, "QWEN3_LIKE", {"several"}),
    (twins.added_letters, "CHATML", {"documents"}),
    (twins.header_stops, "GLM_LIKE", {"documents", "no_terminator"}),
    (twins.sentencepiece_like, "LLAMA2_LIKE", {"documents", "template_error"}),
    (twins.sentencepiece_like, "HEADED", {"documents"}),
    (twins.sentencepiece_like, "SPACED", {"documents"}),
    (twins.metaspace_first, "LLAMA2_LIKE", {"documents"}),
    (twins.metaspace_first, "SPACED", {"documents"}),
    (twins.swallowing, "PHI_LIKE", {"documents"}),
    (twins.swallowing, "TRIMMED", {"documents"}),
]


@pytest.mark.parametrize("twin", dict.fromkeys(twin for twin, _, _ in PAIRS), ids=lambda twin: twin.__name__)
def test_stages_agree_with_the_definition(twin: Callable[..., Path], tmp_path: Path) -> None:
    """Under each of its templates."""
    cases = {}
    for template, expected in [(template, expected) for own, template, expected in PAIRS if own is twin]:
        stages = Stages.load(twin(tmp_path / template, template=NAMES[template]), ALLOW_ALL)
        cases[template] = stages, Oracle(stages.model.files, NAMES[template]), expected
    _agree(cases)


RULES: list[tuple[Callable[..., Path], str, str, set[str]]] = [
    (twins.byte_level, "R1_LIKE", "on_prompt_mismatch=continue", {"documents", "several"}),
    (twins.double_newline, "R1_OPENS", "on_prompt_mismatch=continue", {"documents", "merged"}),
    (twins.byte_level, "QWEN3_LIKE", "on_prompt_mismatch=continue", {"several"}),
    (twins.byte_level, "QWEN3_LIKE", "reasoning=inline", {"several"}),
    (twins.byte_level, "QWEN3_LIKE", "reasoning=field", {"several"}),
    (twins.byte_level, "QWEN3_LIKE", "history_rewrite=as_rendered", {"documents", "several"}),
    (twins.byte_level, "QWEN3_LIKE", "history_rewrite=last", {"documents"}),
    (twins.byte_level, "NO_TERMINATOR", "no_terminator=append", {"documents", "several"}),
]


@pytest.mark.parametrize("template", dict.fromkeys(template for _, template, _, _ in RULES))
def test_stages_agree_with_the_definition_under_every_rule(template: str, tmp_path: Path) -> None:
    cases = {}
    for twin, rule, expected in [(twin, rule, expected) for twin, own, rule, expected in RULES if own == template]:
        folder = twin(tmp_path / rule, template=NAMES[template])
        stages = Stages.load(folder, ALLOW_ALL, f"supervision.{rule}")
        oracle = Oracle(stages.model.files, NAMES[template]).with_template(NAMES[template], **dict([rule.split("=")]))
        cases[rule] = stages, oracle, expected
    _agree(cases)


def _agree(cases: dict[str, tuple[Stages, Oracle, set[str]]]) -> None:
    """On random conversations stages and definition agree, and everything expected came to pass.

    Making a conversation up takes longer than to supervise it: each is asked of all cases.
    """
    seen: dict[str, Counter[str]] = {name: Counter() for name in cases}

    @percent_of_examples(20)
    @given(st.lists(conversations(), min_size=2, max_size=5))
    def agree(rows: list[list[dict[str, Any]]]) -> None:
        batch = samples(rows)
        for name, (stages, oracle, _) in cases.items():
            turns, _, supervised = stages.supervise(batch)
            got = stages.outcomes_of(batch, turns, supervised)
            try:
                want = [oracle.documents([message.fields for message in sample.messages]) for sample in batch]
            except Unmodelled:
                continue
            assert got == want, name
            seen[name].update(outcome if isinstance(outcome, str) else "documents" for outcome in want)
            seen[name]["several"] += sum(isinstance(outcome, list) and len(outcome) > 1 for outcome in want)
            seen[name]["merged"] += len(supervised.merged)

    agree()
    for name, (_, _, expected) in cases.items():
        print(name, dict(seen[name]))
        assert expected <= {what for what, number in seen[name].items() if number}, name


@given(st.data())
def test_stages_agree_on_the_turns_that_flags_choose(data: st.DataObject) -> None:
    stages, oracle = _chatml()
    messages = data.draw(conversations())
    answers = [k for k, message in enumerate(messages) if message["role"] == "assistant"]
    flags = {k: data.draw(st.booleans()) for k in answers}
    sample = chat(*messages, flags=flags)
    trained = [k for k, flag in flags.items() if flag]
    want = oracle.documents([message.fields for message in sample.messages], trained=trained)
    assert stages.outcomes([sample]) == [want]


@percent_of_examples(40)
@given(st.lists(conversations(), min_size=2, max_size=4))
def test_a_row_comes_out_the_same_whatever_stands_beside_it(rows: list[list[dict[str, Any]]]) -> None:
    stages, _ = _chatml()
    batch = samples(rows)
    assert stages.outcomes(batch) == [stages.outcomes([sample])[0] for sample in batch]


@pytest.mark.parametrize("fixed", [True, False])
@percent_of_examples(40)
@given(rows=st.lists(conversations(), min_size=1, max_size=2))
def test_stages_agree_where_the_row_fixes_its_mode(fixed: bool, rows: list[list[dict[str, Any]]]) -> None:
    stages, oracle = _qwen3()
    batch = [chat(*messages, row=row, enable_thinking=fixed) for row, messages in enumerate(rows)]
    kwargs = {"enable_thinking": fixed}
    want = [oracle.documents([m.fields for m in sample.messages], kwargs=kwargs) for sample in batch]
    assert stages.outcomes(batch) == want


@pytest.mark.parametrize("order", [1, -1])
def test_history_shows_an_answer_that_begins_with_white_space_whatever_rows_came_before(
    order: int, tmp_path: Path
) -> None:
    """The empty block that it takes away may have white space of its own behind it."""
    folder = twins.byte_level(tmp_path, template=twins.QWEN3_LIKE)
    stages = Stages.load(folder, ALLOW_ALL, "supervision.history_rewrite=as_rendered")
    oracle = Oracle(stages.model.files, twins.QWEN3_LIKE).with_template(twins.QWEN3_LIKE, history_rewrite="as_rendered")
    answers = ["\nHello", "  e", *"abcdef"][::order]
    talks = [[user("Hi"), assistant(answer), user("And?"), assistant("Bye")] for answer in answers]
    want = [oracle.documents(talk) for talk in talks]
    assert [len(documents) for documents in want] == [1] * len(talks)
    assert stages.outcomes(samples(talks)) == want


def test_stages_agree_where_added_tokens_overlap(tmp_path: Path) -> None:
    """The tokenizer takes `bcd` before it looks for `ab` and `cd`: what stands in the text is not what it finds."""
    folder = twins.byte_level(tmp_path)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens([AddedToken("bcd", normalized=False), *(AddedToken(t, normalized=True) for t in ("ab", "cd"))])
    backend.save(str(folder / "tokenizer.json"))
    stages = Stages.load(folder)
    oracle = Oracle(stages.model.files, twins.CHATML)
    talk = [user("abcd"), assistant("abcd!"), user("cd"), assistant("ab")]
    assert stages.outcomes([chat(*talk)]) == [oracle.documents(talk)]


# -- the definition itself, on examples that can be checked by eye ---------------------------------------------------------


def test_the_definition_trains_replies_with_their_terminators_and_nothing_else() -> None:
    _, oracle = _chatml()
    (document,) = oracle.documents([system("Be kind"), user("Hi"), assistant("Hello"), user("Bye"), assistant("Ok")])
    assert _trained(oracle, document) == ["Hello<|im_end|>", "Ok<|im_end|>"]


def test_the_definition_gives_every_rewritten_stretch_its_own_document() -> None:
    _, oracle = _qwen3()
    documents = oracle.documents([user("Hi"), assistant("Hello"), user("Bye"), assistant("Ok")])
    assert [_trained(oracle, document) for document in documents] == [["Hello<|im_end|>"], ["Ok<|im_end|>"]]


def test_the_definition_learns_a_plain_answer_under_the_prompt_without_thinking() -> None:
    _, oracle = _qwen3()
    ((ids, labels),) = oracle.documents([user("Hi"), assistant("Hello")])
    prompt = oracle.tokenizer.decode([i for i, label in zip(ids, labels, strict=True) if label < 0], False)
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_the_definition_learns_reasoning_under_the_thinking_prompt() -> None:
    _, oracle = _qwen3()
    (document,) = oracle.documents([user("Hi"), assistant("Hello", reasoning_content="hm")])
    assert _trained(oracle, document) == ["<think>\nhm\n</think>\n\nHello<|im_end|>"]


def _trained(oracle: Oracle, document: tuple[list[int], list[int]]) -> list[str]:
    """The trained texts of a document, run by run."""
    runs: list[list[int]] = [[]]
    for label in document[1]:
        if label >= 0:
            runs[-1].append(label)
        elif runs[-1]:
            runs.append([])
    return [oracle.tokenizer.decode(run, skip_special_tokens=False) for run in runs if run]


_made: dict[str, tuple[Stages, Oracle]] = {}


def _chatml() -> tuple[Stages, Oracle]:
    return _pair("TOOLS")


def _qwen3() -> tuple[Stages, Oracle]:
    return _pair("QWEN3_LIKE")


def _pair(template: str) -> tuple[Stages, Oracle]:
    """Made once; a property may not ask for a folder of its own."""
    if template not in _made:
        with tempfile.TemporaryDirectory() as name:
            stages = Stages.load(twins.double_newline(Path(name), template=NAMES[template]), ALLOW_ALL)
        _made[template] = stages, Oracle(stages.model.files, NAMES[template])
    return _made[template]
