import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InputError
from packer.source import text_rows
from packer.source.file_bytes import text_stream
from packer.source.rows import file_rows

values = st.recursive(
    st.none() | st.integers() | st.text('\\"[]{},a\né', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('\\"a', max_size=3), inner, max_size=3),
    max_leaves=8,
)


def elements(chunks, *, max_row_bytes, step=None):
    """The elements of a text in chunks, which is looked at so many bytes at a time."""
    with pytest.MonkeyPatch.context() as patch:
        if step is not None:
            patch.setattr(text_rows, "READ_BYTES", step)
        stream = text_stream(Path("f"), iter(chunks), None)
        return list(text_rows.split_elements(Path("f"), stream, max_row_bytes=max_row_bytes))


@given(
    rows=st.lists(values, max_size=6),
    step=st.integers(1, 40),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    max_row_bytes=st.integers(0, 60),
)
def test_elements_of_any_array_come_out_whole_however_it_is_read(rows, step, indent, ascii_only, max_row_bytes):
    content = f" {json.dumps(rows, indent=indent, ensure_ascii=ascii_only)}\n".encode()
    found = elements([content], max_row_bytes=10**6, step=step)
    assert [json.loads(row) for row in found] == rows
    whole = elements([content], max_row_bytes=max_row_bytes)
    assert elements([content], max_row_bytes=max_row_bytes, step=step) == whole
    assert [row for row in whole if row is not None] == [
        row for row, kept in zip(found, whole, strict=True) if kept is not None
    ]


@given(row=st.dictionaries(st.text('\\"a', max_size=3), values, max_size=4), step=st.integers(1, 40))
def test_a_single_object_is_one_element(row, step):
    content = json.dumps(row, indent=1).encode()
    assert [json.loads(found) for found in elements([content], max_row_bytes=10**6, step=step)] == [row]


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_an_element_that_is_not_json_spoils_no_other(step):
    content = b'[{"a": 1}, {"a" nonsense [}], , {"a": 2},]'
    found = elements([content], max_row_bytes=100, step=step)
    assert found == [b'{"a": 1}', b'{"a" nonsense [}]', b"", b'{"a": 2}', b""]


def test_an_element_too_large_is_never_held():
    stream = (b"x" * 1000 for _ in range(1000))

    def chunks():
        yield b'["'
        yield from stream
        yield b'", 2]'

    assert elements(chunks(), max_row_bytes=5) == [None, b"2"]


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b" x", "begins neither"),
        (b"[1", "ends inside"),
        (b'["]', "ends inside"),
        (b"[1]\n[2]", "something follows"),
    ],
)
def test_brackets_that_do_not_add_up_are_reported(content, said, step):
    with pytest.raises(InputError, match=said):
        elements([content], max_row_bytes=10, step=step)


def test_objects_of_several_lines_have_a_hint_that_puts_each_on_one(tmp_path):
    path = tmp_path / "pretty.jsonl"
    path.write_bytes(b'{\n "a": 1\n}\n{\n "a": 2\n}\n')
    with pytest.raises(InputError, match="something follows") as caught:
        [*file_rows(path, format="json", schema=None, columns={}, max_row_bytes=1000)]
    assert f"jq -c . {path} > pretty_lines.jsonl" in caught.value.hint
    piped = path.rename(tmp_path / "standard-input")  # removed when the process ends
    with pytest.raises(InputError, match="something follows") as caught:
        [*file_rows(piped, format="json", schema=None, columns={}, max_row_bytes=1000)]
    assert "jq" not in caught.value.hint
