"""OpenVINO files, saved and run by another process, against the model in process."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from object_detection.core.detections import Detections
from object_detection.errors import UserError
from object_detection.export import verification
from object_detection.export.formats import formats
from tests.export.formats import sources

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

_RUN = """
import pathlib, sys
import numpy as np
import tensorflow as tf
from object_detection.export.formats import formats

detector = formats.load(pathlib.Path(sys.argv[1]))
images = np.load(sys.argv[2])
found = detector.run_batch(tf.constant(images))
np.savez(sys.argv[3], **{key: value.numpy() for key, value in found.items()})
"""

# The extractor adds rows and columns up to a multiple of 32, of a number that is known before.
_OF_NO_MULTIPLE = """
model { faster_rcnn { image_resizer { fixed_shape_resizer { height: 72 width: 80 } } } }
"""


@pytest.fixture(scope='module')
def openvino():
    reason = "needs openvino: pip install '.[openvino]'"
    return pytest.importorskip('openvino', reason=reason)


def run_in_another_process(
    path: pathlib.Path, images: np.ndarray, folder: pathlib.Path
) -> dict[str, np.ndarray]:
    np.save(folder / 'images.npy', images)
    arguments = [path, folder / 'images.npy', folder / 'found.npz']
    subprocess.run([sys.executable, '-c', _RUN, *map(str, arguments)], check=True)
    with np.load(folder / 'found.npz') as found:
        return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('family', 'overrides'),
    [
        ('ssd', ()),
        ('faster_rcnn', (sources.OF_ANY_SIZE,)),
        ('faster_rcnn', (_OF_NO_MULTIPLE,)),
        ('mask_rcnn', (sources.PADDED, sources.ROI_ALIGN)),
    ],
)
def test_a_file_gives_the_detections_of_the_model(family, overrides, openvino, tmp_path, shared):
    model = sources.source(family, *overrides)
    path = sources.written('openvino', model, tmp_path)
    images = sources.photos(shared, 3)
    sources.assert_agrees(formats.load(path), model, images)
    batch = np.stack([image[:300, :300] for image in images])
    found = run_in_another_process(path, batch, tmp_path)
    for index, image in enumerate(batch):
        size, row = image.shape[:2], {key: value[[index]] for key, value in found.items()}
        (expected,) = Detections.from_batch(sources.in_process(model)(image[np.newaxis]), [size])
        (own,) = Detections.from_batch(row, [size], label_id_offset=0)
        comparison = verification._compare_rows(*map(verification._rows, (expected, own)))
        assert comparison.agrees, (index, comparison)


def test_a_file_that_is_no_model_is_named(openvino, tmp_path):
    path = tmp_path / 'model.xml'
    path.write_text('<html/>')
    with pytest.raises(UserError, match=r'model\.xml: expected a model'):
        formats.load(path)
