"""What there is to say of the first rows, ordered by the files of the recipe; and what a build would come to."""

from collections.abc import Iterator

from packer.audit.lint.findings import Example, LintFinding
from packer.audit.lint.losses import WITHOUT
from packer.audit.lint.override import Override
from packer.audit.lint.probes import CHAT, listed
from packer.audit.lint.rows import PromptUse, Rows, price_under, rejections_under
from packer.audit.lint.subject import Subject
from packer.build.price import LIMIT
from packer.model import Model
from packer.recipe import Recipe


def find_in_rows(
    rows: Rows, recipe: Recipe, model: Model, subject: Subject | None, *, assumed: bool
) -> Iterator[LintFinding]:
    """Findings on rows that went through the stages under `recipe`; `assumed`: it has keys the user did not give."""
    under = ", with the keys assumed" if assumed else ""
    yield from _rejected(rows, recipe, model, under)
    yield from _price(rows, recipe, model, subject, under)
    yield from _modes(rows, recipe, under)
    if rows.total("num_merged"):
        yield LintFinding(
            code="rows_merged",
            message=f"{rows.total('num_merged'):,} of {rows.total('num_turns'):,} answers looked at would make one "
            f"token with the end of their prompt, and are encoded apart from it{under}",
        )
    control = rows.counted("control")
    if control:
        counts = ", ".join(f"'{token}' in {count:,}" for token, count in control.most_common())
        yield LintFinding(
            code="rows_control_tokens",
            message=f"rows hold the text of control tokens: {counts}; outside answers it is encoded as ordinary text, "
            "in an answer it rejects the row",
            hint="supervision.control_tokens says so: reject rejects all such rows, allow keeps them all as text",
        )


def verdict(rows: Rows, recipe: Recipe, *, ok: bool, begins: bool) -> str:
    """What a build of the recipe as given would come to.

    Args:
        rows: of its inputs; none where none were looked at.
        recipe: as given.
        ok: there is no error.
        begins: a build gets as far as its first row.

    """
    if not rows.files:
        return "plain chats can be built" if ok else "no plain chat can be built as the recipe is"
    if rows.num_kept_given is None or not begins:
        return "a build would refuse this template before its first row"
    num_kept, num_rows = sum(rows.num_kept_given), rows.total("num_rows")
    if not num_kept:
        return f"a build would keep nothing of the {_rows(num_rows)} looked at"
    if recipe.supervision.rewritten is None and _total_price(rows) > LIMIT:
        return "a build would stop and ask about rewritten history (supervision.rewritten)"
    return f"a build keeps {num_kept:,} of the {_rows(num_rows)} looked at"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _rejected(rows: Rows, recipe: Recipe, model: Model, under: str) -> Iterator[LintFinding]:
    rejected = rows.counted("rejected")
    if not rejected:
        return
    num_rows = rows.total("num_rows")
    some = bool(rows.total("num_kept"))
    yield LintFinding(
        code="rows_rejected" if some else "rows_all_rejected",
        message=f"{f'{rejected.total():,} of' if some else 'all'} {_rows(num_rows)} looked at are rejected{under}",
        examples=tuple(
            Example(label=f"{count:,} {code}", text=each.first[code])
            for each in rows.files
            for code, count in each.rejected.most_common()
        ),
        hint=_rejected_hint(rows, recipe, model),
    )


def _rejected_hint(rows: Rows, recipe: Recipe, model: Model) -> str | None:
    """Where the template loses something, how to keep such rows without it: all kinds, as they come to light."""
    rejected = rows.counted("rejected")
    kinds: list[str] = []
    left = rejected
    while new := [kind for kind in _lost(left) if kind not in kinds]:
        kinds += new
        left = rejections_under(Override.allowing(recipe, kinds).apply(recipe), model, rows)
    more = rejected.total() - left.total()
    if not kinds or more <= 0:
        return None
    without = listed([WITHOUT[kind] for kind in kinds])
    told = f"{Override.allowing(recipe, kinds)} keeps {more:,} of them, learned without {without}"
    return told + (": answers that are nothing but a call are then not learned" if "tool_call" in kinds else "")


def _lost(codes: "dict[str, int]") -> list[str]:
    return [code.removeprefix("dropped_") for code in codes if code.startswith("dropped_")]


def _total_price(rows: Rows) -> float:
    last = rows.total("num_last_tokens")
    return rows.total("num_tokens") / last if last else 1.0


def _price(rows: Rows, recipe: Recipe, model: Model, subject: Subject | None, under: str) -> Iterator[LintFinding]:
    price = _total_price(rows)
    if price <= 1:
        return
    asks = recipe.supervision.rewritten is None and price > LIMIT
    yield LintFinding(
        code="rows_price",
        message=f"rewritten history: the rows looked at take {price:.2f} times the tokens of their last documents"
        + under
        + (f"; above {LIMIT:g} a build stops and asks" if asks else ""),
        examples=tuple(
            Example(label=each.name, text=f"{each.price:.2f} times") for each in rows.files if len(rows.files) > 1
        ),
        hint=_cheaper(rows, recipe, model, subject) if asks else None,
        level="warning" if asks else "note",
    )


def _cheaper(rows: Rows, recipe: Recipe, model: Model, subject: Subject | None) -> str:
    """The values of supervision.rewritten, with what the cheaper one comes to here."""
    ways = []
    if subject is not None and subject.turn_end is not None:
        stop = Override.stopping(recipe, subject.turn_end)
        if subject.tried(CHAT, Override("supervision.rewritten", "exact"), stop).num_documents == 1:
            ways.append(
                f"{stop} makes the token that ends a turn a stop token, and nothing is rewritten, if generation "
                "stops there"
            )
    as_rendered = Override("supervision.rewritten", "as_rendered")
    less = price_under(as_rendered.apply(recipe), model, rows)
    if less < _total_price(rows):
        ways.append(
            f"{as_rendered} takes {less:.2f} times: earlier answers as history shows them, where only an empty "
            "reasoning block is gone"
        )
    ways.append(f"{Override('supervision.rewritten', 'exact')} takes it as it is")
    ways.append(f"{Override('supervision.rewritten', 'last')} learns only the last document of each conversation")
    return "; or ".join(ways)


def _modes(rows: Rows, recipe: Recipe, under: str) -> Iterator[LintFinding]:
    skipping = rows.total("num_skipping")
    if skipping:
        yield LintFinding(
            code="rows_skip_thinking",
            message=f"{skipping:,} of {rows.total('num_turns'):,} answers looked at have no reasoning and are learned "
            f"under the prompt of answers with reasoning: the model learns to skip it{under}",
            examples=tuple(
                Example(label=f"{each.num_skipping:,} answers", text=f"the first in {each.first_skipping}")
                for each in rows.files
                if each.num_skipping
            ),
            hint="supervision.rewritten: exact learns earlier answers under the prompt they were given for"
            if recipe.supervision.rewritten == "as_rendered"
            else "right if the model is to answer at once there; else leave such rows out",
        )
    prompts = rows.counted("prompts")
    modes: dict[str, list[PromptUse]] = {}
    for use, _ in prompts.most_common():
        modes.setdefault(use.mode, []).append(use)
    if len(modes) > 1:
        counts = {name: sum(prompts[use] for use in uses) for name, uses in modes.items()}
        yield LintFinding(
            code="rows_modes",
            message=f"the {sum(counts.values()):,} answers of the rows looked at are learned under {len(modes)} "
            f"prompts{under}: " + ", ".join(f"{count:,} under {name}" for name, count in counts.items()),
            examples=tuple(Example(label=name, text=uses[0].ending) for name, uses in modes.items()),
        )
