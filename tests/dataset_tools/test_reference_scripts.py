"""The scripts of the reference system's names: its flags, and the names of its outputs."""

import subprocess
import sys

import pytest

from tests.dataset_tools import records


def _run(name: str, *arguments: str) -> subprocess.CompletedProcess:
    program = [sys.executable, '-m', f'object_detection.dataset_tools.{name}', *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.slow  # Processes that import Beam.
def test_pascal_and_kitti(shared, tmp_path):
    fixtures = shared / 'data/datumaro_format_fixtures'
    voc = shared / 'goldens/components/examples/VOC'
    arguments = [f'--data_dir={voc}', '--year=VOC2012', f'--output_path={tmp_path}/voc.record']
    result = _run('create_pascal_tf_record', *arguments)
    assert result.returncode == 1
    assert 'Error: There is no list of images' in result.stderr
    assert not list(tmp_path.iterdir())
    kitti = [f'--data_dir={fixtures}/kitti_dataset/kitti_detection', f'--output_path={tmp_path}/k']
    options = ['--validation_set_size=1', '--classes_to_use=van,truck']
    result = _run('create_kitti_tf_record', *kitti, *options)
    assert result.returncode == 0, result.stderr
    [train] = records.read(tmp_path / 'k_train.tfrecord')
    [val] = records.read(tmp_path / 'k_val.tfrecord')
    assert train['image/object/class/text'] == [b'van'] * 3
    assert val['image/object/class/text'] == [b'truck', b'van']
    assert not list(tmp_path.glob('*-of-*'))


@pytest.mark.slow
def test_pascal_writes_one_file(shared, tmp_path):
    (tmp_path / 'VOC2007').symlink_to(shared / 'data/bccd/BCCD')
    arguments = [f'--data_dir={tmp_path}', '--set=val', f'--output_path={tmp_path}/val.record']
    result = _run('create_pascal_tf_record', *arguments)
    assert result.returncode == 0, result.stderr
    assert len(records.read(tmp_path / 'val.record')) == 87
    result = _run('create_pet_tf_record', *arguments[:1], f'--output_dir={tmp_path}')
    assert result.returncode == 1
    assert 'trainval.txt' in result.stderr
