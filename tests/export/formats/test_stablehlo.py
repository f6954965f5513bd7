"""StableHLO files, which TensorFlow compiles here, against the model in process."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import UserError
from object_detection.export.formats import formats, stablehlo
from object_detection.export.formats.source import FormatOptions
from object_detection.runtime.description import TensorDescription
from tests.export.formats import sources

ROOT = pathlib.Path(__file__).resolve().parents[3]
JAX = os.environ.get('JAX_PYTHON') or (sys.executable if importlib.util.find_spec('jax') else None)

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')


@pytest.fixture(scope='module')
def ssd_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp('stablehlo')
    return sources.written(
        'stablehlo', sources.source('small_ssd'), folder, FormatOptions(batch_size=2)
    )


def test_a_single_shot_detector_gives_its_detections(ssd_file, shared):
    detector = formats.load(ssd_file)
    images = sources.photos(shared, 2)
    sources.assert_agrees(detector, sources.source('small_ssd'), images)
    assert detector.labels.names == {1: 'cat', 3: 'café'}
    # Three images are two calls of two.
    batch = tf.constant(np.stack([np.resize(image, (50, 70, 3)) for image in images * 2])[:3])
    together = detector.run_batch(batch)
    assert {len(value) for value in together.values()} == {3}
    alone = detector.run_batch(batch[2:])
    np.testing.assert_allclose(
        together['detection_scores'][2:], alone['detection_scores'], atol=1e-5
    )
    assert len(detector.run_batch(batch[:0])['detection_boxes']) == 0


@pytest.mark.slow
def test_masks_and_padded_images(tmp_path, shared):
    model = sources.source('mask_rcnn', sources.PADDED)
    detector = formats.load(sources.written('stablehlo', model, tmp_path))
    assert [each.name for each in detector.description.inputs] == ['image', 'true_image_shape']
    sources.assert_agrees(detector, model, sources.photos(shared, 3))


def test_a_model_of_no_fixed_size_is_refused():
    model = sources.source('faster_rcnn', sources.OF_ANY_SIZE)
    with pytest.raises(UserError, match=r'^--format stablehlo: .*pad_to_max_dimension'):
        stablehlo.check(model, FormatOptions())


def test_weights_that_are_not_those_of_the_description_are_named(ssd_file, tmp_path):
    copied = tmp_path / 'stablehlo'
    shutil.copytree(ssd_file.parent, copied)
    described = json.loads((copied / 'model.mlirbc.json').read_text())
    name = described['weights'][3]['name']
    described['weights'][3]['shape'][0] -= 1
    (copied / 'model.mlirbc.json').write_text(json.dumps(described))
    with pytest.raises(UserError, match=rf'weights\.npz: {name}: expected float32 \['):
        formats.load(copied / 'model.mlirbc')
    (copied / 'weights.npz').write_bytes(b'no archive' * 100_000)
    with pytest.raises(UserError, match=r'weights\.npz: expected the weights'):
        formats.load(copied / 'model.mlirbc')


def test_archives_that_hold_more_than_their_size_are_refused(tmp_path):
    bomb, path = tmp_path / 'bomb.npz', tmp_path / 'weights.npz'
    zeros = np.zeros([1 << 20], np.float32)
    np.savez_compressed(bomb, a=zeros)
    np.savez(path, a=zeros)
    large, small = (TensorDescription('a', 'float32', (count,)) for count in (1 << 20, 2))
    tracemalloc.start()
    with pytest.raises(UserError, match=r'bomb\.npz: expected 4194304 bytes of weights'):
        stablehlo._read_weights(bomb, [large])
    with pytest.raises(UserError, match='a: expected an array that is not compressed'):
        stablehlo._read_weights(bomb, [small])
    with pytest.raises(UserError, match='expected 8388608 bytes of weights'):
        stablehlo._read_weights(path, [large, large])
    assert tracemalloc.get_traced_memory()[1] < zeros.nbytes
    tracemalloc.stop()
    (read,) = stablehlo._read_weights(path, [large])
    np.testing.assert_array_equal(read, zeros)


@pytest.mark.slow
@pytest.mark.skipif(not JAX, reason='neither here nor as JAX_PYTHON is there an interpreter of jax')
def test_the_program_of_the_documents_gives_the_same_detections(ssd_file, tmp_path):
    text = (ROOT / 'docs' / 'exporting.md').read_text().partition('<!-- A test runs')[2]
    program = re.search(r'```python\n(.+?)```', text, re.DOTALL)[1]
    images = np.random.default_rng(0).uniform(0, 255, (2, 64, 64, 3)).astype(np.float32)
    np.savez(tmp_path / 'inputs.npz', image=images)
    arguments = [ssd_file.parent, tmp_path / 'inputs.npz', tmp_path / 'found.npz']
    subprocess.run(
        [JAX, '-c', program, *map(str, arguments)],
        check=True,
        env=os.environ | {'JAX_PLATFORMS': 'cpu'},
    )
    expected = formats.load(ssd_file).run_batch(tf.constant(images))
    with np.load(tmp_path / 'found.npz') as found:
        assert sorted(found) == sorted(expected)
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, atol=1e-4, err_msg=key)
