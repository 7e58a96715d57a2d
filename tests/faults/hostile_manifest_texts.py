"""Every place of a manifest where its schema takes a text, and manifests that have another text there."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import msgspec.inspect
from msgspec.inspect import AnyType, CustomType, DictType, IntType, StrType, StructType, UnionType, VarTupleType

from packer.store.manifest import Manifest, sealed


class Place(NamedTuple):
    """Keys and indexes that lead to a value, and what is put there."""

    keys: tuple[Any, ...]
    value: Any

    def __str__(self) -> str:
        return ".".join(map(ascii, self.keys))


def places(manifest: dict[str, Any], text: str) -> list[Place]:
    """Where the schema of manifests, or the recipe in it, has a text or the key of a mapping: each with `text`."""
    return list(_places(msgspec.inspect.type_info(Manifest), manifest, text))


def put(manifest: dict[str, Any], *found: Place) -> dict[str, Any]:
    """A copy with other values in some places."""
    changed = deepcopy(manifest)
    for place in found:
        value = changed
        for key in place.keys[:-1]:
            value = value[key]
        value[place.keys[-1]] = place.value
    return changed


def write(cache: Path, manifest: dict[str, Any]) -> bytes:
    """Write a manifest with the right checksum."""
    content = sealed(json.dumps({key: manifest[key] for key in manifest if key != "checksum"}).encode())
    (cache / "manifest.json").write_bytes(content)
    return content


def _places(kind: Any, value: Any, text: str, keys: tuple[Any, ...] = ()) -> Iterator[Place]:
    if isinstance(kind, UnionType):
        kind = next(each for each in kind.types if type(each).__name__ != "NoneType")
    if isinstance(kind, AnyType):
        kind = {dict: DictType(StrType(), kind), list: VarTupleType(kind), str: StrType()}.get(type(value), kind)
    if isinstance(kind, StrType):
        yield Place(keys, text)
    elif isinstance(kind, StructType):
        assert isinstance(value, dict), f"{keys}: this manifest has none; the test needs one that has"
        for field in kind.fields:
            name = field.encode_name
            if name == "media" and name not in value:
                continue  # only a cache with images has it, as names that its own rules make
            yield from _places(field.type, value.get(name, _example(field.type, text)), text, (*keys, name))
    elif isinstance(kind, DictType):
        yield Place(keys, {text: _example(kind.value_type, text), **value})
        for key, each in value.items():
            yield from _places(kind.value_type, each, text, (*keys, key))
    elif isinstance(kind, VarTupleType):
        assert value or isinstance(kind.item_type, AnyType | IntType), (
            f"{keys}: the test needs a manifest that has some"
        )
        for number, each in enumerate(value[:1]):
            yield from _places(kind.item_type, each, text, (*keys, number))
    else:
        assert not isinstance(kind, CustomType), f"{keys}: {kind} is not looked into"


def _example(kind: Any, text: str) -> Any:
    if isinstance(kind, UnionType):
        kind = kind.types[0]
    if isinstance(kind, StructType):
        return {field.encode_name: _example(field.type, text) for field in kind.fields}
    if isinstance(kind, DictType):
        return {}
    if isinstance(kind, VarTupleType):
        return [_example(kind.item_type, text)]
    return text if isinstance(kind, StrType | AnyType) else 1
