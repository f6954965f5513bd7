"""LVIS, from its annotation file to the metrics of an evaluation."""

import dataclasses
import json

import numpy as np
import pytest
from google.protobuf import text_format

from object_detection.builders import dataset_builder, evaluator_builder
from object_detection.data.coco import examples as coco_examples
from object_detection.data.coco.annotations import NO_CLASSES
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats
from object_detection.data.formats import records as coco_records
from object_detection.dataset_tools.converters.conversion import convert
from object_detection.errors import UnusableError
from object_detection.protos import input_reader_pb2
from tests import tiny_models
from tests.data import examples
from tests.dataset_tools import records

SIZE = 20
CATEGORIES = [
    {'id': 5, 'name': 'dog', 'frequency': 'f', 'instance_count': 200},
    {'id': 7, 'name': 'ant', 'frequency': 'c', 'instance_count': 20},
    {'id': 2, 'name': 'cat', 'frequency': 'r', 'instance_count': 3},
]
# Classes of an image's object, and those of its lists: searched for but absent, and incomplete.
IMAGES = [('dog', [7], []), ('dog', [2, 7], []), ('cat', [], []), ('dog', [2], [2])]
BOX = np.array([0.2, 0.2, 0.7, 0.7])


@pytest.fixture(scope='module')
def lvis(tmp_path_factory):
    folder = tmp_path_factory.mktemp('lvis')
    (folder / 'val2017').mkdir()
    content = {'images': [], 'annotations': [], 'categories': CATEGORIES}
    for i, (name, absent, incomplete) in enumerate(IMAGES, start=1):
        (folder / f'val2017/{i}.png').write_bytes(examples.png(examples.noise(SIZE, SIZE)))
        url = f'http://images.cocodataset.org/val2017/{i}.png'
        lists = {'neg_category_ids': absent, 'not_exhaustive_category_ids': incomplete}
        image = {'id': i, 'coco_url': url, 'height': SIZE, 'width': SIZE, **lists}
        mask = [[4, 4, 14, 4, 14, 14, 4, 14]]
        box = {'category_id': {'dog': 5, 'cat': 2}[name], 'bbox': [4, 4, 10, 10], 'area': 100}
        content['images'].append(image)
        content['annotations'].append({'id': i, 'image_id': i, 'segmentation': mask, **box})
    (folder / 'lvis_v1_val.json').write_text(json.dumps(content))
    (folder / 'map.pbtxt').write_text(
        'item { id: 1 name: "cat" frequency: RARE } item { id: 2 name: "dog" frequency: FREQUENT }'
    )
    return folder


def _metrics(reader: str) -> dict[str, float]:
    """Returns the metrics of a model that finds a dog and a cat in each image."""
    config = tiny_models.tiny_pipeline('eval_config { batch_size: 4 }')
    config.eval_config.metrics_set[:] = ['lvis_mask_metrics']
    config.model.faster_rcnn.num_classes = 2
    options = 'load_instance_masks: true mask_type: PNG_MASKS load_image_labels: true'
    del config.eval_input_reader[:]
    config.eval_input_reader.append(
        text_format.Parse(f'{options} {reader}', input_reader_pb2.InputReader())
    )
    categories = evaluator_builder.categories(config.eval_input_reader[0], config.model)
    [evaluator] = evaluator_builder.build(config.eval_config, categories)
    [batch] = dataset_builder.build_eval(config)
    found = {
        'detection_boxes': np.tile(BOX, (4, 2, 1)),
        # The only cat is the least certain one.
        'detection_scores': np.array([[0.9, 0.8], [0.9, 0.8], [0.9, 0.7], [0.9, 0.8]]),
        'detection_classes': np.tile([1.0, 0.0], (4, 1)),
        'detection_masks': np.ones((4, 2, 14, 14), np.float32),
        'num_detections': np.full(4, 2.0),
    }
    evaluator.add_batch({key: value.numpy() for key, value in batch.items()}, found)
    return evaluator.evaluate()


def test_converted_records_have_what_the_metrics_need(lvis, tmp_path):
    [found] = formats.detect(str(lvis), LocalFiles())['coco']
    assert found.source.image_dir == str(lvis)
    label_map = tmp_path / 'map.pbtxt'
    label_map.write_text('item { id: 1 name: "cat" frequency: RARE } item { id: 2 name: "dog" }')
    source = dataclasses.replace(found.source, masks=True, label_map_file=str(label_map))
    assert convert(source, str(tmp_path / 'a'), 1)['num_problems'] == {}
    metrics = _metrics(
        f'label_map_path: "{tmp_path}/a_label_map.pbtxt" '
        f'tf_record_input_reader {{ input_path: "{tmp_path}/a-00000-of-00001" }}'
    )
    assert metrics['DetectionMasks_APf'] == pytest.approx(1)
    # Of the three cats that are none, one is in an image that was searched for all cats.
    assert metrics['DetectionMasks_APr'] == pytest.approx(1 / 2)


def test_frequencies_are_written_without_a_label_map(lvis, tmp_path):
    source = formats.detect(str(lvis), LocalFiles())['coco'][0].source
    convert(source, str(tmp_path / 'a'), 1)
    text = ' '.join((tmp_path / 'a_label_map.pbtxt').read_text().split())
    assert 'item { name: "dog" id: 5 frequency: FREQUENT instance_count: 200 }' in text
    assert 'item { name: "cat" id: 2 frequency: RARE instance_count: 3 }' in text


def test_lists_of_a_file_that_is_read_without_a_conversion(lvis):
    opened = coco_records.load_coco(
        str(lvis),
        str(lvis / 'lvis_v1_val.json'),
        by_text=True,
        label_map_path=str(lvis / 'map.pbtxt'),
    )
    features = [records.parse(opened.example(i)) for i in range(4)]
    # The label map has no ant.
    assert [item['image/neg_category_ids'] for item in features] == [[], [1], [], [1]]
    assert features[3]['image/not_exhaustive_category_ids'] == [1]


def test_a_list_that_is_none_is_a_problem_of_the_image(lvis):
    image = {'id': 1, 'file_name': 'a.png', 'neg_category_ids': 3}
    with pytest.raises(UnusableError, match='neg_category_ids must be a list of category ids'):
        coco_examples.image_annotations(image, [], coco_examples.Contents(NO_CLASSES))
