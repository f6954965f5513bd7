"""Running a model on records."""

import numpy as np
import pytest

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_examples
from object_detection.dataset_tools.context_rcnn import models, records
from object_detection.dataset_tools.context_rcnn.models import Model
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.errors import UserError
from tests.dataset_tools.context_rcnn import examples

# In no order, and a row of padding.
OUTPUTS = {
    'detection_boxes': np.arange(16, dtype=np.float32).reshape(4, 4),
    'detection_scores': np.array([0.2, 0.9, 0.5, 1.0], np.float32),
    'num_detections': np.float32(3),
}


@pytest.fixture(scope='module', params=[None, 1], ids=['any batch', 'one image'])
def folder(request, tmp_path_factory) -> str:
    return examples.save_model(tmp_path_factory.mktemp('m') / 'm', OUTPUTS, request.param)


def _example(number: int, height: int, width: int, encoded: bytes = b'') -> records.Example:
    encoded = encoded or examples.image_file(height, width, seed=number)
    features = {
        'encoded': tf_examples.bytes_feature([encoded]),
        'height': tf_examples.int64_feature([height]),
        'width': tf_examples.int64_feature([width]),
    }
    return records.parse(examples.example(number, **features))


def test_batches_of_one_size_keep_the_order_and_leave_out_corrupt_images(folder):
    sizes = [(8, 12), (12, 8)]
    images = [_example(i, *sizes[i % 3 == 0]) for i in range(11)]
    images[4] = _example(4, 8, 12, encoded=examples.image_file()[:60])
    images[10] = _example(10, 8, 12, encoded=b'no image')
    counts = Counts()
    found = list(Model(folder, 2).run(images, counts))
    ids = [image.text(keys.SOURCE_ID) for image, _ in found]
    assert ids == [f'img{i}' for i in range(11) if i not in (4, 10)]
    assert counts['bad_images'] == 2
    for _, outputs in found:
        assert outputs['detection_scores'].tolist() == np.float32([0.9, 0.5, 0.2]).tolist()
        np.testing.assert_array_equal(outputs['detection_boxes'][:, 0], [4, 8, 0])


def test_sizes_are_those_of_the_files_and_unwanted_images_are_not_run(folder):
    other = {'encoded': examples.image_file(9, 12)}
    # The records state one size; two images are none, of which one is not wanted.
    images = [_example(1, 8, 12), _example(2, 8, 12, **other), _example(3, 8, 12)]
    images += [_example(i, 8, 12, encoded=b'no image') for i in (4, 5)]
    counts = Counts()
    wanted = ('img2', 'img3', 'img4')
    runs = Model(folder, 4).run(images, counts, lambda each: each.text(keys.SOURCE_ID) in wanted)
    found = [(image.text(keys.SOURCE_ID), bool(outputs)) for image, outputs in runs]
    assert found == [('img1', False), ('img2', True), ('img3', True), ('img5', False)]
    assert counts['bad_images'] == 1


def test_a_model_that_fails_on_good_images_is_an_error(tmp_path):
    with pytest.raises(UserError, match='holds no SavedModel'):
        Model(str(tmp_path), 1).check()
    # The operation that the model decodes with does not know this format.
    image = _example(1, 8, 12, encoded=examples.image_file(kind='WEBP'))
    path = examples.save_model(tmp_path / 'm', OUTPUTS)
    with pytest.raises(UserError, match=r"cannot process image 'img1'.*--input_type tf_example"):
        list(Model(path, 2).run([image], Counts()))


def test_names_of_features():
    assert models.features_output('final_box_features') == 'detection_features'
    assert models.features_output('rpn_box_features') == 'cropped_rpn_box_features'
