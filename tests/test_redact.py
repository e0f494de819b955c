"""The redactor: what is hidden, what is left, and that hiding twice is hiding once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive import redact
from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.redact import HIDDEN, hide, is_secret_name

NAMES = (
    "key", "api_key", "apikey", "API_KEY", "aPi_KeY", "openaiApiKey", "x-api-key", "X.Auth", "auth",
    "Authorization", "authToken", "token", "hf_token", "tokens", "secret", "clientSecret", "secrets",
    "password", "db_passwd", "pwd", "passphrase", "cookie", "Set-Cookie", "sig", "signature",
    "X-Amz-Signature", "credential", "aws_credentials", "AWS_SECRET_ACCESS_KEY", "jwt", "sslkey", "no_such_token",
    "personal_token", "endpoint_token", "newToken", "input_token", "private_keys", "SAS_TOKEN",
)  # fmt: skip
PLAIN = (
    "tokenizer", "tokenizer_backend", "tokenized_requests", "max_tokens", "max_new_tokens", "author",
    "num_tokens", "add_bos_token", "eos_token_id", "pad_token", "think_end_token", "keep", "keyword",
    "design", "signal", "monkey", "num_key_value_heads", "KeyError", "pretrained", "base_url",
    "stop_token_ids", "maxTokens", "max_output_tokens", "assign", "passed", "keyboard",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets(name):
    assert is_secret_name(name)
    assert redact.redact({"a": [{name: "plum"}]}) == {"a": [{name: HIDDEN}]}
    for text in (
        f"m=1,{name}=plum,n=2", f'{{"{name}": "plum"}}', f"{{'{name}': 'plum'}}", f"{name}: plum",
        f'{{\\"{name}\\": \\"plum\\"}}', f"https://h.org/x?{name}=plum&b=1", f"{name} = plum",
    ):  # fmt: skip
        assert "plum" not in hide(text), text
        assert HIDDEN in hide(text)


@pytest.mark.parametrize("name", PLAIN)
def test_names_of_other_things(name):
    assert not is_secret_name(name)
    assert redact.redact({name: "plum"}) == {name: "plum"}
    assert hide(f"m=1,{name}=plum,n=2") == f"m=1,{name}=plum,n=2"


@pytest.mark.parametrize("value", [None, True, False, "", "none", "null"])
def test_what_is_no_value_is_left(value):
    assert redact.redact({"use_auth_token": value}) == {"use_auth_token": value}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Incorrect API key provided: sk-abc***xyz.", "Incorrect API key provided: [hidden]"),
        ("xai-abcdefgh123, gsk_abcdefgh", "[hidden], [hidden]"),
        ("ghp_abcdefghijkl github_pat_11ABCDEFG0", "[hidden] [hidden]"),
        ("AIzaSyA1234567890abcdefghijk", "[hidden]"),
        ("http://me:p@w:/d@host:80/v1", "http://[hidden]@host:80/v1"),
        ("http://token@host/v1", "http://[hidden]@host/v1"),
        ("me:pw@host.org/v1", "[hidden]@host.org/v1"),
        ("https://h/x?a=1&sig=A%2Fb%3D&se=2", "https://h/x?a=1&sig=[hidden]&se=2"),
        ("Authorization: Bearer a.b", "Authorization: [hidden]"),
        ("curl -H 'Authorization: Token abc'", "curl -H 'Authorization: [hidden]'"),
        ("Cookie: a=b; c=d", "Cookie: [hidden]"),
        ("sent Bearer abcdef", "sent Bearer [hidden]"),
        ("Basic dXNlcjpwdw==", "Basic [hidden]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----", "[hidden]"),
    ],
)
def test_forms_of_secrets(text, expected):
    assert hide(text) == expected
    assert hide(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "hf-internal-testing/tiny-random-gpt2", "org/sk-model", "KeyError: 'question'",
        "https://github.com/org/repo@main", "http://127.0.0.1:8000/v1@2", "records:rougeL@2",
        "a Basic understanding", "the token limit: 5", "unknown key(s) 'x'; known are name, cost",
        "task:t|version:1|metric:m|seed:1|lea:0.1", "score 5 of key figures", "2 of 3 tokens",
    ],
)  # fmt: skip
def test_what_is_near_a_secret_is_left(text):
    assert hide(text) == text


def test_by_value(monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plum tree")
    monkeypatch.setenv("MY_TOKEN_PATH", "/home/plum")
    monkeypatch.setenv("SHORT_KEY", "abc")
    monkeypatch.setenv("PWD", "/home/me")  # the working folder, in every shell
    monkeypatch.setenv("OLDPWD", "/home/old")
    assert hide("/home/me/x /home/old") == "/home/me/x /home/old"
    assert hide("said plum tree in /home/plum abc") == "said [hidden] in /home/plum abc"
    assert redact.redact({"x": ["plum tree", "abc"]}) == {"x": [HIDDEN, "abc"]}


def test_a_value_that_was_given_is_hidden_where_it_is_quoted_bare():
    redact.remember({"header": {"Authorization": "Bearer plumtree-fresh"}, "port": 8080})
    assert hide("no such user plumtree-fresh on 8080") == "no such user [hidden] on 8080"


@pytest.mark.parametrize("kind", [ModelError, UsageError])
def test_errors_say_no_secret_whoever_raises_them(kind):
    error = kind("server said api_key=plum is wrong")
    assert str(error) == "server said api_key=[hidden] is wrong"
    assert "plum" not in repr(error)


@given(st.text() | st.text(alphabet="ab=:,;'\"\\ &@/{}[]-_.kKeEyYtToOnNsSiIgG", max_size=60))
def test_hiding_twice_is_hiding_once_and_any_text_is_taken(text):
    once = hide(text)
    assert hide(once) == once
    assert redact.redact_words(redact.redact_words([text])) == redact.redact_words([text])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*NAMES[:4], *PLAIN[:4]]), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_redacted_settings_keep_their_shape_and_are_the_same_but_for_secrets(settings):
    kept = redact.redact(settings)
    assert redact.redact(kept) == kept
    assert shape(kept) == shape(settings)


def shape(value):
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(each) for each in value] if isinstance(value, list) else None


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ("a=[hidden]", "a=[hidden:X]", True), ("a=[hidden],b=1", "a=k,b=1", True),
        ("a=[hidden],b=1", "a=k,b=2", False), (HIDDEN, 5, True), (["x", HIDDEN], ["x", "k"], True),
        (["x"], ["y"], False), (1, 2, False), ("a", "b", False),
    ],
)  # fmt: skip
def test_same_but_for_secrets(then, now, same):
    assert redact.same_but_for_secrets(then, now) is same
