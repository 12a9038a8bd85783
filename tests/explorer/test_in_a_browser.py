"""A person's whole path in a real browser; every page without complaint and fit for everybody."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn

from ffmem.annotations.sheets import draw_sheets
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.report.report_writer import write_report
from ffmem.store.scan_store import ScanStore
from ffmem.studies.study import open_study
from tests.waiting import LONGEST, wait_until

TEXT = "the river and the stone"
PROMPT = f"/prompt?{urlencode({'text': TEXT, 'write': 4, 'edit': 'L2.7=0'})}"


@pytest.fixture(scope="module")
def opened(
    study: ScanStore, gated_study: ScanStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StudyContext]:
    """A study with its report, another beside it, and sheets that two people have begun."""
    database = str(tmp_path_factory.mktemp("notes") / "notes.sqlite")
    write_report(open_study(study.folder.root))
    found = open_context(study.folder.root, others=[gated_study.folder.root])
    found = replace(found, database=database)
    sheets = draw_sheets(study, keys=2)
    found.annotations.add_sheets(sheets)
    for sheet in sheets[:6]:
        found.annotations.answer(sheet, "ana", [])
        found.annotations.answer(sheet, "ben", [])
    yield found
    found.annotations.close()


@pytest.fixture(scope="module")
def address(opened: StudyContext) -> Iterator[str]:
    """A real server on a port of its own, in a thread."""
    config = uvicorn.Config(create_app(opened), port=0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server")
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def page_of(context: Any) -> tuple[Any, list[str]]:
    """A new page, and what it complains of; `/favicon` is the browser's own idea."""
    page, complaints = context.new_page(), []
    page.set_default_timeout(1000 * LONGEST)
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return page, complaints


def test_a_persons_whole_path(browser: Any, address: str, opened: StudyContext) -> None:
    """Find a memory by token, read it, annotate it, debug a prompt, silence it, share the link."""
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page, complaints = page_of(context)

    token = opened.lookup.value_tokens(opened.lookup.store.cells.address(100), count=1)[0].text
    page.goto(address)
    page.get_by_label("Find a memory by its address").fill(token)
    page.get_by_role("button", name="Find").click()
    first = page.locator(".hits tbody th a").first
    memory = first.inner_text()
    first.click()
    page.locator("h1", has_text=re.compile(f"^{re.escape(memory)}$")).wait_for()
    page.locator("#triggers li").nth(2).wait_for()

    page.get_by_role("link", name="Annotate", exact=True).nth(1).click()
    page.get_by_label("Your name").fill("mara")
    page.get_by_role("button", name="Begin").click()
    page.get_by_label("Description").fill("ends with a letter")
    page.get_by_label("shallow").check()
    ticks = page.locator("#prefixes input")
    for place in (0, 1):
        ticks.nth(place).check()
    page.locator("#said", has_text="needs 3 prefixes").wait_for()
    ticks.nth(2).check()
    page.locator("#said.good").wait_for()
    (saying,) = opened.annotations.answers(key=memory)
    assert (saying.annotator, saying.said[0].ranks) == ("mara", (1, 2, 3))
    page.reload()
    assert page.get_by_label("Description").input_value() == "ends with a letter"
    page.get_by_role("link", name=f"Back to {memory}").click()
    page.get_by_role("button", name="ends with a letter").wait_for()

    page.get_by_role("link", name="Prompt").click()
    page.get_by_label("Text").fill(TEXT)
    page.get_by_role("button", name="Read").click()
    page.locator("#layers tbody tr").first.wait_for()
    page.get_by_role("button", name="position 9: r").click()
    page.locator("#tokens [aria-pressed=true]", has_text="r").wait_for()
    assert "they differ by" in page.locator("#sum").inner_text()
    page.get_by_label("Memory", exact=True).fill(memory)
    page.get_by_role("button", name="Change", exact=True).click()
    page.locator("#changes li", has_text=f"{memory} silenced").wait_for()
    page.locator("#memories button", has_text="Silence").first.click()
    page.locator("#changes li").nth(1).wait_for()
    page.get_by_role("heading", name="changed").wait_for()

    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("The link is copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    other, more = page_of(browser.new_context())
    other.goto(link)
    other.locator("#changes li").nth(1).wait_for()
    for part in ("#chances", "#memories", "#layers", "#sum", "#written"):
        assert other.locator(part).inner_text() == page.locator(part).inner_text()
    assert complaints + more == []
    other.context.close()
    context.close()


def test_a_failed_save_says_so_and_keeps_what_was_written(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, _ = page_of(context)
    page.goto(f"{address}/annotate/memory/L2.7?annotator=zoe")
    page.get_by_label("Nothing repeats").wait_for()
    page.route("**/answer", lambda route: route.abort())
    page.get_by_label("Description").fill("kept here")
    page.get_by_label("semantic").check()
    for place in range(3):
        page.locator("#prefixes input").nth(place).check()
    page.locator("#said.wrong", has_text="Not saved").wait_for()
    page.unroute("**/answer")
    page.reload()
    page.locator("#said.good").wait_for()  # the draft came back, and could be saved
    assert page.get_by_label("Description").input_value() == "kept here"
    context.close()


PAGES = {
    "/": "main",
    "/search?by=any&sort=fires": ".hits tbody",
    "/search?by=meaning&q=river&fires_from=1": ".hits tbody",
    "/memory/L2.7": "#triggers",
    "/prompt": "#examples",
    PROMPT: "#layers tbody tr",
    "/annotate": "#who",
    "/annotate?annotator=ana": ".grid",
    "/annotate/memory/L2.7?annotator=ana": ".patternbox",
    "/annotate/agreement": "table",
    "/compare": ".claims",
    "/compare/memories": "h1",
    "/figure/values-agreement": ".living svg",
    "/report": ".controls",
    "/api": ".route",
}


def test_memories_of_a_served_report_lead_to_their_pages(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    page.goto(address)
    page.get_by_role("link", name="Read the report").click()
    first = page.locator("a:has(code.address)").first
    memory = first.inner_text()
    first.click()
    page.locator("h1", has_text=re.compile(f"^{re.escape(memory)}$")).wait_for()
    assert complaints == []
    context.close()


def test_stripes_say_their_numbers_and_lead_on_by_keyboard(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    page.goto(address)
    stripes = page.locator(".stripes").first
    stripes.hover()
    page.locator(
        "#stripe", has_text=re.compile(r"L3\.\d+ fires on [\d.e-]+ % of the prefixes")
    ).wait_for()
    stripes.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    words = page.locator("#stripe").inner_text()
    assert stripes.get_attribute("aria-valuenow") == "1"
    assert stripes.get_attribute("aria-valuetext") in words
    page.keyboard.press("Enter")
    page.locator("h1", has_text=re.compile(rf"^{re.escape(words.split()[0])}$")).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("l2.7")
    page.keyboard.press("Enter")
    page.locator("h1", has_text=re.compile(r"^L2\.7$")).wait_for()
    assert complaints == []
    context.close()


def test_a_search_is_narrowed_and_shows_why(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    page.goto(f"{address}/search")
    page.get_by_label("Memory that").select_option("words")
    page.get_by_label("Text").fill("river")
    page.get_by_role("button", name="Search").click()
    page.locator(".why mark", has_text="river").first.wait_for()
    every = page.locator(".count").inner_text()
    page.get_by_text("Filters").click()
    page.get_by_label("Layer", exact=True).fill("2")
    page.get_by_role("button", name="Search").click()
    page.locator(".count", has_text="in layer 2").wait_for()
    assert page.locator(".count").inner_text() != every
    page.get_by_role("link", name="a meaning").click()
    page.locator(".why mark").first.wait_for()
    assert "same company" in page.inner_text("main")
    assert complaints == []
    context.close()


def test_figures_are_alive_at_once(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    page.goto(address)
    page.locator(".figures figcaption a").first.click()
    page.locator(".living svg").first.wait_for()
    page.get_by_role("heading", name="How to read it").wait_for()
    page.goto(f"{address}/compare")
    page.locator(".living").first.scroll_into_view_if_needed()
    page.locator(".living svg").first.wait_for()
    assert complaints == []
    context.close()


def test_a_prompt_from_an_example_with_a_set_at_a_position(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    page.goto(f"{address}/prompt")
    page.locator("#examples a").first.click()
    page.locator("#changes li").first.wait_for()
    page.locator("#limits", has_text="the model’s context").wait_for()
    page.get_by_label("Memory", exact=True).fill("L1.3, l1.4\n2.5 # a comment")
    page.get_by_label("At positions").fill("2, 1")
    page.get_by_role("button", name="Change", exact=True).click()
    page.locator("#changes li", has_text="L2.5 silenced at 1-2").wait_for()
    assert page.locator("#changes li").count() == 4
    page.get_by_role("button", name="undo L1.4=0@1-2").click()
    page.locator("#changes li").nth(3).wait_for(state="detached")
    page.get_by_label("Text").fill("abc \u202e def")
    page.get_by_role("button", name="Read").click()
    page.locator("#written bdi.new").first.wait_for()
    assert page.locator("#tokens bdi").count() > 3
    assert complaints == []
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_page_is_fit_for_everybody(
    browser: Any, address: str, opened: StudyContext, scheme: str, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page, complaints = page_of(context)
    axe, serious = Axe(), []
    blind = f"/annotate/{draw_sheets(opened.store, keys=2)[-1].name}?annotator=ana"
    for path, ready in (PAGES | {blind: ".patternbox"}).items():
        page.goto(address + path)
        page.locator(ready).first.wait_for()
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        serious += [
            (path, each["id"], each["nodes"][0]["html"])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        sideways = page.evaluate("document.documentElement.scrollWidth")
        assert sideways <= width, f"{path} scrolls sideways"
    assert serious == []
    assert complaints == []
    context.close()
