import json
import subprocess
import sys

import pytest
from absl import app, flags
from absl.testing import flagsaver

from object_detection.dataset_tools import create_coco_tf_record
from object_detection.dataset_tools.converters import scripts
from tests import goldens, rows
from tests.dataset_tools import records


@pytest.fixture(autouse=True)
def parsed_flags():
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(['test'])
    with flagsaver.flagsaver():
        yield


def test_names_and_values_are_the_reference_s(tmp_path, capsys):
    case = goldens.load('tf_examples', 'coco_keypoints')
    folder = goldens.COMPONENTS / 'examples'
    document = json.loads((folder / 'instances.json').read_text())
    # The reference leaves it out, as its box reaches over the edge; here it is clipped.
    document['annotations'] = [a for a in document['annotations'] if a['id'] != 105]
    (tmp_path / 'instances.json').write_text(json.dumps(document))
    with flagsaver.flagsaver(
        include_masks=True,
        val_image_dir=str(folder / 'images'),
        val_annotations_file=str(tmp_path / 'instances.json'),
        val_keypoint_annotations_file=str(folder / 'person_keypoints.json'),
        output_dir=str(tmp_path),
        val_num_shards=2,
    ):
        create_coco_tf_record.main()
    assert 'val: 3 examples in 2 shards' in capsys.readouterr().out
    first, second = (records.read(tmp_path / f'coco_val.record-0000{i}-of-00002') for i in (0, 1))
    for index, features in enumerate([first[0], second[0], first[1]]):
        for key, values in records.as_golden(features):
            if key != 'image/object/class/label':
                records.assert_equal_to_golden(key, values, case.outputs[f'ex{index}/{key}'])


def test_default_numbers_of_shards_are_the_reference_s():
    defaults = [flags.FLAGS[f'{split}_num_shards'].default for split in ('train', 'val', 'testdev')]
    assert defaults == [100, 50, 50]


@rows.parametrize(
    ('given', 'match'),
    [
        ({}, 'Give --train_image_dir'),
        ({'val_image_dir': 'x'}, 'only --val_image_dir'),
        ({'testdev_annotations_file': 'x'}, 'only --testdev_annotations_file'),
        ({'train_densepose_annotations_file': 'x'}, 'needs the images and annotations of train'),
    ],
)
def test_incomplete_arguments(given, match):
    with flagsaver.flagsaver(**given), pytest.raises(app.UsageError, match=match):
        create_coco_tf_record.main()


def test_unexpected_argument():
    with pytest.raises(app.UsageError, match='stray'):
        scripts.of_flags_alone(create_coco_tf_record.main)(['program', 'stray'])


def test_errors_of_users_are_one_line(tmp_path):
    (tmp_path / 'instances.json').write_text('no JSON')
    command = [
        *(sys.executable, '-m', 'object_detection.dataset_tools.create_coco_tf_record'),
        *('--val_image_dir', str(tmp_path), '--output_dir', str(tmp_path)),
    ]

    def errors(annotations: str) -> str:
        path = str(tmp_path / annotations)
        result = subprocess.run(
            [*command, '--val_annotations_file', path], capture_output=True, text=True, check=False
        )
        assert result.returncode == 1
        return result.stderr

    for annotations in ('absent.json', 'instances.json'):
        stderr = errors(annotations)
        assert 'Traceback' not in stderr
        (line,) = [line for line in stderr.splitlines() if line.startswith('Error: ')]
        assert annotations in line
