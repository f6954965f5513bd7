"""Videos, read and written."""

import base64
import io
import json
import sys
from fractions import Fraction

import numpy as np
import pytest
from lxml import etree
from PIL import Image

from object_detection.errors import UserError
from object_detection.prediction import sources
from object_detection.prediction.files import OutputOptions, predict_files
from tests.prediction.test_predictor import picture


def frame_at(index):
    return picture(64, 96, green=(8 * index, 8, 8 * index + 24, 48, 255))


@pytest.fixture(scope='module')
def video(tmp_path_factory):
    """Five frames, in which a green object moves down by 8 pixels each."""
    pytest.importorskip('av')
    path = tmp_path_factory.mktemp('video') / 'in' / 'moves.mp4'
    path.parent.mkdir()
    file = sources.VideoFile(str(path), Fraction(10))
    for index in range(5):
        file.add(frame_at(index))
    file.close()
    return path


def test_sources_are_known_by_their_names():
    assert sources.is_live('camera:0')
    assert sources.is_live('rtsp://host/stream')
    assert not sources.is_live('my camera:0')
    assert sources.is_video('a/b.MP4')
    assert not sources.is_video('a/b.png')


def test_a_video_is_read_frame_by_frame(video):
    frames = list(sources.read(str(video)))
    assert [frame.index for frame in frames] == [0, 1, 2, 3, 4]
    np.testing.assert_allclose([frame.seconds for frame in frames], np.arange(5) / 10, atol=1e-6)
    assert {frame.clip for frame in frames} == {sources.Clip(str(video), Fraction(10))}
    for index, frame in enumerate(frames):
        # The video is compressed with losses.
        assert np.abs(frame.image.astype(int) - frame_at(index)).mean() < 12


def test_a_video_becomes_an_annotated_video_and_results(video, predictor, tmp_path):
    summary = predict_files(predictor, [video], tmp_path, OutputOptions())
    assert (summary.images, summary.problems) == (5, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        'detections.json',
        'images.json',
        'moves.mp4',
    ]
    images = json.loads((tmp_path / 'images.json').read_text())
    assert [image['frame'] for image in images] == [0, 1, 2, 3, 4]
    assert images[3]['seconds'] == pytest.approx(0.3)
    results = json.loads((tmp_path / 'detections.json').read_text())
    assert [each['image_id'] for each in results] == [image['id'] for image in images]
    for index, each in enumerate(results):
        np.testing.assert_allclose(each['bbox'], [8, 8 * index, 40, 24], atol=2)
    drawn = list(sources.read(str(tmp_path / 'moves.mp4')))
    assert [frame.seconds for frame in drawn] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert drawn[0].image.shape == (64, 96, 3)
    # The picture has a box and a label that the frame lacks.
    assert np.abs(drawn[2].image.astype(int) - frame_at(2)).mean() > 12


def test_a_video_that_comes_twice_becomes_two(video, predictor, tmp_path):
    assert predict_files(predictor, [video, video], tmp_path, OutputOptions()).images == 10
    counts = [len(list(sources.read(str(path)))) for path in sorted(tmp_path.glob('*.mp4'))]
    assert counts == [5, 5]


def test_frames_are_pictures_on_demand_and_limited(video, predictor, tmp_path):
    formats = ('pictures', 'labelme', 'label_studio', 'cvat')
    options = OutputOptions(formats=formats, limit=2)
    assert predict_files(predictor, [video, video], tmp_path, options).images == 2
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob('*.*')}
    expected = {
        f'{n}{kind}' for n in ('moves_000000', 'moves_000001') for kind in ('.png', '.json')
    }
    lists = {'images.json', 'tasks.json', 'interface.xml', 'moves.xml'}
    assert {name.split('/')[-1] for name in names} == {*expected, *lists}
    content = json.loads((tmp_path / 'labelme' / 'moves_000001.json').read_text())
    assert (tmp_path / 'labelme' / content['imagePath']).exists()
    # The file holds the frame as it was read: the picture is annotated.
    frame = Image.open(io.BytesIO(base64.b64decode(content['imageData'])))
    _, second, *_ = sources.read(str(video))
    np.testing.assert_array_equal(np.asarray(frame), second.image)
    # Label Studio gets it as a file, which its task names.
    frame = tmp_path / 'label_studio' / 'moves_000001.png'
    np.testing.assert_array_equal(np.asarray(Image.open(frame)), second.image)
    [_, task] = json.loads((tmp_path / 'label_studio' / 'tasks.json').read_text())
    assert task['data']['image'].endswith(f'?d={str(frame)[1:]}')
    [_, entry] = json.loads((tmp_path / 'images.json').read_text())
    assert entry['files'] == ['labelme/moves_000001.json', 'label_studio/moves_000001.png']
    root = etree.parse(tmp_path / 'cvat' / 'moves.xml').getroot()
    places = [(image.get('id'), image.get('name'), len(image)) for image in root.iterfind('image')]
    # A mask and its keypoints.
    assert places == [('0', 'frame_000000', 2), ('1', 'frame_000001', 2)]


def test_what_is_no_video_is_left_out_and_named(video, predictor, tmp_path):
    broken, cut = tmp_path / 'broken.mp4', tmp_path / 'list.mp4'
    broken.write_bytes(b'no video')
    # A list of other files, which FFmpeg would read.
    cut.write_text(f'#EXTM3U\n#EXTINF:1,\nfile://{video}\n')
    summary = predict_files(
        predictor, [broken, cut, tmp_path / 'gone.mp4', video], tmp_path / 'out', OutputOptions()
    )
    assert summary.images == 5
    assert [problem.split(': ')[0] for problem in summary.problems] == [
        str(broken),
        str(cut),
        str(tmp_path / 'gone.mp4'),
    ]
    assert 'cannot be decoded as a video' in summary.problems[0]


def test_large_frames_are_refused(video):
    with pytest.raises(
        UserError, match=r'expected at most 6143 pixels. Received: 64 high and 96 wide'
    ):
        list(sources.read(str(video), max_pixels=6143))


def test_a_run_is_stopped_in_order(video, predictor, tmp_path):
    asked = iter([False, False, True])
    options = OutputOptions(should_stop=lambda: next(asked))
    assert predict_files(predictor, [video], tmp_path, options).images == 2
    assert len(list(sources.read(str(tmp_path / 'moves.mp4')))) == 2


def test_an_error_leaves_no_part_of_a_video(video, predictor, tmp_path, monkeypatch):
    def fail(self, picture):
        raise RuntimeError('no memory')

    monkeypatch.setattr(sources.VideoFile, 'add', fail)
    with pytest.raises(RuntimeError, match='no memory'):
        predict_files(predictor, [video], tmp_path, OutputOptions())
    assert not list(tmp_path.glob('*.mp4*'))


def test_a_package_that_is_absent_is_named(predictor, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'av', None)
    with pytest.raises(UserError, match=r"pip install 'av>="):
        predict_files(predictor, ['camera:0'], tmp_path, OutputOptions())
