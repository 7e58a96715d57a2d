"""Paths of a recipe that are relative to the folder it lies in."""

from pathlib import Path
from typing import Any


def relocate(values: dict[str, Any], folder: Path) -> None:
    """Join the relative paths of a recipe, not typed yet, with its folder."""

    def relative(path: Any) -> Any:
        if not isinstance(path, str) or path == "-" or path.startswith("hf://") or Path(path).is_absolute():
            return path
        return (folder / path).as_posix()

    benchmarks = values.get("decontaminate")
    named = [*(values.get("sources") or []), *(benchmarks.get("against", []) if isinstance(benchmarks, dict) else [])]
    for entry in named:
        if isinstance(entry, dict) and "path" in entry:
            entry["path"] = relative(entry["path"])
    if isinstance(values.get("tokenizer"), str) and (folder / values["tokenizer"]).exists():
        values["tokenizer"] = relative(values["tokenizer"])
    template = values.get("template")
    if isinstance(template, dict) and "file" in template:
        template["file"] = relative(template["file"])
