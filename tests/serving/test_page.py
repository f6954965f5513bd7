"""The page in a browser: an image is dropped, objects are seen, the slider changes how many."""

import threading
import time

import pytest

pytest.importorskip('fastapi', reason="needs the extra 'serve'")

import uvicorn

from object_detection.serving.app import create_app
from object_detection.serving.limits import ServeOptions
from object_detection.visualization.drawing import class_color
from tests.browser import browser, open_page  # noqa: F401
from tests.serving.fakes import BrightnessModel, image_file

_DROP = """bytes => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], 'a.png', { type: 'image/png' }));
    document.querySelector('#drop').dispatchEvent(
        new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
_PIXEL = """([x, y]) => [...document.querySelector('#canvas').getContext('2d')
    .getImageData(x, y, 1, 1).data].slice(0, 3)"""


_COLOR = """number => {
    const context = new OffscreenCanvas(1, 1).getContext('2d');
    context.fillStyle = color(number);
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""


@pytest.fixture
def address():
    model = BrightnessModel()
    model.advised_threshold = 0.61
    app = create_app(model, ServeOptions(max_wait_ms=0))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level='warning'))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f'http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/'
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def test_an_image_that_is_dropped_is_shown_with_its_objects(address, open_page):  # noqa: F811
    page = open_page(address)
    page.evaluate(_DROP, list(image_file(128, (40, 60))))
    page.get_by_text('1 of 1 objects').wait_for()
    assert page.locator('#rows').inner_text().split() == ['cat', '0.502']
    # 60 x 40 pixels are shown 8 times as large; the mask is the upper half of the left half.
    page.uncheck('#labels')
    red, green, blue = page.evaluate(_PIXEL, [100, 40])
    assert max(red, green, blue) - min(red, green, blue) > 40
    assert page.evaluate(_PIXEL, [400, 40]) == [128, 128, 128]
    assert page.evaluate(_PIXEL, [100, 280]) == [128, 128, 128]
    page.fill('#opacity', '0')
    assert page.evaluate(_PIXEL, [100, 40]) == [128, 128, 128]
    page.fill('#score', '0.6')
    page.get_by_text('0 of 1 objects').wait_for()
    page.fill('#score', '0.4')
    page.get_by_text('1 of 1 objects').wait_for()
    page.get_by_text('Best in the evaluation: 0.61').click()
    page.get_by_text('0 of 1 objects').wait_for()


def test_classes_have_the_colors_of_pictures(address, open_page):  # noqa: F811
    page = open_page(address)
    for number in range(1, 8):
        assert page.evaluate(_COLOR, number) == pytest.approx(class_color(number), abs=1)


def test_a_file_that_is_no_image_gives_a_message(address, open_page):  # noqa: F811
    page = open_page(address)
    page.evaluate(_DROP, list(b'this is no image'))
    page.get_by_text('no image file of the formats').wait_for()
    # The browser logs every answer that is an error.
    assert all('422' in problem for problem in page.problems)
    page.problems.clear()
