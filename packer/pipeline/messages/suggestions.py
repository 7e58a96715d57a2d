"""Suggest remedies for rejected rows by their code, their reason and the rows themselves.

They are the hints of a build and of `preview`.
"""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import get_args

from msgspec import structs

from packer.batches import Message, RowBatch, Sample
from packer.model.model import Model
from packer.named_templates import NAMED_TEMPLATES, template_path
from packer.pipeline.messages.reasoning_hints import IN_FIELD, has_foreign_tags, reasons, with_fields
from packer.pipeline.messages.tool_hints import (
    PARALLEL_CALLS,
    about_calls_in_text,
    about_definitions,
    about_results,
    other_forms,
)
from packer.pipeline.plan.open_keys import says_its_rows
from packer.pipeline.stages import Stages, compile_template, split_markers, turn_end_marker
from packer.questions.exports import export_hint
from packer.questions.proposals import Reading, ways_to_read_variables
from packer.questions.schema_errors import columns_hint, schema_hint
from packer.recipe.groups import DroppedKind
from packer.recipe.named_options import as_option, as_setting, flow_mapping
from packer.recipe.recipe import Recipe, for_one_source, make_recipe, to_json
from packer.recipe.strict_yaml import parse_yaml
from packer.rejections import NO_PLACE, rejection_hint, ways_out
from packer.render.conversation import CONTRADICTS
from packer.render.environment import ChatTemplate
from packer.render.frames import unframed
from packer.render.reasoning import ANY_TAG
from packer.render.turns import SEVERAL_EFFORTS
from packer.source.detect import first_rows
from packer.source.roles import roles_hint
from packer.source.row import composed
from packer.source.rows import InputFile
from packer.supervise.preference import split_sides

_OTHER_KEYS = re.compile(
    r"\A(?:.* at|no field `(?:role|from)` at) \$\.(?P<field>\w+)\[\d+\]"
    r"(?:; its other keys: `|, which|\.content\[\d+\]\.type: |\Z)"
)
"""The reason given for a message without a text, or without a role, that has other keys which may contain it."""

_END = re.compile(r"`(?:[^`]*\.)?(\w+)` is .* at \$: the answer did not end")
"""The reason given for a row with a field that says so."""

_MEMBERS = r"\{((?:\"(?:[^\"\\]|\\.)*\"|[^{}\"])*)\}"

_COLUMNS = re.compile(rf"`columns: {_MEMBERS}` (.*?)(?=, `columns: |; |, which|\Z)")
"""In the reason for a row: columns that read what is not read or leave it out, and which of both."""

_SET_COLUMNS = re.compile(r"--columns ((?:'[^']*'|\"'\"|[^\s;'])+)(?<!,)")

_UNDEFINED = re.compile(r"'(\w+)' is undefined")
"""What Jinja says of a variable of the template's own that nobody gives it."""

_ONE_CALL = re.compile(r"\b(?:single|one|multiple|parallel)\b.*\bcalls?\b|\bcalls?\b.*\bat once\b", re.IGNORECASE)
"""Messages by which templates complain about more than one tool call in a message."""


def remedy(code: str, reason: str, file: InputFile, recipe: Recipe, model: Model, *, lost: Iterable[str] = ()) -> str:
    """Suggest a remedy for the rejected rows of a file, of which the first are read, by their code and a reason.

    `lost` are further kinds of dropped content for which rows were rejected.
    """
    hint = _about_reading(code, reason, file) or about_calls_in_text(code, reason, file) or _columns_of(code, reason)
    hint = hint or about_results(reason, file)
    hint = hint or _about_cut_rows(code, reason, file)
    hint = hint or about_definitions(reason, file, partial(_are_kept, recipe=recipe, model=model))
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
    ways = ways_out(code, allowed=_all_lost(code, lost, rejected, recipe, model))
    if code == "no_terminator":
        ways = _stops(recipe, model) | ways
    if about == SEVERAL_EFFORTS:
        # An effort for all rows would ask for reasoning before the answers of those that have none, too.
        found = re.findall(r"(\w+)=(\w+)", reason) if all(map(reasons, rows)) else ()
        ways = {f'template.kwargs.{name}="{word}"': "trains them under this effort" for name, word in found}
    elif about:
        ways = {way: effect for way, effect in ways.items() if "kwargs" in way}
    if rejected:
        ways = dict(_that_help(ways, rejected, recipe, model))
    advice: str | None = None
    if code in ("dropped_tool_call", "dropped_tools") and (
        forms := other_forms(rejected, partial(_are_kept, recipe=recipe, model=model))
    ):
        ways, advice = {}, forms  # nothing needs to be lost
    elif not ways and "does not render" in reason:
        advice = NO_PLACE
    else:
        advice = _beside(ways, code, rejected, recipe, model)
    return rejection_hint(code, ways, advice=_ABOUT_VARIABLES.get(about, advice))


def _beside(
    ways: Mapping[str, str], code: str, rejected: Sequence[RowBatch], recipe: Recipe, model: Model
) -> str | None:
    """Suggest what else can be done beside the keys that help, if that is another thing than what the code has."""
    if code == "mangled_call" and ways:  # nothing is escaped or cut
        return "packer preview shows what the template writes"
    is_only_lost = code == "dropped_reasoning" and all("allow_dropped" in way for way in ways)
    if is_only_lost and _help(["supervision.reasoning=inline"], [*map(with_fields, rejected)], recipe, model):
        return IN_FIELD
    return None


def _about_error(reason: str, recipe: Recipe, model: Model) -> str | None:
    """Suggest what a template's own error asks for, if it is one of a few."""
    if _ONE_CALL.search(reason):
        return PARALLEL_CALLS
    if model.template is None:
        return templates_hint(model, recipe)
    if (undefined := _UNDEFINED.search(reason)) is not None:
        return f"give the template a {undefined[1]} in template.kwargs, or in a row's chat_template_kwargs"
    return None


def _all_lost(
    code: str, lost: Iterable[str], rejected: Sequence[RowBatch], recipe: Recipe, model: Model
) -> tuple[str, ...]:
    """Return all kinds of content that a template drops of rows: a rejection names only the first."""
    known: set[str] = {*get_args(DroppedKind)}
    kinds = tuple(dict.fromkeys((*recipe.supervision.allow_dropped, *lost, code.removeprefix("dropped_"))))
    while {*kinds} <= known:
        stages = Stages(_with(recipe, f"supervision.allow_dropped={json.dumps(kinds)}"), model)
        codes = (each.code.removeprefix("dropped_") for batch in rejected for each in stages.run(batch).rejections)
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


def _that_help(
    ways: Mapping[str, str], rows: Sequence[RowBatch], recipe: Recipe, model: Model
) -> Iterator[tuple[str, str]]:
    """Yield the keys with which rows are built and say what they say, but for losses that are allowed.

    Where none helps alone, two that do together are named, unless one allows a loss, and so is one that needs reasoning
    to be in its field, such as one that leaves it out.
    """
    as_field, no_reasoning = "supervision.reasoning=field", "supervision.allow_dropped=[reasoning]"
    helping = {way for way in ways if _help([way], rows, recipe, model)}
    for number, (way, effect) in enumerate(ways.items()):
        others = [each for each in [*ways][:number] if not (helping or "allow_dropped" in each + way)]
        further = [*others, *[as_field] * ("kwargs" in way or (way == no_reasoning and as_field not in helping))]
        if way in helping:
            yield way, effect
        elif other := next((each for each in further if _help([each, way], rows, recipe, model)), None):
            also = f", and {ways[other]}" if other in ways and way != no_reasoning else ""
            yield way, f"{as_option(other)} {effect}{also}"


def _help(ways: Sequence[str], rows: Sequence[RowBatch], recipe: Recipe, model: Model) -> bool:
    """Whether some keys help together, each of which changes something."""
    if any(way.startswith("supervision.reasoning=inline") for way in ways):
        template = _compiled(model, recipe)
        has_own = template.reasoning.around or ANY_TAG.search(template.source.replace("think>", ""))
        if has_own or any(has_foreign_tags(sample, template.source) for row in rows for sample in row.samples):
            return False  # it has markers of its own, and the letters of these tags would be part of the answer
    for way in ways:
        before = rows, recipe
        if way in _CHANGES:
            rows = [replace(each, samples=tuple(map(_CHANGES[way], each.samples))) for each in rows]
        else:
            recipe = _with(recipe, way)
        if before == (rows, recipe):
            return False
    return _are_kept(rows, recipe, model.with_stop(*recipe.supervision.stop))


def _about_reading(code: str, reason: str, file: InputFile) -> str | None:
    """Suggest another way to read rows, if that is what a code is about."""
    if code == "unknown_schema":
        rows = first_rows(file.path, file.format, file.columns, every_column=True)
        return schema_hint([*rows], file.schema, file.columns)
    if code == "unread_content":
        rows = first_rows(file.path, file.format, file.columns, every_column=True)
        reading = Reading(schema=file.schema, columns=file.columns, roles=file.roles)
        return "; ".join(ways_to_read_variables([*rows], reading))
    if code == "unknown_role":
        return roles_hint(first_rows(file.path, file.format, file.columns), file.columns)
    if code in ("no_content", "wrong_type", "bad_tools") and (keys := _OTHER_KEYS.search(reason)) is not None:
        field = file.columns.get(keys["field"]) or keys["field"]
        first = [*first_rows(file.path, file.format, file.columns, every_column=True)]
        if (found := export_hint(file.path, first, field)) is not None:
            return found
    if code == "no_content" and reason.endswith("the user message is empty"):
        return "--set rows.empty_user=keep keeps user messages that are empty"
    if code == "media_missing":
        return _root_hint(file, reason.partition(":")[0])
    if code == "multimodal" and (way := _about_images(reason, file)) is not None:
        return f"{rejection_hint(code)}; {way}"
    if code == "pair_no_prompt":
        hint = columns_hint([*first_rows(file.path, file.format, file.columns, every_column=True)], file.columns)
        return hint if "--columns" in hint else None
    return None


def _about_cut_rows(code: str, reason: str, file: InputFile) -> str | None:
    """Return the hint for rows of which a field says that an answer did not end, as it may say of another answer."""
    if code != "cut_off" or (end := _END.match(reason)) is None:
        return None
    first = [*first_rows(file.path, file.format, file.columns, every_column=True)]
    said = f'"{end[1]}"'
    fields = {name: None for row in first for name in row if said in json.dumps({name: row[name]}, default=str)}
    option = as_option(f"sources.columns={flow_mapping(fields)}")
    hint = rejection_hint(code)
    return re.sub(r"--columns \S+, or what the reason names,", lambda _: option, hint) if fields else None


def _columns_of(code: str, reason: str) -> str | None:
    """Return the hint for a reason that names columns with which the row is read."""
    may_name = code in {"wrong_type", "bad_tools", "pair_context_differs"}
    if not may_name and not (code == "preference" and (" reads the rating" in reason or ", but is a text" in reason)):
        return None
    found = _COLUMNS.findall(reason)
    return "; ".join(f"{as_option(f'sources.columns={{{columns}}}')} {effect}" for columns, effect in found) or None


def _some_images(file: InputFile) -> list[str]:
    """Return images that the first rows of a file name."""
    batches = (row.batch for row in islice(file.rows(), _TRIED_ROWS))
    samples = (sample for batch in batches for sample in batch.samples if sample.images is not None)
    return [name for sample in samples if sample.images for name in sample.images.sources if isinstance(name, str)]


def _about_images(reason: str, file: InputFile) -> str | None:
    """Suggest how a tag that stands for an image stays a word, or where the images are that rows name."""
    if "a question has the tag" in reason:
        return "if the tag is a word of the text, put a blank behind it"
    images = _some_images(file)
    return _root_hint(file, images[0]) if images else None


def _root_hint(file: InputFile, image: str) -> str | None:
    """Suggest the folder beside a file that has an image which its rows name from there; None if none has it."""
    if not isinstance(file.path, Path) or image.startswith(("/", "data:")):
        return None
    folders = [file.path.parent, *file.path.parent.glob("*")]
    found = next((folder for folder in folders if os.path.isfile(folder / image)), None)  # noqa: PTH113 - any name is right
    return f"{as_option(f'media.root={found}')} finds {image}" if found in folders[1:] else None


_ABOUT_VARIABLES = {
    CONTRADICTS: "leave out the reasoning of such rows, or set the variable to what asks for it",
    SEVERAL_EFFORTS: "give each row its own in chat_template_kwargs",
}

_CHANGES: Mapping[str, Callable[[Sample], Sample]] = {
    "sources.columns={tools: null}": lambda sample: structs.replace(sample, tools=None),
    "sources.columns={chat_template_kwargs: null}": lambda sample: structs.replace(sample, template_kwargs={}),
    "sources.roles={developer: system}": lambda sample: structs.replace(
        sample, messages=tuple(map(_from_system, sample.messages))
    ),
}
"""What keys change that say how rows are read."""


def _from_system(message: Message) -> Message:
    is_developer = message.role == "developer"
    return structs.replace(message, fields={**message.fields, "role": "system"}) if is_developer else message


_TRIED_ROWS, _SEARCHED_ROWS = 8, 200


def _rejected_rows(code: str, about: str, rows: Iterable[RowBatch], recipe: Recipe, model: Model) -> list[RowBatch]:
    """Return some of the first rows that are rejected with a code, for a reason with these words."""
    stages = Stages(recipe, model)
    found = []
    for batch in islice(rows, _SEARCHED_ROWS):
        if any(each.code == code and about in each.reason for each in stages.run(batch).rejections):
            found.append(batch)
        if len(found) == _TRIED_ROWS:
            break
    return found


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
