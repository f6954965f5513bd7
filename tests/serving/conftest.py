"""No thread of a server outlives the tests of its file."""

import threading

import pytest

_NAMES = ('model', 'request_')


# Set up before the other fixtures of the file, hence torn down after them.
@pytest.fixture(scope='module', autouse=True)
def _no_thread_remains():
    before = set(threading.enumerate())
    yield
    remaining = [
        thread.name
        for thread in threading.enumerate()
        if thread not in before and thread.name.startswith(_NAMES)
    ]
    assert not remaining, f'threads of a server still run: {remaining}'


@pytest.fixture
def make_app():
    """`create_app` for tests that run no lifespan, whose threads end with the test."""
    apps = []
    module = pytest.importorskip('object_detection.serving.app', reason="needs the extra 'serve'")

    def make(model, options):
        apps.append(module.create_app(model, options))
        return apps[-1]

    yield make
    for app in apps:
        app.state.service.end()
