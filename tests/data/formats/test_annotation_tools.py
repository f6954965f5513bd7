"""LabelMe, CVAT, Label Studio and CSV files."""

import base64
import dataclasses
import io
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from object_detection.builders import dataset_builder
from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import InputFields as F
from object_detection.data import sequence_examples
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import formats, source
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.tools.cvat import CvatSource
from object_detection.data.formats.tools.label_studio import LabelStudioSource
from object_detection.data.formats.tools.labelme import LabelMeSource
from object_detection.dataset_tools.converters import conversion
from object_detection.errors import UnusableError, UserError
from object_detection.protos import pipeline_pb2
from tests.dataset_tools import records

FILES = LocalFiles()
# Of an image 40 wide and 20 high.
_BOX = [0.1, 0.1, 0.3, 0.3]  # ymin, xmin, ymax, xmax


def _read(data) -> list[source.ReadResult]:
    opened = data.open(FILES, None)
    return [source.read(opened.reader, entry, FILES) for entry in data.entries(FILES)]


def _detected(folder, name: str):
    [found] = formats.detect(str(folder), FILES)[name]
    return found.source


def _reasons(result: source.ReadResult) -> list[str]:
    return [error.reason for _, error in result.problems]


def _one(data) -> source.ReadResult:
    [result] = _read(data)
    return result


def _mask_sums(result: source.ReadResult) -> list[int]:
    return [int(np.asarray(Image.open(io.BytesIO(mask))).sum()) for mask in result.image.masks]


def _labelme(folder, png: bytes, *shapes, name='a.png', **document) -> LabelMeSource:
    (folder / 'a.png').write_bytes(png)
    entry = {'imagePath': name, 'imageHeight': 20, 'imageWidth': 40, 'shapes': shapes, **document}
    (folder / 'a.json').write_text(json.dumps(entry))
    return LabelMeSource(data_dir=str(folder), masks=True)


def _shape(kind, *points, label='cat', **others):
    return {'label': label, 'shape_type': kind, 'points': points, **others}


def test_labelme_shapes(tmp_path, png):
    file = io.BytesIO()
    Image.fromarray(np.full((4, 8), 255, np.uint8)).save(file, 'PNG')
    data = _labelme(
        tmp_path,
        png(40, 20),
        _shape('rectangle', [12, 6], [4, 2]),
        _shape('polygon', [4, 2], [12, 2], [12, 6], [4, 6], label='dog'),
        _shape('circle', [20, 10], [24, 10]),
        _shape('mask', [4, 2], [12, 6], mask=base64.b64encode(file.getvalue()).decode()),
        _shape('point', [4, 2]),
        _shape('linestrip', [4, 2], [12, 2], [12, 6]),
        _shape('polygon', [4, 2], [12, 2]),
        _shape('polygon', [4, 2], [12, 'x'], [12, 6]),
        _shape('polygon', [4, 2], [12, float('nan')], [12, 6]),
        _shape('mask', [39, 2], [40, 6], mask=base64.b64encode(file.getvalue()).decode()),
        _shape('rectangle', [4, 2], [12, 6], label=3),
        'x',
    )
    [result] = _read(data)
    np.testing.assert_allclose(result.image.boxes[[0, 1, 3]], [_BOX] * 3)
    np.testing.assert_allclose(result.image.boxes[2], [0.3, 0.4, 0.7, 0.6])
    assert result.image.class_texts == ('cat', 'dog', 'cat', 'cat')
    assert _mask_sums(result)[:2] == [32, 32]
    assert _mask_sums(result)[3] == 32
    assert result.image.areas[2] == pytest.approx(np.pi * 16, rel=0.01)
    assert _reasons(result) == [
        *('unknown_shape', 'unknown_shape', 'bad_mask', 'bad_points', 'bad_points', 'bad_mask'),
        *('unknown_category', 'bad_annotation'),
    ]
    assert _detected(tmp_path, 'labelme').data_dir == str(tmp_path)


_LEFT = ([4, 2], [12, 2], [12, 6], [4, 6])
_RIGHT = ([20, 2], [24, 2], [24, 12], [20, 12])
_AROUND = [0.1, 0.1, 0.6, 0.6]  # Both of them.


def _labelme_group(folder, png: bytes, **options) -> LabelMeSource:
    """Two objects of two shapes each, and three that are one shape."""
    grouped = {'group_id': 0}
    data = _labelme(
        folder,
        png,
        _shape('polygon', *_LEFT, **grouped),
        _shape('polygon', *_LEFT, label='dog', **grouped),
        _shape('rectangle', *_LEFT, group_id='x'),
        _shape('polygon', *_RIGHT, **grouped),
        _shape('rectangle', *_RIGHT, group_id='x'),
        _shape('polygon', *_RIGHT, group_id=None),
        _shape('point', [4, 2], **grouped),
    )
    return dataclasses.replace(data, **options)


def test_labelme_shapes_of_one_label_and_group_are_one_object(tmp_path, png):
    result = _one(_labelme_group(tmp_path, png(40, 20)))
    assert result.image.class_texts == ('cat', 'dog', 'cat', 'cat', 'cat')
    np.testing.assert_allclose(result.image.boxes[:2], [_AROUND, _BOX])
    assert result.image.areas.tolist() == [72, 32, 32, 40, 40]
    assert _mask_sums(result) == [72, 32, 32, 40, 40]
    # The point of an object is no object, and records have no place for it.
    assert [*result.notes.values()] == [2, 1, 2, 1]
    assert result.notes['not_converted: point'] == 1
    assert _reasons(result) == []


@pytest.mark.parametrize(('groups', 'areas'), [('all', [72, 32, 72, 40]), ('none', 6)])
def test_option_groups_joins_all_or_none(tmp_path, png, groups, areas):
    result = _one(_labelme_group(tmp_path, png(40, 20), groups=groups, masks=False))
    if groups == 'all':
        assert result.image.areas.tolist() == areas
        np.testing.assert_allclose(result.image.boxes[2], _AROUND)
    else:
        assert len(result.image) == areas
        assert result.notes == {'separate_shapes_of_groups': 4, 'not_converted: point': 1}


def test_option_groups_has_three_values(tmp_path, png):
    with pytest.raises(UserError, match='expected outlines, all or none'):
        _read(_labelme_group(tmp_path, png(40, 20), groups='x'))


def test_parts_may_be_drawn_and_reach_out_of_the_image(tmp_path, png):
    file = io.BytesIO()
    Image.fromarray(np.full((4, 8), 255, np.uint8)).save(file, 'PNG')
    encoded = base64.b64encode(file.getvalue()).decode()
    data = _labelme(
        tmp_path,
        png(40, 20),
        _shape('mask', [4, 2], [12, 6], mask=encoded, group_id=1),
        _shape('polygon', *_RIGHT, group_id=1),
        _shape('polygon', *_LEFT, group_id=2),
        _shape('polygon', [50, 2], [60, 2], [60, 9], group_id=2),
        _shape('oriented_rectangle', *_RIGHT),
    )
    result = _one(data)
    np.testing.assert_allclose(
        result.image.boxes, [_AROUND, [0.1, 0.1, 0.45, 1], [0.1, 0.5, 0.6, 0.6]]
    )
    assert _mask_sums(result) == [72, 32, 40]
    assert result.num_clipped == 1


def test_labelme_file_holds_an_image_that_is_absent(tmp_path, png):
    data = _labelme(tmp_path, png(40, 20), imageData=base64.b64encode(png(40, 20)).decode())
    (tmp_path / 'a.png').unlink()
    assert _one(data).image.encoded == png(40, 20)
    for broken in ('x', 5, None):
        data = _labelme(tmp_path, png(40, 20), imageData=broken)
        (tmp_path / 'a.png').unlink()
        with pytest.raises(UnusableError, match='No such file'):
            _read(data)


@pytest.mark.parametrize('name', ['a.png', r'..\x\a.png', '/home/me/a.png', '', None, 5])
def test_labelme_images_are_found(tmp_path, png, name):
    [result] = _read(_labelme(tmp_path, png(40, 20), name=name))
    assert result.image.height == 20


@pytest.mark.parametrize(
    ('content', 'match'),
    [
        ('{', 'a.json is not a JSON file'),
        ('[' * 100_000, 'a.json is not a JSON file'),
        ('[]', 'an object with a list `shapes`'),
        ('{"shapes": [], "imageHeight": "x"}', 'imageHeight must be a whole number'),
        ('{"shapes": [], "imageHeight": 30}', 'the annotation file says 30'),
    ],
)
def test_broken_labelme_files_are_left_out(tmp_path, png, content, match):
    data = _labelme(tmp_path, png(40, 20))
    (tmp_path / 'a.json').write_text(content)
    with pytest.raises(UnusableError, match=match):
        _read(data)


_LABELS = '<meta><task><labels><label><name>dog</name></label><label><name>cat</name></label>'
_CVAT = (
    f'<annotations>{_LABELS}</labels></task></meta>'
    '<image id="0" name="a.png" width="40" height="20">{shapes}</image></annotations>'
)
_CVAT_BOX = '<box label="cat" occluded="1" xtl="4" ytl="2" xbr="12" ybr="6"{more}/>'


def _cvat(folder, png: bytes, *shapes: str) -> CvatSource:
    (folder / 'images').mkdir()
    (folder / 'images/a.png').write_bytes(png)
    (folder / 'annotations.xml').write_text(_CVAT.format(shapes=''.join(shapes)))
    return CvatSource(annotations_file=str(folder / 'annotations.xml'), masks=True)


def test_cvat_shapes(tmp_path, png):
    data = _cvat(
        tmp_path,
        png(40, 20),
        _CVAT_BOX.format(more=''),
        '<polygon label="dog" points="4,2;12,2;12,6;4,6"/>',
        '<mask label="cat" rle="0,32" left="4" top="2" width="8" height="4"/>',
        '<ellipse label="cat" cx="20" cy="10" rx="8" ry="4"/>',
        _CVAT_BOX.format(more=' rotation="90"'),
        '<mask label="cat" rle="1,2,29" left="4" top="2" width="8" height="4"/>',
        '<points label="cat" points="1,2"/>',
        '<polygon label="" points="4,2;12,2;12,6;4,6"/>',
        '<mask label="cat" rle="0,33" left="4" top="2" width="8" height="4"/>',
        '<mask label="cat" rle="0,32" left="36" top="2" width="8" height="4"/>',
        '<box label="cat" xtl="4"/>',
        '<tag label="cat"/>',
    )
    [result] = _read(data)
    np.testing.assert_allclose(result.image.boxes[:3], [_BOX] * 3)
    np.testing.assert_allclose(
        result.image.boxes[3:5], [[0.3, 0.3, 0.7, 0.7], [0, 0.15, 0.4, 0.25]]
    )
    np.testing.assert_allclose(result.image.boxes[5], [2 / 20, 5 / 40, 3 / 20, 7 / 40])
    assert result.image.class_labels.tolist() == [2, 1, 2, 2, 2, 2]
    assert result.image.object_details[keys.OCCLUDED].tolist() == [1, 0, 0, 0, 1, 0]
    assert _mask_sums(result)[:3] == [32] * 3
    assert _reasons(result) == [
        *('unknown_shape', 'unknown_category', 'bad_mask', 'bad_mask', 'bad_box')
    ]
    assert _detected(tmp_path, 'cvat').masks


def test_cvat_shapes_of_one_label_and_group_are_one_object(tmp_path, png):
    left, right = 'points="4,2;12,2;12,6;4,6"', 'points="20,2;24,2;24,12;20,12"'
    data = _cvat(
        tmp_path,
        png(40, 20),
        f'<polygon label="cat" group_id="1" occluded="0" {left}/>',
        f'<polygon label="cat" group_id="1" occluded="1" {right}/>',
        '<box label="cat" group_id="1" xtl="2" ytl="2" xbr="30" ybr="12"/>',
        '<points label="cat" group_id="1" points="1,2"/>',
        f'<polygon label="dog" group_id="1" {left}/>',
        f'<polygon label="dog" group_id="0" {left}/>',
        f'<polygon label="dog" group_id="0" {right}/>',
        _CVAT_BOX.format(more=' group_id="2"'),
        '<box label="cat" group_id="2" xtl="20" ytl="2" xbr="24" ybr="12"/>',
    )
    result = _one(data)
    # The box belongs to the object, and is no part of its mask.
    np.testing.assert_allclose(result.image.boxes[0], [0.1, 0.05, 0.6, 0.75])
    assert _mask_sums(result) == [72, 32, 32, 40, 32, 40]
    assert result.image.object_details[keys.OCCLUDED].tolist() == [1, 0, 0, 0, 1, 0]
    assert [*result.notes.values()] == [3, 1, 2, 1]
    assert result.notes['not_converted: points'] == 1
    assert _reasons(result) == []


@pytest.mark.parametrize(
    ('content', 'match'),
    [
        ('<!DOCTYPE a [<!ENTITY x "ha">]><annotations>&x;</annotations>', 'DOCTYPE'),
        ('<annotations>', 'is not an XML file'),
        ('<other/>', 'expected <annotations>'),
        ('<annotations><track/></annotations>', 'expected images'),
        ('<annotations/>', 'expected images'),
    ],
)
def test_broken_cvat_files(tmp_path, png, content, match):
    data = _cvat(tmp_path, png(40, 20))
    (tmp_path / 'annotations.xml').write_text(content)
    with pytest.raises(ValueError, match=match):
        data.open(FILES, None)


def _frame_box(frame, left, outside=0, more=''):
    return (
        f'<box frame="{frame}" keyframe="1" outside="{outside}" occluded="{int(frame > 3)}" '
        f'xtl="{left}" ytl="2" xbr="{left + 8}" ybr="6" z_order="0"{more}/>'
    )


def _video(folder, png: bytes, tracks: str, names=tuple(f'frame_{i:06d}.PNG' for i in range(8))):
    for name in names:
        path = folder / 'images' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png)
    size = '<original_size><width>40</width><height>20</height></original_size>'
    labels = _LABELS.replace('<labels>', f'{size}<source>cat.mp4</source><labels>')
    (folder / 'annotations.xml').write_text(
        f'<annotations><version>1.1</version>{labels}</labels></task></meta>{tracks}</annotations>'
    )
    return CvatSource(annotations_file=str(folder / 'annotations.xml'))


# Of frames 0 to 7: moves to the right from 1 to 3, is gone from 4 to 5, and stays from 6 on.
_TRACKS = (
    '<track id="5" label="cat" source="manual">'
    f'{_frame_box(1, 4)}{_frame_box(3, 8)}{_frame_box(4, 8, outside=1)}{_frame_box(6, 20)}</track>'
    '<track id="6" label="dog"><polygon frame="2" outside="0" points="4,2;12,2;12,6;4,6"/>'
    '<polygon frame="4" outside="1" points="8,4;16,4;16,8;8,8"/></track>'
)


def test_tracks_of_a_video_move_evenly_between_their_shapes(tmp_path, png):
    results = _read(_video(tmp_path, png(40, 20), _TRACKS))
    assert [result.image.class_texts for result in results] == [
        *((), ('cat',), ('cat', 'dog'), ('cat', 'dog'), (), (), ('cat',), ('cat',))
    ]
    boxes = [result.image.boxes * [20, 40, 20, 40] for result in results]
    np.testing.assert_allclose(boxes[2], [[2, 6, 6, 14], [2, 4, 6, 12]])
    # The polygon moves towards the shape that ends it.
    np.testing.assert_allclose(boxes[3], [[2, 8, 6, 16], [3, 6, 7, 14]])
    np.testing.assert_allclose(boxes[7], [[2, 20, 6, 28]])
    details = results[3].image.object_details
    assert details[keys.TRACK_ID].tolist() == [5, 6]
    assert details[keys.OCCLUDED].tolist() == [0, 0]
    assert results[7].image.object_details[keys.OCCLUDED].tolist() == [1]
    assert results[3].image.source_id == 'images/frame_000003.PNG'
    found = _detected(tmp_path, 'cvat')
    assert found.masks
    assert [len(result.image.masks) for result in _read(found)] == [0, 1, 2, 2, 0, 0, 1, 1]


def test_clips_of_a_video_are_written_and_trained_on(tmp_path, png):
    data = dataclasses.replace(
        _video(tmp_path, png(40, 20), _TRACKS),
        clips=True,
        seconds_per_sequence=3,
        hop_between_sequences=2,
    )
    prefix = tmp_path / 'records'
    report = conversion.convert(data, str(prefix), 1)
    # Frames 0 to 2, 2 to 4, 4 to 6, 6 and 7.
    assert (report['examples'], report['images'], report['objects']) == (4, 11, 10)
    assert report['notes'] == {'not_converted: id of a track': 2, 'not_converted: occlusion': 1}
    assert not report['unlisted_images']
    path = f'{prefix}-00000-of-00001'
    clips = [*tf.data.TFRecordDataset(path).as_numpy_iterator()]
    context = tf.train.SequenceExample.FromString(clips[1]).context.feature
    assert context[keys.DATASET_NAME].bytes_list.value == [b'CVAT']
    assert context[keys.MEDIA_ID].bytes_list.value == [b'cat.mp4']
    assert [context[key].int64_list.value for key in (keys.CLIP_START, keys.CLIP_END)] == [[2], [5]]
    frames = [records.parse(frame) for frame in sequence_examples.frames(clips[1])]
    assert [frame['image/object/class/text'] for frame in frames] == [[b'cat', b'dog']] * 2 + [[]]
    sides = [np.transpose([frame[side] for side in keys.BOX_SIDES]) for frame in frames[:2]]
    sizes = [20, 40, 20, 40]
    np.testing.assert_allclose(sides[0] * sizes, [[2, 6, 6, 14], [2, 4, 6, 12]], rtol=1e-6)
    np.testing.assert_allclose(sides[1] * sizes, [[2, 8, 6, 16], [3, 6, 7, 14]], rtol=1e-6)

    reader = f"""
        input_type: TF_SEQUENCE_EXAMPLE label_map_path: '{prefix}_label_map.pbtxt' shuffle: false
        tf_record_input_reader {{ input_path: '{path}' }}"""
    resizer = 'image_resizer { fixed_shape_resizer { height: 8 width: 8 } }'
    config = text_format.Parse(
        f'model {{ ssd {{ num_classes: 2 {resizer} }} }} train_config {{ batch_size: 4 }} '
        f'eval_config {{ batch_size: 1 }} train_input_reader {{ {reader} }} '
        f'eval_input_reader {{ {reader} }}',
        pipeline_pb2.TrainEvalPipelineConfig(),
    )

    def numbers(batch) -> list[int]:
        return [int(re.search(rb'\d+', name)[0]) for name in batch[F.SOURCE_ID].numpy()]

    batches = dataset_builder.build_eval(config)
    assert [number for batch in batches for number in numbers(batch)] == [
        0,
        1,
        2,
        2,
        3,
        4,
        4,
        5,
        6,
        6,
        7,
    ]
    [batch] = dataset_builder.build_train(config, seed=1).take(1)
    found = [bool(boxes.any()) for boxes in batch[F.GROUNDTRUTH_BOXES].numpy()]
    assert found == [number in (1, 2, 3, 6, 7) for number in numbers(batch)]


def test_clips_have_the_first_frame_of_each_second(tmp_path, png):
    data = dataclasses.replace(
        _video(tmp_path, png(40, 20), _TRACKS), clips=True, frames_per_second=3
    )
    assert data.open(FILES, None).num_images == 1
    [clip] = data.entries(FILES)
    frames = [frame.image for frame in source.frames_of(clip)]
    assert [(frame['frame'], frame['second']) for frame in frames] == [(0, 0), (3, 1), (6, 2)]


@pytest.mark.parametrize(
    ('options', 'match'),
    [
        ({'clips': True, 'masks': True}, r'annotations\.xml: expected either clips or masks'),
        ({'clips': True, 'frames_per_second': 0}, 'frames_per_second must be at least 1'),
        ({'hop_between_sequences': 5}, 'hop_between_sequences: expected clips'),
    ],
)
def test_options_of_clips(tmp_path, png, options, match):
    data = dataclasses.replace(_video(tmp_path, png(40, 20), _TRACKS), **options)
    with pytest.raises(UserError, match=match):
        data.open(FILES, None)


def test_images_are_no_clips(tmp_path, png):
    data = dataclasses.replace(_cvat(tmp_path, png(40, 20), _CVAT_BOX.format(more='')), clips=True)
    with pytest.raises(UserError, match=r'annotations\.xml: expected a video, which has <track>'):
        data.open(FILES, None)


def test_boxes_of_tracks_turn_the_shorter_way(tmp_path, png):
    turned = (_frame_box(0, 16, more=' rotation="350"'), _frame_box(2, 16, more=' rotation="10"'))
    results = _read(_video(tmp_path, png(40, 20), f'<track label="cat">{"".join(turned)}</track>'))
    # Upright in the middle.
    np.testing.assert_allclose(results[1].image.boxes, [[0.1, 0.4, 0.3, 0.6]], atol=1e-9)
    assert results[0].image.boxes[0, 2] > 0.31
    assert results[0].image.object_details[keys.TRACK_ID].tolist() == [-1]


def test_images_of_other_names_are_frames_in_their_order(tmp_path, png):
    names = ('b/1.png', 'a/2.png')
    data = _video(tmp_path, png(40, 20), f'<track label="cat">{_frame_box(1, 4)}</track>', names)
    ids = [entry.image['id'] for entry in data.entries(FILES) if entry.annotations]
    assert ids == ['images/b/1.png']


@pytest.mark.parametrize(
    ('tracks', 'match'),
    [
        ('<track label="cat"><box frame="x"/></track>', "frame of a shape: .*Received: 'x'"),
        (
            '<track task_id="1"><box frame="1"/></track>'
            '<track task_id="2"><box frame="1"/></track>',
            'tasks 1, 2; export each of them',
        ),
    ],
)
def test_broken_tracks(tmp_path, png, tracks, match):
    with pytest.raises(UserError, match=match):
        _video(tmp_path, png(40, 20), tracks).open(FILES, None)


def test_frames_that_are_missing_are_named(tmp_path, png):
    data = _video(tmp_path, png(40, 20), _TRACKS)
    (tmp_path / 'images/frame_000006.PNG').unlink()
    opened = data.open(FILES, None)
    entry = [*data.entries(FILES)][6]
    with pytest.raises(UnusableError, match='cannot be read'):
        source.read(opened.reader, entry, FILES)
    for path in (tmp_path / 'images').iterdir():
        path.unlink()
    with pytest.raises(UserError, match='expected the frames of the video as image files'):
        data.open(FILES, None)
    with pytest.raises(UserError, match=r'looks like CVAT, but .*expected the frames'):
        formats.detect(str(tmp_path), FILES)


def test_image_tasks_made_of_a_video_have_names_without_suffix(tmp_path, png):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images/frame_000000.PNG').write_bytes(png(40, 20))
    content = _CVAT.replace('a.png', 'frame_000000').format(shapes=_CVAT_BOX.format(more=''))
    (tmp_path / 'annotations.xml').write_text(content)
    data = CvatSource(annotations_file=str(tmp_path / 'annotations.xml'))
    assert not data.open(FILES, None).unlisted
    np.testing.assert_allclose(_one(data).image.boxes, [_BOX])


def test_cvat_fixtures(shared):
    folder = shared / 'data/datumaro_format_fixtures/cvat_dataset/for_images'
    results = _read(_detected(folder / 'export_task', 'cvat'))
    assert [len(result.image) for result in results] == [1, 0]
    assert _reasons(results[0]) + _reasons(results[1]) == [
        *('unknown_category', 'unknown_category', 'unknown_shape')
    ]
    found = formats.detect(str(folder / 'export_project'), FILES)['cvat']
    assert [item.name for item in found] == ['Test', 'Train', 'Validation']
    assert [len(result.image) for result in _read(found[0].source)] == [1, 1]


def _region(kind, label='cat', **value):
    return {
        'type': kind,
        'original_width': 40,
        'original_height': 20,
        'value': {**value, kind: [label] if label else []},
    }


_RECTANGLE = {'x': 10, 'y': 10, 'width': 20, 'height': 20}


def _label_studio(folder, png: bytes, tasks: list) -> LabelStudioSource:
    (folder / 'a.png').write_bytes(png)
    (folder / 'export.json').write_text(json.dumps(tasks))
    return LabelStudioSource(annotations_file=str(folder / 'export.json'), masks=True)


def _task(*regions, image='/data/upload/1/0123abcd-a.png', **others):
    return {'id': 7, 'data': {'image': image}, 'annotations': [{'result': regions, **others}]}


def test_label_studio_regions(tmp_path, png):
    corners = [[10, 10], [30, 10], [30, 30], [10, 30]]
    task = _task(
        _region('rectanglelabels', **_RECTANGLE),
        _region('polygonlabels', 'dog', points=corners),
        _region('ellipselabels', x=50, y=50, radiusX=20, radiusY=20),
        _region('rectanglelabels', x=30, y=10, width=10, height=40, rotation=90),
        _region('keypointlabels', x=10, y=10, width=1),
        _region('rectanglelabels', x='a', y=1, width=1, height=1),
        _region('rectanglelabels', '', **_RECTANGLE),
        {'type': 'choices', 'value': {'choices': ['sunny']}},
        5,
    )
    task['annotations'].insert(0, {'was_cancelled': True, 'result': [5]})
    data = _label_studio(tmp_path, png(40, 20), [task])
    [result] = _read(data)
    np.testing.assert_allclose(result.image.boxes[:2], [_BOX] * 2)
    # The second corner of the turned one is below the first, 4 pixels; the third is 8 to the left.
    np.testing.assert_allclose(
        result.image.boxes[2:], [[0.3, 0.3, 0.7, 0.7], [0.1, 0.1, 0.3, 0.3]], atol=1e-9
    )
    assert result.image.class_texts == ('cat', 'dog', 'cat', 'cat')
    assert result.image.source_id == '7'
    assert _reasons(result) == [*('unknown_shape', 'bad_box', 'unknown_category', 'unknown_shape')]
    assert _detected(tmp_path, 'label_studio').masks


def _packed(values: np.ndarray, *, sizes=(3, 4, 8, 12)) -> list[int]:
    """Returns the bytes of Label Studio's run lengths of a picture uint8 [N]."""
    bits = f'{len(values):032b}{7:05b}' + ''.join(f'{size - 1:04b}' for size in sizes)
    ends = [*(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    start = 0
    for end in ends:
        count = end - start
        size = next(i for i, size in enumerate(sizes) if count <= 1 << size)
        is_run = count > 4
        words = values[start:end][: 1 if is_run else count]
        bits += f'{is_run:b}{size:02b}{count - 1:0{sizes[size]}b}'
        bits += ''.join(f'{word:08b}' for word in words)
        start = end
    bits += '0' * (-len(bits) % 8)
    return [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]


def _picture(*boxes) -> np.ndarray:
    """Returns the four equal channels of a brush label, 20 high and 40 wide, as one list."""
    opaque = np.zeros((20, 40, 4), np.uint8)
    for ymin, xmin, ymax, xmax in boxes:
        opaque[ymin:ymax, xmin:xmax] = 255
    return opaque.ravel()


def test_brush_labels(tmp_path, png):
    picture = _picture((2, 4, 6, 12), (10, 30, 11, 31))
    # A soft edge, of words one by one.
    picture[4 * 50 : 4 * 51] = [1, 2, 3, 4]
    packed = _packed(picture)
    packed_twice = _packed(_picture((2, 4, 6, 12)))
    others = [
        packed[:-9],
        [1, *packed[1:]],
        [*packed, 'x'],
        [],
        [300],
        # Runs of more words than there are.
        [*packed_twice[:7], *([255] * (len(packed_twice) - 7))],
    ]
    task = _task(
        _region('brushlabels', format='rle', rle=packed),
        _region('brushlabels', 'dog', format='rle', rle=packed_twice),
        *(_region('brushlabels', format='rle', rle=each) for each in others),
    )
    result = _one(_label_studio(tmp_path, png(40, 20), [task]))
    assert _mask_sums(result) == [34, 32]
    np.testing.assert_allclose(result.image.boxes, [[0.05, 0.1, 0.55, 0.775], _BOX])
    assert result.image.areas.tolist() == [34, 32]
    assert _reasons(result) == ['bad_mask'] * len(others)
    assert _detected(tmp_path, 'label_studio').masks


def test_entries_of_one_label_studio_region_are_one_object(tmp_path, png):
    first, second = (
        [[10, 10], [30, 10], [30, 30], [10, 30]],
        [[50, 10], [60, 10], [60, 60], [50, 60]],
    )
    regions = [
        {**_region('polygonlabels', points=first), 'id': 'a'},
        {**_region('polygonlabels', points=second), 'id': 'a'},
        {**_region('polygonlabels', 'dog', points=second), 'id': 'a'},
        {**_region('polygonlabels', points=second), 'id': 'b', 'parentID': 'a'},
    ]
    result = _one(_label_studio(tmp_path, png(40, 20), [_task(*regions)]))
    np.testing.assert_allclose(result.image.boxes[0], _AROUND)
    assert result.image.areas.tolist() == [72, 40, 40]


def test_label_studio_minimal_export(tmp_path, png):
    region = {**_RECTANGLE, 'rectanglelabels': ['cat'], 'original_width': 40}
    task = {'id': 1, 'image': '/data/local-files/?d=x/a.png', 'box': [region], 'annotator': 1}
    corners = [[10, 10], [30, 10], [30, 30], [10, 30]]
    task['outline'] = [{'points': corners, 'polygonlabels': ['dog', 'animal']}]
    [result] = _read(_label_studio(tmp_path, png(40, 20), [task]))
    np.testing.assert_allclose(result.image.boxes, [_BOX] * 3)
    assert result.image.class_texts == ('cat', 'dog', 'animal')


@pytest.mark.parametrize('name', ['a.png', 's3://bucket/x/a.png', 'http://host/a.png?x=1', None])
def test_label_studio_images(tmp_path, png, name):
    data = _label_studio(tmp_path, png(40, 20), [_task(image=name)])
    if name is None:
        with pytest.raises(UnusableError, match='no file is named'):
            _read(data)
    else:
        assert len(_read(data)) == 1


@pytest.mark.parametrize('content', ['{', '{}', '[1]', '[]', '[' * 100_000])
def test_broken_label_studio_files(tmp_path, png, content):
    data = _label_studio(tmp_path, png(40, 20), [])
    (tmp_path / 'export.json').write_text(content)
    with pytest.raises(ValueError, match=r'export\.json'):
        data.open(FILES, None)


@pytest.mark.parametrize(
    'content',
    [
        'filename,width,height,class,xmin,ymin,xmax,ymax\na.png,40,20,cat,4,2,12,6\nb.png,,,,,,,\n',
        'a.png,4,2,12,6,cat\nb.png,,,,,\n',
        '\ufeffclass;x1;y1;x2;y2;image\ncat;4.0;2;12;6;a.png\n;;;;;b.png\n',
    ],
    ids=['TensorFlow', 'RetinaNet', 'other'],
)
def test_csv_forms(tmp_path, png, content):
    for name in ('a', 'b'):
        (tmp_path / f'{name}.png').write_bytes(png(40, 20))
    (tmp_path / 'train_labels.csv').write_text(content)
    first, second = _read(_detected(tmp_path, 'csv'))
    np.testing.assert_allclose(first.image.boxes, [_BOX])
    assert first.image.class_texts == ('cat',)
    assert len(second.image) == 0
    assert not first.problems


def test_csv_rows_that_cannot_be_used(tmp_path, png):
    (tmp_path / 'a.png').write_bytes(png(40, 20))
    rows = ['4,2,x,6,cat', '4,2,4,6,cat', '4,2,12,6,', '50,2,60,6,cat', '4,2,12,6,cat']
    path = tmp_path / 'a.csv'
    path.write_text('\n'.join(f'a.png,{row}' for row in reversed(rows)))
    [result] = _read(CsvSource(annotations_file=str(path)))
    assert len(result.image) == 1
    assert [(name, error.reason) for name, error in result.problems] == [
        ('line 2', 'box_outside_image'),
        ('line 3', 'unknown_category'),
        ('line 4', 'box_without_area'),
        ('line 5', 'bad_box'),
    ]


@pytest.mark.parametrize(
    ('content', 'match'),
    [('', 'Received: nothing'), ('a,b\n', 'expected columns'), ('a.png,1,2,3,4,x\nb\n', 'line 2')],
)
def test_broken_csv_files(tmp_path, content, match):
    path = tmp_path / 'a.csv'
    path.write_text(content)
    with pytest.raises(ValueError, match=match):
        CsvSource(annotations_file=str(path)).open(FILES, None)


def test_a_broken_csv_file_is_found_and_its_conversion_says_what_is_wrong(tmp_path):
    content = b'filename,class,xmin,ymin,xmax,ymax\na.png,cat,1,2\n'
    (tmp_path / 'a.csv').write_bytes(content)
    with pytest.raises(ValueError, match='line 2: expected 6 fields'):
        _detected(tmp_path, 'csv').open(FILES, None)


def test_sets_of_one_name_are_called_by_their_files(tmp_path, png):
    _cvat(tmp_path, png(40, 20))
    export = (tmp_path / 'annotations.xml').read_text()
    (tmp_path / 'second.xml').write_text(export)
    found = formats.detect(str(tmp_path), FILES)['cvat']
    assert [item.name for item in found] == ['annotations', 'second']
    export = export.replace('<image ', '<image subset="second" ')
    (tmp_path / 'third.xml').write_text(export)
    with pytest.raises(UserError, match=r"'second' \(second.xml .*'second' \(third.xml"):
        formats.detect(str(tmp_path), FILES)


def test_other_files_do_not_hide_a_set(tmp_path, png, monkeypatch):
    _cvat(tmp_path, png(40, 20))
    (tmp_path / 'a_video.xml').write_text('<annotations><track/></annotations>')
    assert _detected(tmp_path, 'cvat').annotations_file == str(tmp_path / 'annotations.xml')
    (tmp_path / 'labelme').mkdir()
    data = _labelme(tmp_path / 'labelme', png(40, 20), _shape('polygon', [1, 1], [5, 1], [5, 5]))
    (tmp_path / 'labelme/Classes.json').write_text('["cat"]')
    (tmp_path / 'labelme/Z.json').write_text('{"imagePath": "a.png", "shapes": [5]}')
    assert _detected(tmp_path / 'labelme', 'labelme').data_dir == data.data_dir

    def fail(folder, files):
        raise UserError('broken')

    monkeypatch.setattr(CvatSource, 'detect', fail)
    assert [*formats.detect(str(tmp_path / 'labelme'), FILES)] == ['labelme']
