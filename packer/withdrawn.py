"""What an earlier version had and this one has not, with what to use instead: the one place that knows of it.

Commands and their options stand here as they were typed, names of Python with their module.
"""

from packer.errors import UsageError

_INSTEAD = {
    # audits, recipes from configurations, pages
    "check --foreign": "build SOURCE... -o CACHE reads chats and prepared rows alike; then check CACHE --sources",
    "diff --documents": "diff names the first three rows; inspect --row FILE:N shows one in each cache",
    **dict.fromkeys(("diff --html", "lint --html"), "-v prints everything, --json has everything"),
    "view": "report CACHE -o FILE writes the page; --rows, --block and --doc choose what it holds",
    "inspect --why": "--row FILE:N shows the row with the reason, which names the row that it lost to",
    **dict.fromkeys(
        ("packer.load.Reference", "packer.load.fill_reference", "packer.load.read_reference"),
        "TRL computes reference log-probabilities: DPOConfig(precompute_ref_log_probs=True); in a loop, answer_logps "
        "of the reference model",
    ),
}


def refuse_withdrawn(name: str) -> None:
    """Refuse something that an earlier version had; anything else passes.

    Raises:
        UsageError: says what to use instead.
    """
    if name in _INSTEAD:
        raise UsageError(f"{name} was withdrawn", hint=_INSTEAD[name])
