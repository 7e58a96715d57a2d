"""What this version withdrew, each with what takes its place. Every error about it comes from this one table.

A name is what people type: a command, a command with an option or with the option's value, or a name to import.
"""

from typing import Final

from packer.errors import UsageError

_REFERENCE = "TRL does: DPOConfig(precompute_ref_log_probs=True); in a loop, answer_logps of the reference model"

_SAID = "-v prints all of the report, --json has it as fields"

_NOTED = "packer preview shows where an answer begins and ends, and what is trained"

WITHDRAWN: Final = {
    "packer check --foreign": "packer build reads these rows, and packer check CACHE --sources ROOT compares them",
    "packer diff --documents": "three rows are named; packer inspect --row FILE:N shows one in each cache",
    "packer diff --html": _SAID,
    "packer explain bos_missing": _NOTED,
    "packer explain default_system": _NOTED,
    "packer explain duplicate_key": "of a key that an object has twice, the last value counts",
    "packer explain header_learned": "it is an opening_learned",
    "packer explain marks_differ": "supervision.source: generation_tags trains by the marks",
    "packer explain reads_clock": "template.date is the date that a template writes",
    "packer explain terminator": _NOTED,
    "packer lint --html": _SAID,
    "packer view": "packer report CACHE -o FILE writes the page; --rows, --block and --doc choose what it holds",
    "packer inspect --why": "--row shows the row with the reason, which names the row that it lost to",
    "packer.load.Reference": _REFERENCE,
    "packer.load.fill_reference": _REFERENCE,
    "packer.load.read_reference": _REFERENCE,
}


def refuse_withdrawn(name: str) -> None:
    """Refuse a name of an earlier version.

    Raises:
        UsageError: the name was withdrawn; the hint says what to use.
    """
    if name in WITHDRAWN:
        raise UsageError(f"{name} was withdrawn", hint=WITHDRAWN[name])
