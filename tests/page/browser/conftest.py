"""A real page in Debian's chromium. Run by `make test-page`; `make test` leaves this folder out."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

from dasp.page.demo import Demo
from dasp.page.server import Page
from dasp.page.streams import BATCH, BuiltInStream

SCREENSHOTS = Path(__file__).parents[3] / "out" / "screenshots"
PATIENCE = 240_000  # milliseconds: a shared machine may be slow, and nothing here is timed


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium")
    assert path is not None, "chromium is not installed: apt-get install chromium"
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def demo():
    """The page of `dasp demo` with a shorter story; one for all tests of a file."""
    stream = BuiltInStream(pool=4 * BATCH, per_domain=4)
    stream.story = [replace(scene, batches=3) for scene in stream.story]
    page = Page(Demo(stream=stream), port=0)
    yield page
    page.close()


@pytest.fixture
def visit(chromium, demo):
    """Open the page in a tab of its own; every tab is watched for errors and for leaks."""
    contexts, wrong = [], []

    def open_tab(url=demo.url, **options):
        context = chromium.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE)
        tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        tab.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        tab.on("request", lambda asked: _leak(asked.url, wrong))
        tab.on("websocket", lambda line: _leak(line.url, wrong))
        tab.expected = wrong.clear  # for tests that break something on purpose
        tab.goto(url)
        tab.until = lambda script: _until(tab, script)
        tab.until("document.body.dataset.line === 'live'")
        tab.until("document.body.dataset.mode !== undefined")  # the first message is in
        return tab

    yield open_tab
    for context in contexts:
        context.close()
    assert wrong == []


def _until(tab, script):
    """Wait until a script says true; Playwright's own way needs eval, which the page forbids."""
    end = time.monotonic() + PATIENCE / 1000
    while not tab.evaluate(script):
        assert time.monotonic() < end, f"it never came: {script}"
        tab.wait_for_timeout(50)


def _leak(url, wrong):
    parts = urlsplit(url)
    if parts.scheme != "data" and parts.hostname != "127.0.0.1":
        wrong.append(f"left this computer: {url}")


@pytest.fixture
def photograph():
    def take(tab, name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    return take
