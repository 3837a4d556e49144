import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from dasp.page.access import Access, is_loopback, new_token


def asked(kind="http", query="", **headers):
    raw = [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items()]
    return HTTPConnection({"type": kind, "headers": raw, "query_string": query.encode()})


@pytest.mark.parametrize("host", ["127.0.0.1:8710", "localhost:1", "[::1]:8710", "LOCALHOST"])
def test_loopback_names_are_let_in(host):
    assert Access().refusal(asked(host=host)) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example:8710", "127.0.0.1.evil.example", "192.168.1.2", "", "localhost.evil", "["],
)
def test_a_foreign_name_for_this_computer_is_refused(host):
    assert "this computer only" in Access().refusal(asked(host=host))


@pytest.mark.parametrize("token", [None, "t"])
def test_a_websocket_of_another_site_is_refused(token):
    access = Access(token)
    own = {"host": "127.0.0.1:8710", "cookie": "dasp_token=t"}
    assert access.refusal(asked("websocket", origin="http://127.0.0.1:8710", **own)) is None
    assert access.refusal(asked("websocket", **own)) is None  # no browser
    for origin in ("http://evil.example", "http://127.0.0.1:9999", "null", "http://["):
        assert "page itself" in access.refusal(asked("websocket", origin=origin, **own))


@given(given=st.text(st.characters(codec="ascii", exclude_characters="&#+%;\x00"), max_size=40))
def test_only_the_token_itself_opens(given):
    access = Access(new_token())
    refused = access.refusal(asked(host="10.0.0.1", query=f"token={given}"))
    assert "has a token" in refused
    assert access.refusal(asked(host="10.0.0.1", query=f"token={access.token}")) is None
    assert access.refusal(asked(host="x", cookie=f"dasp_token={access.token}")) is None
    assert access.refusal(asked(host="x", cookie=f"dasp_token={access.token}x")) is not None


def test_tokens_are_long_and_never_the_same():
    assert new_token() != new_token()
    assert len(new_token()) >= 32


def test_what_is_no_address_is_no_loopback():
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("")
