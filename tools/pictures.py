"""Make the pictures of the explorer and of the report from a study of the embedded model.

python -m tools.pictures out/demo

Needs Chromium. The pictures are what a browser shows, in pixels of the sizes below.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tools.first_hour import serve

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
LARGEST = 200_000  # bytes
PAGES = {  # the page, what is there when it is whole, and how much of it is taken
    "explorer": ("memory/L12.691", "#triggers li", {"width": 1100, "height": 780}),
    "overview": ("", ".cards .pointers li", {"width": 1100, "height": 900}),
    "prompt": (
        "prompt?text=It+was+later+discovered",
        "#answer:not([hidden]) tbody tr",
        {"width": 1100, "height": 1640},
    ),
    "report": ("report", "[data-chart] .vega-embed", {"width": 1100, "height": 780}),
}


def take(page: Any, address: str, name: str) -> Path:
    """One page as a picture."""
    path, ready, size = PAGES[name]
    page.set_viewport_size(size)
    page.goto(address + path)
    page.locator(ready).first.wait_for()
    page.wait_for_load_state("networkidle")
    picture = PICTURES / f"{name}.png"
    page.screenshot(path=str(picture))
    if picture.stat().st_size > LARGEST:
        raise SystemExit(f"{picture} has more than {LARGEST:,} bytes")
    return picture


def main() -> int:
    """Take the pictures of the study that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    study = parser.parse_args().study
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with serve(sys.executable, study) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(color_scheme="light")
        for name in PAGES:
            print(take(page, address, name))
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
