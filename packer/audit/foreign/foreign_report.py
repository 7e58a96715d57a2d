"""An audit of foreign rows: opened, sampled, checked window by window, and told."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from packer.audit.foreign.foreign_codes import CODES, LEVELS, OF_NO_TOKENIZER, ORDER, Level
from packer.audit.foreign.foreign_row import excerpt
from packer.audit.foreign.foreign_rows import MASKS, ForeignPart, ForeignRows
from packer.audit.foreign.formats import open_foreign
from packer.audit.foreign.olmo import OlmoPart
from packer.audit.foreign.row_checks import SHOWN, Hits, check
from packer.audit.foreign.token_kinds import find_places
from packer.audit.foreign.tokenizer_facts import Known, find_known
from packer.audit.lint.lint_report import Example
from packer.audit.stats import Lengths, count_lengths
from packer.backend import load_backend
from packer.batches import Int64
from packer.model import TOKENIZER_FILE
from packer.pipeline.progress import Progress, Silent

SAMPLE = 1000
"""Rows looked at where nothing is said."""

_WINDOW_TOKENS = 2**19
"""Tokens checked in one go, about: a hundred megabytes of arrays."""

_OF_TRAINED = frozenset({"prompt_trained", "padding_trained", "after_terminator"})

_WINDOW_ROWS = 64
"""Rows checked in one go where nobody knows how many tokens they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFinding:
    """One kind of thing that is wrong, over all rows looked at."""

    code: str
    level: Level
    message: str
    count: int
    unit: str
    num_rows: int
    detail: str | None
    """What the figures show beside, where they show anything."""

    examples: tuple[Example, ...]
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLookedAt:
    """A question that these rows, or what was named beside them, do not answer."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReport:
    """The result of :func:`look_at`."""

    path: Path
    form: str
    columns: tuple[str, ...]
    labels_from: str
    """What says which tokens are trained."""

    header: str | None
    """The header of an answer, as text; None where it is not known."""

    num_rows: int
    """Of all parts."""

    num_tokens: int | None
    """Of all parts; None where only reading all rows would tell, and not all were looked at."""

    rows_looked_at: int
    tokens_looked_at: int
    trained: int
    """Of the tokens looked at."""

    padding: int
    num_sequences: int
    """Sequences in the rows looked at, as far as the columns say."""

    lengths: Lengths | None
    """Of the rows looked at."""

    findings: tuple[ForeignFinding, ...]
    not_looked_at: tuple[NotLookedAt, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return self.count("error") == 0

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)


def look_at(
    path: Path | str,
    *,
    tokenizer: Path | str | None = None,
    template: Path | str | None = None,
    sample: int | None = SAMPLE,
    progress: Progress | None = None,
) -> ForeignReport:
    """Look at rows that another tool prepared.

    Args:
        path: a folder of save_to_disk, a prefix of .bin and .idx, or an array of OLMo-core.
        tokenizer: folder of the model's tokenizer, its tokenizer.json, or its name on the Hub; without it only shapes
            are looked at.
        template: chat template the rows were made with, in place of the tokenizer's own.
        sample: rows looked at, spread evenly over each part, the same ones every time; None looks at all.
        progress: listens; counts rows.

    Raises:
        UsageError: a template without a tokenizer.
        InputError: there is nothing an audit reads, or it cannot be read.
        TemplateError: the template is not valid Jinja.

    """
    path, progress = Path(path), progress or Silent()
    known = find_known(tokenizer, None if template is None else Path(template), progress.note)
    form, parts = open_foreign(path, known.model)
    if known.eos_ends_prompts and any(isinstance(part, OlmoPart) and part.rows_end_at_eos for part in parts):
        why = "rows are known by EOS alone, which this template writes behind questions too; a .csv.gz tells borders"
        known = known.without_header(why)
    wanted = [_num_wanted(len(part), sample, sum(map(len, parts))) for part in parts]
    progress.stage("looking", sum(wanted), "rows")
    gathered = _Gathered(known)
    for part, count in zip(parts, wanted, strict=True):
        for window in _windows(part, count):
            gathered.add(part.read(window), part.name)
            progress.advance(len(window))
    return _report(path, form, parts, known, gathered)


def _num_wanted(num_rows: int, sample: int | None, total: int) -> int:
    """How many rows of a part are looked at."""
    if sample is None or total <= sample:
        return num_rows
    return min(num_rows, max(1, round(num_rows * sample / total)))


def _windows(part: ForeignPart, wanted: int) -> Iterator[Int64]:
    """Rows of a part, evenly spread: of 10 rows with a sample of 4, rows 0, 2, 5 and 7.

    They are numbered a window at a time: how many there are is what a file says, and reading them may refute it.
    """
    num_rows, tokens = len(part), part.tokens()
    size = _WINDOW_ROWS if tokens is None else max(1, _WINDOW_TOKENS * num_rows // max(tokens, num_rows, 1))
    for first in range(0, wanted, size):
        places = range(first, min(first + size, wanted))
        numbers = places if wanted == num_rows else [place * num_rows // wanted for place in places]
        yield np.array(numbers, np.int64)


@dataclass(slots=True)
class _Gathered:
    """Counts and findings over the windows."""

    known: Known
    rows: int = 0
    num_rows_outside: int = 0
    """Rows with ids that the tokenizer does not have."""

    tokens: int = 0
    trained: int = 0
    padding: int = 0
    sequences: int = 0
    lengths: list[Int64] = field(default_factory=list)
    found: dict[str, list[tuple[int, int, list[Example]]]] = field(default_factory=dict)

    def add(self, rows: ForeignRows, part: str) -> None:
        places = find_places(rows, self.known)
        self.rows += len(rows.numbers) + len(rows.unequal)
        self.tokens += len(rows.input_ids)
        self.trained += int(rows.trained.sum())
        self.padding += int(places.padding.sum())
        self.sequences += int(places.starts.sum())
        self.lengths.append(np.diff(rows.offsets))
        for hits in check(rows, places, self.known):
            entry = (hits.count, len(hits.rows), self._examples(hits, rows, part))
            self.found.setdefault(hits.code, []).append(entry)
            if hits.code == "ids_outside" and self.known.model is not None:
                self.num_rows_outside += len(hits.rows)

    @property
    def is_anothers(self) -> bool:
        """Most rows hold ids that the tokenizer does not have: what it says of the others means nothing."""
        return 2 * self.num_rows_outside > self.rows

    def _examples(self, hits: Hits, rows: ForeignRows, part: str) -> list[Example]:
        if sum(len(examples) for _, _, examples in self.found.get(hits.code, ())) >= SHOWN:
            return []
        model = self.known.model
        backend = None if model is None else load_backend(model.files[TOKENIZER_FILE])
        return [excerpt(rows, start, end, backend, part) for start, end in hits.ranges.tolist()] or [
            Example(label=f"{part} row {number:,}".strip(), text="") for number in hits.rows[:SHOWN].tolist()
        ]


def _report(path: Path, form: str, parts: tuple[ForeignPart, ...], known: Known, gathered: _Gathered) -> ForeignReport:
    columns = tuple(dict.fromkeys(name for part in parts for name in part.columns))
    backend = None if known.model is None else load_backend(known.model.files[TOKENIZER_FILE])
    header = backend.decode(known.header.tolist(), skip_special_tokens=False) if backend and len(known.header) else None
    lengths = np.concatenate([np.zeros(0, np.int64), *gathered.lengths])
    return ForeignReport(
        path=path,
        form=form,
        columns=columns,
        labels_from=_labels_from(columns, form),
        header=header,
        num_rows=sum(map(len, parts)),
        num_tokens=_num_tokens(parts, gathered),
        rows_looked_at=gathered.rows,
        tokens_looked_at=gathered.tokens,
        trained=gathered.trained,
        padding=gathered.padding,
        num_sequences=gathered.sequences,
        lengths=count_lengths(lengths.astype(np.int32)),
        findings=tuple(_findings(gathered)),
        not_looked_at=tuple(_not_looked_at(columns, known, is_anothers=gathered.is_anothers)),
    )


def _num_tokens(parts: tuple[ForeignPart, ...], gathered: _Gathered) -> int | None:
    counts = [part.tokens() for part in parts]
    known = [count for count in counts if count is not None]
    if len(known) == len(counts):
        return sum(known)
    return gathered.tokens if gathered.rows == sum(map(len, parts)) else None


def _findings(gathered: _Gathered) -> Iterator[ForeignFinding]:
    reported = OF_NO_TOKENIZER & gathered.found.keys() if gathered.is_anothers else gathered.found
    for code in sorted(reported, key=lambda code: (LEVELS.index(CODES[code].level), ORDER[code])):
        entries, kind = gathered.found[code], CODES[code]
        yield ForeignFinding(
            code=code,
            level=kind.level,
            message=kind.meaning,
            count=sum(count for count, _, _ in entries),
            unit=kind.unit,
            num_rows=sum(num_rows for _, num_rows, _ in entries),
            detail=_detail(code, gathered),
            examples=tuple([example for _, _, examples in entries for example in examples][:SHOWN]),
            hint=kind.hint,
        )


def _detail(code: str, gathered: _Gathered) -> str | None:
    """Of trained tokens that should not be their share."""
    if code not in _OF_TRAINED or not gathered.trained:
        return None
    count = sum(count for count, _, _ in gathered.found[code])
    every = " (every token is)" if code == "prompt_trained" and gathered.trained == gathered.tokens else ""
    return f"{100 * count / gathered.trained:.1f} % of what is trained{every}"


def _labels_from(columns: tuple[str, ...], form: str) -> str:
    if "labels" in columns:
        return "the column labels"
    if "turns" in columns:
        return "the turns: contexts are masked, targets trained (target_responses: all)"
    masks = [name for name in MASKS if name in columns]
    if masks:
        return f"{' and '.join(masks)}; there are no labels"
    trainer = "GPTDataset trains every token" if form == "megatron" else "trainers then train every token"
    return f"nothing: there are neither labels nor a mask, and {trainer}"


def _not_looked_at(columns: tuple[str, ...], known: Known, *, is_anothers: bool) -> Iterator[NotLookedAt]:
    if is_anothers:
        why = "most rows hold ids that this tokenizer does not have: the rows were made with another one"
        yield NotLookedAt(what="prompts, stop tokens, padding, BOS and borders", why=why)
        return
    if not len(known.header):
        yield NotLookedAt(what="whether prompts are trained", why=known.no_header)
    if known.model is None:
        yield NotLookedAt(what="stop tokens, padding and BOS, ids of the vocabulary", why="no tokenizer was named")
    elif not len(known.stop_ids):
        yield NotLookedAt(what="whether stop tokens are learned", why="the tokenizer names no stop token")
    if not known.bos_opens and not {"seq_lengths", "position_ids"}.intersection(columns):
        why = "no column says where sequences begin"
        if known.model is not None and known.model.template is not None:
            why += ", and no token of this template stands at beginnings alone"
        yield NotLookedAt(what="whether rows hold several conversations", why=why)
