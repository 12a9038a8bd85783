"""A person's whole path in a real browser; every page without complaint and fit for everybody."""

from __future__ import annotations

import base64
import csv
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import uvicorn

from ffmem.analyses.study import open_study
from ffmem.annotations.sheets import draw_sheets
from ffmem.explorer.app import create_app
from ffmem.explorer.context import StudyContext, open_context
from ffmem.report.build import write_report
from ffmem.store.scan_store import ScanStore
from ffmem.text import visible_token
from tests.waiting import LONGEST, wait_until

TEXT = "the river and the stone"
MEMORY = "/memory/L2.7?triggers=4"  # a line more says nothing new, and takes long to check
PROMPT = f"/prompt?{urlencode({'text': TEXT, 'write': 4, 'edit': 'L2.7=0', 'effects': 'true'})}"


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


@contextmanager
def serving(context: StudyContext, token: str | None = None) -> Iterator[str]:
    """A real server on a port of its own, in a thread."""
    app = create_app(context, token)
    config = uvicorn.Config(app, port=0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server")
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def address(opened: StudyContext) -> Iterator[str]:
    """A server whose model is loaded, so that texts are coloured."""
    with serving(opened) as found:
        httpx.get(f"{found}/api/memories/L2.7/coefficients?load=true", timeout=LONGEST)
        yield found


@pytest.fixture
def fresh(wordy_study: ScanStore, tmp_path: Path) -> Iterator[StudyContext]:
    """A study that nobody has asked anything yet, in a folder of its own."""
    shutil.copytree(wordy_study.folder.root, tmp_path / "study")
    context = open_context(tmp_path / "study", "tiny:opt")
    yield context
    context.annotations.close()


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
    assert (saying.annotator, saying.answers[0].ranks) == ("mara", (1, 2, 3))
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
    page.locator("#change-memory summary").click()
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
    MEMORY: "#triggers .t.fires",
    "/lists": "#import",
    "/prompt": "#examples",
    PROMPT: "#heat tbody tr",
    "/annotate": "#who",
    "/annotate?annotator=ana": ".grid",
    "/annotate/memory/L2.7?annotator=ana": ".patternbox",
    "/annotate/agreement": "table",
    "/compare": ".claims",
    "/compare/memories": "h1",
    "/figure/values-agreement": ".living svg",
    "/report": "a code.address",
    "/api": ".route",
}


def test_triggers_are_coloured_once_the_model_is_there(browser: Any, fresh: StudyContext) -> None:
    """The page says what to do, loads the model on request, and tokens tell their numbers."""
    context = browser.new_context()
    page, complaints = page_of(context)
    cell = fresh.store.cells.address(71)
    with serving(fresh) as address:
        page.goto(f"{address}/memory/{cell}")
        page.get_by_text("are not stored: load the model").wait_for()
        assert page.locator("#triggers .t").count() == 0
        page.get_by_role("button", name="Load the model").click()
        line = page.locator("#triggers li").first
        last = line.locator(".t.last")
        last.wait_for()
        trigger = fresh.store.triggers(cell)[0]
        assert last.inner_text() == trigger.last
        shown = float(last.get_attribute("data-said") or "")
        assert shown == pytest.approx(trigger.coefficient, rel=1e-2)
        assert str(last.get_attribute("title")).endswith(str(last.get_attribute("data-said")))
        assert "Coefficients: " in line.inner_text()
        whole = trigger.before + trigger.last + trigger.next + trigger.rest
        assert "".join(line.locator(".t").all_inner_texts()) == whole

        start = page.locator("#triggers .t[tabindex='0']")
        assert start.count() == 1  # one stop for the whole list
        start.focus()
        page.keyboard.press("ArrowDown")
        here = page.locator(":focus")
        assert (
            here.evaluate(
                "one => [...document.querySelectorAll('#triggers p')].indexOf(one.closest('p'))"
            )
            == 1
        )
        before = here.evaluate("one => getComputedStyle(one, '::after').content")
        assert str(here.get_attribute("data-said")) in before
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowRight")
        assert page.url.endswith(f"/memory/{cell}")  # the arrows stayed in the text

        page.get_by_label("Try your own text").fill("<b>river</b> and stone")
        page.locator("#own button").click()
        page.locator(".own .t").first.wait_for()
        assert "".join(page.locator(".own .t").all_inner_texts()) == "<b>river</b> and stone"
        assert page.locator(".own b").count() == 0
        page.get_by_label("Try your own text").fill("שלום עולם")
        page.locator("#own button").click()
        page.locator(".own .t", has_text="ש").first.wait_for()
        ways = "all => all.map(one => getComputedStyle(one).direction)"
        assert page.locator(".own").evaluate_all(ways) == ["rtl", "ltr"]  # both are kept
        shown = "one => getComputedStyle(one, '::after').content"
        assert (
            page.locator(".own .t").first.evaluate(shown) != "none"
        )  # its number, without hovering
        assert set(page.locator("#triggers p").evaluate_all(ways)) == {"ltr"}
    assert complaints == []
    context.close()


def test_triggers_show_one_colour_at_a_time(browser: Any, address: str) -> None:
    """Where the memory fires, or what its key needs; never both on one another."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page, complaints = page_of(context)
    page.goto(f"{address}/memory/L2.7")
    page.locator("#triggers .t.fires").first.wait_for()
    first = page.locator("#triggers li").first.bounding_box()
    assert first["y"] + first["height"] < 844  # on the first screen of a phone
    text = page.locator("#triggers .read").all_inner_texts()
    page.get_by_role("button", name="what it needs").click()
    page.locator("#triggers li:last-child .shade").first.wait_for()
    assert page.locator("#triggers .t").count() == 0
    assert page.locator("#triggers .read").all_inner_texts() == text
    page.get_by_role("button", name="where it fires").click()
    page.locator("#triggers .t.fires").first.wait_for()
    assert page.locator("#triggers .shade").count() == 0
    assert complaints == []
    context.close()


def test_a_memory_is_changed_from_its_page(browser: Any, address: str) -> None:
    """Silenced, then held, beside the control; neighbours come with tokens and a trigger."""
    context = browser.new_context()
    page, complaints = page_of(context)
    page.goto(f"{address}/memory/L2.7")
    page.get_by_role("button", name="Run the model").click()
    page.get_by_text("When it is silenced").wait_for()
    page.get_by_label("Change").select_option("hold")
    page.get_by_label("at", exact=True).fill("3")
    page.get_by_role("button", name="Run the model").click()
    page.get_by_text("When it is held").wait_for()
    assert "Control: the same change of a memory" in page.locator("#effect .answer").inner_text()
    assert "its 5 strongest triggers" in page.locator("#effect .answer").inner_text()
    page.get_by_role("button", name="Compare with all others").focus()
    page.keyboard.press("Enter")
    page.locator("#nearest .one .last").first.wait_for()
    page.locator("#nearest button:focus").wait_for()  # whoever works by key stays there
    assert page.locator("#nearest .token").count() > 0
    answer, links = page.locator("#key .answer p"), list[str]()
    for other in ("L3.1", "L3.2"):  # one after the other
        page.get_by_label("Later memory").fill(other)
        page.get_by_role("button", name="Read the key").click()
        answer.filter(has_text="v · k").filter(
            has_not_text=links[0] if links else "none"
        ).wait_for()
        links.append(answer.inner_text())
    page.get_by_label("Try your own text").focus()
    page.keyboard.insert_text("stone " * 700)
    assert len(page.get_by_label("Try your own text").input_value()) == 4200
    assert complaints == []
    context.close()


def test_labels_and_lists_in_the_browser(browser: Any, fresh: StudyContext) -> None:
    """Star, label, note and list a memory; bring a set, take a memory off, save the set."""
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page, complaints = page_of(context)
    with serving(fresh) as address:
        page.goto(f"{address}/memory/L2.7")
        star = page.get_by_role("button", name="Star")
        star.focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Starred").wait_for()
        page.get_by_label("Label", exact=True).fill("<i>rivers</i>")
        page.keyboard.press("Enter")
        page.get_by_text("Saved.").wait_for()
        page.get_by_text("Note and lists").click()
        page.get_by_label("Note", exact=True).fill("see also L1.0")
        page.get_by_label("Name of a list").fill("my places")
        page.get_by_role("button", name="Put on the list").click()
        page.get_by_role("link", name="my places").wait_for()
        page.get_by_role("button", name="Copy link").click()
        page.get_by_text("The link is copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        page.reload()
        page.get_by_role("button", name="Starred").wait_for()
        assert page.get_by_label("Label", exact=True).input_value() == "<i>rivers</i>"

        page.get_by_role("link", name="Lists").click()
        page.get_by_text("<i>rivers</i>").wait_for()
        page.get_by_text("see also L1.0").wait_for()
        page.get_by_label("Name of the list").fill("my/places")
        page.get_by_label("or addresses, one per line").fill("L1.3")
        page.get_by_role("button", name="Put them on the list").click()
        page.locator("[name=name]:invalid:focus").wait_for()  # the browser says what is wrong
        page.get_by_label("Name of the list").fill("my places")
        page.get_by_label("or addresses, one per line").fill("L1.3\nL9.9")
        page.get_by_role("button", name="Put them on the list").click()
        page.locator("#said.wrong", has_text="no layer 9").wait_for()
        page.get_by_label("or addresses, one per line").fill("l1.3\n# a comment\n3.1")
        page.get_by_role("button", name="Put them on the list").click()
        page.get_by_role("heading", name="my places").wait_for()
        rows = page.locator("tbody tr")
        assert rows.count() == 3
        page.get_by_role("button", name="Take L1.3 off the list").click()
        wait_until(lambda: rows.count() == 2, "the memory to leave the list")
        with page.expect_download() as file:
            page.get_by_role("link", name="Set of memories").click()
        lines = file.value.path().read_text().splitlines()
        assert [line for line in lines if not line.startswith("#")] == ["L2.7", "L3.1"]
    assert [said for said in complaints if "404" not in said] == []  # the refused set
    context.close()


@pytest.mark.usefixtures("few_calibration_keys")
def test_patterns_are_found_on_request(browser: Any, fresh: StudyContext) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    with serving(fresh) as address:
        page.goto(f"{address}/memory/L2.7")
        page.get_by_text("Nobody has looked").wait_for()
        page.get_by_role("button", name="Find patterns").click()
        page.get_by_text(
            "lists of random prefixes"
        ).wait_for()  # the page came again, with the result
        page.goto(f"{address}/search?by=any&layer=3")
        page.get_by_role("button", name="Find patterns of layer 3").click()
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_text(re.compile(r"patterns found in \d+ memories")).wait_for()
    assert complaints == []
    context.close()


def test_memories_of_a_served_report_lead_to_their_pages(
    browser: Any, opened: StudyContext
) -> None:
    """Also where a token is needed: to the browser the sandboxed report is another site."""
    context = browser.new_context()
    page, complaints = page_of(context)
    with serving(opened, token="s3cret") as address:
        page.goto(f"{address}/?token=s3cret")
        page.get_by_role("link", name="Read the report").click()
        first = page.locator("a:has(code.address)").first
        memory = first.inner_text()
        first.click()
        page.locator("h1", has_text=re.compile(f"^{re.escape(memory)}$")).wait_for()
        assert complaints == []
        context.close()


def test_a_script_in_a_strangers_report_does_not_run(browser: Any, fresh: StudyContext) -> None:
    """The report allows it itself; the program's own script on the same page still runs."""
    planted = "window.planted = true"
    report = write_report(fresh.study)
    text = report.read_text(encoding="utf-8")
    text = re.sub(r"<meta http-equiv=[^>]*>", "", text, count=1)
    report.write_text(f"{text}<script>{planted}</script>", encoding="utf-8")
    context = browser.new_context()
    page, complaints = page_of(context)
    with serving(fresh) as address:
        page.goto(f"{address}/report")
        page.locator("a code.address").first.wait_for()
        assert page.evaluate("[window.planted, self.origin]") == [None, "null"]
        assert any("Content Security Policy" in one for one in complaints)
        context.close()


def go_by_slash(page: Any, text: str) -> None:
    """Reach memory L2.7 from any page by keys alone."""
    page.wait_for_load_state("load")  # keys are heard from then on
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.locator("h1", has_text=re.compile(r"^L2\.7$")).wait_for()


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
    go_by_slash(page, "l2.7")
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
    page.get_by_role("link", name="related words").click()
    page.locator(".why mark").first.wait_for()
    assert "same contexts" in page.inner_text("main")
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


@pytest.mark.parametrize("width", [390, 1280])
def test_figures_are_as_wide_as_their_place(browser: Any, address: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844})
    page, complaints = page_of(context)
    for path in ("/figure/values-agreement", "/compare"):
        page.goto(address + path)
        page.locator(".living").first.scroll_into_view_if_needed()
        page.locator(".living svg").first.wait_for()
        room, chart = page.evaluate(
            "[document.querySelector('.living'), document.querySelector('.living svg')]"
            ".map((one) => one.getBoundingClientRect().width)"
        )
        assert 0.5 * room < chart <= room + 1, path
    page.set_viewport_size({"width": 700, "height": 844})
    page.wait_for_function(
        "before => document.querySelector('.living svg').getBoundingClientRect().width !== before",
        arg=chart,
    )
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

    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Silence the strongest").click()
    page.wait_for_function(ENDS_AT_THE_LAST_PLACE)
    strongest = page.locator("#pairs tbody tr").first
    address, place = (strongest.locator("> *").nth(at).inner_text().split()[0] for at in (0, 1))
    strongest.get_by_role("button", name="Silence").click()
    page.locator("#changes li", has_text=f"{address} silenced at {place}").wait_for()
    page.locator("#moved", has_text=f" for {address} (").wait_for()
    told = page.locator("section:has(#pairs) > p[role=status]")  # also where it was silenced
    assert told.inner_text() == page.locator("#moved").inner_text()
    assert page.locator("#chances th", has_text="control").count() == 1
    assert page.locator("#pairs tbody tr").count() == 20
    decides, box = page.locator("#pairs th", has_text="true"), page.locator(".scroll:has(#pairs)")
    assert page.evaluate(RIGHT, decides.element_handle()) <= page.evaluate(
        RIGHT, box.element_handle()
    )
    page.get_by_role("button", name="Draw").first.click()
    page.get_by_role("img", name="Memories by place and layer").wait_for()
    page.go_back()
    page.locator("#changes li", has_text=f"{address} silenced").wait_for(state="detached")
    assert complaints == []
    context.close()


ENDS_AT_THE_LAST_PLACE = """() => {
    const box = document.querySelector(".scroll:has(#heat)");
    return box.scrollLeft > 0 && box.scrollLeft + box.clientWidth > box.scrollWidth - 2;
}"""
RIGHT = "one => one.getBoundingClientRect().right"


def test_a_slash_leads_to_the_box_of_every_page(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    for path in ("/prompt", "/api", "/lists", "/annotate/agreement"):
        page.goto(address + path)
        go_by_slash(page, "2.7")
    assert complaints == []
    context.close()


def ask_everything(page: Any) -> None:
    """A memory's page with all that it can be asked."""
    page.get_by_text("Note and lists").click()
    page.get_by_role("button", name="Compare with all others").click()
    page.locator("#nearest tr").first.wait_for()
    page.get_by_role("button", name="Read the key").click()
    page.locator("#key tr").first.wait_for()
    page.get_by_role("button", name="Run the model").click()
    page.locator("#effect details").first.wait_for()
    page.get_by_label("Try your own text").fill(TEXT)
    page.locator("#own button").click()
    page.locator(".own .t").first.wait_for()


COPY_PAGES = {
    "/search?by=any": ".hits",
    "/compare/memories": "table",
    "/": "main",
    PROMPT: "#layers tr",
}
WITH_PICTURES = ("/", PROMPT)  # pages of more than tables


def test_a_page_is_copied_as_link_data_table_and_picture(browser: Any, address: str) -> None:
    context = browser.new_context(color_scheme="dark")
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page, complaints = page_of(context)
    for path, ready in COPY_PAGES.items():
        page.goto(address + path)
        page.locator(ready).first.wait_for()
        copies = page.locator("#shares")
        copies.get_by_role("button", name="Copy link").click()
        page.get_by_text("The link is copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        link = copies.get_by_role("link", name="JSON").get_attribute("href")
        data = page.request.get(address + link)
        assert data.ok, path
        assert data.json(), path
        with page.expect_download() as table:
            copies.get_by_text("CSV").click()
        rows = list(csv.reader(table.value.path().read_text().splitlines()))
        assert max(map(len, rows)) > 3, path
        if path in WITH_PICTURES:
            check_picture(page)
    assert complaints == []
    context.close()


def check_picture(page: Any) -> None:
    """The page as a picture, as dark as it is seen."""
    with page.expect_download() as picture:
        page.locator("#shares").get_by_text("Picture").click()
    image = picture.value.path().read_bytes()
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(image[at : at + 4]) for at in (16, 20))
    assert width >= page.viewport_size["width"]
    assert height > 500
    ink, ground = page.evaluate(COLOURS, base64.b64encode(image).decode())
    assert ground == [21, 24, 28]  # as on the dark page
    assert ink > 1000


COLOURS = """async (data) => {
  const image = new Image();
  image.src = `data:image/png;base64,${data}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 800, height: 800 });
  const plane = canvas.getContext("2d");
  plane.drawImage(image, 0, 0);
  const points = plane.getImageData(0, 0, 800, 800).data;
  let light = 0;
  for (let place = 0; place < points.length; place += 4) light += points[place] > 150;
  return [light, [...points.slice(0, 3)]];
}"""  # how many points are light, and the first one


def test_tokens_look_the_same_from_scripts_and_from_templates(browser: Any, address: str) -> None:
    context = browser.new_context()
    page, complaints = page_of(context)
    page.goto(address)
    odd = [
        "",
        " a",
        "a\nb\t\r",
        "\x13",
        "\x7f\xa0",
        "\\n",
        "\u202e\u200b",
        "\u2028",
        "é漢",
        "\U000e0001",
    ]
    seen = page.evaluate(
        "async (all) => { const { shownToken } = await import('/static/ask.js');"
        " return all.map(shownToken); }",
        odd,
    )
    assert seen == [visible_token(token) for token in odd]
    assert complaints == []
    context.close()


def test_the_layers_of_a_prompt_fit_a_screen(browser: Any, address: str) -> None:
    """Words as long as those of a real vocabulary, and changes beside them."""

    def lengthen(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        for side in (found["plain"], found["edited"]):
            for step in side["steps"]:
                step |= {"residual": " announced", "feedforward": " primarily"}
                for one in step["strongest"]:
                    one["promotes"] = [" Argentine", " excavations"]
        route.fulfill(response=answer, json=found)

    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, complaints = page_of(context)
    page.route("**/api/prompt?*", lengthen)
    page.goto(address + PROMPT)
    page.locator("#layers tbody tr").first.wait_for()
    room, table = page.evaluate(
        "[document.querySelector('#layers').parentElement.clientWidth,"
        " document.querySelector('#layers').scrollWidth]"
    )
    assert table <= room
    assert complaints == []
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_page_is_fit_for_everybody(
    browser: Any, address: str, opened: StudyContext, scheme: str, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page, complaints = page_of(context)
    axe, wrong = Axe(), []
    blind = f"/annotate/{draw_sheets(opened.store, keys=2)[-1].name}?annotator=ana"
    for path, ready in (PAGES | {blind: ".patternbox"}).items():
        page.goto(address + path)
        page.locator(ready).first.wait_for()
        if path == MEMORY:
            ask_everything(page)
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        wrong += [(path, each["id"], each["nodes"][0]["html"]) for each in found]
        sideways = page.evaluate("document.documentElement.scrollWidth")
        assert sideways <= width, f"{path} scrolls sideways"
        if width < 500 and page.locator("main > .shares").count():
            above, title = (page.locator(each).first.bounding_box() for each in (".shares", "h1"))
            assert above["y"] + above["height"] <= title["y"], f"{path} has a title without room"
    assert wrong == []
    assert complaints == []
    context.close()
