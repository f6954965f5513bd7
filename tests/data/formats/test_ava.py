import json

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tf_example_keys as keys
from object_detection.data import label_map, sequence_examples, tf_examples
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats, source
from object_detection.data.formats.ava import AvaSource
from tests.dataset_tools import records

FILES = LocalFiles()
_FRAMES = '{video}_{second}.png'


def _write(folder, png: bytes, lines: list[str], **options) -> AvaSource:
    for second in range(902, 908):
        (folder / f'v_{second}.png').write_bytes(png)
    (folder / 'ava.csv').write_text('\n'.join(lines))
    return AvaSource(
        annotations_file=str(folder / 'ava.csv'),
        frames=str(folder / _FRAMES),
        **{'seconds_per_sequence': 3, 'hop_between_sequences': 2, **options},
    )


def _clips(data, labels=None) -> tuple[list[bytes], list[source.ReadResult]]:
    opened = data.open(FILES, labels)
    clips, everything = [], []
    for entry in data.entries(FILES):
        # As the job sends it.
        entry = source.ImageEntry(*json.loads(json.dumps(entry)))
        frames = source.frames_of(entry)
        results = [source.read(opened.reader, frame, FILES) for frame in frames]
        clip = source.clip_of(entry, frames)
        clips.append(tf_examples.to_sequence_example([item.image for item in results], clip))
        everything += results
    return clips, everything


def _lists(record: bytes, key: str) -> list[list]:
    features = tf.train.SequenceExample.FromString(record).feature_lists.feature_list[key].feature
    return [list(getattr(item, item.WhichOneof('kind')).value) for item in features]


_LINES = [
    'v,0902,0.1,0.2,0.5,0.6,12,0',
    'v,0902,0.1,0.2,0.5,0.6,80,0',
    'v,0904,0.5,0.5,1,1,12,1',
    'v,0907,0,0,1,1,12,1',
]


def test_clips(tmp_path, png):
    clips, _ = _clips(_write(tmp_path, png(40, 20), _LINES))
    assert [[second for [second] in _lists(clip, keys.TIMESTAMP)] for clip in clips] == [
        *([902, 903, 904], [904, 905, 906], [906, 907])
    ]
    first = clips[0]
    context = tf.train.SequenceExample.FromString(first).context.feature
    assert context[keys.MEDIA_ID].bytes_list.value == [b'v']
    assert context[keys.CLIP_START].int64_list.value == [902]
    assert context[keys.CLIP_END].int64_list.value == [905]
    assert context[keys.CLIP_FRAMES].int64_list.value == [3]
    assert context[keys.HEIGHT].int64_list.value == [20]
    assert _lists(first, keys.SEQUENCE_LABEL) == [[b'action 12', b'action 80'], [], [b'action 12']]
    sides = [_lists(first, side)[0] for side in keys.SEQUENCE_BOX_SIDES]
    np.testing.assert_allclose(np.transpose(sides), [[0.2, 0.1, 0.6, 0.5]] * 2)
    assert _lists(first, keys.IS_ANNOTATED) == [[1], [1], [1]]
    assert _lists(first, keys.SOURCE_ID)[0] == [b'v_0902']


def test_clips_are_read_back(tmp_path, png):
    clips, _ = _clips(_write(tmp_path, png(40, 20), _LINES))
    frames = [records.parse(frame) for frame in sequence_examples.frames(clips[0])]
    assert [frame['image/source_id'] for frame in frames] == [[b'v_0902'], [b'v_0903'], [b'v_0904']]
    assert frames[0]['image/object/class/text'] == [b'action 12', b'action 80']
    np.testing.assert_allclose(frames[2]['image/object/bbox/ymin'], [0.5])


def test_excluded_seconds_are_not_annotated(tmp_path, png):
    (tmp_path / 'excluded.csv').write_text('v,0902\n')
    data = _write(tmp_path, png(40, 20), _LINES, excluded_file=str(tmp_path / 'excluded.csv'))
    first = _clips(data)[0][0]
    assert _lists(first, keys.IS_ANNOTATED) == [[0], [1], [1]]
    assert _lists(first, keys.SEQUENCE_LABEL) == [[], [], [b'action 12']]


def test_actions_without_a_label_and_bad_boxes_are_counted(tmp_path, png):
    proto = label_map.parse(b'item { name: "stand" id: 12 }', '')
    lines = [
        'v\t902\t.1\t.2\t.5\t.6\t12',
        'v\t902\t.1\t.2\t.5\t.6\t80',
        'v\t902\t.1\t.2\tx\t.6\t12',
    ]
    lines += ['v\t902\t.1\t.2\t.1\t.6\t12', 'v\t902\t.1\t.2\t.5\t.6\t-1', 'v\t902\t\t\t\t\t']
    [clip], [result] = _clips(_write(tmp_path, png(40, 20), lines), label_map.classes(proto, ''))
    assert _lists(clip, keys.SEQUENCE_LABEL) == [[b'stand']]
    assert [(name, error.reason) for name, error in result.problems] == [
        ('line 2', 'not_in_label_map'),
        ('line 3', 'bad_box'),
        ('line 4', 'box_without_area'),
        ('line 5', 'unknown_category'),
    ]


def test_examples_for_context_features(tmp_path, png):
    data = _write(tmp_path, png(40, 20), _LINES, examples=True)
    opened = data.open(FILES, None)
    images = [source.read(opened.reader, entry, FILES).image for entry in data.entries(FILES)]
    features = [records.parse(tf_examples.to_example(image)) for image in images]
    assert [item['image/seq_frame_num'] for item in features] == [[0], [1], [2]]
    assert features[0]['image/seq_num_frames'] == [3]
    assert features[0]['image/location'] == [b'v']
    assert features[0]['image/date_captured'] == [b'1970-01-01 00:15:02']
    assert features[1]['image/object/track/label'] == [1]


@pytest.mark.parametrize(
    ('line', 'match'),
    [
        ('v,902,1', 'line 1: expected VIDEO'),
        ('v,9e9,0,0,1,1,1', 'line 1: expected a second'),
        ('v,x,0,0,1,1,1', 'line 1: expected a second'),
        ('../v,902,0,0,1,1,1', 'line 1: expected a name as id of a video'),
        ('', 'expected lines of actions'),
    ],
)
def test_broken_files(tmp_path, png, line, match):
    data = _write(tmp_path, png(40, 20), [line])
    with pytest.raises(ValueError, match=match):
        data.open(FILES, None)


@pytest.mark.parametrize('pattern', ['a.jpg', '{video}.jpg', '{second}.jpg', '{x}', '{'])
def test_patterns_need_the_video_and_the_time(tmp_path, png, pattern):
    data = _write(tmp_path, png(40, 20), _LINES)
    with pytest.raises(ValueError, match='expected a path with'):
        AvaSource(annotations_file=data.annotations_file, frames=pattern).open(FILES, None)


def test_real_files(shared):
    folder = shared / 'data/ava_sample'
    for name, columns in (
        ('ava_v1.0/ava_test_v1.0.csv', 6),
        ('mmaction2/ava_dataset/ava_sample.csv', 7),
    ):
        data = AvaSource(annotations_file=str(folder / name), frames='{video}/{second}.jpg')
        entries = [*data.entries(FILES)]
        frames = {tuple(frame[0]['id'] for frame in entry.image['frames']) for entry in entries}
        assert len(frames) == len(entries)
        rows = [row for entry in entries for frame in entry.image['frames'] for row in frame[1]]
        assert len(rows) == len((folder / name).read_text().splitlines())
        assert {len(row) for row in rows} == {columns}
    fixture = shared / 'data/datumaro_format_fixtures/ava_dataset'
    [found] = formats.detect(str(fixture), FILES)['ava']
    assert len([*found.source.entries(FILES)]) == 2
