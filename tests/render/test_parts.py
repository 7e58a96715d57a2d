"""Which parts of an answer are trained, held to templates whose parts are known because they were put together here."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import twins
from conversation_shapes import SHAPES, sample
from conversations import PIECES
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import hold
from search_effort import one_in, percent_of_examples
from supervision_stages import Stages, assistant, call, chat, result, system, user

from packer import verify_cache
from packer.batches import Sample
from packer.errors import RecipeError
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe, to_json
from packer.source.schema import read_row

PARTS = ("reasoning", "text", "calls")
SUBSETS = [parts for size in (1, 2, 3) for parts in itertools.combinations(PARTS, size)]

REASONED = {
    "tags": ("<think>\n", "\n</think>", "\n\n"),
    "brackets": ("[THINK]", "[/THINK]", ""),
    "channels": ("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"),
}
"""What a template writes before reasoning and behind it, and then before what follows."""

CALLED = {
    "tags": ("\n<tool_call>\n", "{{ call.function | tojson }}", "\n</tool_call>"),
    "list": ("[TOOL_CALLS]", "[{{ call.function | tojson }}]", ""),
    "python": ("", "[{{ call.function.name }}(at={{ call.function.arguments.at | tojson }})]", ""),
}
STYLES = [*itertools.product(REASONED, CALLED)]


def template_of(reasoned: str, called: str, text: str = "message.content or ''") -> str:
    """A template that writes reasoning, text and calls one after the other."""
    opening, closing, behind = (json.dumps(each) for each in REASONED[reasoned])
    before, shown, after = CALLED[called]
    return (
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
        "{% if message.reasoning_content %}"
        f"{{{{ {opening} + message.reasoning_content + {closing} + {behind} }}}}"
        "{% endif %}"
        f"{{{{ {text} }}}}"
        "{% for call in message.tool_calls or [] %}"
        f"{{{{ {json.dumps(before)} }}}}{shown}{{{{ {json.dumps(after)} }}}}"
        "{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )


def written(message: Mapping[str, Any], reasoned: str, called: str) -> dict[str, str]:
    """What such a template writes for each part of an answer, all of it together the whole answer."""
    opening, closing, behind = REASONED[reasoned]
    found = dict.fromkeys(PARTS, "")
    if reasoning := message.get("reasoning_content"):
        found["reasoning"] = opening + reasoning + closing
    if message["content"]:
        found["text"] = (behind if reasoning else "") + message["content"]
    before, _, after = CALLED[called]
    for made in message.get("tool_calls", ()):
        name, arguments = made["function"]["name"], made["function"]["arguments"]
        own = json.dumps(made["function"], ensure_ascii=False)
        own = f"[{own}]" if called == "list" else own
        if called == "python":
            own = f"[{name}(at={json.dumps(arguments['at'], ensure_ascii=False)})]"
        found["calls"] += before + own + after
    if found["calls"] and reasoning and not message["content"]:
        found["calls"] = behind + found["calls"]
    last = [part for part in PARTS if found[part]][-1]
    found[last] += "<|im_end|>"
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages.load(twins.double_newline(tmp_path_factory.mktemp("twin")))


def under(base: Stages, template: str, *overrides: str) -> Stages:
    """The definition; that the fast way masks the same has a test of its own."""
    return base.with_template(template, make_recipe({}, overrides)).by_reference()


def of_parts(parts: Sequence[str]) -> str:
    return f"supervision.parts=[{','.join(parts)}]"


def trained(outcome: Any) -> list[int]:
    """The trained ids of a row's documents, one after the other."""
    return [label for _, labels in outcome for label in labels if label >= 0]


def begins(stages: Stages, token: int, at: int) -> tuple[int, int]:
    """Where a token that stands at a byte begins, white space aside, and where it ends."""
    content = stages.round_trip.decode([token])
    return at + min(len(content) - len(content.lstrip()), len(content) - 1), at + len(content)


def expected(stages: Stages, ids: Sequence[int], parts: Mapping[str, str], named: Sequence[str]) -> list[int]:
    """The ids of a turn that are trained, each of which belongs to the part in which it begins, but for white space."""
    ends = [*itertools.accumulate(len(parts[part].encode()) for part in PARTS)]
    learned, at = [], 0
    for token in ids:
        begin, at = begins(stages, token, at)
        part = next(part for part, end in zip(PARTS, ends, strict=True) if begin < end)
        learned += [token] if part in named else []
    assert at == ends[-1]
    return learned


_said = st.lists(st.sampled_from([piece for piece in PIECES if "think>" not in piece]), min_size=1, max_size=4)
said = _said.map("".join).map(str.strip).filter(bool)
same = st.sampled_from(["look", "Hello", "the dog"])


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """An answer of some parts, which often say the same."""
    texts = draw(st.sampled_from([said, same]))
    kinds = draw(st.sampled_from([parts for parts in SUBSETS if parts != ("reasoning",)]))
    message = assistant(draw(texts) if "text" in kinds else None)
    if "reasoning" in kinds:
        message["reasoning_content"] = draw(texts)
    if "calls" in kinds:
        message["tool_calls"] = [call("look", {"at": draw(texts)}) for _ in range(draw(st.integers(1, 2)))]
    return message


def conversation(answer: Mapping[str, Any]) -> list[Any]:
    results = [result("calm") for _ in answer.get("tool_calls", ())]
    return [user("How deep? look"), answer, *results, user("And now?"), assistant("Calm.")]


@pytest.mark.parametrize(("reasoned", "called"), one_in(4, STYLES), ids="-".join)
def test_exactly_the_named_parts_are_trained_token_by_token(base: Stages, reasoned: str, called: str) -> None:
    template = template_of(reasoned, called)
    every = under(base, template)
    stages = {parts: under(base, template, of_parts(parts)) for parts in SUBSETS}
    turns = 0

    @percent_of_examples(15)
    @given(answers())
    def exact(answer: dict[str, Any]) -> None:
        nonlocal turns
        row = chat(*conversation(answer))
        (outcome,) = every.outcomes([row])
        if isinstance(outcome, str):
            return
        turns += 1
        whole = trained(outcome)
        first = whole.index(base.model.stop_ids[0]) + 1
        parts = written(answer, reasoned, called)
        last = {part: "Calm.<|im_end|>" if part == "text" else "" for part in PARTS}
        for named, narrowed in stages.items():
            wanted = expected(base, whole[:first], parts, named) + expected(base, whole[first:], last, named)
            (found,) = narrowed.outcomes([row])
            assert trained(found) == wanted if wanted else found == "nothing_trained", named

    exact()
    assert turns > 5


# -- whatever templates and people write ---------------------------------------------------------------------------------

TEMPLATES = [  # those above are trained exactly, part by part
    template_of("tags", "tags", "(message.content or '') | trim"),
    twins.CHATML,
    twins.QWEN3_LIKE.replace("message.content + '<|im_end|>", "(message.content or '') + '<|im_end|>"),
]


def learned(stages: Stages, rows: Sequence[Sample]) -> dict[tuple[int, int], dict[int, int]]:
    """Of each message, by row and number: the place of every trained token in its document, and the token."""
    *_, supervised = stages.supervise(rows)
    documents, found = supervised.documents, {}
    owner = [d for d, (a, b) in enumerate(itertools.pairwise(documents.run_offsets.tolist())) for _ in range(a, b)]
    runs = zip(owner, documents.run_start.tolist(), documents.run_end.tolist(), documents.run_message, strict=True)
    for d, start, end, message in runs:
        own = found.setdefault((int(documents.sample[d]), int(message)), {})
        first = int(documents.offsets[d])
        own |= {place: int(documents.input_ids[first + place]) for place in range(start, end)}
    return found


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_the_three_parts_sum_to_the_whole_whatever_is_written(base: Stages, template: str) -> None:
    whole, *each = (under(base, template, *rules) for rules in [(), *([of_parts([part])] for part in PARTS)])
    turns = 0

    @percent_of_examples(25)
    @given(st.lists(answers().map(conversation), min_size=1, max_size=3))
    def sums(conversations: list[list[Any]]) -> None:
        nonlocal turns
        rows = [chat(*messages, row=number) for number, messages in enumerate(conversations)]
        found = [learned(stages, rows) for stages in each]
        for key, tokens in learned(whole, rows).items():
            parts = [own.get(key, {}) for own in found]
            assert sum(map(len, parts)) == len(tokens)
            assert {place: token for own in parts for place, token in own.items()} == tokens
            turns += 1

    sums()
    assert turns > 2


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        (template_of("tags", "tags"), ("text",)),
        (template_of("channels", "list"), ("reasoning", "calls")),
    ],
)
def test_the_fast_way_masks_what_the_definition_masks(base: Stages, template: str, parts: Sequence[str]) -> None:
    stages = base.with_template(template, make_recipe({}, [of_parts(parts)]))
    found = hold(stages.renderer, [*map(sample, SHAPES)] * 2)
    assert found.cut > 4 and not found.filled


def test_a_reasoning_that_packer_writes_itself_is_found(base: Stages) -> None:
    """Under templates like DeepSeek R1's, finished turns lack the reasoning that prompts open."""
    prompt = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
    template = template_of("tags", "tags").partition("{% if add_generation_prompt %}")[0] + prompt
    template = template.replace("message.reasoning_content %}", "false %}")
    row = chat(user("Hi"), assistant("Hello", reasoning_content="Hello"))
    shown = {}
    for part in PARTS[:2]:
        stages = under(base, template, of_parts([part]), "supervision.on_prompt_mismatch=continue")
        shown[part] = stages.round_trip.decode(trained(stages.outcomes([row])[0]))
    assert shown == {"reasoning": b"Hello\n</think>", "text": b"\n\nHello<|im_end|>"}


REFUSED = {
    "twice": "(message.content or '') ~ (message.content or '')",
    "by its first letter": "'So: ' ~ message.content if (message.content or ' ')[0] == 'L' else message.content or ''",
    "behind the calls": "'' if message.tool_calls else message.content",
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_template_in_which_parts_have_no_place_rejects_the_row(base: Stages, how: str) -> None:
    template = template_of("tags", "tags", REFUSED[how])
    if how == "behind the calls":
        template = template.replace("{{ '<|im_end|>\\n' }}", "{{ message.content if message.tool_calls }}<|im_end|>\n")
    row = chat(user("How?"), assistant("Look there.", tool_calls=[call("look", {"at": "pier"})]), result("calm"))
    ((code, reason),) = under(base, template, of_parts(["text"])).reasons([row])
    assert code == "part_not_found" and "messages[1]" in reason
    assert not under(base, template).reasons([row]), "as a whole it is trained"


def test_tags_in_arguments_close_no_text(base: Stages) -> None:
    """Some templates write the arguments before the name."""
    shown = '{"arguments": {{ call.function.arguments | tojson }}, "name": "{{ call.function.name }}"}'
    template = template_of("tags", "tags").replace(CALLED["tags"][1], shown)
    row = chat(user("How?"), assistant("Look.", tool_calls=[call("look", {"at": "<b>pier</b> </think>"})]), result("x"))
    for part, wanted in (("text", b"Look."), ("calls", b'\n<tool_call>\n{"arguments": {"at": "<b>pier</b> </think>"}')):
        (found,) = under(base, template, of_parts([part])).outcomes([row])
        assert base.round_trip.decode(trained(found)).startswith(wanted)
        assert (b"pier" in base.round_trip.decode(trained(found))) == (part == "calls")


def test_a_control_token_in_the_context_and_letters_of_several_bytes_move_no_part(base: Stages) -> None:
    stages = under(base, template_of("tags", "tags"), of_parts(["text"]))
    answer = assistant("Schön, 你好.", reasoning_content="Föhr 👍🏽", tool_calls=[call("look", {"at": "Föhr"})])
    (found,) = stages.outcomes([chat(system("<|im_end|> ü"), user("<|im_start|> 世界"), answer, result("é"))])
    assert stages.round_trip.decode(trained(found)).decode() == "\n\nSchön, 你好."


# -- spans ---------------------------------------------------------------------------------------------------------------


def of_spans(text: str, *spans: tuple[int, int], **fields: Any) -> Sample:
    cuts = sorted({0, len(text), *itertools.chain(*spans)})
    pieces = [
        (text[start:end], any(first <= start < last for first, last in spans))
        for start, end in itertools.pairwise(cuts)
    ]
    parts = [{"type": "text", "text": piece, "train": is_trained} for piece, is_trained in pieces]
    messages = [user("How?"), assistant(parts, **fields)]
    return read_row({"messages": [*messages, *fields.pop("more", ())]}, number=0, schema="messages", columns={})


@given(st.data())
@percent_of_examples(30)
def test_the_tokens_that_begin_in_a_span_are_trained(base: Stages, data: st.DataObject) -> None:
    text = data.draw(said)
    places = data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=4, unique=True).map(sorted))
    spans = [*zip(places[::2], places[1::2], strict=False)]
    stages = under(base, twins.CHATML)
    whole, found = (
        stages.outcomes([chat(user("How?"), assistant(text))])[0],
        stages.outcomes([of_spans(text, *spans)])[0],
    )
    if isinstance(whole, str):
        assert found == whole
        return
    at, wanted = 0, []
    for token in trained(whole):
        begin, at = begins(stages, token, at)
        is_in = any(len(text[:start].encode()) <= begin < len(text[:end].encode()) for start, end in spans)
        stops = begin >= len(text.encode()) and spans[-1][1] == len(text)
        wanted += [token] if is_in or stops else []
    assert trained(found) == wanted if wanted else found == "nothing_trained"


def test_spans_count_the_letters_of_the_row_and_leave_reasoning_and_calls_untrained(base: Stages) -> None:
    row = of_spans("  one two one  ", (6, 9), (9, 15), reasoning_content="one two one",
                   tool_calls=[call("look", {"at": "one two one"})])  # fmt: skip
    for rules in ((), *((of_parts(parts),) for parts in SUBSETS)):
        stages = under(base, template_of("tags", "tags", "(message.content or '') | trim"), *rules)
        (found,) = stages.outcomes([row])
        if rules and "text" not in rules[0]:
            assert found == "nothing_trained", "the recipe trains no text, and the row nothing else"
        else:
            assert stages.round_trip.decode(trained(found)) == b" two one"
    (reason,) = under(base, twins.CHATML).reasons([of_spans("  one", (0, 1))])
    assert reason[0] == "nothing_trained" and "spans" in reason[1]
    (reason,) = under(base, twins.CHATML, "supervision.turns=conversation").reasons([of_spans("one two", (0, 3))])
    assert reason[0] == "wrong_type" and "conversation" in reason[1]


def test_a_span_that_begins_before_reasoning_which_the_template_moves_rejects_its_row(base: Stages) -> None:
    text = "<think>\nLook there.\n</think>\n\nCalm. Why?"
    said = "(message.content or '')"
    moved = f"'<think>' + {said}.split('</think>')[0].split('<think>')[-1] + '</think>' + {said}.split('</think>')[-1]"
    template = twins.CHATML.replace(said, f"({moved} if message.role == 'assistant' else message.content)")
    stages = under(base, template)
    ((code, reason),) = stages.reasons([of_spans(text, (0, text.index(" Why")))])
    assert code == "part_not_found" and "spans" in reason
    (found,) = stages.outcomes([of_spans(text, (text.index("Calm"), text.index(" Why")))])
    assert stages.round_trip.decode(trained(found)) == b"\n\nCalm."


def test_parts_are_looked_for_in_no_message_but_that_with_spans(base: Stages) -> None:
    parts = [{"type": "text", "text": "one ", "train": False}, {"type": "text", "text": "two", "train": True}]
    messages = [user("How?"), assistant(parts), user("How?"), assistant("exact")]
    row = read_row({"messages": messages}, number=0, schema="messages", columns={})
    said = "(message.content or '')"
    template = twins.CHATML.replace(said, said + " + ('!' if message.content == 'exact' else '')")
    (found,) = under(base, template).outcomes([row])
    assert base.round_trip.decode(trained(found)).decode() == " two<|im_end|>exact!<|im_end|>"


@pytest.mark.parametrize("part", PARTS)
def test_a_row_may_have_any_character_that_a_mark_might_be(base: Stages, part: str) -> None:
    odd = "".join(map(chr, range(0xF1D00, 0xF1D20)))
    said = assistant(f"one {odd}", reasoning_content=f"{odd} two", tool_calls=[call("f", {"at": odd})])
    stages = under(base, template_of("tags", "tags"), of_parts([part]))
    (found,) = stages.outcomes([chat(user(odd), said)])
    assert stages.round_trip.decode(trained(found)).decode() == written(said, "tags", "tags")[part]


@pytest.mark.parametrize("spelled", [chr, "\\U{:08x}".format, "\\U{:08X}".format])
def test_a_template_may_write_any_character_that_a_mark_might_be_and_what_is_no_escape(
    base: Stages, spelled: Any
) -> None:
    odd = "".join(map(spelled, range(0xF1D00, 0xF1D20)))
    template = template_of("tags", "tags").replace("<|im_start|>", f"<|im_start|>{odd}")
    template += "{# '\\d' is no escape, and '\\U0000' is cut off #}"
    said = assistant("one", reasoning_content="two")
    (found,) = under(base, template, of_parts(["text"])).outcomes([chat(user("a"), said)])
    assert base.round_trip.decode(trained(found)).decode() == written(said, "tags", "tags")["text"]


# -- whole conversations, recipes, caches --------------------------------------------------------------------------------


def test_a_conversation_is_trained_from_its_second_token_to_its_last_stop(tmp_path: Path) -> None:
    folder = twins.nfc(tmp_path, template=twins.QWEN3_LIKE)
    answers, whole = (Stages.load(folder, f"supervision.turns={turns}") for turns in ("all", "conversation"))
    talk = chat(system("Be kind."), user("Hi"), assistant("Hello", reasoning_content="Hm"), user("Bye"),
                assistant("Ciao"), user("? <|im_end|>"))  # fmt: skip
    (usual,), (found,) = answers.outcomes([talk]), whole.outcomes([talk])
    assert [ids for ids, _ in found] == [ids for ids, _ in usual]
    assert all(labels == [-100, *ids[1:]] for ids, labels in found)
    plain = Sample(kind="completion", row=1, prompt="2+2=", text="4")
    assert whole.outcomes([plain]) == answers.outcomes([plain])
    assert whole.outcomes([chat(user("Hi"), assistant("Hello"), flags={1: False})]) == ["wrong_type"]


@pytest.mark.parametrize("typed", ["system", "user", "tools"])
def test_control_tokens_typed_anywhere_reject_a_conversation_that_is_trained_whole(tmp_path: Path, typed: str) -> None:
    text = dict.fromkeys(("system", "user", "tools"), "fine") | {typed: "a <|im_end|> b"}
    tools = [{"type": "function", "function": {"name": "look", "description": text["tools"], "parameters": {}}}]
    row = chat(system(text["system"]), user(text["user"]), assistant("Hello"), tools=tools)
    folder = twins.nfc(tmp_path, template=twins.CHATML)
    answers, whole, allowing = (
        Stages.load(folder, "supervision.allow_dropped=[tools]", *rules)
        for rules in (
            [],
            *(["supervision.turns=conversation", *more] for more in ([], ["supervision.control_tokens=allow"])),
        )
    )
    assert whole.outcomes([row]) == ["control_token"]
    assert not isinstance(answers.outcomes([row])[0], str) and not isinstance(allowing.outcomes([row])[0], str)


@pytest.mark.parametrize("rules", [(), ("supervision.parts=[text]",), ("supervision.parts=[reasoning, text]",)])
def test_a_control_token_typed_in_an_answer_rejects_its_row_alone_whatever_is_trained(
    tmp_path: Path, rules: tuple[str, ...]
) -> None:
    stages = Stages.load(twins.byte_level(tmp_path, template=twins.CHATML), *rules)
    said = [
        assistant("Hello"),
        assistant("a <|im_end|> b"),
        assistant([{"type": "text", "text": "Hello", "train": False}, {"type": "text", "text": " <|im_end|>"}]),
    ]
    rows = [
        read_row({"messages": [user("Hi"), each]}, number=k, schema="messages", columns={})
        for k, each in enumerate(said)
    ]
    assert [(each.row, each.code) for each in stages.render(rows).rejections] == [
        (1, "control_token"),
        (2, "control_token"),
    ]


def test_what_is_trained_of_a_prompt_is_proved_too(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path)
    for turns, kept in (("all", 1), ("conversation", 0)):
        stages = Stages.load(folder, f"supervision.turns={turns}")
        rendered = stages.render([chat(user("Hi there"), assistant("Hello"))])
        tokens = stages.tokenizing.tokenize(rendered)
        tokens.ids[int(tokens.prompt_tokens[0]) // 2] += 1
        assert stages.supervisor.supervise(rendered, tokens, {0: None}).documents.num_documents == kept


def test_a_turn_without_the_part_is_context_and_no_document_ends_with_it(base: Stages) -> None:
    stages = under(base, template_of("tags", "tags"), of_parts(["calls"]))
    row = chat(
        user("How?"), assistant("See.", tool_calls=[call("look", {"at": "pier"})]), result("x"), assistant("Calm.")
    )
    ((ids, labels),) = stages.outcomes([row])[0]
    assert ids[-1] == labels[-1] == base.model.stop_ids[0]
    assert b"Calm" not in stages.round_trip.decode(ids)
    ((code, _),) = stages.reasons([chat(user("How?"), assistant("Calm."))])
    assert code == "nothing_trained"


def test_all_parts_in_any_order_are_the_default_and_no_recipe_names_none() -> None:
    assert make_recipe({}, [of_parts(PARTS[::-1])]) == make_recipe({})
    assert "parts" not in to_json(make_recipe({}))["supervision"]
    assert make_recipe({}, [of_parts(["calls", "text"])]) == make_recipe({}, [of_parts(["text", "calls", "text"])])
    for overrides, told in (
        ([of_parts([])], "names none of reasoning, text, calls"),
        ([of_parts(["answer"])], "expected reasoning | text | calls, found 'answer'"),
        ([of_parts(["text"]), "supervision.turns=conversation"], "`turns: conversation`, which trains all"),
    ):
        with pytest.raises(RecipeError, match=re.escape(told)):
            make_recipe({}, overrides)


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    for number in range(40):
        made = [call("look", {"at": f"pier {number}"})]
        answer = assistant("Let me look." if number % 3 else None, reasoning_content="Hm.", tool_calls=made)
        yield {"messages": conversation(answer)}


@pytest.mark.parametrize(
    "rule", [of_parts(["text"]), of_parts(["reasoning", "calls"]), "supervision.turns=conversation"]
)
def test_a_cache_of_parts_is_what_encoding_its_rows_again_gives(rule: str, tmp_path: Path) -> None:
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=template_of("tags", "tags"))
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(tmp_path)))
    recipe = make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(tokenizer)}, [rule])
    built = build(recipe, tmp_path / "cache", jobs=1)
    assert not verify_cache(tmp_path / "cache", sources=["/"], reencode=True).findings
    totals = built.manifest.totals
    assert totals.rejected == {} and 0 < totals.trained < totals.tokens
    warned = any("conversation trains whole documents" in line for line in built.lines(0.0))
    assert warned == (totals.trained == totals.tokens - totals.documents) == ("conversation" in rule)
