import io
import logging

import numpy as np
import pytest
from PIL import Image

from object_detection.config import report
from object_detection.protos import input_reader_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import records
from tests import rows
from tests.data import examples

BOX = [0.1, 0.1, 0.5, 0.5]
MASK = np.ones((20, 30))


@pytest.fixture
def found(tmp_path):
    """Returns what is found in some examples; the label map has cat and dog."""

    cat_and_dog = "item { id: 1 name: 'cat' } item { id: 2 name: 'dog' }"

    def check(serialized, label_map=cat_and_dog, num_classes=0, highest=0, **set):
        pipeline = TrainEvalPipelineConfig()
        if highest:
            pipeline.model.ssd.image_resizer.value_range.max = highest
        if num_classes:
            pipeline.model.faster_rcnn.num_classes = num_classes
        reader = pipeline.train_input_reader
        for name, value in set.items():
            setattr(reader, name, value)
        if label_map:
            reader.label_map_path = examples.write_label_map(tmp_path, label_map)
        path = examples.write_records(tmp_path / 'train', serialized)
        reader.tf_record_input_reader.input_path.append(path)
        pipeline.eval_input_reader.add().CopyFrom(reader)
        problems = list(records.check_training(pipeline))
        evaluation = list(records.check_evaluation(pipeline))
        # Evaluation may well be of images without objects.
        shared = [problem for problem in problems if 'records with objects (' not in problem]
        expected = [problem.replace('train_', 'eval_', 1) for problem in shared]
        assert [problem.replace('reader[0]', 'reader', 1) for problem in evaluation] == expected
        return problems

    return check


def numerical():
    return examples.example([BOX], [1], image__object__mask=[1.0] * 600)


def test_masks_of_the_other_type_are_reported(found):
    png = examples.example([BOX], [1], masks=[MASK])
    empty = examples.example()
    as_png = {'load_instance_masks': True, 'mask_type': input_reader_pb2.PNG_MASKS}
    assert found([empty, png], **as_png) == []
    assert found([empty, numerical()], load_instance_masks=True) == []
    (problem,) = found([empty, png], load_instance_masks=True)
    assert problem == (
        'train_input_reader.mask_type is NUMERICAL_MASKS (not set), but the records hold masks as '
        'PNG files; set it to PNG_MASKS.'
    )
    (problem,) = found([numerical()], **as_png)
    assert problem.startswith('train_input_reader.mask_type is PNG_MASKS, but')
    assert problem.endswith('set it to NUMERICAL_MASKS.')
    assert found([png]) == []


def test_records_without_any_mask_are_reported(found):
    (problem,) = found([examples.example([BOX], [1])] * 30, load_instance_masks=True)
    assert problem.startswith('train_input_reader.load_instance_masks is true, but the first 20 ')
    assert 'tfod convert coco --masks' in problem
    (problem,) = found([examples.example()] * 30, load_instance_masks=True)
    assert 'records with objects (image/object/bbox/ymin and so on)' in problem
    assert problem.endswith('Received: none in the first 30 records.')


@rows.parametrize(
    ('values', 'options', 'is_sound'),
    [
        ({'image__object__is_crowd': [1, 1]}, {'skip_crowd': True}, False),
        ({'image__object__is_crowd': [1, 0]}, {'skip_crowd': True}, True),
        ({'image__object__is_crowd': [1, 1]}, {}, True),
        ({'image__object__weight': [0.0, 0.0]}, {}, False),
        ({'image__object__weight': [0.0, 0.5]}, {}, True),
    ],
)
def test_training_needs_objects_that_train(found, values, options, is_sound):
    problems = found([examples.example([BOX, BOX], [1, 1], **values)], **options)
    assert len(problems) == (not is_sound)
    if problems:
        crowds = 'which are no crowds' in problems[0]
        assert 'of a weight above 0' in problems[0]
        assert crowds == bool(options)


def test_a_wholly_wrong_label_map_is_reported_with_both_sides(found):
    cow = examples.example([BOX], [1], ['cow'])
    cat = examples.example([BOX] * 2, [1, 1], ['cow', 'cat'])
    (problem,) = found([examples.example(), cow, cow])
    assert problem.startswith('train_input_reader.label_map_path: ')
    assert problem.endswith(
        "none of the classes of the first 2 records with objects. They have 'cow'; the label map "
        "has 'cat', 'dog'."
    )
    # A rare class alone is a sound label map.
    assert found([cow] * 200 + [cat]) == []
    assert found([cow], label_map='') == []
    assert found([examples.example([BOX], [1])]) == []


def test_the_search_for_a_class_is_bounded(found, monkeypatch):
    monkeypatch.setattr(records, '_MAX_WITHOUT_CLASS', 5)
    cow, cat = (examples.example([BOX], [1], [text]) for text in ('cow', 'cat'))
    assert len(found([cow] * 5 + [cat])) == 1


@rows.parametrize(
    ('content', 'message'),
    [
        (b'{"images": []}' * 9, 'is no TFRecord file'),
        (b'short', 'is no TFRecord file'),
        (b'', "expected files with records. Received files without any: '"),
    ],
)
def test_other_files_are_reported(tmp_path, content, message):
    (tmp_path / 'data').write_bytes(content)
    pipeline = TrainEvalPipelineConfig()
    reader = pipeline.train_input_reader
    reader.load_instance_masks = True
    reader.tf_record_input_reader.input_path.append(str(tmp_path / 'data'))
    (problem,) = records.check_training(pipeline)
    assert message in problem
    assert str(tmp_path / 'data') in problem


def test_records_that_are_no_examples_are_reported(found):
    (problem,) = found([b'\xff\xff\xff'])
    assert problem.startswith('train_input_reader.tf_record_input_reader.input_path: ')
    assert problem.endswith('holds records that are no examples.')


def test_boxes_in_pixels_are_reported(found):
    pixels = examples.example([[10.0, 20.0, 300.0, 400.0]], [1])
    fine = examples.example([BOX], [1])
    (problem,) = found([pixels, pixels, fine])
    assert problem.startswith('train_input_reader, record with source id')
    assert 'normalized to the image, 0..1. Received: coordinates from 10 to 400' in problem
    # One wrong box among many is left out by the pipeline, which tells it.
    assert found([pixels, fine, fine]) == []


def test_labels_above_num_classes_are_reported(found):
    (problem,) = found([examples.example([BOX], [3])], label_map='', num_classes=2)
    assert problem.endswith('up to model.faster_rcnn.num_classes = 2. Received: label 3.')
    assert found([examples.example([BOX], [2])], label_map='', num_classes=2) == []


def test_labels_that_start_at_0_are_reported(found):
    counted_from_0 = examples.example([BOX] * 2, [0, 1])
    (problem,) = found([counted_from_0], label_map='', num_classes=2)
    assert problem.endswith('labels from 1 on, as 0 is the background. Received: label 0.')


def test_boxes_of_swapped_sides_are_reported(found):
    ymin, xmin, ymax, xmax = BOX
    swapped = examples.example([[ymax, xmin, ymin, xmax]] * 2, [1, 1])
    (problem,) = found([swapped])
    assert 'expected boxes with ymin < ymax and xmin < xmax. Received: 2 boxes' in problem
    # One among others is left out by the pipeline, which tells it.
    assert found([examples.example([BOX, [ymax, xmin, ymin, xmax]], [1, 1])]) == []


def test_boxes_that_are_no_numbers_are_reported(found):
    (problem,) = found([examples.example([BOX, [0.1, float('nan'), 0.5, 0.5]], [1, 1])])
    assert problem.endswith('finite coordinates of the boxes. Received: NaN or infinity.')


def test_labels_count_as_they_are_trained_on_and_scores_by_their_number(tmp_path):
    pipeline = TrainEvalPipelineConfig()
    pipeline.model.faster_rcnn.num_classes = 2
    record = examples.example([BOX] * 2, [1, 7], image__object__class__multiclass_scores=[0.5] * 6)
    path = examples.write_records(tmp_path / 'train', [record])
    pipeline.train_input_reader.tf_record_input_reader.input_path.append(path)
    (problem,) = records.check_training(pipeline)
    assert problem.endswith('Received: label 7.')
    step = pipeline.train_config.data_augmentation_options.add()
    step.remap_labels.original_labels.append(7)
    step.remap_labels.new_label = 2
    assert list(records.check_training(pipeline)) == []
    pipeline.train_config.use_multiclass_scores = True
    (problem,) = records.check_training(pipeline)
    assert 'expected 4 values of image/object/class/multiclass_scores' in problem
    assert problem.endswith('of 2 boxes. Received: 6.')
    pipeline.model.faster_rcnn.num_classes = 3
    assert list(records.check_training(pipeline)) == []


def test_all_records_are_looked_through_for_damage_and_crowded_images(tmp_path, caplog):
    crowded = examples.example([BOX] * 7, [1] * 7, source_id='img 42')
    path = examples.write_records(tmp_path / 'train', [examples.example([BOX], [1])] * 20)
    with open(examples.write_records(tmp_path / 'more', [crowded]), 'rb') as more:
        content = more.read()
    (tmp_path / 'train').write_bytes((tmp_path / 'train').read_bytes() + content)
    pipeline = TrainEvalPipelineConfig()
    pipeline.train_input_reader.tf_record_input_reader.input_path.append(path)
    pipeline.train_input_reader.max_number_of_boxes = 7
    parts = ('train_input_reader', 'eval_input_reader')
    with caplog.at_level(logging.WARNING):
        assert list(records.check_all(pipeline, parts)) == []
        assert not caplog.messages
        pipeline.train_input_reader.max_number_of_boxes = 6
        pipeline.eval_input_reader.add().CopyFrom(pipeline.train_input_reader)
        assert list(records.check_all(pipeline, parts)) == []
    (message,) = caplog.messages
    assert message.startswith('train_input_reader.max_number_of_boxes is 6, but record with source')
    assert f"'img 42' in {path} has 7 objects" in message

    size = len((tmp_path / 'train').read_bytes())
    with open(path, 'r+b') as file:
        file.seek(size - 20)
        file.write(b'!')
    # The first records, which are looked at before each training, are as they were.
    assert list(records.check_training(pipeline)) == []
    training, evaluation = records.check_all(pipeline, parts)
    assert training.startswith('train_input_reader.tf_record_input_reader.input_path: ')
    assert f'{path} is damaged: the content of record 20' in training
    assert evaluation == training.replace('train_input_reader', 'eval_input_reader[0]', 1)


@pytest.mark.parametrize(('dtype', 'count'), [(np.uint8, 0), (np.uint16, 1)])
def test_images_of_16_bits_are_reported(found, caplog, dtype, count):
    file = io.BytesIO()
    Image.fromarray(np.full((20, 30), 99, dtype)).save(file, 'PNG')
    record = examples.example([BOX], [1], image=file.getvalue(), source_id='img 42')
    assert found([record]) == []
    told = [text for text in caplog.messages if text.startswith('train_input_reader: records')]
    assert len(told) == count
    assert all("'img 42'. The upper 8 bits" in text for text in told)
    caplog.clear()
    with report.job():
        assert found([record], highest=4095) == []
    assert not [text for text in caplog.messages if 'upper 8 bits' in text]


def test_the_search_for_damage_is_bounded(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(records, '_MAX_BYTES', 1000)
    pipeline = TrainEvalPipelineConfig()
    reader = pipeline.train_input_reader
    for name in ('a', 'b'):
        path = examples.write_records(tmp_path / name, [examples.example([BOX], [1])] * 3)
        reader.tf_record_input_reader.input_path.append(path)
    with caplog.at_level(logging.WARNING):
        assert list(records.check_all(pipeline, ('train_input_reader',))) == []
    assert 'the first 1 of 2 files were read for damage' in caplog.text
