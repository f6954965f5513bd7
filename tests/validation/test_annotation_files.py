import json

import pytest

from object_detection.errors import ConfigError
from object_detection.validation import records, warnings
from object_detection.validation.validate import validate
from tests.data import examples
from tests.validation.pipelines import sound_pipeline


@pytest.fixture
def pipeline(tmp_path):
    """A sound config whose readers are replaced by COCO files of three images."""
    (tmp_path / 'images').mkdir()
    for i in range(3):
        (tmp_path / 'images' / f'{i}.png').write_bytes(examples.png(examples.noise(20, 30)))
    config = sound_pipeline(tmp_path)
    for reader in (config.train_input_reader, *config.eval_input_reader):
        reader.coco_input_reader.image_dir.append(str(tmp_path / 'images'))
        reader.coco_input_reader.annotation_file.append(str(tmp_path / 'a.json'))
    write(tmp_path)
    return config


def write(folder, names=('a', 'b'), count=3, **others):
    images = [{'id': 5 + i, 'file_name': f'{i}.png', 'height': 20, 'width': 30} for i in range(3)]
    usual = {
        'category_id': 1,
        'bbox': [2, 4, 3, 5],
        'area': 9,
        'segmentation': [[2, 4, 5, 4, 5, 9]],
    }
    document = {
        'images': images,
        'annotations': [{'id': i, 'image_id': 5 + i} | usual | others for i in range(count)],
        'categories': [{'id': i, 'name': name} for i, name in enumerate(names, 1)],
    }
    (folder / 'a.json').write_text(json.dumps(document))


def found(pipeline):
    """The problems of training; evaluation must have the same ones."""
    problems = list(records.check_training(pipeline))
    evaluation = list(records.check_evaluation(pipeline))
    assert [p.replace('eval_input_reader[0]', 'train_input_reader') for p in evaluation] == problems
    return problems


def test_sound_files_pass(pipeline):
    assert found(pipeline) == []
    validate(pipeline, for_what=('train', 'eval'))


def test_what_is_for_record_files_is_reported(pipeline, caplog):
    pipeline.train_input_reader.num_readers = 8
    warnings.warn(pipeline, ('train_input_reader', 'eval_input_reader'))
    (message,) = caplog.messages
    assert 'train_input_reader.num_readers' in message
    assert 'reads no record files' in message


def test_files_that_are_not_there(pipeline):
    reader = pipeline.train_input_reader.coco_input_reader
    reader.image_dir[0] = 'no/images'
    reader.annotation_file.append('no/b.json')
    with pytest.raises(ConfigError) as caught:
        validate(pipeline, for_what='train')
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        'train_input_reader.coco_input_reader: expected one image_dir for each annotation_file. '
        'Received: 1 image_dir and 2 annotation_file.',
        "train_input_reader.coco_input_reader.image_dir[0]: there is no folder 'no/images'.",
        "train_input_reader.coco_input_reader.annotation_file[1]: there is no file 'no/b.json'.",
    ]


def test_missing_images_are_counted_and_the_first_is_named(pipeline, tmp_path):
    for i in (1, 2):
        (tmp_path / 'images' / f'{i}.png').unlink()
    (problem,) = found(pipeline)
    assert problem == (
        'train_input_reader.coco_input_reader.image_dir[0]: expected all 3 images of '
        f'{tmp_path}/a.json. Received: 2 missing, of which {tmp_path}/images/1.png (image 6 of '
        f'{tmp_path}/a.json) does not exist.'
    )


def test_a_broken_file_is_named(pipeline, tmp_path):
    (tmp_path / 'a.json').write_bytes(b'{"images": [\xff')
    (problem,) = found(pipeline)
    assert problem.startswith('train_input_reader.coco_input_reader.annotation_file[0]: ')
    assert f'{tmp_path}/a.json, line 1: expected text in UTF-8' in problem


def test_a_label_map_of_other_classes(pipeline, tmp_path):
    write(tmp_path, names=('cat', 'b'))
    assert found(pipeline) == []
    write(tmp_path, names=('cat', 'dog'))
    (problem,) = found(pipeline)
    assert problem.endswith("label_map.pbtxt, 'a', 'b'. Received: 'cat', 'dog'.")


def test_categories_are_numbered_without_a_label_map(pipeline, tmp_path):
    pipeline.train_input_reader.label_map_path = ''
    assert list(records.check_training(pipeline)) == []
    write(tmp_path, names=('a', 'b', 'c'))
    (problem,) = records.check_training(pipeline)
    assert problem.startswith('model.faster_rcnn.num_classes is 2, but train_input_reader.')
    assert 'has category ids up to 3; expected at least 3' in problem
    step = pipeline.train_config.data_augmentation_options.add().drop_label_probabilistically
    step.label, step.drop_probability = 3, 1
    assert list(records.check_training(pipeline)) == []


@pytest.mark.parametrize(
    ('others', 'text'),
    [
        ({'segmentation': None}, 'annotation 0 of image 5: segmentation cannot be read'),
        ({'bbox': [2, 4, 0, 5]}, 'annotation 0 of image 5: bbox [x, y, width, height] is'),
        ({'category_id': 9}, 'annotation 0 of image 5: category_id is 9.'),
    ],
)
def test_annotations_of_no_use(pipeline, tmp_path, others, text):
    write(tmp_path, **others)
    (problem,) = found(pipeline)
    assert 'Received: 3 that cannot be, of the first 3' in problem
    assert text in problem


def test_crowds_do_not_train_where_they_are_left_out(pipeline, tmp_path):
    write(tmp_path, iscrowd=1)
    assert found(pipeline) == []
    pipeline.train_input_reader.skip_crowd = True
    (problem,) = records.check_training(pipeline)
    assert 'expected images with objects that are no crowds' in problem


def test_boxes_within_the_first_pixel(pipeline, tmp_path):
    write(tmp_path, bbox=[0.1, 0.2, 0.5, 0.6])
    (problem,) = found(pipeline)
    assert '3 of 3 boxes lie within the first pixel of their image' in problem


def test_boxes_in_another_order_are_a_warning(pipeline, tmp_path, caplog):
    write(tmp_path, bbox=[20, 4, 25, 9])
    assert found(pipeline) == []
    assert '[x1, y1, x2, y2]' in caplog.text


def test_training_needs_objects(pipeline, tmp_path):
    write(tmp_path, count=0)
    (problem,) = records.check_training(pipeline)
    assert problem.endswith('expected images with objects. Received: none in the first 3 images.')
    assert list(records.check_evaluation(pipeline)) == []


def test_files_of_an_evaluation_do_not_share_ids(pipeline, tmp_path):
    reader = pipeline.eval_input_reader.add()
    reader.CopyFrom(pipeline.train_input_reader)
    assert list(records.check_evaluation(pipeline)) == []
    coco = reader.coco_input_reader
    coco.image_dir.append(coco.image_dir[0])
    coco.annotation_file.append(coco.annotation_file[0])
    (problem,) = records.check_evaluation(pipeline)
    assert 'expected images of different ids in all files of an evaluation' in problem
    assert 'Received: 3 that are in two files' in problem
    pipeline.train_input_reader.CopyFrom(reader)
    assert list(records.check_training(pipeline)) == []


def test_an_image_with_more_objects_than_rows_is_reported(pipeline, caplog):
    document = {
        'images': [{'id': 5, 'file_name': '0.png', 'height': 20, 'width': 30}],
        'annotations': [
            {'id': i, 'image_id': 5, 'category_id': 1, 'bbox': [2, 4, 3, 5], 'area': 9}
            for i in range(3)
        ],
        'categories': [{'id': 1, 'name': 'a'}],
    }
    path = pipeline.train_input_reader.coco_input_reader.annotation_file[0]
    with open(path, 'w') as file:
        json.dump(document, file)
    pipeline.train_input_reader.load_instance_masks = False
    pipeline.train_input_reader.max_number_of_boxes = 2
    assert list(records.check_all(pipeline, ('train_input_reader',))) == []
    (message,) = caplog.messages
    assert message.startswith('train_input_reader.max_number_of_boxes is 2, but image 5 of ')
    assert 'has 3 objects' in message
