"""The scripts of the reference system's names: its flags, and the names of its outputs."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from object_detection.data import sequence_examples
from tests.dataset_tools import records


def _run(name: str, *arguments: str, more_modules: str = '') -> subprocess.CompletedProcess:
    program = [sys.executable, '-m', f'object_detection.dataset_tools.{name}', *arguments]
    paths = filter(None, (more_modules, os.environ.get('PYTHONPATH')))
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(paths)}
    return subprocess.run(program, capture_output=True, text=True, check=False, env=env)


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


# What the script calls of OpenCV, which is no dependency.
_CV2 = """
import io
import numpy as np
from PIL import Image
CAP_PROP_POS_MSEC, IMWRITE_JPEG_QUALITY = 0, 1
class VideoCapture:
    def __init__(self, path): self.path = path
    def set(self, name, value): self.time = value
    def read(self): return True, np.full([20, 40, 3], self.time // 1000 % 256, np.uint8)
    def release(self): pass
def imencode(suffix, frame, options):
    file = io.BytesIO()
    Image.fromarray(frame).save(file, 'JPEG', quality=options[1])
    return True, np.frombuffer(file.getvalue(), np.uint8)
"""


@pytest.mark.slow
def test_ava_takes_frames_out_of_videos(tmp_path):
    (tmp_path / 'cv2.py').write_text(_CV2)
    (tmp_path / 'v.mp4').touch()
    lines = ('v,0902,.1,.2,.5,.6,12,0', 'v,0904,.5,.5,1,1,12,1')
    (tmp_path / 'ava_val_v2.2.csv').write_text('\n'.join(lines))
    label_map = tmp_path / 'ava_action_list_v2.2_for_activitynet_2019.pbtxt'
    label_map.write_text('item { name: "stand" id: 12 }')
    result = _run(
        'create_ava_actions_tf_record',
        *(f'--path_to_download_data={tmp_path}', f'--path_to_output_dir={tmp_path}/out'),
        f'--video_path_format_string={tmp_path}/{{0}}.mp4',
        *('--splits_to_process=val', '--num_shards=1'),
        more_modules=str(tmp_path),
    )
    assert result.returncode == 0, result.stderr
    dataset = tf.data.TFRecordDataset(str(tmp_path / 'out/val-00000-of-00001'))
    [clip] = dataset.as_numpy_iterator()
    frames = [records.parse(frame) for frame in sequence_examples.frames(clip)]
    labels = [frame['image/object/class/text'] for frame in frames]
    assert labels == [[b'stand'], [], [b'stand']]
    names = [f'v_{second:06d}.jpg' for second in (902, 903, 904)]
    assert sorted(path.name for path in (tmp_path / 'out/frames/v').iterdir()) == names
