"""What is hidden, what stays, and that it stays so. F5."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.masking import Mask, mask, names_secret
from tests.masking.pieces import HOSTILE

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nabc+/=\n-----END RSA PRIVATE KEY-----"

HIDDEN = [
    ("write to alice.b+x@mail.example.com, please", "write to [email], please"),
    ("电话13812345678。", "电话[phone]。"),
    ("138 1234 5678 or 138-1234-5678 or +86 138 1234 5678", "[phone] or [phone] or [phone]"),
    ("+44 20 7946 0958; +1 (555) 123-4567", "[phone]; [phone]"),
    ("card 4111 1111 1111 1111, 378282246310005 and 6222021234567890128", "card [card], [card] and [card]"),
    ("3782 822463 10005", "[card]"),
    ("身份证11010519491231002X,", "身份证[id number],"),
    ("sk-proj-abcdefghijklmnop1234", "[key]"),
    ("key=sk-ant-api03-abcdefghijklmnop1234!", "key=[key]!"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuvw", "[key]"),
    ("AKIAIOSFODNN7EXAMPLE", "[key]"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[key]"),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnop", "[key]"),
    ("glpat-abcdefghijklmnopqrst", "[key]"),
    ("xoxb-123456789012-abcdefghijkl", "[key]"),
    ("sk_live_abcdefghijklmnop", "[key]"),
    ("hf_abcdefghijklmnopqrstuvwxyz", "[key]"),
    ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "[key]"),
    (f"token is {JWT}.", "token is [token]."),
    ("sent Bearer abcdefgh12345678 there", "sent Bearer [token] there"),
    (f"a\n{PEM}\nb", "a\n[private key]\nb"),
    (f"{PEM[:50]}", "[private key]"),
    ("postgres://bob:hunter2@db.example.com/x", "postgres://[secret]@db.example.com/x"),
    ("password=hunter2&x=1", "password=[secret]&x=1"),
    ("DB_PASSWORD: hunter2", "DB_PASSWORD: [secret]"),
    ("Authorization: Basic dXNlcjpwYXNz\nHost: x", "Authorization: [secret]\nHost: x"),
    ("Set-Cookie: sid=1; Path=/\nHost: x", "Set-Cookie: [secret]\nHost: x"),
    ("curl --token abc -H 'X-Api-Key: q1' u", "curl --token [secret] -H 'X-Api-Key: [secret]' u"),
    ('said {"apiKey": "a\\"b", "n": 1} and', 'said {"apiKey": "[secret]", "n": 1} and'),
    ("client_secret = 'two words'", "client_secret = '[secret]'"),
    ('{"password": "hunter2", "n": 1}', '{"password":"[secret]","n":1}'),
    ('{"a": [{"refreshToken": 17}]}', '{"a":[{"refreshToken":"[secret]"}]}'),
    ('{"credentials": {"user": "bob"}}', '{"credentials":"[secret]"}'),
    ('{"card": 4111111111111111}', '{"card":"[card]"}'),
    ('{"name": "Cookie", "value": "a=b"}', '{"name":"Cookie","value":"[secret]"}'),
    ('{"m": "a\\u0040b.example.com"}', '{"m":"[email]"}'),
    ('{"u": "https:\\/\\/a:b@c.example\\/"}', '{"u":"https://[secret]@c.example/"}'),
    (
        json.dumps({"body": json.dumps({"password": 'a"b', "to": "a@b.co"})}),
        '{"body":"{\\"password\\":\\"[secret]\\",\\"to\\":\\"[email]\\"}"}',
    ),
]

STAYS = [
    "2026-11-30T01:42:11.123456Z 1732929342123 1732929342123456 0.4111111111111111 1e400 -13812345678",
    "550e8400-e29b-41d4-a716-446655440000 20261129-224512-k3f9wq/t1.1",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709 17179869184000",
    "max_tokens: 100, token_count=5, tokens=9, next_page_token: abc, key: value, author: me",
    '{"max_tokens": 5, "usage": {"input_tokens": 10}, "token_type": "x", "bytes": 17179869184, "password": null}',
    "4111 1111 1111 1112 and 11010519491231002 and 110105194912310021",
    "a risk-assessment-for-the-quarter, a task-list-with-many-entries",
    "git@github.com:owner/repo.git, @decorator, a @ b, price@3.50",
    "The secret is out; the password is long. Bearer of responsibilities.",
    "password: ${DB_PASSWORD} token: str, secret: None",
    "export OPENAI_API_KEY=… and TOKEN=... in the shell",
    '{"nan": NaN, "deep": [[[[1]]]]}',
    "",
]


@pytest.mark.requirement("F5")
@pytest.mark.parametrize(("text", "masked"), HIDDEN)
def test_what_is_hidden_says_what_it_was(text: str, masked: str) -> None:
    assert mask(text) == masked
    assert mask(masked) == masked


@pytest.mark.requirement("F5")
@pytest.mark.parametrize("text", STAYS)
def test_ordinary_text_stays(text: str) -> None:
    assert mask(text) == text


@pytest.mark.requirement("F5")
@pytest.mark.parametrize(
    "name",
    [
        "password",
        "passwd",
        "DB_PASSWORD",
        "userPassword",
        "api_key",
        "apiKey",
        "X-API-Key",
        "APIKEY",
        "secret",
        "clientSecret",
        "AWS_SECRET_ACCESS_KEY",
        "token",
        "accessToken",
        "github-token",
        "Authorization",
        "proxy-authorization",
        "Cookie",
        "set-cookie",
        "private_key",
        "privateKey",
        "passphrase",
        "token_2",
        "password_confirmation",
        "storageAccountKey",
        "idToken",
        "refresh_tokens",
    ],
)
def test_names_of_secrets_in_every_style(name: str) -> None:
    assert names_secret(name)


@pytest.mark.requirement("F5")
@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "maxTokens",
        "token_count",
        "tokens",
        "total_tokens",
        "input_tokens",
        "tokenizer",
        "token_type",
        "key",
        "keys",
        "keyword",
        "public_key",
        "password_policy",
        "secretary",
        "author",
        "cookie_policy",
        "page_token",
        "api_key_env",
        "secret_name",
        "monkey",
        "compass",
    ],
)
def test_names_of_ordinary_things(name: str) -> None:
    assert not names_secret(name)


@pytest.mark.requirement("F5")
def test_more_is_hidden_by_patterns_names_and_known_secrets() -> None:
    own = Mask([r"EMP-\d+"], ["patientName", "ssn"], ['pa"ss word', "short"])
    assert own("EMP-12 short pa%22ss%20word") == "[masked] short [secret]"
    assert own('{"a": "pa\\"ss word", "patient_name": "x", "SSN": 1}') == (
        '{"a":"[secret]","patient_name":"[secret]","SSN":"[secret]"}'
    )
    assert own("patientName=Bob; b-ssn: 12") == "patientName=[secret]; b-ssn: [secret]"
    assert mask("EMP-12 ssn=1") == "EMP-12 ssn=1"
    own.extend(secrets=['pa"ss word and more'])
    assert own('pa"ss word and more') == "[secret]", "the longest known secret goes first"


@pytest.mark.requirement("F5")
def test_whoever_approves_sees_people_but_no_secrets() -> None:
    assert mask('{"to": "a@b.co", "card": 4111111111111111, "api_key": "x"}', personal=False) == (
        '{"to":"a@b.co","card":4111111111111111,"api_key":"[secret]"}'
    )


PIECES = st.sampled_from(
    [
        *(text for text, _ in HIDDEN),
        *STAYS,
        "\\",
        '"',
        "'",
        "{",
        "}",
        "[",
        "]",
        ":",
        "=",
        " ",
        "\n",
        "@",
        "+",
        "-----",
        "password",
        "token",
        "sk-",
        "eyJ",
        "1381234",
        "5678",
        "-----BEGIN PRIVATE KEY",
        "é",
        "中",
        "\ud800",
        "://",
        "İ",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=8).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.just("password"), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.requirement("F5")
@given(TEXTS)
def test_any_text_can_be_masked_and_twice_is_once(text: str) -> None:
    once = mask(text)
    assert mask(once) == once


@pytest.mark.requirement("F5")
@given(VALUES, st.booleans(), st.sampled_from([None, (",", ":")]))
def test_json_stays_json_and_so_does_json_inside_it(
    value: Any, ascii: bool, separators: tuple[str, str] | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii, separators=separators)
    masked = json.loads(mask(text)) if text[0] in '{["' else None
    assert mask(mask(text)) == mask(text)
    if text[0] == "{":
        outer = json.loads(mask(json.dumps({"body": text, "to": "a@b.co"})))
        assert outer["to"] == "[email]"
        assert json.loads(outer["body"]) == masked


@pytest.mark.requirement("F5")
@pytest.mark.parametrize("depth", [50, 100_000])
def test_deep_json_is_masked_or_left_out(depth: int) -> None:
    masked = mask("[" * depth + '"a@b.co"' + "]" * depth)
    assert "a@b.co" not in masked
    assert json.loads(masked)


@pytest.mark.requirement("F5")
@pytest.mark.parametrize("piece", HOSTILE)
def test_long_text_of_one_piece_is_masked_and_twice_is_once(piece: str) -> None:
    """What takes exponential time would not end here; `bench/masking.py` shows that the time is linear."""
    once = mask((piece * (20_000 // len(piece) + 1))[:20_000] + "\n")
    assert mask(once) == once
