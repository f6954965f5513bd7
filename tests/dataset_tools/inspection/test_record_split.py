"""`tfod data split` of TFRecords: by source id, with no image in two parts."""

import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner

from object_detection.cli import data
from object_detection.data import tf_record_files
from object_detection.data.file_access import LocalFiles
from object_detection.dataset_tools.inspection import record_split
from object_detection.errors import DataError, UserError
from object_detection.scoring import evaluation, image_lists
from tests import rows
from tests.dataset_tools.inspection.damaged_records import example, write

HALVES = {'train': 0.5, 'val': 0.5}


def contents(parts) -> dict[str, list[bytes]]:
    return {
        name: [record for path in part.paths for record in tf_record_files.records(path)]
        for name, part in parts.items()
    }


def test_records_stay_in_their_part_when_others_are_added(tmp_path):
    records = [example(seed, encoded=b'%d' % seed) for seed in range(60)]
    few = write(tmp_path / 'few', records[::2])
    all_of_them = write(tmp_path / 'all', records)
    shares = {'train': 0.7, 'val': 0.2, 'test': 0.1}
    before = contents(record_split.split([few], str(tmp_path / 'a'), shares))
    after = contents(record_split.split([all_of_them], str(tmp_path / 'b'), shares, shards=2))
    assert all(set(before[name]) <= set(after[name]) for name in shares)
    assert sorted(itertools.chain(*after.values())) == sorted(records)
    assert len(after['train']) > len(after['val']) > 0
    other = contents(record_split.split([few], str(tmp_path / 'c'), shares, seed=1))
    assert other != before


@rows.parametrize('seed', range(20))
def test_no_image_and_no_source_id_in_two_parts(seed):
    pairs = np.random.default_rng(seed).integers(0, 12, (12, 2)).tolist()
    groups = record_split._Groups()
    for of_id, of_image in pairs:
        groups.join(of_id, of_image)
    for of_id, of_image in pairs:
        for other_id, other_image in pairs:
            if of_id == other_id or of_image == other_image:
                assert groups.root(of_id) == groups.root(other_id)


def test_the_images_of_the_parts_are_listed_for_the_evaluation_of_files(tmp_path):
    ids = [*map(str, range(19)), 'ü  x.jpg']
    records = [example(i, encoded=b'%d' % i, source_id=name) for i, name in enumerate(ids)]
    record_split.split([write(tmp_path / 'a', [*records, *records])], str(tmp_path / 'out'), HALVES)
    images = [{'id': i, 'file_name': f'{i}.png', 'width': 9, 'height': 9} for i in range(19)]
    images.append({'id': 19, 'file_name': 'ü x.jpg', 'width': 9, 'height': 9})
    truth = {'images': images, 'annotations': [], 'categories': [{'id': 1, 'name': 'cat'}]}
    (tmp_path / 'truth.json').write_text(json.dumps(truth))
    _, truth = evaluation.open_truth(
        evaluation.FileOptions(str(tmp_path / 'truth.json'), ''), LocalFiles()
    )
    lists = [
        image_lists.read(str(tmp_path / f'out/{part}.txt'), LocalFiles(), truth) for part in HALVES
    ]
    assert all(lists)
    assert sorted(lists[0] + lists[1]) == sorted(truth.images)


def test_what_cannot_be_split_writes_nothing(tmp_path):
    name, out = write(tmp_path / 'a', [example(0)]), tmp_path / 'out'
    with pytest.raises(UserError, match='no image is in'):
        record_split.split([name], str(out), HALVES)
    with pytest.raises(UserError, match='sum up to 1'):
        record_split.split([name], str(out), {'train': 0.5, 'val': 0.6})
    without_id = write(tmp_path / 'b', [example(0, source_id='')])
    with pytest.raises(DataError, match='without image/source_id'):
        record_split.split([without_id], str(out), HALVES)
    (tmp_path / 'c').write_bytes((tmp_path / 'a').read_bytes()[:-3])
    with pytest.raises(DataError, match='has no end'):
        record_split.split([str(tmp_path / 'c')], str(out), HALVES)
    assert not out.exists()


def test_the_command(tmp_path):
    name = write(tmp_path / 'a', [example(seed, encoded=b'%d' % seed) for seed in range(30)])
    arguments = ['split', '--records', name, '--output', str(tmp_path / 'out')]
    done = CliRunner().invoke(data.command, arguments)
    assert done.exit_code == 0, done.output
    assert 'train-?????-of-00001: ' in done.output
    shown = json.loads(CliRunner().invoke(data.command, [*arguments, '--json']).stdout)
    assert sum(part['num_records'] for part in shown.values()) == 30
    for wrong in (['--share', 'a/b=1'], ['--annotations', name]):
        assert CliRunner().invoke(data.command, [*arguments, *wrong]).exit_code == 2


def test_a_part_replaces_an_earlier_one_of_another_number_of_files(tmp_path):
    name = write(tmp_path / 'a', [example(seed, encoded=b'%d' % seed) for seed in range(30)])
    out = tmp_path / 'out'
    record_split.split([name], str(out), HALVES, shards=2)
    parts = record_split.split([name], str(out), HALVES)
    assert sorted(path.name for path in out.iterdir()) == [
        *('train-00000-of-00001', 'train.txt', 'val-00000-of-00001', 'val.txt')
    ]
    with pytest.raises(UserError, match='expected another folder'):
        record_split.split(parts['train'].paths, str(out), HALVES, shards=2)
