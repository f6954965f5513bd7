"""Fixtures that every test may use."""

import contextlib
import dataclasses
import gc
import importlib
import logging
import os
import pathlib
import random
import sys

import pytest
from hypothesis.internal.conjecture import providers

from object_detection.system import console
from tests import goldens, rare_garbage_collection  # noqa: F401
from tests.browser import browser, open_page  # noqa: F401

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# What tests read does not depend on how fast the machine is.
console.SECONDS_UNTIL_SHOWN = 1e6

# These take half a minute or more each. They begin first: at the end a file has one process alone.
_LONG_FILES = (
    'tests/training/distribution/test_replicas.py',
    'tests/builders/test_dataset_builder.py',
    'tests/export/test_saved_model.py',
    'tests/prediction/test_loading.py',
    'tests/dataset_tools/converters/test_coco_conversion.py',
    'tests/meta_architectures/faster_rcnn/test_faster_rcnn.py',
    'tests/meta_architectures/faster_rcnn/test_golden_models.py',
    'tests/training/test_loop.py',
    'tests/core/test_roi_align.py',
    'tests/dataset_tools/context_rcnn/test_chain.py',
    'tests/data/test_sequence_examples.py',
    'tests/data/pipeline/test_bad_records.py',
    'tests/meta_architectures/faster_rcnn/test_context_rcnn.py',
)

# Elsewhere, tests trace much and run it once: graphs are not optimized but for tests of the mark
# `optimized`.
_OPTIMIZED = ('tests/export/',)

SHARED = pathlib.Path(__file__).resolve().parents[2] / 'shared'


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
    """The folder of reference facts, golden numbers and real data beside the project."""
    if not SHARED.is_dir():
        pytest.skip('needs the folder ../shared (reference facts, golden numbers, real data)')
    return SHARED


@pytest.fixture
def graphs_as_they_are():
    """Leaves graphs unoptimized, where nothing runs often enough to be worth it."""
    from tests import quick_graphs

    with quick_graphs.unoptimized():
        yield


@pytest.fixture
def without_graphs():
    """Runs functions as they are, which takes less time for a step or two than to trace them."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def short_inception_resnet_v2(monkeypatch):
    """Builds every kind of residual block of Inception-ResNet v2 once, to save time."""
    from object_detection.models.backbones.inception import inception_resnet_v2

    for kind in ('_BLOCK35', '_BLOCK17', '_BLOCK8'):
        block = dataclasses.replace(getattr(inception_resnet_v2, kind), repeats=1)
        monkeypatch.setattr(inception_resnet_v2, kind, block)


@pytest.fixture(autouse=True)
def _log_as_at_the_start():
    """Undoes what programs that run within a test do to the log of the process.

    They show messages of this package on stderr and no longer to handlers of tests. A test is a
    job of its own, which logs each warning once.
    """
    from object_detection.config import report

    loggers = [logging.getLogger(name) for name in ('object_detection', 'absl', None)]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    with report.job():
        yield
    for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = handlers


def pytest_addoption(parser: pytest.Parser):
    parser.addoption(
        '--random-order',
        type=int,
        metavar='SEED',
        help='run files, and the tests of each, in another order; no test may depend on it',
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    seed = config.getoption('--random-order')
    if seed is not None:
        # Files stay together, or fixtures of modules would be made over and over.
        chance = random.Random(seed)
        files = {item.nodeid.partition('::')[0]: chance.random() for item in items}
        chance.shuffle(items)
        items.sort(key=lambda item: files[item.nodeid.partition('::')[0]])
        return
    ranks = {name: rank for rank, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition('::')[0], len(ranks)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session):
    """Imports the test files from another one on in each process of xdist.

    Compiling them, with what their assertions say, takes longer than importing TensorFlow.
    Processes that begin with the same file each compile all; so they find what others have written.
    """
    own = getattr(session.config, 'workerinput', None)
    if own is None or sys.dont_write_bytecode:
        return
    paths = [pathlib.Path(each) for each in session.config.args]
    files = sorted(file for path in paths for file in path.rglob('test_*.py'))
    start = len(files) * int(own['workerid'].removeprefix('gw')) // own['workercount']
    for file in files[start:] + files[:start]:
        # A module that is skipped or broken is reported when its tests are collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            name = file.resolve().relative_to(session.config.rootpath).with_suffix('')
            importlib.import_module('.'.join(name.parts))


def pytest_configure():
    """Values of Hypothesis do not come from the code of all loaded modules, which takes seconds."""
    constants = providers.Constants()
    providers.HypothesisProvider._local_constants = property(lambda provider: constants)


def pytest_collection_finish():
    """Modules stay for all of the tests: garbage is not searched among them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Leaves graphs, also those of fixtures of modules, unoptimized where that saves time."""
    if 'tensorflow' not in sys.modules:
        return (yield)
    from tests import quick_graphs

    optimized = bool(item.get_closest_marker('optimized'))
    # What is made for a module, before its first test, is left as that test asks for.
    is_left = 'graphs_as_they_are' in item.fixturenames or not (
        optimized or item.nodeid.startswith(_OPTIMIZED)
    )
    with (
        quick_graphs.without_stacks(),
        quick_graphs.plain_data_sets(optimized=optimized),
        quick_graphs.unoptimized() if is_left else contextlib.nullcontext(),
    ):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """A test that compares a golden case fails if it does not look at all of its outputs."""
    goldens.read.clear()
    result = yield
    file = getattr(getattr(item, 'function', None), 'golden_file', None)
    unread = goldens.unread((file, item.callspec.params['case_name']) if file else None)
    assert not unread, (
        'The test compares a golden case but does not read these; compare them, or give the reason '
        f'in tests/golden_lists.py: {unread}'
    )
    return result
