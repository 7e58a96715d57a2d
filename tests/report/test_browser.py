"""The page in a real Chromium: nothing of the rows runs, every view opens, and it is accessible in every form.

Needs Chromium and the package `playwright` (`apt-get install chromium`, `pip install playwright`); the checks of
accessibility also need axe-core (`npm install axe-core`), its `axe.min.js` named by PACKER_AXE. None is needed to
develop packer: without them these tests are skipped.
"""

import os
import shutil
from pathlib import Path

import pytest

from packer.report import report

AXE = os.environ.get("PACKER_AXE")
FORMS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 780}, "has_touch": True},
}


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("PLAYWRIGHT MISSING: pip install playwright to run this test")
    if path is None:
        pytest.skip("CHROMIUM MISSING: apt-get install chromium to run this test")
    options = ["--disable-gpu", "--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=options)
        yield found
        found.close()


@pytest.fixture(scope="module")
def page_file(hostile_cache, tmp_path_factory):
    return report(hostile_cache, tmp_path_factory.mktemp("page") / "page.html").path


@pytest.fixture
def opened(browser):
    """Opens a page; at the end its console must be empty, and nothing of the rows may have run."""
    contexts, said = [], []

    def open_page(address, **options):
        contexts.append(browser.new_context(**{**FORMS["light"], **options}))
        contexts[-1].set_default_timeout(5000)
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address if isinstance(address, str) else address.as_uri())
        if options.get("java_script_enabled", True) and page.locator("#about").count():
            page.locator("#about strong").wait_for()
        return page

    yield open_page
    ran = [page.evaluate("window.ran") for context in contexts for page in context.pages]
    for context in contexts:
        context.close()
    assert (said, set(ran)) == ([], {None})


@pytest.mark.parametrize("form", FORMS)
def test_every_view_opens_in_every_form_and_fits(form, page_file, opened):
    page = opened(page_file, **FORMS[form])
    for section in ("overview", "shape", "left-out", "blocks", "tokens"):
        page.locator(f"nav a[href='#{section}']").click()
        assert page.locator(f"#{section}").bounding_box()["height"] > 50
    for details in page.locator("details").all():
        details.evaluate("element => { element.open = true }")
    keys = page.locator("#pick option").evaluate_all("options => options.map(option => option.value)")
    assert len(keys) > 3
    for key in keys:
        page.locator("#pick").select_option(key)
        page.locator("#about strong").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    _check_accessibility(page)


def test_a_row_is_read_and_found_by_keyboard_search_and_link(page_file, opened):
    page = opened(page_file)
    text, details = page.locator("#text"), page.locator("#details")
    page.keyboard.press("n")  # wherever the focus is
    page.locator("#text .current.trained").wait_for()
    first = page.url
    page.keyboard.press("n")
    page.wait_for_function("before => location.href !== before", arg=first)
    page.locator("#text .current.trained").wait_for()
    page.keyboard.press("p")
    page.wait_for_function("before => location.href === before", arg=first)
    text.focus()
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert details.locator("dd").nth(6 - 1).inner_text() == "2"
    page.keyboard.press("n")
    page.locator("#text .current.trained").wait_for()
    label = details.locator("dt:text-is('label') + dd").inner_text()
    assert label == details.locator("dt:text-is('id') + dd").inner_text() != "-100"
    page.keyboard.press("/")
    page.keyboard.type("<SCRIPT>window")
    page.keyboard.press("Enter")
    page.locator("#hits li").first.wait_for()
    assert "<script>window" in page.locator("#hits mark").first.inner_text()
    page.locator("#hits button").last.click()
    page.locator("#text .current.hit").wait_for()
    assert "<" in details.locator("dt:text-is('text') + dd").inner_text()
    address = page.url
    assert "&token=" in address
    again = opened(address)
    again.locator("#text .current").wait_for()
    assert again.locator("#about").inner_text() == page.locator("#about").inner_text()
    page.locator("#theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_signs_that_are_not_seen_are_written_out(page_file, opened):
    page = opened(page_file)
    page.locator("#query").fill("txet")
    page.locator("#search button").click()
    page.locator("#hits button").first.click()
    page.locator("#text .unseen").first.wait_for()
    shown = page.locator("#text").inner_text()
    for sign in ("U+202E", "U+2066", "U+200B", "U+E0041", "U+0007"):
        assert sign in shown


def test_without_javascript_all_but_the_tokens_is_there(page_file, opened):
    page = opened(page_file, java_script_enabled=False)
    for selector in ("figure svg[role=img] rect", "#left-out details", "noscript"):
        assert page.locator(selector).count(), selector
    assert not page.locator("#viewer").is_visible()


def test_the_policy_stops_what_escaping_might_let_through(page_file, browser, tmp_path):
    planted = b"<main><script>window.ran=1</script><img src=x onerror=window.ran=2><svg onload=window.ran=3></svg>"
    content = page_file.read_bytes().replace(b"<main", planted + b"<main", 1)
    (tmp_path / "with.html").write_bytes(content)
    (tmp_path / "without.html").write_bytes(content.replace(b"Content-Security-Policy", b"x", 1))
    context = browser.new_context()
    ran = []
    for name in ("with.html", "without.html"):
        page = context.new_page()
        page.goto((tmp_path / name).as_uri())
        ran.append(page.evaluate("window.ran"))
    context.close()
    assert ran[0] is None and ran[1] is not None


def _check_accessibility(page):
    if AXE is None:
        return
    page.evaluate(Path(AXE).read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations', 'incomplete']})")
    # Behind text in SVG and in what scrolls axe cannot see; the palette is checked by itself, in test_report.py.
    told = [
        (entry["id"], node["html"][:200], node.get("failureSummary", ""))
        for kind in ("violations", "incomplete")
        for entry in found[kind]
        for node in entry["nodes"]
        if (kind, entry["id"]) != ("incomplete", "color-contrast")
    ]
    assert told == []
