"""What is read directly equals what is read of the records that the conversion writes."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import dataset_builder
from object_detection.builders.input_readers import annotation_files, tf_records
from object_detection.core.fields import InputFields as F
from object_detection.data.coco import annotations as coco_categories
from object_detection.data.formats.coco import CocoSource
from object_detection.dataset_tools import shapes
from object_detection.dataset_tools.converters import conversion
from object_detection.dataset_tools.converters.conversion import convert
from object_detection.protos import input_reader_pb2, pipeline_pb2

CONFIG = """
model { faster_rcnn {
  num_classes: 90 groundtruth_mask_crop_size: 16
  image_resizer { fixed_shape_resizer { height: 48 width: 64 } }
} }
train_config { batch_size: 1 data_augmentation_options { random_horizontal_flip { } } }
eval_config { batch_size: 1 }
"""


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """12 images with shapes, to which every kind of annotation that is odd is added."""
    folder = tmp_path_factory.mktemp('shapes')
    shapes.write_shapes(folder, num_train=12, num_val=1, image_size=48)
    path = folder / 'instances_train.json'
    document = json.loads(path.read_text())
    crowd = {'size': [48, 48], 'counts': [100, 40, 2164]}
    odd = [
        {'image_id': 1, 'iscrowd': 1, 'segmentation': crowd},
        {'image_id': 2, 'segmentation': []},
        {'image_id': 2, 'category_id': 77},
        {'image_id': 3, 'bbox': [5, 5, 0, 9]},
        {'image_id': 3, 'bbox': [40, 5, 8.5, 9]},
        {'image_id': 3, 'bbox': [60, 5, 8, 9]},
        {'image_id': 999},
        # Images with nothing that is of use; they have no other annotations.
        {'image_id': 5, 'iscrowd': 1, 'segmentation': crowd},
        {'image_id': 6, 'segmentation': [[1, 2]]},
        {'image_id': 7, 'category_id': 4},
        {'image_id': 8, 'bbox': [4, 4, 1e-9, 9]},
    ]
    usual = {
        'category_id': 1,
        'bbox': [2, 4, 3, 5],
        'area': 9.5,
        'segmentation': [[2, 4, 5, 4, 5, 9]],
    }
    kept = [entry for entry in document['annotations'] if entry['image_id'] not in (5, 6, 7, 8, 9)]
    start = max(entry['id'] for entry in kept) + 1
    document['annotations'] = kept + [
        usual | entry | {'id': start + i} for i, entry in enumerate(odd)
    ]
    path.write_text(json.dumps(document))
    _convert(folder / 'train', path, folder / 'records')
    labels = coco_categories.from_categories(document['categories'])
    label_map = conversion.label_map_of(labels)
    (folder / 'all.pbtxt').write_text(conversion.to_text(label_map))
    # Without the cross, id 4, and with other numbers.
    (folder / 'three.pbtxt').write_text(
        ''.join(
            f"item {{ id: {i} name: '{name}' }}"
            for i, name in enumerate(('triangle', 'square', 'circle'), 1)
        )
    )
    return folder


def _convert(image_dir, annotations, prefix):
    convert(CocoSource(str(image_dir), str(annotations), masks=True), str(prefix), 1)


def _readers(folder, text='', *, image_dir='train', file='instances_train.json', prefix='records'):
    """The same reader over records, and without them."""
    pair = []
    for source in (
        f"tf_record_input_reader {{ input_path: '{folder}/{prefix}-?????-of-?????' }}",
        f"coco_input_reader {{ image_dir: '{folder}/{image_dir}' "
        f"annotation_file: '{folder}/{file}' }}",
    ):
        pair.append(text_format.Parse(source + text, input_reader_pb2.InputReader()))
    return pair


def _read(reader, *, training=False, seed=3):
    pipeline = text_format.Parse(CONFIG, pipeline_pb2.TrainEvalPipelineConfig())
    pipeline.train_input_reader.CopyFrom(reader)
    pipeline.eval_input_reader.add().CopyFrom(reader)
    if training:
        return list(dataset_builder.build_train(pipeline, seed=seed))
    return list(dataset_builder.build_eval(pipeline))


def _assert_equal(ours, expected):
    assert len(ours) == len(expected) > 0
    for batch, other in zip(ours, expected, strict=True):
        assert batch.keys() == other.keys()
        for name in batch:
            if name == F.EVALUATION_MASKS:
                assert batch[name].shape == other[name].shape
                for a, b in zip(batch[name].numpy().flat, other[name].numpy().flat, strict=True):
                    a, b = (tf.io.decode_png(png, channels=1) > 0 for png in (a, b))
                    np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_array_equal(batch[name], other[name], err_msg=name)


MASKS = ' load_instance_masks: true mask_type: PNG_MASKS'


def test_evaluation_equals_that_of_records(data):
    label_map = f" label_map_path: '{data}/all.pbtxt'"
    records, coco = _readers(data, MASKS + label_map)
    batches = _read(coco)
    _assert_equal(batches, _read(records))
    assert sum(int(batch[F.NUM_EVALUATION_BOXES][0]) for batch in batches) > 20
    assert any(np.any(batch[F.EVALUATION_IS_CROWD]) for batch in batches)
    assert [batch[F.SOURCE_ID].numpy()[0] for batch in batches] == [b'%d' % i for i in range(1, 13)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ('text', 'count'),
    [
        ('', 12),
        (" label_map_path: 'FOLDER/three.pbtxt'", 12),
        (" label_map_path: 'FOLDER/three.pbtxt' filter_empty_images: true", 8),
        (' filter_empty_images: true', 9),
        (' filter_empty_images: true skip_crowd: true', 8),
        (' sample_1_of_n_examples: 5', 3),
    ],
)
def test_training_equals_that_of_records(data, text, count, caplog):
    text = text.replace('FOLDER', str(data)) + MASKS + ' num_epochs: 1 shuffle: false'
    caplog.set_level(logging.INFO)
    batches, told = [], []
    for reader in _readers(data, text):
        caplog.clear()
        batches.append(_read(reader, training=True))
        told.append([line for line in caplog.messages if 'filter_empty' in line])
    _assert_equal(*reversed(batches))
    assert len(batches[0]) == count
    assert told[0] == told[1]


def _source_ids(reader, **options):
    options = {'shuffle': False, 'num_epochs': 1, 'seed': 0, 'input_context': None} | options
    start = np.zeros([1, tf_records.cursor_size(reader)], np.int64)
    records = annotation_files.read(reader, 'r', leave_out_empty=False, start=start, **options)
    examples = (
        tf.train.Example.FromString(record['serialized'])
        for _, record in records.as_numpy_iterator()
    )
    return [
        int(example.features.feature['image/source_id'].bytes_list.value[0]) for example in examples
    ]


def test_all_images_are_shuffled_unless_the_buffer_is_set(data):
    def order(reader, seed=3):
        return _source_ids(reader, shuffle=True, num_epochs=2, seed=seed)

    (_, reader) = _readers(data)
    ids = order(reader)
    first, second = ids[:12], ids[12:]
    assert sorted(first) == sorted(second) == list(range(1, 13))
    assert first != second
    assert first != sorted(first)
    assert order(reader) == ids != order(reader, seed=4)
    reader.shuffle_buffer_size = 1
    assert order(reader) == 2 * sorted(first)


def test_workers_share_the_images(data):
    (_, reader) = _readers(data)
    reader.coco_input_reader.image_dir.append(f'{data}/val')
    reader.coco_input_reader.annotation_file.append(f'{data}/instances_val.json')
    parts = [
        _source_ids(reader, input_context=tf.distribute.InputContext(2, i, 2)) for i in range(2)
    ]
    assert parts == [[1, 3, 5, 7, 9, 11, 1], [2, 4, 6, 8, 10, 12]]


def test_weights_mix_files(data):
    (_, reader) = _readers(data)
    reader.coco_input_reader.image_dir.append(f'{data}/val')
    reader.coco_input_reader.annotation_file.append(f'{data}/instances_val.json')
    reader.sample_from_datasets_weights.extend([1.0, 0.0])
    assert _source_ids(reader) == list(range(1, 13))
    reader.sample_from_datasets_weights.append(1.0)
    with pytest.raises(ValueError, match='one weight for each of the 2 entries of annotation_file'):
        _source_ids(reader)


def test_errors_of_the_reader(data):
    (_, reader) = _readers(data)
    reader.coco_input_reader.annotation_file.append('another.json')
    with pytest.raises(ValueError, match='1 image_dir and 2 annotation_file'):
        annotation_files.build(reader, 'train_input_reader')
    del reader.coco_input_reader.annotation_file[1]
    reader.num_keypoints = 5
    with pytest.raises(ValueError, match=r'r\.num_keypoints: expected 9.* Received: 5'):
        annotation_files.build(reader, 'r')
    (_, reader) = _readers(data, file='all.pbtxt')
    with pytest.raises(ValueError, match=r'r\.coco_\w+\.annotation_file\[0\]: .*not a JSON file'):
        annotation_files.build(reader, 'r')


REAL = {
    'coco_permissive': ('images', 'annotations/instances_val.json'),
    'dsb2018_nuclei': ('', 'instances_rle.json'),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', ['coco_permissive', 'dsb2018_nuclei'])
def test_real_data_equal_their_records(shared, tmp_path, name):
    folder = shared / 'data' / name
    image_dir, file = REAL[name]
    document = json.loads((folder / file).read_text())
    document['images'] = document['images'][:8]
    ids = {image['id'] for image in document['images']}
    document['annotations'] = [a for a in document['annotations'] if a['image_id'] in ids]
    (tmp_path / 'part.json').write_text(json.dumps(document))
    (tmp_path / 'images').symlink_to(folder / image_dir)
    _convert(tmp_path / 'images', tmp_path / 'part.json', tmp_path / 'records')
    label_map = f" label_map_path: '{tmp_path}/records_label_map.pbtxt'"
    records, coco = _readers(tmp_path, MASKS + label_map, image_dir='images', file='part.json')
    batches = _read(coco)
    _assert_equal(batches, _read(records))
    assert len(batches) == 8
