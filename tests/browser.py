"""A fixture that opens pages in a headless Chromium of the system, and what every page must meet.

It needs `playwright` (of the extra `[dev]`) and a Chromium: Debian's package `chromium`, or the
program that the environment variable CHROMIUM names. Where one is absent, tests are skipped.
"""

import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest

_PROGRAMS = ('chromium', 'chromium-browser', 'google-chrome')
_TIME_LIMIT_MS = 15_000
_BROKEN_IMAGES = """() => [...document.images]
    .filter(image => !(image.complete && image.naturalWidth > 0))
    .map(image => image.src.slice(0, 200))"""
_LOAD_LAZY_IMAGES = """() => Promise.all([...document.images].map(image => {
    image.loading = 'eager';
    return image.decode().catch(() => null);
}))"""


def _chromium() -> str:
    named = os.environ.get('CHROMIUM')
    found = [path for name in _PROGRAMS if (path := shutil.which(named or name))]
    if not found:
        pytest.skip('needs Chromium (apt-get install chromium, or CHROMIUM=/path/to/program)')
    return found[0]


# Not of the whole session: playwright keeps an event loop in the main thread while it runs.
@pytest.fixture(scope='module')
def browser() -> Iterator:
    """A headless Chromium: playwright's synchronous `Browser`."""
    sync_api = pytest.importorskip('playwright.sync_api', reason='needs playwright')
    program = _chromium()
    with sync_api.sync_playwright() as playwright:
        # The sandbox of Chromium refuses to run as root, which containers do.
        running = playwright.chromium.launch(
            executable_path=program, args=['--no-sandbox', '--disable-dev-shm-usage']
        )
        yield running
        running.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable]:
    """A function that opens a path or a URL, and returns playwright's `Page` once it has loaded.

    At the end of the test it fails if a page logged an error to the console, threw one, or failed
    to load something. A test that provokes such a message empties `page.problems`.
    """
    context = browser.new_context(viewport={'width': 1280, 'height': 900})
    context.set_default_timeout(_TIME_LIMIT_MS)
    pages = []

    def open_(target: str | os.PathLike):
        page = context.new_page()
        page.problems = []
        pages.append(page)
        page.on('console', lambda m: m.type == 'error' and page.problems.append(m.text))
        page.on('pageerror', lambda error: page.problems.append(str(error)))
        page.on('requestfailed', lambda request: page.problems.append(request.url[:200]))
        is_url = isinstance(target, str) and '://' in target
        page.goto(target if is_url else pathlib.Path(target).resolve().as_uri())
        page.wait_for_load_state('load')
        return page

    yield open_
    problems = [problem for page in pages for problem in page.problems]
    context.close()
    assert not problems, f'the browser reported: {problems}'


def broken_images(page) -> list[str]:
    """The sources of the images of a page that did not load, also of those out of sight."""
    page.evaluate(_LOAD_LAZY_IMAGES)
    return page.evaluate(_BROKEN_IMAGES)
