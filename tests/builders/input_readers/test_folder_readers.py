"""Readers of folders in PASCAL VOC and YOLO format, compared with records of the same images."""

import base64
import json
import shutil

import numpy as np
import pytest
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import annotation_files, tf_records
from object_detection.core.fields import InputFields as F
from object_detection.data import label_map, tf_examples
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.voc import VocSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.errors import ConfigError, UserError
from object_detection.protos import input_reader_pb2, pipeline_pb2
from object_detection.training import epochs
from object_detection.validation import records as checks
from tests import rows, slow_cases
from tests.builders.input_readers.test_annotation_files import CONFIG
from tests.data import examples
from tests.dataset_tools import records

_MASKS = {'load_instance_masks': True}
_MAP = "item { id: 3 name: 'dog' } item { id: 1 name: 'cat' }"
_OBJECT = (
    '<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>'
    '</bndbox></object>'
)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Five images with their annotations in both formats; the last one has no objects."""
    folder = tmp_path_factory.mktemp('data')
    for name in ('images', 'labels', 'Annotations'):
        (folder / name).mkdir()
    for i in range(5):
        (folder / f'images/{i}.png').write_bytes(examples.png(examples.noise(20, 40)))
        objects = [('cat', 2 * i, 4, 2 * i + 10, 12), ('dog', 5, 5, 35, 20)][: 2 if i < 4 else 0]
        xml = ''.join(_OBJECT.format(*item) for item in objects)
        (folder / f'Annotations/{i}.xml').write_text(
            f'<annotation><filename>{i}.png</filename>{xml}</annotation>'
        )
        lines = [
            f'{name == "dog":d} {x0 / 40} {y0 / 20} {x1 / 40} {y0 / 20} {x1 / 40} {y1 / 20}'
            for name, x0, y0, x1, y1 in objects
        ]
        (folder / f'labels/{i}.txt').write_text('\n'.join(lines))
    (folder / 'data.yaml').write_text('train: images\nnames: [cat, dog]')
    (folder / 'map.pbtxt').write_text(_MAP)
    return folder


def _reader(data, kind, label_map_path='', **others) -> input_reader_pb2.InputReader:
    reader = input_reader_pb2.InputReader(label_map_path=label_map_path, **others)
    if kind == 'voc':
        reader.voc_input_reader.data_dir = str(data)
        reader.voc_input_reader.images_dir = 'images'
    else:
        reader.yolo_input_reader.data = str(data / 'data.yaml')
    return reader


@rows.parametrize('labels', ['', 'map.pbtxt'])
@rows.parametrize('kind', ['voc', 'yolo'])
def test_examples_equal_those_of_the_conversion(data, kind, labels):
    source = {
        'voc': VocSource(str(data), images_dir='images'),
        'yolo': YoloSource(str(data / 'data.yaml'), masks=True),
    }[kind]
    path = str(data / labels) if labels else ''
    files = LocalFiles()
    opened = source.open(files, label_map.load(path) if labels else None)
    expected = [
        tf_examples.to_example(formats_source.read(opened.reader, entry, files).image)
        for entry in source.entries(files)
    ]
    reader = _reader(data, kind, path, load_instance_masks=kind == 'yolo')
    [ours] = annotation_files.build(reader, 'train_input_reader')
    assert [ours.example(i) for i in range(len(ours))] == expected
    assert len(expected) == 5
    assert annotation_files.build(reader, 'eval')[0] is ours


@slow_cases.parametrize(1, 'kind', ['voc', pytest.param('yolo', marks=pytest.mark.slow)])
def test_trains_from_the_files(data, kind):
    pipeline = text_format.Parse(CONFIG, pipeline_pb2.TrainEvalPipelineConfig())
    path = str(data / 'map.pbtxt')
    masks = kind == 'yolo'
    reader = _reader(data, kind, path, load_instance_masks=masks, filter_empty_images=True)
    reader.num_epochs = 1
    pipeline.train_input_reader.CopyFrom(reader)
    batches = list(dataset_builder.build_train(pipeline, seed=1))
    ids = {i for batch in batches for i in batch[F.SOURCE_ID].numpy().tolist()}
    assert ids <= {b'%d.png' % i for i in range(4)}
    classes = np.concatenate([batch[F.GROUNDTRUTH_CLASSES].numpy() for batch in batches])
    assert classes[..., [0, 2]].any((0, 1)).all()
    assert not classes[..., 1].any()


@pytest.mark.parametrize('kind', ['voc', 'yolo'])
def test_checks_of_the_files(data, kind, tmp_path):
    pipeline = text_format.Parse(CONFIG, pipeline_pb2.TrainEvalPipelineConfig())
    reader = _reader(data, kind)
    where = 'train_input_reader'
    assert list(checks.check(pipeline, reader, where, needs_objects=True)) == []
    numbers = [tf_records.fingerprint(reader), tf_records.fingerprint(_reader(data, kind))]
    assert numbers[0] == numbers[1]
    pipeline.train_input_reader.CopyFrom(reader)
    pipeline.train_input_reader.num_epochs = 0
    pipeline.train_config.num_epochs = 3
    epochs.resolve_epochs(pipeline)
    field = 'data_dir' if kind == 'voc' else 'data'
    getattr(reader, f'{kind}_input_reader').ClearField(field)
    with pytest.raises(ConfigError, match=f'{kind}_input_reader.{field} is not set'):
        annotation_files.build(reader, where)
    setattr(getattr(reader, f'{kind}_input_reader'), field, str(tmp_path / 'absent'))
    with pytest.raises(UserError, match=rf'^{where}.{kind}_input_reader.{field}: .*[Tt]here is no'):
        annotation_files.build(reader, where)


def test_masks_of_pascal_voc_are_those_of_its_folder(data):
    reader = _reader(data, 'voc', load_instance_masks=True)
    with pytest.raises(UserError, match=r'data_dir: .*expected masks in a folder'):
        annotation_files.build(reader, 'r')
    numbers = np.zeros((20, 40), np.uint8)
    numbers[4:12, 2:12], numbers[12:20, 5:35] = 1, 2
    (data / 'SegmentationObject').mkdir()
    (data / 'SegmentationObject/1.png').write_bytes(examples.png(numbers))
    try:
        [ours] = annotation_files.build(reader, 'r')
        features = records.parse(ours.example(0))
    finally:
        shutil.rmtree(data / 'SegmentationObject')
    assert len(ours) == 1
    assert features['image/object/area'] == [80, 240]
    assert len(features['image/object/mask']) == 2


@pytest.fixture
def regions(data):
    """The file of the VGG Image Annotator of two of the images."""
    triangle = {'name': 'polygon', 'all_points_x': [4, 24, 24], 'all_points_y': [2, 2, 12]}
    region = {'shape_attributes': triangle, 'region_attributes': {'label': 'dog'}}
    images = {f'{i}': {'filename': f'{i}.png', 'regions': [region] * (i + 1)} for i in range(2)}
    path = data / 'via.json'
    path.write_text(json.dumps(images))
    return path


def _by_name(name, label_map_path='', options=None, **others) -> input_reader_pb2.InputReader:
    reader = input_reader_pb2.InputReader(label_map_path=label_map_path, **others)
    reader.annotation_input_reader.format = name
    reader.annotation_input_reader.options.update(options or {})
    return reader


def test_other_formats_are_read_by_their_names(data, regions):
    options = {'annotations': str(regions), 'images': str(data / 'images'), 'attribute': 'label'}
    reader = _by_name('via', str(data / 'map.pbtxt'), options, load_instance_masks=True)
    pipeline = text_format.Parse(CONFIG, pipeline_pb2.TrainEvalPipelineConfig())
    pipeline.train_input_reader.CopyFrom(reader)
    pipeline.train_input_reader.num_epochs = 1
    batches = list(dataset_builder.build_train(pipeline, seed=1))
    assert sorted(i for batch in batches for i in batch[F.SOURCE_ID].numpy()) == [
        b'0.png',
        b'1.png',
    ]
    assert batches[0][F.GROUNDTRUTH_INSTANCE_MASK_CROPS].shape[2:] == [16, 16]
    [ours] = annotation_files.build(reader, 'r')
    features = [records.parse(ours.example(i)) for i in range(2)]
    assert [each['image/object/class/label'] for each in features] == [[3], [3, 3]]
    assert [len(each['image/object/mask']) for each in features] == [1, 2]
    assert features[0]['image/object/area'] == [100]


def test_images_within_annotation_files_are_not_missing(tmp_path):
    image = examples.png(examples.noise(20, 40))
    shape = {'label': 'cat', 'shape_type': 'rectangle', 'points': [[4, 2], [12, 6]]}
    document = {'imagePath': 'a.png', 'shapes': [shape]}
    document['imageData'] = base64.b64encode(image).decode()
    (tmp_path / 'a.json').write_text(json.dumps(document))
    [ours] = annotation_files.build(_by_name('labelme', options={'data_dir': str(tmp_path)}), 'r')
    assert not list(ours.missing_images())
    assert records.parse(ours.example(0))['image/encoded'] == [image]


def test_options_of_other_formats_are_checked(data, regions):
    where = 'r.annotation_input_reader'
    options = {'annotations': str(regions)}
    for reader, match in (
        (_by_name(''), 'format is not set'),
        (_by_name('vya', options=options), f'{where}.format: expected one of coco, ava, '),
        (_by_name('via'), rf'{where}.options\[annotations\]: expected file of the annotations'),
        (
            _by_name('via', options={**options, 'masks': 'true'}),
            rf'{where}.options\[masks\]: expected one of annotations, images, attribute, cl',
        ),
        (
            _by_name('label_studio', options={**options, 'keep_not_annotated': 'x'}),
            rf'{where}.options\[keep_not_annotated\]: expected true or false',
        ),
        (_by_name('via', options={'annotations': 'x'}), f'^{where}.options: .*no annotation file'),
        (
            _by_name('createml', options={'annotations': str(data / 'c.json')}, **_MASKS),
            'r.load_instance_masks: expected false',
        ),
    ):
        (data / 'c.json').write_text(
            '[{"image": "0.png", "annotations": [{"label": "cat", "coordinates": {}}]}]'
        )
        with pytest.raises(UserError, match=match):
            annotation_files.build(reader, 'r')


def test_keypoints_of_yolo_are_read(data, tmp_path):
    shutil.copytree(data / 'images', tmp_path / 'images')
    (tmp_path / 'labels').mkdir()
    for i in range(5):
        (tmp_path / f'labels/{i}.txt').write_text('0 .5 .5 .5 .5 .25 .5 2 0 0 0')
    (tmp_path / 'data.yaml').write_text('train: images\nnames: [cat]\nkpt_shape: [2, 3]')
    reader = _reader(tmp_path, 'yolo', num_keypoints=2)
    [ours] = annotation_files.build(reader, 'r')
    features = records.parse(ours.example(3))
    assert features['image/object/keypoint/x'] == [0.25, 0]
    assert features['image/object/keypoint/visibility'] == [2, 0]
    assert features['image/object/keypoint/text'] == [b'keypoint_0', b'keypoint_1']
    reader.num_keypoints = 3
    with pytest.raises(UserError, match='num_keypoints: expected 2'):
        annotation_files.build(reader, 'r')
