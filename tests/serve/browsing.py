"""Helpers for tests of the page in a real browser: click, type, save, and check that the console is empty."""

import json

from tests.page.browser import Browser
from tests.serve.server import Address

LOADING = 180.0  # seconds for models to be loaded and compiled, on a busy machine

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def assert_clean(browser: Browser, server: Address) -> None:
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith((server.url, "blob:", "data:"))] == []
    assert browser.evaluate("window.hacked") is None


def click(browser: Browser, selector: str) -> None:
    event = "new MouseEvent('click', {bubbles: true})"
    browser.evaluate(f"document.querySelector({json.dumps(selector)}).dispatchEvent({event})")


def put(selector: str, value: object) -> str:
    """Enter a value into a field, as a user would."""
    field = f"document.querySelector({json.dumps(selector)})"
    return f"{{ {field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('input')) }}"


def press(module: int) -> str:
    """Press Enter on a module of the graph."""
    event = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
    return f"document.querySelector('[data-module=\"{module}\"]').dispatchEvent({event})"


def saved(browser: Browser, plot: str) -> list[str]:
    """The files that the buttons below a plot save: the picture and the data."""
    script = """(() => {
        const kept = [], make = URL.createObjectURL;
        URL.createObjectURL = (blob) => { kept.push(blob.text()); return make(blob); };
        document.querySelectorAll('#PLOT .saves button').forEach((button) => button.click());
        return new Promise((done) => setTimeout(() => { URL.createObjectURL = make; done(Promise.all(kept)); }, 500));
    })()"""
    return sorted(browser.evaluate(script.replace("PLOT", plot)))  # "<" comes before letters
