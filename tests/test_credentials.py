"""Credentials of addresses: masked in any text, refused in any name; and other texts are as they were."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.display import masked, scheme_with_credentials
from packer.errors import StorageError

FORMS = [
    "s3://AKIAX:{}@bucket/folder/x.jsonl", "s3:/AKIAX:{}@bucket/x", "gs://u:{}@b", "az://a:{}@c/x", "abfss://c:{}@acc.dfs.core.windows.net/x",
    "https://user:{}@host:80/x", "HTTPS://user:{}@host/a@b", "https://{}@host/x", "http://u:{}@[::1]:9000/", "ray://u:{}@h:10001",
    "https://host/x?X-Amz-Signature={}&part=2", "https://host/x?part=2&X-Amz-Credential={}", "https://h/x?AWSAccessKeyId=A&Signature={}",
    "az://c/x?sv=2024&sig={}", "hf://datasets/a/b?token={}", "hf://datasets/a/b?access_token={}", "hf://u:{}@datasets/a/b", "https://h/?api_key={}",
]  # fmt: skip
SECRETS = st.text(string.ascii_letters + string.digits + "/+=-_.~%!$*", min_size=6, max_size=40).map(
    lambda text: f"S{text}"
)
OTHERS = [
    "hf://datasets/a/b@main/x.jsonl", "hf://gpt2@refs%2Fpr%2F1", "abfss://container@account.dfs.core.windows.net/x", "http://localhost:9000/b/a@b.jsonl",
    "s3://bucket/a:b@c/x.jsonl", "s3://bucket/what?version=3", "gs://b/**/*.jsonl", "ray://host:10001", "user@host", "a: b@c", "hf_hub_cache",
    "{'a': 's3://b', 'c': 'd@e'}", "https?://[^/]+:[^@]+@",
]  # fmt: skip


@given(secret=SECRETS, form=st.sampled_from(FORMS), before=st.sampled_from(["", "cannot read '", '["', "(", "a@b: "]))
def test_no_secret_of_an_address_is_left_in_a_text(secret, form, before):
    if "?" in form:
        secret = secret.replace("=", "")
    if ":{}@" not in form:
        secret = secret.replace("/", "")  # ends a host
    address = form.format(secret)
    shown = masked(f"{before}{address}' is not there, https://other/y")
    assert secret not in shown and shown.endswith(" is not there, https://other/y") and shown.startswith(before)
    assert masked(shown) == shown
    scheme = form.partition(":")[0].lower()
    for text in ("{}", " {}", "sources.path={}", "--{}"):
        assert scheme_with_credentials(text.format(address)) == scheme


def test_a_token_of_the_hub_is_masked_wherever_it_is():
    token = "hf_" + "aB3" * 11
    assert masked(f"401 for {token}: x") == "401 for hf_***: x"
    assert scheme_with_credentials(f"hf://datasets/{token}/x") and not scheme_with_credentials(f"data/{token}.jsonl")


@pytest.mark.parametrize("text", OTHERS)
def test_what_holds_no_credentials_is_left_as_it_is(text):
    assert masked(text) == text and not scheme_with_credentials(text)
    assert masked(f"'{text}' is not there") == f"'{text}' is not there"


def test_no_error_holds_them():
    error = StorageError("cannot read s3://A:secret@b/x", hint="see https://h/?sig=secret")
    assert "secret" not in f"{error}{error.message}{error.hint}{error.args}"
    assert str(error).endswith("\nhint: see https://h/?sig=***")
