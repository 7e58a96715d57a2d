"""Before an answer: what the prompt gives, and what the model has to write itself."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping

import msgspec

from packer.audit.lint.lint_report import Example, LintFinding
from packer.audit.lint.probes import ANSWER, CHAT, INLINE, NEXT_QUESTION, PLAIN, QUESTION, REASONED, WITH_SYSTEM
from packer.audit.lint.subject import LearnedTurn, Outcome, Subject, mode_name
from packer.pipeline.stages import compile_template
from packer.render import RenderError
from packer.render.common_prefix import common_length
from packer.render.reasoning import EMPTY_BLOCK

_WORDS = re.compile(r"[^\W\d_]{2,}[\s,:;.'’-]+[^\W\d_]{2,}")


def find_openings(subject: Subject) -> Iterator[LintFinding]:
    """Text of the template that stands before an answer and is learned with it."""
    turn = subject.plain
    at = turn.completion.find(ANSWER)
    opening = turn.completion[: max(at, 0)]
    if not opening.strip():
        return
    learned = Example(
        label="turn", text=turn.text, mark=(turn.prompt_end, turn.prompt_end + at), note="learned before the answer"
    )
    if _ignores_prompt(subject):
        yield LintFinding(
            code="header_learned",
            message="the template ignores add_generation_prompt: what it writes before an answer is learned, and the "
            "model has to write it itself",
            examples=(learned,),
            hint="a template that writes it into the prompt, for add_generation_prompt=True, teaches answers only",
        )
        return
    is_empty_block = any(
        block.end() == len(turn.prompt + opening) for block in EMPTY_BLOCK.finditer(turn.prompt + opening)
    )
    yield LintFinding(
        code="opening_learned",
        message="an answer without reasoning is learned behind an empty reasoning block that the model has to write: "
        "it learns to skip its reasoning"
        if is_empty_block
        else "every answer opens with text of the template, which the model learns to write",
        examples=(learned,),
        hint="right if the model is to answer at once under this prompt; else train on rows with reasoning only"
        if is_empty_block
        else None,
        level="warning" if is_empty_block else "note",
    )


def _ignores_prompt(subject: Subject) -> bool:
    conversation = subject.conversation(subject.ask(PLAIN))
    upto = conversation.messages[:-1]
    return conversation.render(upto, {}) == conversation.render(upto, {}, prompt=True)


def find_modes(subject: Subject) -> Iterator[LintFinding]:
    """The prompts a template knows, and which of them answers are learned under."""
    modes = subject.conversation(subject.ask(PLAIN)).modes
    if len(modes) < 2:
        return
    reasoned = next((row for row in (REASONED, INLINE) if subject.ask(row).rejection is None), None)
    learned = {"plain answer": subject.ask(PLAIN)} | (
        {"reasoned answer": subject.ask(reasoned)} if reasoned is not None else {}
    )
    names = {f"{label}s": mode_name(subject.mode(outcome, outcome.turns[-1])) for label, outcome in learned.items()}
    switches = " and ".join(dict.fromkeys(switch for mode in modes for switch in mode))
    which = ", ".join(f"{label} are learned under {name}" for label, name in names.items())
    yield LintFinding(
        code="prompt_modes",
        message=f"the prompt depends on {switches}: {which}",
        examples=tuple(_prompt_example(label, outcome.turns[-1]) for label, outcome in learned.items()),
        hint="a row's chat_template_kwargs, or template.kwargs, can set it; answers are then learned under that prompt",
    )


def _prompt_example(label: str, turn: LearnedTurn) -> Example:
    return Example(label=label, text=turn.text, mark=(turn.prompt_end, len(turn.text)), note="learned")


def find_own_text(subject: Subject) -> Iterator[LintFinding]:
    """A system prompt, or other words, that the template opens a chat with."""
    head = _before(subject.plain.text, QUESTION)
    chat = subject.ask(CHAT).turns[-1].text
    between = chat[chat.find(ANSWER) + len(ANSWER) : max(chat.find(NEXT_QUESTION), 0)]
    header = _common_suffix(head, between)
    own = head[: len(head) - header]
    for token in subject.model.added_tokens:
        own = own.replace(token.content, "\0")
    if not _WORDS.search(own):
        return
    with_system = subject.ask(WITH_SYSTEM)
    row_head = _before(with_system.turns[-1].text, QUESTION) if with_system.rejection is None else ""
    stays = max(_WORDS.findall(own), key=len) in row_head
    yield LintFinding(
        code="default_system",
        message="the template opens a chat with text of its own"
        + (", beside a system message of the row too" if stays else ", unless the row has a system message"),
        examples=(
            Example(label="opening", text=subject.plain.text, mark=(0, len(head) - header), note="not the row's"),
        ),
        hint=None if stays else "give rows a system message of their own where that text is not wanted",
    )


def _before(text: str, word: str) -> str:
    return text[: max(text.find(word), 0)]


def _common_suffix(a: str, b: str) -> int:
    shorter = min(len(a), len(b))
    return next((i for i in range(shorter) if a[-1 - i] != b[-1 - i]), shorter)


def find_clock(subject: Subject, shapes: Mapping[str, Outcome]) -> Iterator[LintFinding]:
    """Text that depends on the day: the same conversation rendered on another one."""
    recipe, model = subject.recipe, subject.model
    day = dt.date.fromisoformat(recipe.template.date)
    other_day = dt.date(day.year - 1 if day.year > 1 else day.year + 1, day.month % 12 + 1, day.day % 28 + 1)
    changed = msgspec.structs.replace(recipe, template=msgspec.structs.replace(recipe.template, date=str(other_day)))
    assert model.template is not None
    template = compile_template(model.template, model, changed)
    for outcome in (each for each in shapes.values() if each.turns):
        conversation = subject.conversation(outcome)
        try:
            there = template.render(conversation.messages, tools=conversation.tools, kwargs=conversation.kwargs)
            here = conversation.render(conversation.messages, {})
        except RenderError:
            continue
        if here != there:
            start = common_length(here, there)
            while start and here[start - 1].isalnum():
                start -= 1
            end = len(here) - _common_suffix(here[start:], there[start:])
            yield LintFinding(
                code="reads_clock",
                message=f"the template writes today's date; every build sees {recipe.template.date}, so that it can be "
                "built again",
                examples=(Example(label="rendered", text=here, mark=(start, end), note="depends on the day"),),
                hint="template.date of the recipe is the key; a chat server writes the day of the request",
            )
            return
