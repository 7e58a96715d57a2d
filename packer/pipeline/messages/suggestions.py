"""Suggest remedies for rejected rows by their code, their reason and the rows themselves.

They are the hints of a build and of `preview`. Keys of a recipe are tried before they are named: with them most of some
rejected rows have to be built, and to be trained as what they say.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import get_args

from msgspec import structs

from packer.batches import Message, RowBatch, Sample
from packer.model.model import Model
from packer.named_templates import NAMED_TEMPLATES, template_path
from packer.pipeline.messages.reading_hints import reading_hint
from packer.pipeline.plan.open_keys import says_its_rows
from packer.pipeline.stages import Stages, compile_template, split_markers, turn_end_marker
from packer.recipe.groups import DroppedKind
from packer.recipe.named_options import as_option, as_setting, flow_mapping
from packer.recipe.recipe import Recipe, for_one_source, make_recipe, to_json
from packer.recipe.strict_yaml import parse_yaml
from packer.rejections import NO_PLACE, NO_TAGS, rejection_hint, ways_out
from packer.render.conversation import CONTRADICTS
from packer.render.environment import ChatTemplate
from packer.render.frames import unframed
from packer.render.reasoning import ANY_TAG, reasoning_of, split_inline
from packer.render.turns import SEVERAL_EFFORTS
from packer.source.row import composed
from packer.source.rows import InputFile
from packer.supervise.preference import split_sides

_SET_COLUMNS = re.compile(r"--columns ((?:'[^']*'|\"'\"|[^\s;'])+)(?<!,)")

_UNDEFINED = re.compile(r"'(\w+)' is undefined")
"""What Jinja says of a variable of the template's own that nobody gives it."""

_ONE_CALL = re.compile(r"\b(?:single|one|multiple|parallel)\b.*\bcalls?\b|\bcalls?\b.*\bat once\b", re.IGNORECASE)
"""Messages by which templates complain about more than one tool call in a message."""

_TRIED_ROWS, _SEARCHED_ROWS = 8, 200


def remedy(code: str, reason: str, file: InputFile, recipe: Recipe, model: Model, *, lost: Iterable[str] = ()) -> str:
    """Suggest a remedy for the rejected rows of a file, of which the first are read, by their code and a reason.

    `lost` are further kinds of dropped content for which rows were rejected.
    """
    hint = reading_hint(code, reason, file)
    if hint is None:
        hint = tried_hint(code, reason, (row.batch for row in file.rows()), recipe, model, lost=lost)
    if code not in ("unknown_schema", "pair_no_prompt", "unread_content") and file.columns:
        hint = _SET_COLUMNS.sub(lambda found: _with_own_columns(found[1], file.columns), hint)
    return for_one_source(hint, recipe, file.source)


def _with_own_columns(word: str, columns: Mapping[str, str | None]) -> str:
    """Return the option for columns of a hint with those that the recipe has already, which they would replace."""
    key, _, further = as_setting("columns", *shlex.split(word)).partition("=")
    return as_option(f"{key}={flow_mapping(composed(columns, parse_yaml(further, key)))}")


def tried_hint(
    code: str,
    reason: str,
    rows: Iterable[RowBatch],
    recipe: Recipe,
    model: Model,
    *,
    lost: Iterable[str] = (),
) -> str:
    """Suggest keys that were tried on some of these rows, which are rejected."""
    if code == "template_error" and (hint := _about_error(reason, recipe, model)) is not None:
        return hint
    about = next((each for each in _ABOUT_VARIABLES if each in reason), "")
    if about == SEVERAL_EFFORTS:
        rows = [*islice(rows, _SEARCHED_ROWS)]
    rejected = _rejected_rows(code, about, rows, recipe, model) if ways_out(code) else []
    trial = Trial(rows=rejected, recipe=recipe, model=model)
    ways = ways_out(code, allowed=_all_lost(code, lost, trial))
    if code == "no_terminator":
        ways = _stops(recipe, model) | ways
    if about == SEVERAL_EFFORTS:
        # An effort for all rows would ask for reasoning before the answers of those that have none, too.
        found = re.findall(r"(\w+)=(\w+)", reason) if all(map(_reasons, rows)) else ()
        ways = {f'template.kwargs.{name}="{word}"': "trains them under this effort" for name, word in found}
    elif about:
        ways = {way: effect for way, effect in ways.items() if "kwargs" in way}
    if rejected:
        ways = dict(_that_help(ways, trial))
    return rejection_hint(code, ways, advice=_ABOUT_VARIABLES.get(about) or _beside(ways, code, reason))


def _beside(ways: Mapping[str, str], code: str, reason: str) -> str | None:
    """Suggest what else can be done beside the keys that help, if that is another thing than what the code has."""
    if code == "mangled_call" and ways:  # nothing is escaped or cut
        return "packer preview shows what the template writes"
    if code != "dropped_reasoning" or not all("allow_dropped" in way for way in ways):
        return None
    if "does not render" in reason:
        return None if ways else NO_PLACE
    return NO_TAGS


def _about_error(reason: str, recipe: Recipe, model: Model) -> str | None:
    """Suggest what a template's own error asks for, if it is one of a few."""
    if _ONE_CALL.search(reason):
        return PARALLEL_CALLS
    if model.template is None:
        return templates_hint(model, recipe)
    if (undefined := _UNDEFINED.search(reason)) is not None:
        return f"give the template a {undefined[1]} in template.kwargs, or in a row's chat_template_kwargs"
    return None


def _all_lost(code: str, lost: Iterable[str], trial: "Trial") -> tuple[str, ...]:
    """Return all kinds of content that a template drops of rows: a rejection names only the first."""
    known: set[str] = {*get_args(DroppedKind)}
    kinds = tuple(dict.fromkeys((*trial.recipe.supervision.allow_dropped, *lost, code.removeprefix("dropped_"))))
    while {*kinds} <= known:
        stages = Stages(_with(trial.recipe, f"supervision.allow_dropped={json.dumps(kinds)}"), trial.model)
        codes = (each.code.removeprefix("dropped_") for batch in trial.rows for each in stages.run(batch).rejections)
        if not (more := {*codes} & known - {*kinds}):
            break
        kinds += (*sorted(more),)
    return kinds


def _stops(recipe: Recipe, model: Model) -> dict[str, str]:
    """Return keys that make a token with which the template ends an answer, or a turn of calls, a stop token."""
    ways = {}
    for of_calls, what in ((True, "a call"), (False, "an answer")):
        end = turn_end_marker(model, recipe, of_calls=of_calls)
        if end is not None:
            stop = json.dumps([*recipe.supervision.stop, end], ensure_ascii=False)
            effect = f"makes {end}, with which the template ends {what}, a stop token"
            ways[f"supervision.stop={stop}"] = f"{effect}; generation has to stop at it, too"
    return ways


def _that_help(ways: Mapping[str, str], trial: "Trial") -> Iterator[tuple[str, str]]:
    """Yield the keys with which rows are built and say what they say, but for losses that are allowed.

    Where none helps alone, two that do together are named, unless one allows a loss, and so is one that needs reasoning
    to be in its field, such as one that leaves it out.
    """
    as_field, no_reasoning = "supervision.reasoning=field", "supervision.allow_dropped=[reasoning]"
    helping = {way for way in ways if trial.helps([way])}
    for number, (way, effect) in enumerate(ways.items()):
        others = [each for each in [*ways][:number] if not (helping or "allow_dropped" in each + way)]
        further = [*others, *[as_field] * ("kwargs" in way or (way == no_reasoning and as_field not in helping))]
        if way in helping:
            yield way, effect
        elif other := next((each for each in further if trial.helps([each, way])), None):
            also = f", and {ways[other]}" if other in ways and way != no_reasoning else ""
            yield way, f"{as_option(other)} {effect}{also}"


_ABOUT_VARIABLES = {
    CONTRADICTS: "leave out the reasoning of such rows, or set the variable to what asks for it",
    SEVERAL_EFFORTS: "give each row its own in chat_template_kwargs",
}


# What is tried


PARALLEL_CALLS = (
    "this template allows one call per message. Use one that allows several, with --template FILE (for Llama 3, "
    "Functionary's v3.2 does); or, if the calls do not depend on each other, write each as a message of its own, "
    "followed by its result"
)


def _with_system(message: Message) -> Message:
    is_developer = message.fields["role"] == "developer"
    return structs.replace(message, fields={**message.fields, "role": "system"}) if is_developer else message


_CHANGES: Mapping[str, Callable[[Sample], Sample]] = {
    "sources.columns={tools: null}": lambda sample: structs.replace(sample, tools=None),
    "sources.columns={chat_template_kwargs: null}": lambda sample: structs.replace(sample, template_kwargs={}),
    "sources.roles={developer: system}": lambda sample: structs.replace(
        sample, messages=tuple(map(_with_system, sample.messages))
    ),
}
"""What ways change that say how rows are read. All others are keys of the recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Rejected rows on which ways are tried."""

    rows: Sequence[RowBatch]
    recipe: Recipe
    model: Model

    def helps(self, ways: Sequence[str]) -> bool:
        """Whether some ways help together, each of which changes something."""
        rows, recipe = self.rows, self.recipe
        for way in ways:
            before = rows, recipe
            if way in _CHANGES:
                rows = [replace(each, samples=tuple(map(_CHANGES[way], each.samples))) for each in rows]
            else:
                recipe = _with(recipe, way)
            if before == (rows, recipe):
                return False
        if any(way.startswith("supervision.reasoning=inline") for way in ways):
            template = _compiled(self.model, recipe)
            has_own = template.reasoning.around or ANY_TAG.search(template.source.replace("think>", ""))
            if has_own or any(_has_foreign_tags(sample, template.source) for row in rows for sample in row.samples):
                return False  # it has markers of its own, and the letters of these tags would be part of the answer
        return _are_kept(rows, recipe, self.model.with_stop(*recipe.supervision.stop))


def _reasons(batch: RowBatch) -> bool:
    """Whether each row has reasoning, in its field or before an answer."""
    fields = [[each.fields for each in sample.all_messages] for sample in batch.samples]
    return all(any(reasoning_of(each) or split_inline(each.get("content")) for each in own) for own in fields)


def _has_foreign_tags(sample: Sample, template: str) -> bool:
    """Whether an answer begins with a tag of reasoning that neither the template nor the row's own prompt has.

    The letters of such a tag would be learned. OpenThoughts asks for its `<|begin_of_thought|>` in the system message.
    """
    fields = [each.fields for each in sample.messages]
    told = "\0".join([template, *(str(each.get("content")) for each in fields if each["role"] != "assistant")])
    blocks = (split_inline(each.get("content")) for each in fields if each["role"] == "assistant")
    return any(block is not None and block.opening not in told for block in blocks)


def _rejected_rows(code: str, about: str, rows: Iterable[RowBatch], recipe: Recipe, model: Model) -> list[RowBatch]:
    """Return some of the first rows that are rejected with a code, for a reason with these words."""
    stages = Stages(recipe, model)
    found = (
        batch
        for batch in islice(rows, _SEARCHED_ROWS)
        if any(each.code == code and about in each.reason for each in stages.run(batch).rejections)
    )
    return [*islice(found, _TRIED_ROWS)]


def _are_kept(rows: Sequence[RowBatch], recipe: Recipe, model: Model) -> bool:
    """Whether another recipe builds most of some rows, and what it trains of them is what they say."""
    stages, num_kept = Stages(recipe, model), 0
    as_letters = recipe.supervision.markers == "text"
    letters = list(split_markers(_compiled(model, recipe), model, recipe)) if as_letters else []
    for batch in rows:
        turns = stages.render(batch)
        if turns.rejections or stages.run(batch, turns).rejections:
            continue
        if recipe.rows.wrapped == "unwrap":
            plain = [unframed(sample, recipe) for sample in batch.samples]
            batch = replace(batch, samples=tuple(each for each in plain if isinstance(each, Sample)))  # noqa: PLW2901
        sides = split_sides(batch) if batch.has_sides else batch
        if not says_its_rows(sides, turns, model, dropped=recipe.supervision.allow_dropped, letters=letters):
            return False
        num_kept += 1
    return 2 * num_kept > len(rows)


def _with(recipe: Recipe, override: str) -> Recipe:
    return make_recipe(to_json(recipe), [override])


def _compiled(model: Model, recipe: Recipe) -> ChatTemplate:
    assert model.template is not None, "rows of messages have one"
    return compile_template(model.template, model, recipe)


def templates_hint(model: Model, recipe: Recipe) -> str:
    """List the named templates that a tokenizer without a template can use, with what else each of them needs.

    A template fits if its markers are single tokens of this tokenizer, and answers end with a stop token.
    """
    if model.eos_id is None:
        return (
            "the tokenizer names no EOS to end answers with either: give the model's whole folder, with its "
            "tokenizer_config.json; --template FILE gives a chat template"
        )
    fitting = []
    for name in NAMED_TEMPLATES:
        named = replace(model, template=template_path(name).read_text("utf-8"))
        assert named.template is not None
        if split_markers(compile_template(named.template, named, recipe), named, recipe):
            continue  # letters that the model would learn to spell
        end = turn_end_marker(named, recipe)
        fitting.append(f"--template {name}" + (f" --set 'supervision.stop=[\"{end}\"]'" if end else ""))
    return f"{' or '.join(fitting)} fits this tokenizer; --template FILE gives one of your own"
