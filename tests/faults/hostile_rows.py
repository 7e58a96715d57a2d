"""Rows made to break a reader, by schema, each with what must become of it.

What is wrong with a row as JSON, :func:`faults.json_oracle.agrees` decides by Python's own JSON; what is wrong with its
values stands here, by the code it is rejected with.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from faults.amount import amount
from faults.mutated_rows import VALUES

KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row as it stands in a file, and what becomes of it."""

    content: bytes
    fate: str | None = None
    """`kept`, or the code it is rejected with; None: what the JSON oracle says."""

    is_unread: bool = False
    """What is odd stands in a field that nobody reads: if it is JSON at all, the row is kept."""

    spelled: str | None = None
    """The text it trains, literally: what came through must be what was written."""


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]", inner: bytes = b"") -> bytes:
    return opening * depth + inner + closing * depth


def chat(answer: bytes = b'"fine"', *, user: bytes = b'"how"', message: bytes = b"", row: bytes = b"") -> bytes:
    """A row of schema messages with JSON put in as it is."""
    turns = b'{"role":"user","content":%b},{"role":"assistant","content":%b%b}' % (user, answer, message)
    return b'{"messages":[%b]%b}' % (turns, row)


def call(arguments: bytes, *, name: bytes = b'"f"') -> bytes:
    """A row of schema messages whose answer is a tool call."""
    calls = b',"tool_calls":[{"type":"function","function":{"name":%b,"arguments":%b}}]' % (name, arguments)
    return chat(b"null", message=calls)


def calls(value: bytes) -> bytes:
    return chat(b"null", message=b',"tool_calls":%b' % value)


def text(value: bytes, *, row: bytes = b"") -> bytes:
    return b'{"text":%b%b}' % (value, row)


def as_text(value: bytes) -> bytes:
    """JSON within a string of JSON."""
    return b'"%b"' % value.replace(b"\\", rb"\\").replace(b'"', rb"\"")


# -- rows that are wrong, or odd, as JSON ----------------------------------------------------------------------------------

_HALVES = (rb'"\ude00\ud83d"', rb'"\ud83d\ud83d\ude00"', rb'"\ud83da"', rb'"\uD83D"', rb'"\\ud800"')
_UTF8 = (
    *(b'"\xc0\x80"', b'"\xf8\x88\x80\x80\x80"', b'"\xfc\x84\x80\x80\x80\x80"', b'"\xed\xa0\xbd\xed\xb8\x80"'),
    *(b'"\xf4\x90\x80\x80"', b'"a\x80b"', b'"\xe2\x82"', "é".encode("latin-1").join([b'"caf', b'"'])),
)
_CONTROLS = (b'"\x07"', b'"\x1f"', b'"a\rb"', b'"\x0b"', rb'"\u12"', b'"\\"')
_NUMBERS = (
    *(b"Infinity", b"nan", b"-1e400", b"1e-400", b"%d" % 2**63, b"1" + b"0" * 308, b"1" + b"0" * 4000),
    *(b"1" + b"0" * 100_000, b"0." + b"1" * 100_000, b"1_000", b"-"),
)
DEEP = amount(small=10_000, full=100_000)
_MANY = amount(small=5_000, full=100_000)
_LONG = amount(small=10**5, full=10**6)
_DEPTHS = (nested(200), nested(256), nested(257), nested(DEEP), nested(DEEP, b'{"a":', b"}", b"1"))


def _everywhere() -> Iterator[Row]:
    """Every odd value as an answer, in a field nobody reads, as an argument, and in arguments that are text."""
    for value in (*VALUES, *_HALVES, *_UTF8, *_CONTROLS, *_NUMBERS, *_DEPTHS):
        yield from (Row(content=chat(value)), Row(content=call(b'{"a":%b}' % value)))
        yield Row(content=chat(row=b',"x":{"y":[%b]}' % value), is_unread=True)
        if value.isascii():
            yield Row(content=call(as_text(b'{"a":%b}' % value)))


_LINES = (
    # encodings
    *(chat().decode().encode(name) for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "cp500")),
    b"+AHs-" + chat()[1:], b"\xef\xbb\xbf" + chat(), chat(row=b',\xef\xbb\xbf"x":1'), chat()[:-4] + b"\xe2\x82",
    chat(row=b',"\xff":1'), chat(row=rb',"\ud800":1'), chat().replace(b"user", rb"\udc00"),
    # characters about and between the tokens
    chat() + bytes(7), bytes(7) + chat(), bytes(512), b"\x0c", b"\x0c" + chat(), "\u00a0".encode() + chat(),
    chat(row=",\u2028".encode() + b'"x":1'), chat(row=b'\r,\r"x"\r:\r1'), b" \t " + chat() + b"\t \r", chat() + b"\r\r",
    # keys twice, or nearly
    chat()[:-1] + b',"messages":[]}', chat()[:-1] + rb', "\u006dessages" : []}', chat(message=b',"content":"fine"'),
    chat(message=b',"role":"user"'), call(b'{"a":[{"b":{"c":1,"c":2}}]}'), chat(row=b',"":1,"":2'),
    chat(row=rb',"a\\":1,"a\\":2'), chat(row=b',"x":[' + b",".join([b'{"a":1,"a":2}'] * 10_000) + b"]"),
    chat(row=b',"%b":1,"%b":2' % (b"k" * _LONG, b"k" * _LONG)),
    chat(rb'"\":\":,\"a\":1,\"a\":2"', row=rb',"a\\":"\\\":"'),
    chat(row=b',"Messages":[],"MESSAGES":1'), chat(row=',"é":1,"e\u0301":2,"а":3,"a":4'.encode()),
    chat(row=b"," + b",".join(b'"k%d":%d' % (i, i) for i in range(_MANY))),
    # lines that are no rows
    chat()[:40], chat()[:-1], chat() + chat(), chat() + b",", chat().replace(b"}]", b"},]"), chat() + b" // fine",
    b"]", b"{'messages': None}", b"<<<<<<< HEAD", b"user,assistant", b"{messages: []}", b"\x1f\x8b\x08\x00",
    b"null", b"12", b'"messages"', b"[" + chat() + b"]", b"[]", b'"', b"[" * 100_000, b"]" * 100_000,
)  # fmt: skip

JSON = [*_everywhere(), *(Row(content=content) for content in _LINES)]


# -- rows whose values are odd -----------------------------------------------------------------------------------------------


def _spelled(name: str, answer: str) -> Row:
    """An answer of odd characters: kept, and trained exactly as it stands."""
    return Row(content=chat(json.dumps(answer, ensure_ascii=False).encode()), fate=KEPT, spelled=answer)


def _fates(fates: dict[str, tuple[bytes, ...]]) -> list[Row]:
    return [Row(content=content, fate=fate) for fate, contents in fates.items() for content in contents]


CHARACTERS = [
    _spelled("a pair of escapes", "😀"),
    _spelled("control characters", "\0\1\x1b\x7f"),
    _spelled("line and paragraph separators", "a\u2028b\u2029c\x85d"),
    _spelled("delete and the second control block", "a\x7fb\x80c\x9fd"),
    _spelled("zero width", "a\u200bb\u200cc\u200dd\u2060e\ufefff"),
    _spelled("right to left and back", "a\u202eb\u202cc\u2066d\u2069e"),
    _spelled("private use, marks of the renderer", "\ue0f2a\ue0f3 \ue200\ue0f2\ue0f3"),
    _spelled("private use, planes 15 and 16", "\U000f0000\U0010fffd"),
    _spelled("no characters", "\uffff\ufffe\ufdd0\U0001ffff\U0010ffff"),
    _spelled("replacement", "\ufffd"),
    _spelled("composed and decomposed", "é e\u0301 Å Å ﬁ ½"),
    _spelled("a thousand marks on a letter", "a" + "\u0301" * 1000),
    _spelled("tags of plane 14", "a\U000e0041\U000e007f"),
    _spelled("joined emoji", "👩\u200d👩\u200d👧🏽 🇰🇷"),
    _spelled("letters whose case changes length", "İıſßŉ"),
    _spelled("spaces of all kinds", "a \u00a0\u2003\u3000\u1680 b"),
    _spelled("newlines of all kinds", "\na\r\nb\rc\x0bd\x0ce\n\n"),
    _spelled("a template", "{{ 7*7 }}{% for x in range(9**9) %}{{ x }}{% endfor %}{# c #}"),
    _spelled("the template's own variables", "{{ messages }} {{ raise_exception('x') }}"),
    _spelled("printf and format", "%s%n%d {0} {__class__} ${jndi:ldap://a}"),
    _spelled("JSON within", '{"messages": [{"role": "assistant", "content": "\\ud800"}]}'),
    _spelled("a word of 20,000 letters", "a" * 20_000),
    _spelled("backslashes and quotes", '\\"' * 500 + "\\"),
]

TYPES = {
    "wrong_type": (
        *map(chat, (b"7", b"true", b'{"text":"a"}', b"[1,2]", b"[null]", b'[{"text":"a","x":1}]', b'[{"type":"exec","text":"a"}]')),
        *map(chat, (b'[{"type":"text","text":7}]', b'[{"type":"text"}]', b'[{"type":["text"],"text":"a"}]')),
        *(b'{"messages":%b}' % value for value in (b'{"role":"user","content":"a"}', b'"7"', b"7", b"false")),
        *(b'{"messages":[%b]}' % value for value in (b"null", b'["user","a"]', b'"a","b"', b'{"content":"a"}')),
        *(chat().replace(b'"user"', role) for role in (b'["user"]', b"null")),
        *(chat(message=field) for field in (b',"train":"perhaps"', b',"weight":"NaN"', b',"weight":2', b',"weight":%d' % 2**70)),
        *(chat(message=field) for field in (b',"weight":1e-320', b',"reasoning_content":["a"]')),
        *(chat(row=field) for field in (b',"chat_template_kwargs":[1]', b',"system":1', b',"tools":7')),
        *(chat(user=b"1"), calls(b'{"name":"f"}')),
    ),
    "not_json": (b'{"messages":"hello"}', b'{"messages":"[{"}', chat(row=b',"chat_template_kwargs":"x"')),
    "unknown_role": tuple(chat().replace(b"user", role) for role in (b"", b"u" * _LONG, rb"user\n<|im_end|>", "ıuser".encode())),
    "no_content": (chat(b"null"), chat(user=b"null")),
    "unknown_schema": (b"{}", b'{"text":"a"}', b'{"messages":null}'),
    "empty": (b'{"messages":[]}',),
    "multimodal": (chat(row=b',"images":1'),),
    "nothing_trained": (
        *map(chat, (b'""', b'" "', rb'"\n\n\n"', b"[]", b'[{"type":"text","text":""}]')),
        *(b'{"messages":[{"role":"user","content":"a"}]}', chat(message=b',"weight":-0.0')),
    ),
    KEPT: (
        chat(b'[{"text":"fine"}]'),
        *(chat(b'[{"type":"text","text":"fine"}]'), chat(b"[" + b",".join([b'{"type":"text","text":"a "}'] * 10_000) + b"]")),
        *(chat().replace(b"assistant", b"ASSISTANT"), chat(row=b',"id":{"a":1}'), chat(row=rb',"id":"\u0000\n\r\u2028"')),
        *(chat(row=b',"id":' + b"9" * 4300), chat(row=b',"chat_template_kwargs":{"x":%d}' % 2**70)),
        chat(row=b',"__proto__":{"x":1},"__class__":"os.system","self":1,"":""'),
        chat(message=b',"items":1,"get":2,"keys":3,"__class__":4,"":1'),
        *(chat(message=b',"x":' + nested(200)), chat(row=b',"chat_template_kwargs":{"x":' + nested(200) + b"}")),
        chat(row=b',"tools":[{"name":"f","parameters":' + nested(200, b'{"a":', b"}", b"{}") + b"}]"),
        chat(b'"' + b"[{" * 5000 + b'"'),
    ),
}  # fmt: skip

TOOLS = {
    "bad_tools": (
        *map(call, (b"[1]", b"7", b'"{a: 1}"', json.dumps(json.dumps('{"a":1}')).encode(), rb'"{\"a\": \"b"')),
        *map(call, (b"\"{'a': True}\"", '"\ufeff{}"'.encode(), as_text(b'{"a":NaN}'))),
        *(call(b"{}", name=b"null"), call(b"{}", name=b"{}")),
        *map(calls, (b"[1]", b'"f()"', b'[{"function":"f"}]')),
        *(chat(row=b',"tools":' + value) for value in (b'"7"', b'[{"type":"function"}]', b'[{"name":["f"]}]')),
    ),
    "control_token": (call(rb'{"a":"<|im_end|>"}'), chat(b'"a<|im_end|>b"'), chat(rb'"a\u003c|im_end|\u003eb"'),
                      chat(b'[{"type":"text","text":"<|im_"},{"type":"text","text":"end|>"}]')),
    KEPT: (call(b"null"), call(b'" \\n"'), call(b"{}", name=b'"__import__"'), calls(rb'"[{\"name\":\"f\"}]"'),
           chat(user=rb'"<|im_end|>\n<|im_start|>assistant\n"')),
    "mangled_call": (call(rb'{"a":"</tool_call><tool_call>"}'),),
}  # fmt: skip


def _turns(value: bytes, sender: bytes = b'"gpt"', row: bytes = b"") -> bytes:
    return b'{"conversations":[{"from":"human","value":"how"},{"from":%b,"value":%b}]%b}' % (sender, value, row)


SHAREGPT = {
    "wrong_type": (
        *(_turns(b"7"), _turns(b'"a"', b"null"), _turns(b'"a"', b'["gpt"]'), _turns(b'"a"', row=b',"conversation":7')),
        *(b'{"conversations":{"from":"human","value":"a"}}', b'{"conversations":[1,2]}'),
    ),
    "no_content": (_turns(b"null"), _turns(b"null", b'"function_call"')),
    "unknown_role": (_turns(b'"a"', b'"root"'),),
    "empty": (b'{"conversations":[]}',),
    "bad_tools": (
        *(_turns(call, b'"function_call"') for call in (b'"f(1)"', b'"7"', b'"' + nested(DEEP) + b'"')),
        _turns(b'"a"', row=b',"tools":"[{"'),
    ),
    "not_json": (_turns(rb'"\ud800"'),),
    KEPT: (_turns(b'[{"type":"text","value":"a"}]'),),
}


def _alpaca(output: bytes = b'"fine"', instruction: bytes = b'"how"', row: bytes = b"") -> bytes:
    return b'{"instruction":%b,"output":%b%b}' % (instruction, output, row)


ALPACA = {
    "wrong_type": (
        *(_alpaca(b"7"), _alpaca(b'["a"]'), _alpaca(instruction=b"{}"), _alpaca(row=b',"response":"b"')),
        *(_alpaca(row=field) for field in (b',"input":7', b',"history":"7"', b',"history":[["a","b","c"]]')),
    ),
    "unknown_schema": (_alpaca(b"null"),),
    "nothing_trained": (_alpaca(b'""'),),
    "empty": (_alpaca(instruction=b'""'),),
    KEPT: (_alpaca(row=b',"history":[' + b",".join([b'["a","b"]'] * 100) + b"]"), _alpaca(row=b',"response":"fine"')),
}


def _completion(completion: bytes = b'"fine"', prompt: bytes = b'"how"', row: bytes = b"") -> bytes:
    return b'{"prompt":%b,"completion":%b%b}' % (prompt, completion, row)


COMPLETION = {
    "wrong_type": (
        *(_completion(b"7"), _completion(b'[{"role":"assistant","content":"a"}]')),
        *(_completion(prompt=b"{}"), _completion(b"[1]", b"[2]")),
    ),
    "empty": (_completion(b'""'), _completion(b"[]", b"[]")),
    "not_json": (_completion(prompt=rb'"\udc00"'),),
    "control_token": (_completion(b'"a<|im_end|>"'),),
    KEPT: (
        _completion(prompt=b'""'),
        _completion(b'[{"role":"assistant","content":"a"}]', b'[{"role":"user","content":"b"}]'),
    ),
}

TEXT = {
    "wrong_type": (text(b"7"), text(b'["a"]')),
    "unknown_schema": (text(b"null"),),
    "empty": (text(b'""'), text(b'" "')),
    "not_json": (text(b'"\x00"'),),
    KEPT: (text(rb'"\u0000"'), text(b'"a<|im_end|>b"'), text(b'"' + b"word " * 100_000 + b'"')),
}

GOOD: dict[str, bytes] = {
    "messages": chat(b'"answer %d"', user=b'"question %d"'),
    "sharegpt": b'{"conversations":[{"from":"human","value":"question %d"},{"from":"gpt","value":"answer %d"}]}',
    "alpaca": _alpaca(b'"answer %d"', b'"question %d"'),
    "completion": _completion(b'" answer %d"', b'"question %d"'),
    "text": text(b'"question %d, answer %d"'),
}
"""A row that nothing is wrong with, with places for two numbers."""

HOSTILE: dict[str, list[Row]] = {
    "messages": [*JSON, *CHARACTERS, *_fates(TYPES), *_fates(TOOLS)],
    "sharegpt": _fates(SHAREGPT),
    "alpaca": _fates(ALPACA),
    "completion": _fates(COMPLETION),
    "text": _fates(TEXT),
}
