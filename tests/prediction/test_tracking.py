"""Objects keep their numbers through the frames of a video."""

import csv
import json

import numpy as np
import pytest
from lxml import etree
from PIL import Image

from object_detection.core.detections import Detections
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source
from object_detection.data.formats.tools.cvat import CvatSource
from object_detection.errors import UserError
from object_detection.prediction import tracking, writers
from object_detection.prediction.files import OutputOptions, predict_files
from object_detection.prediction.output import Item, Output
from object_detection.prediction.prediction import Prediction
from object_detection.prediction.sources import Clip
from tests.prediction.test_sources import frame_at, video  # noqa: F401

FILES = LocalFiles()
FRAME = np.zeros((40, 60, 3), np.uint8)


@pytest.fixture
def tracker():
    """A tracker; a test that has it needs the extra `track`."""
    pytest.importorskip('trackers', reason='needs the extra track: trackers')
    return tracking.Tracker(score_threshold=0.5, rate=10)


def found(*objects, embeddings=None, movements=None) -> Detections:
    """Objects of (left, score, class), 20 pixels wide, in the upper row of an image.

    `movements` are in pixels to the right.
    """
    boxes = np.array([(0, left, 20, left + 20) for left, _, _ in objects], float).reshape(-1, 4)
    return Detections(
        boxes,
        np.array([score for _, score, _ in objects], np.float32),
        np.array([class_id for _, _, class_id in objects], np.int64),
        (100, 400),
        embeddings=None if embeddings is None else np.array(embeddings, np.float32),
        movements=None if movements is None else np.array([(0, each) for each in movements], float),
    )


def ids_of(tracker, *frames) -> list[list[int]]:
    return [tracker.update(frame).track_ids.tolist() for frame in frames]


def test_objects_keep_their_numbers_while_they_move_and_pass_each_other(tracker):
    # Of one class, far apart; the order of the objects changes.
    frames = [found((4 * i, 0.9, 1), (300 - 4 * i, 0.8, 1)) for i in range(4)]
    frames[2] = frames[2].take(np.array([1, 0]))
    assert ids_of(tracker, *frames) == [[0, 0], [1, 2], [2, 1], [1, 2]]


def test_of_two_classes_in_one_place_the_better_one_continues_the_track(tracker):
    scores = [(0.9, 0.6), (0.9, 0.6), (0.6, 0.9), (0.6, 0.9)]
    frames = [found((4 * i, a, 1), (4 * i, b, 7)) for i, (a, b) in enumerate(scores)]
    assert ids_of(tracker, *frames)[1:] == [[1, 0], [0, 1], [0, 1]]


def test_a_faint_object_continues_a_track_and_begins_none(tracker):
    scores = [(0.9, 0.4), (0.9, 0.4), (0.3, 0.4), (0.2, 0.4), (0.9, 0.4)]
    frames = [found((4 * i, a, 1), (300, b, 1)) for i, (a, b) in enumerate(scores)]
    assert ids_of(tracker, *frames) == [[0, 0], [1, 0], [1, 0], [0, 0], [1, 0]]


def test_an_object_is_known_again_after_a_second_and_no_later(tracker):
    for gap, number in ((8, 1), (12, 2)):
        own = tracking.Tracker(score_threshold=0.5, rate=10)
        frames = [*[found((0, 0.9, 1))] * 2, *[found()] * gap, *[found((0, 0.9, 1))] * 2]
        assert ids_of(own, *frames)[-1] == [number]


def test_embeddings_tell_objects_apart_that_change_places(tracker):
    # Both jump to the place of the other one: boxes alone would exchange them.
    first, second = [1.0, 0.0], [0.0, 1.0]
    places = [(0, 15), (0, 15), (15, 0), (15, 0)]
    frames = [found((a, 0.9, 1), (b, 0.8, 1), embeddings=[first, second]) for a, b in places]
    # A track of embeddings has its number from its first frame on.
    assert ids_of(tracker, *frames) == [[1, 2]] * 4
    gone = [found(embeddings=np.zeros((0, 2)))] * 12
    again = found((0, 0.9, 1), embeddings=[first])
    assert ids_of(tracker, *gone, again)[-1] == [3]
    # An object that looks otherwise is another one, in the same place too; a faint one is none.
    others = found((0, 0.9, 1), (40, 0.3, 1), embeddings=[second, [-1.0, 0.0]])
    assert ids_of(tracker, others) == [[4, 0]]


def test_movements_tell_where_objects_come_from(tracker):
    # Each jumps by twice its width, to the place of another one.
    frames = [found((0, 0.9, 1), (40, 0.8, 1), movements=[0, 0])]
    frames.append(found((40, 0.9, 1), (80, 0.8, 1), movements=[40, 40]))
    frames.append(found((80, 0.7, 1), (120, 0.9, 1), movements=[40, 40]))
    assert ids_of(tracker, *frames) == [[1, 2]] * 3
    # The best takes the nearest track first; the other one is not farther than its width from none.
    both = found((84, 0.9, 1), (106, 0.8, 1), movements=[0, 6])
    assert ids_of(tracker, both) == [[1, 2]]
    # An object that comes from elsewhere is another one, in the same place too; a faint one none.
    others = found((84, 0.9, 1), (100, 0.3, 1), (300, 0.3, 1), movements=[60, 0, 0])
    assert ids_of(tracker, others) == [[3, 2, 0]]


def test_embeddings_are_compared_where_movements_say(tracker):
    looks = {'embeddings': [[1.0, 0.0]]}
    frames = [found((0, 0.9, 1), movements=[0], **looks)]
    frames.append(found((200, 0.9, 1), movements=[200], **looks))
    assert ids_of(tracker, *frames) == [[1], [1]]
    assert ids_of(tracker, found((200, 0.9, 1), movements=[200], **looks)) == [[2]]


def test_embeddings_and_movements_of_outputs_are_read():
    outputs = {
        'detection_boxes': np.zeros((1, 2, 4)),
        'detection_scores': np.zeros((1, 2)),
        'detection_classes': np.zeros((1, 2)),
        'detection_embeddings': np.array([[[1.0, 0.0], [0.0, 1.0]]]),
        'detection_temporal_offsets': np.array([[[0.5, -0.25], [0.0, 1.0]]]),
        'num_detections': np.array([1]),
    }
    [one] = Detections.from_batch(outputs, [(10, 20)])
    assert one.embeddings.tolist() == [[1, 0]]
    assert one.movements.tolist() == [[5, -5]]


def test_a_predictor_tracks_a_video_a_folder_and_images(tracker, predictor, video, tmp_path):  # noqa: F811
    del tracker
    frames = [frame_at(index) for index in range(5)]
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / f'{index}.png')
    for given in (video, tmp_path, frames):
        tracked = list(predictor.track(given))
        assert [each.track_ids.tolist() for each in tracked] == [[], [1], [1], [1], [1]]
    assert [each.path for each in predictor.track(tmp_path)][4] == str(tmp_path / '4.png')


def test_files_of_tracks(tracker, predictor, video, tmp_path):  # noqa: F811
    del tracker
    (tmp_path / 'moves').mkdir()
    paths = [video]
    for index in (0, 1, 3):
        paths.append(tmp_path / 'moves' / f'{index}.png')
        Image.fromarray(frame_at(index)).save(paths[-1])
    # A frame that cannot be read has its number.
    paths.insert(3, tmp_path / 'moves' / '2.png')
    paths[3].write_bytes(b'')
    options = OutputOptions(formats=('mot', 'csv', 'cvat', 'coco', 'video'), track=True)
    summary = predict_files(predictor, paths, tmp_path / 'out', options)
    # The first frame of each has an object without a track.
    assert (summary.images, summary.detections, summary.drawn) == (8, 8, 6)
    # The folder has the name of the video.
    lines = [line.split(',') for line in (tmp_path / 'out/mot/moves_2.txt').read_text().split()]
    assert [line[:2] for line in lines] == [['2', '1'], ['4', '1']]
    assert [float(each) for each in lines[1][2:6]] == [8, 24, 40, 24]
    assert lines[1][6:] == ['1.0000', '-1', '-1', '-1']
    assert len((tmp_path / 'out/mot/moves.txt').read_text().splitlines()) == 4
    with open(tmp_path / 'out/detections.csv', newline='') as file:
        assert [row['track_id'] for row in csv.DictReader(file)] == ['', *'1111', '', *'11']
    results = json.loads((tmp_path / 'out/detections.json').read_text())
    assert [each.get('track_id') for each in results] == [None, 1, 1, 1, 1, None, 1, 1]
    [track] = etree.parse(tmp_path / 'out/cvat/moves.xml').getroot().iterfind('track')
    assert track.get('label') == 'green'
    assert [box.get('frame') for box in track] == ['1', '2', '3', '4', '5']
    assert [box.get('outside') for box in track] == ['0', '0', '0', '0', '1']


def test_tracks_need_an_option_and_a_package(predictor, tmp_path, monkeypatch):
    with pytest.raises(UserError, match='mot: expected --track'):
        predict_files(predictor, [], tmp_path, OutputOptions(formats=('mot',)))
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    with pytest.raises(UserError, match='needs the Python package trackers, supervision, scipy'):
        predict_files(predictor, [], tmp_path, OutputOptions(track=True))


def tracked(boxes, ids) -> Prediction:
    count = len(ids)
    return Prediction(
        boxes=np.array(boxes, np.float32).reshape(count, 4),
        scores=np.full(count, 0.9, np.float32),
        classes=np.ones(count, np.int64),
        size=(40, 60),
        track_ids=np.array(ids, np.int64),
        image=FRAME,
        names={1: 'cat'},
        path='a.mp4',
    )


def test_tracks_of_cvat_are_read_again(tmp_path):
    clip = Clip('a.mp4', 10)
    boxes = [(2, 4, 12, 24), (2, 8, 12, 28), None, (2, 16, 12, 36)]
    output = Output(tmp_path, {1: 'cat'}, 0.5, 10, frames=False, tracks=True)
    with writers.WRITERS['cvat'](output) as write:
        for number, box in enumerate(boxes):
            prediction = tracked([] if box is None else [box], [] if box is None else [5])
            write(Item(prediction, 1, f'a_{number:06d}', clip, 'a', 'a', number), prediction)
    (tmp_path / 'images').mkdir()
    for number in range(5):
        Image.fromarray(FRAME).save(tmp_path / f'images/frame_{number:06d}.png')
    data = CvatSource(str(tmp_path / 'cvat' / 'a.xml'), image_dir=str(tmp_path / 'images'))
    reader = data.open(FILES, None).reader
    read = [source.read(reader, entry, FILES).image for entry in data.entries(FILES)]
    assert [len(image) for image in read] == [1, 1, 0, 1, 0]
    np.testing.assert_allclose(read[3].boxes[0] * [40, 60, 40, 60], boxes[3])
    assert read[3].object_details['image/object/track/label'].tolist() == [5]


def test_pictures_say_the_numbers_of_tracks():
    boxes = [(2, 4, 32, 24)]
    pictures = [tracked(boxes, [number]).annotated() for number in (1, 2)]
    # Numbers have their own colours.
    assert (pictures[0] != pictures[1]).any()
