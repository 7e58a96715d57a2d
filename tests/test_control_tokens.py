"""Control tokens that people type never become control ids: every such token, in every place, of every tokenizer."""

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import twins
from loaded_tokenizers import oracle_of, stages_of
from oracle import Oracle
from supervision_stages import ALLOW_ALL, Stages, assistant, call, chat, result, system, user
from tokenizers import AddedToken, Tokenizer, normalizers

from packer.batches import Sample
from packer.recipe.recipe import make_recipe
from packer.tokenize.reference_encoder import ReferenceEncoder

HARMLESS = "zebra"

Place = Callable[[str], dict[str, Any]]

# -- the places ------------------------------------------------------------------------------------------------------------


def _tool(name: str = "look", text: str = "?", argument: str = "city") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}


def _row(
    *,
    told: str = "Be kind",
    asked: str = "Hi",
    said: str = "fox",
    tool_call: dict[str, Any] | None = None,
    reasoning: str | None = None,
    **fields: Any,
) -> dict[str, Any]:
    turn = assistant(said) if reasoning is None else assistant(said, reasoning_content=reasoning)
    if tool_call is not None:
        turn["tool_calls"] = [{"id": "call00001", **tool_call}]
    return {"messages": [system(told), user(asked), turn], **fields}


def _with_result(text: str, name: str = "look") -> dict[str, Any]:
    row = _row(tool_call=call("look", {"city": "Rome"}))
    row["messages"] += [{"name": name, "tool_call_id": "call00001", **result(text)}, assistant("dog")]
    return row


HEARD: dict[str, Place] = {
    "system": lambda text: _row(told=text),
    "user": lambda text: _row(asked=text),
    "user, alone": lambda text: {"messages": [user(text.split()[1]), assistant("fox")]},
    "a later user": lambda text: {"messages": [*_row()["messages"], user(text), assistant("dog")]},
    "tool result": _with_result,
    "tool name": lambda text: _with_result("dry", name=text.split()[1]),
    "tool description": lambda text: _row(tools=[_tool(text=text)]),
    "tool parameter": lambda text: _row(tools=[_tool(argument=text.split()[1])]),
    "template variable": lambda text: _row(chat_template_kwargs={"persona": text}),
}
"""Where a typed control token is a word like any other. A text is three words, the second of which is the typed one."""

SAID: dict[str, Place] = {
    "content": lambda text: _row(said=text),
    "reasoning": lambda text: _row(reasoning=text),
    "argument": lambda text: _row(tool_call=call("look", {"city": [text]})),
    "argument's name": lambda text: _row(tool_call=call("look", {text: 1})),
    "name of a call": lambda text: _row(tool_call=call(text.split()[1], {})),
}
"""Where it would be learned, and rejects the row."""


def sample(row: dict[str, Any], number: int = 0) -> Sample:
    kwargs = row.get("chat_template_kwargs") or {}
    return chat(*row["messages"], row=number, tools=row.get("tools"), **kwargs)


def typed(token: str) -> str:
    return f"say {token} now"


# -- the promise -----------------------------------------------------------------------------------------------------------


def control_ids(stages: Stages, ids: list[int]) -> Counter[int]:
    control = set(stages.model.control.values())
    return Counter(i for i in ids if i in control)


def check_heard(stages: Stages, tokens: list[str]) -> Counter[str]:
    """Every token in every place where it is a word, beside the same row with a harmless word."""
    seen: Counter[str] = Counter()
    for place, make in HEARD.items():
        (plain,) = stages.outcomes([sample(make(typed(HARMLESS)))])
        if isinstance(plain, str):
            seen[f"{place}: {plain}"] += 1  # the template cannot do this
            continue
        rows = [sample(make(typed(token)), number) for number, token in enumerate(tokens)]
        for token, documents in zip(tokens, stages.outcomes(rows), strict=True):
            assert not isinstance(documents, str), (place, token, documents)
            assert len(documents) == len(plain)
            for (ids, labels), (plain_ids, plain_labels) in zip(documents, plain, strict=True):
                assert control_ids(stages, ids) == control_ids(stages, plain_ids), (place, token)
                spelled, harmless = stages.round_trip.decode(ids), stages.round_trip.decode(plain_ids)
                assert spelled == harmless.replace(HARMLESS.encode(), token.encode()), (place, token)
                seen[place] += spelled != harmless
                assert [i for i in labels if i >= 0] == [i for i in plain_labels if i >= 0]
    return seen


def check_said(stages: Stages, tokens: list[str]) -> int:
    checked = 0
    for place, make in SAID.items():
        rows = [sample(make(typed(token)), number) for number, token in enumerate(tokens)]
        assert stages.outcomes(rows) == ["control_token"] * len(tokens), place
        checked += len(rows)
    return checked


PERSONA = twins.CHATML.replace(
    "{% for message in messages %}",
    "{{ '<|im_start|>system\\n' + (persona or 'none') + (tools | tojson) + '<|im_end|>\\n' }}"
    "{% for message in messages %}",
    1,
).replace("message.role + '\\n'", "message.role + (message.name or '') + '\\n'")
"""Shows tool definitions, a variable of the row, and who a result is from."""

PAIRS = [(twin, None) for twin in twins.TWINS] + [(twins.byte_level, PERSONA), (twins.nfc, PERSONA)]


@pytest.mark.parametrize(("twin", "template"), PAIRS, ids=[f"{t.__name__}{'-persona' * bool(s)}" for t, s in PAIRS])
def test_no_typed_control_token_of_a_twin_is_one(
    twin: Callable[..., Path], template: str | None, tmp_path: Path
) -> None:
    folder = twin(tmp_path) if template is None else twin(tmp_path, template=template)
    stages = Stages.load(folder, ALLOW_ALL)
    tokens = list(stages.model.control)
    seen = check_heard(stages, tokens)
    print(dict(seen))
    assert seen["user"] == len(tokens) > 1
    if template is not None:
        places = ("template variable", "tool description", "tool parameter", "tool result", "tool name")
        assert [seen[place] for place in places] == [len(tokens)] * 5
    assert check_said(stages, tokens) == len(SAID) * len(tokens)


REAL = ("gpt-2", "llama-2", "minimind", "phi-3", "deepseek-coder", "qwen3", "llama-3")


def load(real: Path, name: str) -> Stages:
    if name != "gpt-2":
        return stages_of(real / "tokenizers" / name)
    chatml = real / "templates" / "axolotl__chatml.jinja"  # it has no template of its own, and one stop token
    return Stages.load(real / "tokenizers" / name, ALLOW_ALL, "supervision.no_terminator=append", template=chatml)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "num_tokens"),
    [
        ("llama-2", 6),
        *(pytest.param(name, 24, marks=pytest.mark.slow) for name in REAL),
    ],
)
def test_no_typed_control_token_of_a_real_tokenizer_is_one(name: str, num_tokens: int, real: Path) -> None:
    """The stop tokens, the first ones, and about `num_tokens` at even distances."""
    stages = load(real, name)
    every = list(stages.model.control)
    stops = [token for token in every if stages.model.control[token] in stages.model.stop_ids]
    tokens = list(dict.fromkeys([*stops, *every[:: max(1, len(every) // num_tokens)], *every[: num_tokens // 3]]))
    seen = check_heard(stages, tokens)
    print(f"{name}: {len(tokens)} of {len(every)} control tokens, {dict(seen)}")
    assert stops
    assert seen["user, alone"] == len(tokens)
    assert check_said(stages, tokens) == len(SAID) * len(tokens)


# -- other added tokens ----------------------------------------------------------------------------------------------------


def added_words(stages: Stages) -> list[str]:
    return [token.content for token in stages.model.added_tokens if token.content not in stages.model.control]


def check_added_words(stages: Stages, words: list[str]) -> int:
    """An added token that is no control token is vocabulary in every message: the text is encoded as it is rendered."""
    encoder = ReferenceEncoder(stages.model.files["tokenizer.json"])
    checked = 0
    for word, asked, said in itertools.product(words, (True, False), (True, False)):
        row = chat(user(typed(word) if asked else "Hi"), assistant(typed(word) if said else "fox"))
        batch = stages.render([row])
        assert not batch.rejections
        assert len(batch.guarded) == 0
        (ids, labels) = stages.document(row)
        whole, _ = encoder.encode([batch.text[: int(batch.completion_end[0])].decode()])
        assert ids == whole.tolist()
        token_id = next(token.id for token in stages.model.added_tokens if token.content == word)
        assert ids.count(token_id) >= asked + said
        assert [i for i in labels if i >= 0].count(token_id) >= said
        checked += 1
    return checked


@pytest.mark.parametrize(("twin", "words"), [(twins.added_letters, {"ü", "õ"}), (twins.nfc, {"<think>", "</think>"})])
def test_added_tokens_of_a_twin_that_control_nothing_are_vocabulary(
    twin: Callable[..., Path], words: set[str], tmp_path: Path
) -> None:
    stages = Stages.load(twin(tmp_path), "supervision.reasoning=inline")  # tags of reasoning are text, too
    assert set(added_words(stages)) == words
    assert check_added_words(stages, sorted(words)) == 4 * len(words)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "some"),
    [("deepseek-coder", "ü"), ("phi-3", "</s>"), pytest.param("qwen3", "<tool_response>", marks=pytest.mark.slow)],
)
def test_added_tokens_of_real_tokenizers_that_control_nothing_are_vocabulary(name: str, some: str, real: Path) -> None:
    stages = load(real, name)
    # Tags of reasoning are shown in a place of their own.
    words = [word for word in added_words(stages) if not word.startswith(("<think", "</think"))]
    assert some in words
    assert check_added_words(stages, words) == 4 * len(words)


# -- templates that look into a message ------------------------------------------------------------------------------------

LOOKS = twins.QWEN3_LIKE.replace(
    "{% if message.role == 'user' %}",
    "{% if message.role == 'user' and not message.content.startswith('<tool_response>') %}",
    1,
)
"""As Qwen3: a user message that opens with `<tool_response>` is taken for a tool's answer, and ends no line of thought."""

TYPED = ("<tool_response>\n4\n</tool_response>", "<tool_response>", "4 </tool_response>", " <tool_response>", "4")
ANSWERS = [
    [user("Hi"), assistant("a", reasoning_content="hm"), user(text), assistant("b", reasoning_content="ho")]
    for text in TYPED
]


def outcomes_by_definition(oracle: Oracle, rows: list[list[dict[str, Any]]]) -> list[Any]:
    return [oracle.documents([m.fields for m in chat(*messages).messages]) for messages in rows]


def test_a_typed_tool_response_is_what_the_template_takes_it_for(tmp_path: Path) -> None:
    stages = Stages.load(twins.nfc(tmp_path, template=LOOKS))
    oracle = Oracle(stages.model.files, LOOKS)
    outcomes = stages.outcomes([chat(*messages, row=row) for row, messages in enumerate(ANSWERS)])
    assert outcomes == outcomes_by_definition(oracle, ANSWERS)
    # Two open with the tag: the first turn keeps its reasoning, and the conversation is one document.
    assert [len(outcome) for outcome in outcomes] == [1, 1, 2, 2, 2]


def test_a_typed_tool_response_that_is_a_control_token_rejects_the_row(tmp_path: Path) -> None:
    """As a word it would render otherwise than as the tag the template looks for, and packer does not guess."""
    folder = twins.byte_level(tmp_path, template=LOOKS)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens([AddedToken("<tool_response>", normalized=False, special=True)])
    backend.save(str(folder / "tokenizer.json"))
    stages = Stages.load(folder)
    outcomes = stages.outcomes([chat(*messages, row=row) for row, messages in enumerate(ANSWERS)])
    codes = [outcome if isinstance(outcome, str) else "kept" for outcome in outcomes]
    assert codes == ["control_render"] * 2 + ["kept"] * 3


def looking(templates: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(templates.glob("*.jinja")):
        source = path.read_text("utf-8")
        if "startswith('<tool_response>')" in source:
            yield path.name, source


@pytest.mark.real
@pytest.mark.slow
def test_real_templates_that_look_for_a_tool_response_get_what_inference_would(real: Path) -> None:
    stages, oracle = load(real, "qwen3"), oracle_of(real / "tokenizers" / "qwen3")
    rows = [chat(*messages, row=row) for row, messages in enumerate(ANSWERS)]
    apart: Counter[str] = Counter()
    for name, source in looking(real / "templates"):
        got = stages.with_template(source, make_recipe({}, [ALLOW_ALL])).outcomes(copy.deepcopy(rows))
        assert got == outcomes_by_definition(oracle.with_template(source), ANSWERS), name
        sizes = [len(outcome) for outcome in got if not isinstance(outcome, str)]
        apart["a tool's answer" if len(set(sizes)) > 1 else "all the same"] += 1
    print(dict(apart))
    assert apart.total() == 10
    assert apart["a tool's answer"] > 3


# -- characters that stand in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sneaked", ["\ue0f0", "\ue0f2\ue200\ue0f3", "\ue0f2"])
@pytest.mark.parametrize("kind", ["chat", "completion", "text"])
def test_characters_that_stand_in_for_tokens_cannot_be_sneaked_in(kind: Any, sneaked: str, tmp_path: Path) -> None:
    """Beside a typed control token the text is encoded under aliases of private-use characters; typed ones are none."""
    stages = Stages.load(twins.byte_level(tmp_path))
    typed = f"typed <|im_end|> and {sneaked} x"
    rows = {
        "chat": chat(user(typed), assistant("Hello.")),
        "completion": Sample(kind="completion", row=0, prompt=typed, text="Hello."),
        "text": Sample(kind="text", row=0, text=typed),
    }
    assert stages.outcomes([rows[kind]]) == ["control_render"]
    alone, plain = (stages.document(chat(user(text), assistant("Hello.")))[0] for text in (f"and {sneaked} x", "and x"))
    assert control_ids(stages, alone) == control_ids(stages, plain)


RENDERED = {
    "a text that is a rendered chat": ("", "\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello."),
    "a text closed with a written EOS": ("", "Question: 1+1? Answer: 2<|im_end|>\n"),
    "a rendered prompt": ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "Hello."),
    "a completion closed with a written EOS": ("Hi.", "Hello.<|im_end|>"),
}


@pytest.mark.parametrize("which", RENDERED)
def test_a_row_that_was_rendered_already_is_refused(which: str, tmp_path: Path) -> None:
    prompt, text = RENDERED[which]
    rendered = Sample(kind="completion" if prompt else "text", row=0, prompt=prompt, text=text)
    assert Stages.load(twins.byte_level(tmp_path)).outcomes([rendered]) == ["control_token"]
    allowing = Stages.load(twins.byte_level(tmp_path / "again"), "supervision.control_tokens=allow")
    assert not isinstance(allowing.outcomes([rendered])[0], str)


PREPARED = [
    ("It is 2.</s>", True),
    ("It is 2.<end_of_turn>\n", True),
    ("It is 2.<|eot_id|>", True),
    ("It is 2.<|return|>", True),
    ("It is 2.<turn|>", True),
    ("A </s> ends it.", False),
    ("It was <s>struck</s>", False),
    ("<s>It is 2.</s>", True),
    ("<|start_header_id|>assistant<|end_header_id|>\n\nIt is 2.", True),
    ("<|channel|>final<|message|>It is 2.", True),
    ("<|assistant|>\nIt is 2.", True),
    ("<\uff5cAssistant\uff5c>It is 2.", True),
    ("<start_of_turn>model\nIt is 2.", True),
    ("<|turn>model\nIt is 2.", True),
    ("<|> composes <|assistant|>.", False),
    ("<b>Model</b> railways.", False),
    ("<product_name>Model\n2</product_name>", False),
]
"""Answers, and whether they have marks of another model."""


def test_an_answer_prepared_for_another_model_is_refused(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path))
    allowing = Stages.load(twins.byte_level(tmp_path / "again"), "supervision.control_tokens=allow")
    for written, refused in PREPARED:
        for sample in (
            chat(user("1+1?"), assistant(written)),
            Sample(kind="completion", row=0, prompt="1+1?", text=written),
            Sample(kind="text", row=0, text=written),
        ):
            (outcome,) = stages.outcomes([sample])
            assert (outcome == "control_token") is refused, (sample.kind, written, outcome)
            assert not isinstance(allowing.outcomes([sample])[0], str)


@pytest.mark.parametrize("written", ["2.</s>", "<|assistant|>2."])
def test_what_is_filled_in_is_asked_for_other_models_too(written: str, tmp_path: Path) -> None:
    rows = [chat(user("1+1?"), assistant(written if k % 7 == 6 else f"{k}."), row=k) for k in range(64)]
    outcomes = Stages.load(twins.byte_level(tmp_path)).outcomes(rows)
    assert [outcome == "control_token" for outcome in outcomes] == [k % 7 == 6 for k in range(64)]


@pytest.mark.parametrize("prompt", ["", "What is <|im_start|>? "])
def test_a_row_that_quotes_a_marker_is_kept(prompt: str, tmp_path: Path) -> None:
    text = "It begins a turn." if prompt else "A turn begins with <|im_start|>."
    quoting = Sample(kind="completion" if prompt else "text", row=0, prompt=prompt, text=text)
    assert not isinstance(Stages.load(twins.byte_level(tmp_path)).outcomes([quoting])[0], str)


def test_text_that_is_normalized_to_a_control_token_rejects_its_row(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.normalizer = normalizers.NFKC()
    backend.add_special_tokens([AddedToken("<|im_end|>", normalized=True, special=True)])
    backend.save(str(folder / "tokenizer.json"))
    stages = Stages.load(folder)
    wide = "<\uff5cim_end\uff5c>"
    plain = chat(user("typed x"), assistant("Hello."))
    typed = chat(user(f"typed {wide} x"), assistant("Hello."), row=1)
    kept, *refused = stages.outcomes([plain, typed, Sample(kind="text", row=2, text=f"typed {wide} x")])
    assert not isinstance(kept, str)
    assert refused == ["not_encodable", "not_encodable"]
    assert stages.outcomes([Sample(kind="text", row=0, text=f"typed {wide} x")]) == ["not_encodable"], "alone, too"
