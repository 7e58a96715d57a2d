"""Asks about fields of rows with text that nothing reads, once for each source, before anything is built.

An answer that is trained without what belongs to it, such as its tools, its passages or its reasoning, is trained
wrong, and no later stage can tell. So a build does not begin until `columns` reads such a field, or `ignore` of its
source says that it may be left out. See :mod:`packer.questions.unread_text` for what counts as text.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from packer.display import listed, plural
from packer.errors import InputError
from packer.model.model import Model
from packer.pipeline.messages.suggestions import templates_hint
from packer.pipeline.stages import compile_template
from packer.questions.beginnings import BETWEEN
from packer.questions.conversations import PAGE
from packer.questions.field_names import meant_field
from packer.questions.proposals import FileQuestion, Proposal
from packer.questions.read_places import ITEMS, KEY_OF_MESSAGES, UnreadField, shortened
from packer.questions.unread_text import is_below
from packer.recipe.named_options import also_of_all, as_option, as_word, flow_mapping, of_one_source
from packer.recipe.recipe import Recipe, Source
from packer.render.environment import ChatTemplate, RenderError
from packer.render.frames import is_header
from packer.render.reasoning import ANY_TAG, has_tag
from packer.source.decode import as_flag
from packer.source.file_bytes import quoted
from packer.source.row import VARIABLES, first_name

_MOST_SHOWN = 8

_MOST_NAMED = 12
_MOST_VALUES = 3
_VALUE_CHARACTERS = 24
"""Fields that are only named, values of each of them, and characters of a value."""

_DOCUMENTS = "documents"
"""A variable that transformers itself gives to templates."""

_WORD = "Zq0W"
"""Nobody says it, and no template knows it."""

NO_TEMPLATE = "the tokenizer has no chat template"

_SAYS = {
    "text": "{} text that nothing reads",
    "media": "images, sound or films are named that nothing reads",
    "block": "answers begin with what may be reasoning",
    "name": "answers, and what they answer, begin with what may be speakers' names",
    "flag": "what may say which answers are trained is not read",
    "order": "messages do not stand in the order that they say",
    "variable": "variables of the template are not read",
    "word": "the template takes these variables as true or false, and not as they are meant",
}

_IN_TEXTS = {
    "block": f"if it is reasoning, move it to `reasoning_content` of its answer, as {PAGE}#beginnings-of-texts shows",
    "name": f"remove speakers' names, as {PAGE}#beginnings-of-texts shows; "
    f"{as_option('supervision.control_tokens=allow')} trains them as words",
}
"""Ways on by kinds of what stands in texts that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a build asks about a source."""

    source: Source
    fields: tuple[UnreadField, ...]
    num_rows: int
    proposal: Proposal | None
    commands: tuple[str, ...]

    def of_kind(self, kind: str) -> list[UnreadField]:
        return [each for each in self.fields if each.kind == kind]

    def __str__(self) -> str:
        found = {kind: self.of_kind(kind) for kind in _SAYS}
        texts = "a field has" if len(found["text"]) == 1 else f"{len(found['text'])} fields have"
        said = [f"{_SAYS[kind].format(texts)}: {self._shown(fields)}" for kind, fields in found.items() if fields]
        return f"{self.source.path}: {'; '.join(said)}"

    def _shown(self, fields: Sequence[UnreadField]) -> str:
        of_all = f"of {plural(self.num_rows, 'row')}"
        shown = [
            f"{quoted(each.path, 80)} (in {each.num_rows:,} {of_all}: {quoted(shortened(each.example), 80)})"
            for each in fields
        ]
        return listed(shown, _MOST_SHOWN)

    def ways(self) -> Iterator[str]:
        """Yield what reads the fields whose names say what they are, what reads one more, and the commands."""
        yield from (way for kind, way in _IN_TEXTS.items() if self.of_kind(kind))
        yield from self.commands
        for field in self.of_kind("variable"):
            columns = {**self.source.columns, VARIABLES: field.path}
            yield f"{as_option(f'sources.columns={flow_mapping(columns)}')} gives the template `{field.path}`"
        if any(ITEMS in field.path for field in self.of_kind("flag")):
            yield "if it says which answers are trained, give messages `train`"
        elif self.of_kind("flag") and not self.commands:
            yield "if it says what is trained, remove the other rows, or give messages `train`"
        for field in self.of_kind("order"):
            yield f"write the messages of each row in the order of `{field.path}`; of branches, one"
        for field in self.of_kind("word"):
            yield f"give rows true or false under `{field.path}`, in place of {field.example}"
        if (found := self.proposal) is None:
            return
        reads = ", ".join(f"{quoted(name)} as `{place}`" for name, place in found.places.items())
        if reads:
            yield f"{replace(found.reading, roles={}).setting(found.left)} reads {reads}"
        if found.left and found.fill_in:
            yield found.fill_in


class Questions:
    """What a build asks about its sources: gathered file by file."""

    def __init__(self, recipe: Recipe, model: Model) -> None:
        self._recipe = recipe
        self._model = model
        self._found: dict[int, list[FileQuestion]] = {}

    def add(self, source: Source, found: FileQuestion) -> None:
        self._found.setdefault(self._recipe.sources.index(source), []).append(found)

    def _of(self, source: Source) -> list[FileQuestion]:
        return self._found.get(self._recipe.sources.index(source), [])

    def _asked(self, source: Source) -> frozenset[str]:
        """Return the paths that a build asks about, or need not ask about."""
        fields = (field.path for each in self._of(source) for field in each.unread.fields)
        return self._recipe.known_fields(source).union(fields)

    def names(self, source: Source) -> frozenset[str]:
        """Return the fields of the first rows of a source, and those that were asked about."""
        asked = map(first_name, self._asked(source))
        return frozenset(asked).union(*(each.unread.names for each in self._of(source)))

    @property
    def questions(self) -> tuple[Question, ...]:
        """One for each source with a field that nothing reads."""
        return tuple(
            question
            for number, found in sorted(self._found.items())
            if (question := self._question(self._recipe.sources[number], found)) is not None
        )

    def notes(self) -> Iterator[str]:
        """Yield what a build says of the first rows of each source and does not ask about."""
        for number, found in sorted(self._found.items()):
            source = self._recipe.sources[number]
            says = (
                *_said(found),
                *self._unread_labels(source, found),
                *self._unread_variables(found),
                *self._skipped_reasoning(found),
            )
            yield from (f"{source.path}: {each}" for each in says)
            rare = [
                replace(each, unread=replace(each.unread, fields=each.unread.rare, blocks=(), labels={}))
                for each in found
            ]
            if (question := self._question(source, rare)) is not None:
                yield f"{question}; too few to ask about, so it is left out; --ignore says that it may be"

    def _unread_labels(self, source: Source, found: Sequence[FileQuestion]) -> Iterator[str]:
        """Yield the fields, and the keys of messages, that nothing reads or asks about, and what they say: a label is
        no text, and may still say which rows are wanted.
        """
        said: dict[bool, dict[str, Counter[str]]] = {True: {}, False: {}}
        read, asked = [*filter(None, source.columns.values())], self._asked(source)
        read_within = {*map(first_name, read)}
        for path, values in _labels(found).items():
            if is_below(path, (*read, *asked)):
                continue
            is_key = ITEMS in path and first_name(path) not in read_within
            name = path.rpartition(f"{ITEMS}.")[2] if is_key else path
            said[is_key].setdefault(name, Counter()).update(values)
        names = {name for file in found for name in file.unread_names} - asked
        keys = {key for file in found for key in file.unread.keys}
        keys -= {first_name(key["key"]) for path in asked if (key := KEY_OF_MESSAGES.match(path))}
        for what, own, labels in (
            ("keys of messages", {key for key in keys if not self._reads(key, is_flag=False)}, said[True]),
            ("fields of rows", names | read_within, said[False]),
        ):
            known = {path: values for path, values in labels.items() if first_name(path) in own}
            silent = own.difference(read_within, map(first_name, known), map(first_name, asked))
            shown = [quoted(path) + _shown_values(known.get(path, {})) for path in sorted(silent.union(known))]
            if shown:
                yield f"{what} that are not read: {listed(shown, _MOST_NAMED)}"

    def _unread_variables(self, found: Sequence[FileQuestion]) -> Iterator[str]:
        """Yield the variables that rows give a template which reads none of their name."""
        read = {name for template in self._templates for name in template.read_variables}
        given = {path.partition(".")[2]: said for path, said in _labels(found).items() if first_name(path) == VARIABLES}
        shown = [quoted(name) + _shown_values(said) for name, said in sorted(given.items()) if name not in read]
        if shown and self._templates:
            yield f"variables that the template does not read: {', '.join(shown)}"

    def _skipped_reasoning(self, found: Sequence[FileQuestion]) -> Iterator[str]:
        """Yield how many rows ask for reasoning by a variable of the template, and have none in their answers."""
        plain = sum((file.unread.plain for file in found), Counter[tuple[str, str]]())
        for (name, said), count in sorted(plain.items()):
            value = json.loads(said)
            asks = any(each.switches.asks_under(name, value) for each in self._templates)
            if asks and count > 1:
                yield f"{count:,} of its first rows ask for reasoning ({name}: {said}) that their answers do not have"

    def _question(self, source: Source, found: Sequence[FileQuestion]) -> Question | None:
        unread = (field for each in found for field in (*each.unread.fields, *each.unread.blocks))
        fields = _added(field for field in unread if not self._is_read(field))
        fields |= {field.path: field for field in self._variables(source, found)}
        values = {path: value for each in found for path, value in each.values if path in fields}
        fields |= {
            path: replace(fields[path], kind="variable")
            for path, value in values.items()
            if self._changes_prompt(path.rpartition(".")[2], value)
        }
        if not fields:
            return None
        proposal = next((each.proposal for each in found if each.proposal), None)
        if proposal is not None:
            texts = {path for path, field in fields.items() if field.kind == "text"}
            proposal = replace(proposal, left=tuple(sorted(texts.difference(proposal.read))))
        return Question(
            source=source,
            fields=tuple(sorted(fields.values(), key=attrgetter("path"))),
            num_rows=sum(each.unread.num_rows for each in found),
            proposal=proposal,
            commands=tuple(dict.fromkeys(way for each in found for way in each.ways)),
        )

    def _is_read(self, field: UnreadField) -> bool:
        """Whether the template reads what packer does not: a key of messages, or a block in tags that it knows."""
        if field.kind == "order":
            return False
        if field.kind == "name":  # unless names are words, or have a rule of their own
            return self._recipe.supervision.control_tokens == "allow" or is_header(field.path, "assistant")
        if field.kind == "block":
            return ANY_TAG.search(field.path) is not None or not self._shows_otherwise(field.path)
        key = KEY_OF_MESSAGES.fullmatch(field.path)
        return key is not None and self._reads(key["key"], is_flag=field.kind == "flag")

    def _variables(self, source: Source, found: Sequence[FileQuestion]) -> Iterator[UnreadField]:
        """Yield the fields whose values make the prompts of a template others, if it had them as variables."""
        for path, counts in _labels(file for file in found if file.unread.is_chat).items():
            name, is_given = path.rpartition(".")[2], first_name(path) == VARIABLES
            if ITEMS in path or (VARIABLES in source.columns and not is_given):
                continue
            examples = [*map(json.loads, counts)][:_MOST_SHOWN]
            is_word = any(self._is_misread(name, value) for value in examples)
            if is_word or (not is_given and any(self._changes_prompt(name, value) for value in examples)):
                said, num_rows = ", ".join(map(str, examples)), counts.total()
                yield UnreadField(path=path, kind="word" if is_word else "variable", num_rows=num_rows, example=said)

    def _is_misread(self, name: str, value: object) -> bool:
        """Whether a template takes a value otherwise than it says: as it would take any word, or not as a yes or no."""
        if isinstance(value, bool):
            return False
        if (flag := as_flag(value)) is not None:
            return self._changes_prompt(name, value, {name: flag})
        is_any = isinstance(value, str) and not self._changes_prompt(name, value, {name: _WORD})
        return is_any and self._changes_prompt(name, True, {name: False})

    @cached_property
    def _templates(self) -> list[ChatTemplate]:
        sources = {self._model.template, self._model.tool_template} - {None}
        return [compile_template(str(source), self._model, self._recipe) for source in sources]

    def _changes_prompt(self, name: str, value: object, other: Mapping[str, object] = {}) -> bool:
        """Whether prompts with a variable are others than those without it, or with another value."""
        asked, given = [{"role": "user", "content": "?"}], self._recipe.template.kwargs
        reading = [each for each in self._templates if name in {*each.undeclared, _DOCUMENTS} & each.read_variables]
        for template in reading if name not in given else ():
            with suppress(RenderError):
                prompts = {
                    template.render(asked, add_generation_prompt=True, kwargs=kwargs)
                    for kwargs in ({**given, **other}, {**given, name: value})
                }
                if len(prompts) > 1:
                    return True
        return False

    def _reads(self, key: str, *, is_flag: bool) -> bool:
        """Whether the template writes the text under a key of a message, or renders it otherwise for a flag there."""
        if meant_field(key) == "reasoning":
            return False  # under a name that packer does not know, it would choose no mode
        roles = ("system", "user", "assistant")
        values = (True, False) if is_flag else (_WORD, _WORD)
        for template in self._templates:
            for plain in ([{"role": role, "content": "?"} for role in roles[k:]] for k in (0, 1)):
                with suppress(RenderError):
                    texts = [template.render([each | {key: value} for each in plain]) for value in values]
                    if texts[0] != texts[-1] or _WORD in texts[0]:
                        return True
        return False

    def _shows_otherwise(self, block: str) -> bool:
        """Whether the template shows reasoning, and does not know the tags of a block."""
        if self._recipe.supervision.reasoning == "inline":
            return False
        sources = [template.source for template in self._templates]
        if any(block.partition(BETWEEN)[2] in source for source in sources):
            return False
        return any(template.reasoning.around for template in self._templates) or any(map(has_tag, sources))

    @property
    def template_hint(self) -> str:
        """The hint for rows that need a chat template; empty if the model has one."""
        return "" if self._model.template is not None else templates_hint(self._model, self._recipe)

    def refuse(self, *, are_chats: bool) -> None:
        """Ask: stop a build that would leave out texts, and name those of all sources at once, and the template that
        chats need and the model lacks.

        Raises:
            InputError: a source has fields with text that nothing reads.
        """
        questions = self.questions
        if questions:
            told, ways = [*map(str, questions)], [self.hint(questions)]
            if are_chats and self.template_hint:
                told, ways = [*told, NO_TEMPLATE], [*ways, f"and {self.template_hint}"]
            raise InputError("; ".join(told), hint="; ".join(ways))

    def hint(self, questions: Sequence[Question]) -> str:
        """Return the ways on for some questions, as options of a command."""
        sources = self._recipe.sources
        ways_of = {sources.index(each.source): [*each.ways()] for each in questions}
        ways = next(iter(ways_of.values()))
        if len(sources) > 1 and any(ways_of.get(number) != ways for number in range(len(sources))):
            ways = [
                f"{sources[number].path}: {of_one_source(way, number, sources[number].ignore)}"
                for number, own in ways_of.items()
                for way in own
            ]
        fields = [field for each in questions for field in each.fields if first_name(field.path) != VARIABLES]
        blocks = {field.path for field in fields if field.kind == "block"}
        left_out = {field.path for field in fields if field.kind not in _IN_TEXTS}
        for names, effect in ((left_out, "leaves {} out"), (blocks, "trains {} with the answers")):
            ignored = " ".join(f"--ignore {as_word(name)}" for name in sorted(names))
            ways += [f"{ignored} {effect.format('it' if len(names) == 1 else 'them')}"] * bool(names)
        return also_of_all("; ".join(ways))


def _labels(found: Iterable[FileQuestion]) -> dict[str, Counter[str]]:
    """Return what the labels of several files say."""
    labels: dict[str, Counter[str]] = {}
    for path, values in (each for file in found for each in file.unread.labels.items()):
        labels.setdefault(path, Counter()).update(values)
    return labels


def _shown_values(said: Mapping[str, int]) -> str:
    """Return what a label most often says, or nothing."""
    most = [(value, json.loads(value)) for value, _ in Counter(said).most_common(_MOST_VALUES)]
    values = [word if isinstance(word, str) else value for value, word in most]
    shown = [shortened(value, _VALUE_CHARACTERS) for value in values]
    more = ", …" * (len(said) > len(shown))
    return f" ({', '.join(shown)}{more})" if shown else ""


def _said(found: Sequence[FileQuestion]) -> Iterator[str]:
    """Yield the notes on several files, with the rows of all."""
    rows: dict[str, Counter[str]] = {}
    for note in (note for file in found for note in file.notes):
        rows.setdefault(note.says, Counter()).update(having=note.num_rows, all=note.of)
    for says, num in rows.items():
        yield f"{num['having']:,} of its first {plural(num['all'], 'row')} {says}" if num["all"] else says


def _added(fields: Iterable[UnreadField]) -> dict[str, UnreadField]:
    """Return the fields of several files by their paths, with the rows of all."""
    added: dict[str, UnreadField] = {}
    for field in fields:
        so_far = added.get(field.path)
        num_rows = field.num_rows + (so_far.num_rows if so_far is not None else 0)
        added[field.path] = replace(so_far or field, num_rows=num_rows)
    return added
