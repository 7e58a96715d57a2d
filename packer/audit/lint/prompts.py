"""Checks of what precedes an answer (BOS, prompts, openings that the model must write), and of the ids of a chat."""

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from packer.audit.findings import CodedFinding, Example
from packer.audit.lint.codes import finding
from packer.audit.lint.probed_template import (
    ANSWER,
    CHAT,
    INLINE,
    NEXT_QUESTION,
    PLAIN,
    QUESTION,
    REASONED,
    WITH_SYSTEM,
    Outcome,
    ProbedTemplate,
    TrainedTurn,
    mode_name,
)
from packer.errors import InputError
from packer.model import CONFIG_FILE, TOKENIZER_FILE
from packer.pipeline.stages import compile_template
from packer.render import RenderError
from packer.render.common_prefix import common_length
from packer.render.reasoning import opened_by
from packer.tokenize import ReferenceEncoder, prefix_and_suffix_ids

_WORDS = re.compile(r"[^\W\d_]{2,}[\s,:;.'’-]+[^\W\d_]{2,}")


def find_openings(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Look for template text at the beginning of an answer that is trained with it."""
    turn = probed.plain
    at = turn.completion.find(ANSWER)
    opening = turn.completion[: max(at, 0)]
    if not opening.strip():
        return
    trained = Example(
        label="turn", text=turn.text, mark=(turn.prompt_end, turn.prompt_end + at), note="trained before the answer"
    )
    if _ignores_prompt(probed):
        yield finding(
            "header_learned",
            "the template ignores add_generation_prompt: what it writes before an answer is trained, and the "
            "model has to write it itself",
            examples=(trained,),
            hint="use a template that writes it into the prompt if add_generation_prompt=True",
        )
        return
    before = turn.prompt + opening
    if (opened := opened_by(before)) is not None and opened.closed:
        yield finding(
            "opening_learned",
            "an answer without reasoning is trained after an empty reasoning block that the model has to write: "
            "it learns to skip its reasoning",
            examples=(trained,),
            hint="right if the model is to answer at once under this prompt; else train on rows with reasoning only",
            level="warning",
        )
        return
    yield finding(
        "opening_learned",
        "every answer begins with text of the template, which the model learns to write",
        examples=(trained,),
        level="note",
    )


def _ignores_prompt(probed: ProbedTemplate) -> bool:
    conversation = probed.conversation(probed.outcome(PLAIN))
    upto = conversation.messages[:-1]
    return conversation.render(upto, {}) == conversation.render(upto, {}, prompt=True)


def find_modes(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Report the prompts that a template supports, and which of them answers are trained under."""
    reasoned = next((row for row in (REASONED, INLINE) if probed.outcome(row).rejection is None), None)
    rows = (PLAIN,) if reasoned is None else (PLAIN, reasoned)
    asked = {repr(mode): mode for row in rows for mode in probed.conversation(probed.outcome(row)).modes_of(1)}
    modes = [*asked.values()]
    if len(modes) < 2:
        return
    trained = {"plain answer": probed.outcome(PLAIN)} | (
        {"reasoned answer": probed.outcome(reasoned)} if reasoned is not None else {}
    )
    names = {f"{label}s": mode_name(probed.mode(outcome, outcome.turns[-1])) for label, outcome in trained.items()}
    switches = " and ".join(dict.fromkeys(switch for mode in modes for switch in mode))
    which = ", ".join(f"{label} are trained under {name}" for label, name in names.items())
    yield finding(
        "prompt_modes",
        f"the prompt depends on {switches}: {which}",
        examples=tuple(_prompt_example(label, outcome.turns[-1]) for label, outcome in trained.items()),
        hint="a row's chat_template_kwargs, or template.kwargs, can set it; answers are then trained under that prompt"
        + (". A pair of a plain and a reasoned answer is rejected without it" if len({*names.values()}) > 1 else ""),
    )


def _prompt_example(label: str, turn: TrainedTurn) -> Example:
    return Example(label=label, text=turn.text, mark=(turn.prompt_end, len(turn.text)), note="trained")


def find_own_text(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Look for text of the template, such as a default system prompt, at the beginning of a chat."""
    head = _before(probed.plain.text, QUESTION)
    chat = probed.outcome(CHAT).turns[-1].text
    between = chat[chat.find(ANSWER) + len(ANSWER) : max(chat.find(NEXT_QUESTION), 0)]
    header = _common_suffix(head, between)
    own = head[: len(head) - header]
    for token in probed.model.added_tokens:
        own = own.replace(token.content, "\0")
    if not _WORDS.search(own):
        return
    with_system = probed.outcome(WITH_SYSTEM)
    row_head = _before(with_system.turns[-1].text, QUESTION) if with_system.rejection is None else ""
    stays = max(_WORDS.findall(own), key=len) in row_head
    yield finding(
        "default_system",
        "the template opens a chat with text of its own"
        + (", even if the row has a system message" if stays else ", unless the row has a system message"),
        examples=(
            Example(label="opening", text=probed.plain.text, mark=(0, len(head) - header), note="not the row's"),
        ),
        hint=None if stays else "to replace that text, give rows a system message",
    )


def _before(text: str, word: str) -> str:
    return text[: max(text.find(word), 0)]


def _common_suffix(a: str, b: str) -> int:
    return common_length(a[::-1], b[::-1])


def find_clock(probed: ProbedTemplate, shapes: Mapping[str, Outcome]) -> Iterator[CodedFinding]:
    """Look for text that depends on the date, by rendering the same conversation for another date."""
    recipe, model = probed.recipe, probed.model
    day = dt.date.fromisoformat(recipe.template.date)
    other_day = dt.date(day.year - 1 if day.year > 1 else day.year + 1, day.month % 12 + 1, day.day % 28 + 1)
    changed = msgspec.structs.replace(recipe, template=msgspec.structs.replace(recipe.template, date=str(other_day)))
    assert model.template is not None
    template = compile_template(model.template, model, changed)
    for outcome in (each for each in shapes.values() if each.turns):
        conversation = probed.conversation(outcome)
        try:
            shown = template.reasoning.apply(conversation.messages)
            there = template.render(shown, tools=conversation.tools, kwargs=conversation.kwargs)
            here = conversation.render(conversation.messages, {})
        except RenderError:
            continue
        if here != there:
            start = common_length(here, there)
            while start and here[start - 1].isalnum():
                start -= 1
            end = len(here) - _common_suffix(here[start:], there[start:])
            yield finding(
                "reads_clock",
                f"the template writes today's date; to be reproducible, every build uses {recipe.template.date}",
                examples=(Example(label="rendered", text=here, mark=(start, end), note="depends on the day"),),
                hint="set template.date in the recipe; a chat server writes the date of the request",
            )
            return


def find_bos(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Check that a rendered chat begins with the BOS that the tokenizer itself adds to texts."""
    text = probed.outcome(CHAT).turns[-1].text
    try:
        before, _ = prefix_and_suffix_ids(probed.model.files[TOKENIZER_FILE])
    except InputError:
        return
    if not len(before):
        return
    own = int(before[0])
    if probed.ids(text)[:1] == [own]:
        return
    name = probed.model.content(own)
    space = len(text) - len(text.lstrip()) if text.lstrip().startswith(name) else 0
    yield finding(
        "bos_missing",
        f"the tokenizer begins texts with '{name}', but the template writes white space before it"
        if space
        else f"the tokenizer begins texts with '{name}', but the template does not write it: chats are trained without "
        "a BOS, as apply_chat_template and chat servers give them",
        examples=(Example(label="rendered", text=text, mark=(0, space), note="before the BOS" if space else "no BOS"),),
        hint="if the model was trained with one, begin the template with {{- bos_token }}",
    )


def find_tokenizer_difference(probed: ProbedTemplate) -> Iterator[CodedFinding]:
    """Check whether transformers 5, and the servers built on it, encode a chat differently than tokenizer.json."""
    files = probed.model.files
    config = json.loads(files.get(CONFIG_FILE, b"{}"))
    other = as_llama_tokenizer(json.loads(files[TOKENIZER_FILE]), config)
    if other is None:
        return
    text = probed.outcome(CHAT).turns[-1].text
    mine, theirs = probed.ids(text), [int(i) for i in ReferenceEncoder(json.dumps(other).encode()).encode([text])[0]]
    if mine == theirs:
        return
    place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    name = config["tokenizer_class"]
    yield finding(
        "tokenizer_read_otherwise",
        f"transformers 5 does not use this tokenizer.json as it is: for tokenizer_class '{name}' it replaces the "
        f"pre-tokenizer. The ids of a chat then differ from token {place} on: {mine[place]} here, {theirs[place]} "
        "there; a model served that way gets other ids than it was trained on",
        examples=(Example(label="rendered", text=text),),
        hint="if the model is served by transformers 5, save the tokenizer with it "
        "(AutoTokenizer.from_pretrained(…).save_pretrained(DIR)) and build with DIR; if not, set tokenizer_class to "
        "TokenizersBackend, and transformers uses the file as it is",
    )


def as_llama_tokenizer(definition: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tokenizer.json as transformers 5's LlamaTokenizer modifies it; None if it uses the file unchanged.

    Source: `LlamaTokenizer.__init__` of transformers 5, which takes vocabulary and merges from the file and replaces
    normalizer and pre-tokenizer; a byte-level file is used unchanged.
    """
    if config.get("tokenizer_class") not in ("LlamaTokenizer", "LlamaTokenizerFast"):
        return None
    if "ByteLevel" in json.dumps([definition.get("pre_tokenizer"), definition.get("decoder")]):
        return None
    spaced = "always" if config.get("legacy") else "first"
    scheme = "never" if config.get("add_prefix_space") is False else spaced
    pre_tokenizer = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    return {**definition, "normalizer": None, "pre_tokenizer": pre_tokenizer}
