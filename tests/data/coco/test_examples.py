import io

import numpy as np
import pytest
from PIL import Image

from object_detection.data import annotation_checks, file_access
from object_detection.data.annotated_image import ClassLabel
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco.annotations import Classes
from object_detection.data.coco.examples import Contents
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.source import ImageEntry
from object_detection.data.tf_examples import to_example
from object_detection.errors import UnusableError
from tests import goldens, rows
from tests.data.coco import reading
from tests.dataset_tools import records

# What the reference writes otherwise: it has the text of a class only. That its `image/format` is
# 'jpeg' for every file does not show here, as these are JPEG.
_NOT_IN_REFERENCE = {'image/object/class/label'}

LABELS = Classes({1: ClassLabel(1, 'cat'), 7: ClassLabel(7, 'dog')})


def _image(image_format='JPEG', mode='RGB', size=(40, 30)) -> bytes:
    """Encodes noise of `size` (width, height)."""
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(file, image_format)
    return file.getvalue()


def _entry(**others) -> dict:
    return {'id': 5, 'file_name': 'a.jpg', 'height': 30, 'width': 40} | others


def _annotation(**others) -> dict:
    return {'id': 9, 'image_id': 5, 'category_id': 7, 'bbox': [4, 6, 10, 12], 'area': 100} | others


def _read_annotated(*annotations: dict, contents=None, encoded=None, entry=None):
    image = ImageEntry(entry or _entry(), list(annotations))
    return reading.read(image, encoded or _image(), contents or Contents(LABELS))


def _features(*annotations: dict, **others) -> records.Features:
    result = _read_annotated(*annotations, **others)
    assert not result.problems
    return records.parse(to_example(result.image))


def _without_overhanging(image: ImageEntry) -> ImageEntry:
    """Leaves out the boxes that reach over the edge, as the reference does; ours are clipped."""
    height, width = image.image['height'], image.image['width']
    inside = [
        annotation
        for annotation in image.annotations
        for x, y, w, h in [annotation['bbox']]
        if min(x, y) >= 0 and x + w <= width and y + h <= height
    ]
    return image._replace(annotations=inside)


# `coco_sharding` is tested with the Beam job.
_PREFIXES = ('coco_plain', 'coco_masks', 'coco_keypoints', 'coco_densepose', 'coco_person_images')


@goldens.rows('tf_examples', prefix=_PREFIXES)
def test_reference_examples(case_name):
    case = goldens.load('tf_examples', case_name)
    folder = goldens.COMPONENTS / 'examples'
    keypoints, densepose = (
        str(folder / name) if (name := case.params.get(f'{kind}_annotations_file')) else ''
        for kind in ('keypoint', 'densepose')
    )
    source = CocoSource(
        image_dir=str(folder / 'images'),
        annotations_file=str(folder / 'instances.json'),
        masks=case.params['include_masks'],
        keypoints_file=keypoints,
        densepose_file=densepose,
        only_objects_of='person' if case.params.get('remove_non_person_annotations') else '',
        only_images_with='person' if case.params.get('remove_non_person_images') else '',
    )
    contents = source.open(LocalFiles(), None).reader.contents
    ours = {}
    for index, entry in enumerate(source.entries(LocalFiles())):
        image = _without_overhanging(entry)
        encoded = (folder / 'images' / image.image['file_name']).read_bytes()
        features = records.parse(to_example(reading.read(image, encoded, contents).image))
        ours |= {f'ex{index}/{key}': value for key, value in records.as_golden(features)}
    assert {key for key in ours if key.split('/', 1)[1] not in _NOT_IN_REFERENCE} == set(
        case.outputs
    )
    for key, expected in case.outputs.items():
        records.assert_equal_to_golden(key, ours[key], expected)


def test_values_by_hand():
    encoded = _image()
    features = _features(
        _annotation(), _annotation(category_id=1, bbox=[0, 0, 40, 30], iscrowd=1), encoded=encoded
    )
    assert features['image/encoded'] == [encoded]
    assert features['image/height'] == [30]
    assert features['image/width'] == [40]
    assert features['image/source_id'] == [b'5']
    assert features['image/filename'] == [b'a.jpg']
    np.testing.assert_allclose(features['image/object/bbox/xmin'], [0.1, 0])
    np.testing.assert_allclose(features['image/object/bbox/ymin'], [0.2, 0])
    np.testing.assert_allclose(features['image/object/bbox/xmax'], [0.35, 1])
    np.testing.assert_allclose(features['image/object/bbox/ymax'], [0.6, 1])
    assert features['image/object/class/text'] == [b'dog', b'cat']
    assert features['image/object/class/label'] == [7, 1]
    assert features['image/object/is_crowd'] == [0, 1]


def test_image_without_objects_has_empty_lists():
    features = _features(contents=Contents(LABELS, True, coco_keypoints.KeypointLayout(('a',), {})))
    lists = {key: value for key, value in features.items() if key.startswith('image/object/')}
    assert len(lists) == 14
    assert set(map(len, lists.values())) == {0}


def test_area_is_the_box_s_if_there_is_none():
    annotation = _annotation()
    del annotation['area']
    assert _features(annotation)['image/object/area'] == [120]


@rows.parametrize(
    ('image_format', 'mode', 'name'),
    [
        ('JPEG', 'RGB', b'jpeg'),
        ('JPEG', 'L', b'jpeg'),
        ('JPEG', 'CMYK', b'jpeg'),
        ('MPO', 'RGB', b'jpeg'),
        ('PNG', 'RGBA', b'png'),
        ('PNG', 'P', b'png'),
        ('GIF', 'P', b'gif'),
        ('BMP', 'RGB', b'bmp'),
        ('WEBP', 'RGB', b'webp'),
    ],
)
def test_true_format_and_untouched_bytes(image_format, mode, name):
    encoded = _image(image_format, mode)
    features = _features(encoded=encoded)
    assert features['image/format'] == [name]
    assert features['image/encoded'] == [encoded]


def _broken_off() -> bytes:
    encoded = _image(size=(400, 300))
    return encoded[: len(encoded) // 2]


@pytest.mark.parametrize(
    ('encoded', 'entry', 'match'),
    [
        (b'', _entry(), 'cannot be decoded'),
        (b'no image', _entry(), 'cannot be decoded'),
        (_broken_off(), _entry(height=300, width=400), 'cannot be decoded'),
        (_image('PNG')[:-200], _entry(), 'cannot be decoded'),
        (_image('PPM'), _entry(), 'no image file of the formats JPEG'),
        (_image(), _entry(height=40, width=30), 'is 30 pixels high and 40 wide'),
    ],
    ids=['empty', 'text', 'broken JPEG', 'broken PNG', 'PPM', 'turned'],
)
def test_unusable_image(encoded, entry, match):
    with pytest.raises(UnusableError, match=match) as caught:
        annotation_checks.check_image(encoded, coco_annotations.stated_size(entry))
    assert caught.value.reason == 'bad_image'


@rows.parametrize('stated', [{}, {'height': None}, {'height': 0}, {'height': '30'}])
def test_size_may_be_left_to_the_image(stated):
    entry = {'id': 5, 'file_name': 'a.jpg'} | stated
    assert _features(entry=entry)['image/height'] == [30]


@rows.parametrize('height', ['thirty', -1, 30.5, [30], True, float('inf')])
def test_size_that_is_none(height):
    with pytest.raises(UnusableError, match='height must be a whole number'):
        annotation_checks.read_image(_image(), coco_annotations.stated_size(_entry(height=height)))


@rows.parametrize('stated', [None, 0, False, '0'])
def test_no_crowd(stated):
    annotation = _annotation(iscrowd=stated, num_keypoints=None)
    assert _features(annotation)['image/object/is_crowd'] == [0]


@rows.parametrize(
    ('folder', 'name', 'path'),
    [
        ('a/b', 'c/d.jpg', 'a/b/c/d.jpg'),
        ('a/b', 'c/../d.jpg', 'a/b/c/../d.jpg'),
        ('/a', '/a/b.jpg', '/a/b.jpg'),
        ('gs://a/b', 'c/d.jpg', 'gs://a/b/c/d.jpg'),
        ('a', '../b.jpg', None),
        ('a', '../ab/b.jpg', None),
        ('a', '/etc/passwd', None),
        ('gs://a/b', '../d.jpg', None),
        ('gs://a/b', '/d.jpg', None),
        ('a', '.', None),
        ('a', 'b\0.jpg', None),
    ],
)
def test_path_of_an_image_stays_in_its_folder(folder, name, path):
    if path is not None:
        assert file_access.path_within(folder, name) == path
        return
    with pytest.raises(UnusableError, match='leads out of the folder of the images'):
        file_access.path_within(folder, name)


@rows.parametrize(
    ('bbox', 'expected'),
    [
        ([-0.5, 0, 10, 10], [0, 0, 9.5, 10]),
        ([0, -1, 10, 10], [0, 0, 10, 9]),
        ([30, 20, 10.75, 11], [30, 20, 40, 30]),
        ([-30, -20, 200, 200], [0, 0, 40, 30]),
        ([39, 6, 100, 12], [39, 6, 40, 18]),
    ],
)
def test_box_over_the_edge_is_clipped(bbox, expected):
    result = _read_annotated(_annotation(bbox=bbox))
    assert (len(result.image), result.num_clipped) == (1, 1)
    features = records.parse(to_example(result.image))
    sides = ('xmin', 'ymin', 'xmax', 'ymax')
    box = [features[f'image/object/bbox/{side}'][0] for side in sides]
    np.testing.assert_allclose(box, np.array(expected) / [40, 30, 40, 30], rtol=1e-6)


@rows.parametrize(
    ('others', 'reason'),
    [
        ({'category_id': 2}, 'unknown_category'),
        ({'bbox': [4, 6, 0, 12]}, 'box_without_area'),
        ({'bbox': [4, 6, 10, -1]}, 'box_without_area'),
        ({'bbox': [-9.5, 6, 10, 12]}, 'box_outside_image'),
        ({'bbox': [30, 29.1, 10, 12]}, 'box_outside_image'),
        ({'bbox': [39.5, 6, 11.5, 12]}, 'box_outside_image'),
        ({'bbox': [-0.5, 6, 0.25, 12]}, 'box_outside_image'),
        ({'bbox': [40, 6, 0.5, 12]}, 'box_outside_image'),
        ({'bbox': None}, 'bad_box'),
        ({'bbox': [1, 2, 3]}, 'bad_box'),
        ({'bbox': [1, 2, 3, 'a']}, 'bad_box'),
        ({'bbox': [1, 2, 3, float('nan')]}, 'bad_box'),
        ({'area': 'large'}, 'bad_area'),
        ({'area': float('inf')}, 'bad_area'),
        ({'category_id': [7]}, 'unknown_category'),
        ({'iscrowd': 'no'}, 'bad_crowd'),
        ({'num_keypoints': 'two'}, 'bad_keypoints'),
        ({'keypoints': [1, 2, None, 1, 2, 2]}, 'bad_keypoints'),
        ({'keypoints': [1, float('nan'), 2, 1, 2, 2]}, 'bad_keypoints'),
        (
            {'dp_I': [float('nan')]} | {key: [1] for key in ('dp_x', 'dp_y', 'dp_U', 'dp_V')},
            'bad_densepose',
        ),
        ({'segmentation': 5}, 'bad_mask'),
        ({'segmentation': [[1, 2]]}, 'bad_mask'),
        ({'keypoints': [1, 2, 2]}, 'bad_keypoints'),
        ({'keypoints': ['a', 2, 2] * 2}, 'bad_keypoints'),
        ({'dp_I': [1, 2], 'dp_x': [1]}, 'bad_densepose'),
    ],
)
def test_unusable_annotation_is_left_out(others, reason):
    segmentation = [[4, 6, 14, 6, 14, 18]]
    layout = coco_keypoints.KeypointLayout(('a', 'b'), {})
    contents = Contents(LABELS, masks=True, keypoints=layout, densepose=True)
    good = _annotation(id=1, segmentation=segmentation)
    bad = _annotation(**{'id': 2, 'segmentation': segmentation} | others)
    result = _read_annotated(good, bad, good, contents=contents)
    assert [(key, error.reason) for key, error in result.problems] == [(2, reason)]
    features = records.parse(to_example(result.image))
    assert len(features['image/object/mask']) == 2
    assert len(features['image/object/area']) == 2
    assert len(features['image/object/keypoint/x']) == 4


def test_keypoints_of_several_categories_have_their_own_positions():
    categories = [
        {'id': 1, 'name': 'cat', 'keypoints': ['nose', 'tail']},
        {'id': 7, 'name': 'dog', 'keypoints': ['ear', 'nose']},
    ]
    layout = coco_keypoints.keypoint_layout(categories)
    assert layout.names == ('nose', 'tail', 'ear')
    features = _features(
        _annotation(category_id=1, keypoints=[4, 3, 2, 8, 6, 1]),
        _annotation(category_id=7, keypoints=[12, 9, 1, 0, 0, 0]),
        contents=Contents(LABELS, keypoints=layout),
    )
    np.testing.assert_allclose(
        features['image/object/keypoint/x'], [0.1, 0.2, 0, 0, 0, 0.3], rtol=1e-6
    )
    np.testing.assert_allclose(
        features['image/object/keypoint/y'], [0.1, 0.2, 0, 0, 0, 0.3], rtol=1e-6
    )
    assert features['image/object/keypoint/visibility'] == [2, 1, 0, 0, 0, 1]
    # Counted, as these annotations do not say it.
    assert features['image/object/keypoint/num'] == [2, 1]
    assert features['image/object/keypoint/text'] == [b'nose', b'tail', b'ear'] * 2
