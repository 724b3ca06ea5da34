import pytest

pytest.importorskip("starlette", reason="the extra `review` is not installed")

from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from latentmill.stages.reviewing.guard import Guard

TOKEN, PORT = "0123abcd", 8765
OWN = f"http://127.0.0.1:{PORT}"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client():
    guard = Guard(PlainTextResponse("inside"), TOKEN, PORT)
    return TestClient(guard, base_url=OWN)


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}"])
def test_this_machine_with_the_token_is_let_in(client, host):
    answer = client.get(f"/{TOKEN}/", headers={"Host": host})
    assert (answer.status_code, answer.text) == (200, "inside")


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.x:{PORT}", ""],
)
def test_another_name_for_this_machine_is_refused(client, host):
    assert client.get(f"/{TOKEN}/", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/", "/rows", "/wrong/", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/", f"//{TOKEN}/", "/0123abc%C3%A9/"],
)
def test_without_the_token_nothing_is_answered(client, path):
    answer = client.get(path)
    assert answer.status_code == 403
    assert "inside" not in answer.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_that_another_page_makes_is_refused(client, site):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert client.get(f"/{TOKEN}/", headers=headers).status_code == 403


def test_the_page_may_be_opened_from_another_program(client):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get(f"/{TOKEN}/", headers=headers).status_code == 200


def test_a_change_of_the_page_itself_is_let_in(client):
    headers = {**JSON, "Origin": OWN, "Sec-Fetch-Site": "same-origin"}
    assert client.post(f"/{TOKEN}/change", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {**JSON, "Origin": "https://evil.example"},
        {**JSON, "Origin": "null"},
        {**JSON, "Origin": "http://127.0.0.1:1"},
        {**JSON, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {**JSON, "Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain", "Origin": OWN},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {},
    ],
)
def test_a_change_that_another_page_sends_is_refused(client, headers):
    assert client.post(f"/{TOKEN}/change", headers=headers).status_code == 403


@pytest.mark.parametrize("path", [f"/{TOKEN}/", "/wrong/"])
def test_every_answer_forbids_scripts_and_pictures_of_others(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"].split("; ")
    assert policy[:2] == ["default-src 'none'", "script-src 'self'"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
