import io
import pathlib

import numpy as np
import pytest
from PIL import Image

from object_detection.data import label_map
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source
from object_detection.data.formats.yolo import YoloSource
from object_detection.errors import UserError

FILES = LocalFiles()
_YAML = (
    'path: ../datasets/mine\n'
    'train: /content/mine/train/images\nval: ../valid/images\nnames: {names}\n'
)
# A million items in a few lines.
_NESTED = 'a: &a0 [x]\n' + ''.join(
    f'b{i}: &a{i + 1} [{", ".join([f"*a{i}"] * 10)}]\n' for i in range(6)
)
_NESTED += 'names: *a6\ntrain: train\n'


def _write(folder: pathlib.Path, image: bytes, **labels: str) -> None:
    """Writes images, and their text files, by their stems."""
    for name in ('images', 'labels'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for stem, text in labels.items():
        (folder / f'images/{stem}.png').write_bytes(image)
        if text:
            (folder / f'labels/{stem}.txt').write_text(text)


def _ultralytics(
    folder: pathlib.Path, image: bytes, names='[cat, dog]', **labels: str
) -> YoloSource:
    _write(folder / 'train', image, **labels)
    path = folder / 'data.yaml'
    path.write_text(_YAML.format(names=names))
    return YoloSource(str(path), split='train')


def _read(data: YoloSource, labels=None) -> list[source.ReadResult]:
    opened = data.open(FILES, labels)
    return [source.read(opened.reader, entry, FILES) for entry in data.entries(FILES)]


def test_boxes_and_polygons(tmp_path, png):
    text = '1 0.5 0.5 0.25 0.2\n\n0 0.1 0.1 0.9 0.1 0.9 0.4\n0.0 0.9000004 0.5 0.2 1\n'
    data = _ultralytics(tmp_path, png(40, 30), a=text, b='')
    first, second = _read(data)
    assert not first.problems
    assert not first.num_clipped
    np.testing.assert_allclose(
        first.image.boxes,
        [[0.4, 0.375, 0.6, 0.625], [0.1, 0.1, 0.4, 0.9], [0, 0.8000004, 1, 1]],
        atol=1e-12,
    )
    np.testing.assert_allclose(first.image.areas[:2], [60, 32 * 9 / 2])
    assert first.image.class_texts == ('dog', 'cat', 'cat')
    assert first.image.class_labels.tolist() == [2, 1, 1]
    assert first.image.masks is None
    assert second.image.boxes.shape == (0, 4)


def test_polygons_become_masks(tmp_path, png):
    text = '0 0.25 0.2 0.75 0.2 0.75 0.8 0.25 0.8\n0 0.5 0.5 0.2 0.2\n'
    data = _ultralytics(tmp_path, png(40, 30), a=text)
    [result] = _read(YoloSource(data.data_file, split='train', masks=True))
    [mask] = [np.asarray(Image.open(io.BytesIO(file))) for file in result.image.masks]
    expected = np.zeros((30, 40), bool)
    expected[6:24, 10:30] = True
    np.testing.assert_array_equal(mask > 0, expected)
    assert [(number, error.reason) for number, error in result.problems] == [(2, 'bad_mask')]


@pytest.mark.parametrize(
    ('line', 'reason'),
    [
        ('2 0.5 0.5 0.1 0.1', 'unknown_category'),
        ('x 0.5 0.5 0.1 0.1', 'unknown_category'),
        ('-1 0.5 0.5 0.1 0.1', 'unknown_category'),
        ('0 0.5 0.5 0.1', 'bad_box'),
        ('0', 'bad_box'),
        ('0 0.5 0.5 0.1 0.1 0.9', 'bad_box'),
        ('0 0.5 0.5 nan 0.1', 'bad_box'),
        ('0 0.5 0.5 1e308 0.1', 'bad_box'),
        ('0 0.5 y 0.1 0.1', 'bad_box'),
        ('0 0.5 0.5 0 0.1', 'box_without_area'),
        ('0 0.5 0.5 -0.1 0.1', 'box_without_area'),
        ('0 20 15 10 10', 'box_outside_image'),
    ],
)
def test_lines_that_cannot_be_used(tmp_path, png, line, reason):
    [result] = _read(_ultralytics(tmp_path, png(40, 30), a=f'{line}\n1 0.5 0.5 1 1\n'))
    assert [(number, error.reason) for number, error in result.problems] == [(1, reason)]
    assert result.image.class_texts == ('dog',)
    assert ('a confidence' in str(result.problems[0][1])) == line.endswith('0.9')


def test_label_map_leaves_out_classes(tmp_path, png):
    data = _ultralytics(tmp_path, png(40, 30), '{0: cat, 7: dog}', a='7 .5 .5 1 1\n0 .5 .5 1 1')
    assert [result.image.class_labels.tolist() for result in _read(data)] == [[8, 1]]
    proto = label_map.parse(b'item { id: 3 name: "dog" }', 'map')
    [result] = _read(data, label_map.classes(proto, 'map'))
    assert result.image.class_labels.tolist() == [3]
    assert [(error.reason, str(error)) for _, error in result.problems] == [
        ('not_in_label_map', 'cat')
    ]


def test_darknet(tmp_path, png):
    (tmp_path / 'obj_train_data').mkdir()
    (tmp_path / 'obj_train_data/a.png').write_bytes(png(40, 30))
    (tmp_path / 'obj_train_data/a.txt').write_text('0 0.5 0.5 0.5 0.5')
    (tmp_path / 'obj.names').write_text('cat\ndog\n\n')
    (tmp_path / 'train.txt').write_text('data/obj_train_data/a.png\ndata/obj_train_data/b.png\n')
    (tmp_path / 'obj.data').write_text('train = data/train.txt\nnames = data/obj.names\n')
    [found] = YoloSource.detect(str(tmp_path), FILES)
    assert (found.name, found.reason) == ('train', 'obj.data')
    opened = found.source.open(FILES, None)
    assert [label.text for label in opened.labels.values()] == ['cat', 'dog']
    good, bad = found.source.entries(FILES)
    assert len(source.read(opened.reader, good, FILES).image) == 1
    with pytest.raises(ValueError, match='cannot be read'):
        source.read(opened.reader, bad, FILES)


@pytest.mark.parametrize(
    ('content', 'match'),
    [
        ('- [', 'cannot be read as a YAML file'),
        (_NESTED, 'aliases are not read'),
        ('names: [a, [b]]\ntrain: train', 'a text as name of class 1. Received: list'),
        ('train: images', 'expected `names`'),
        ('names: 5\ntrain: train', 'expected `names`, a list'),
        ('names: [a]\ntrain: absent', 'none of the folders'),
        (f'names: {{{10**400}: a}}\ntrain: train', 'expected `names`, a list'),
        (
            'names: [a]\ntrain: train\nkpt_shape: [2, 4]',
            r'kpt_shape: expected .*Received: \[2, 4\]',
        ),
        ('names: [a]\ntrain: train\nkpt_shape: [9999, 2]', 'kpt_shape: expected'),
        ('names: [a]\ntrain: train\nkpt_shape: [2, 3]\nflip_idx: [0, 0]', 'flip_idx: expected'),
        ('names: [a]\ntrain: train\nkpt_shape: [2, 3]\nkpt_names: [b]', 'kpt_names: expected 2'),
    ],
)
def test_descriptions_that_cannot_be_used(tmp_path, png, content, match):
    data = _ultralytics(tmp_path, png(40, 30), a='0 .5 .5 1 1')
    pathlib.Path(data.data_file).write_text(content)
    with pytest.raises((ValueError, OSError), match=match):
        data.open(FILES, None)


_POSE = 'kpt_shape: [3, {}]\nflip_idx: [0, 2, 1]\nkpt_names: {{0: [a, b, c], 1: [a, x, y]}}\n'


@pytest.mark.parametrize(
    ('dims', 'line', 'visible'),
    [(3, '.5 .5 2 0 0 0 .75 .2 1', [2, 0, 1]), (2, '.5 .5 0 0 .75 .2', [2, 0, 2])],
)
def test_keypoints(tmp_path, png, dims, line, visible):
    data = _ultralytics(
        tmp_path, png(40, 30), a=f'1 .5 .5 .5 .6 {line}\n0 .5 .5 1 1\n0 .5 .5 1 1 .5'
    )
    path = pathlib.Path(data.data_file)
    path.write_text(path.read_text() + _POSE.format(dims))
    opened = data.open(FILES, None)
    assert opened.keypoints.names == ('a', 'b', 'c', 'x', 'y')
    assert opened.keypoints.slots == {0: [0, 1, 2], 1: [0, 3, 4]}
    assert opened.keypoints.mirrored == {0: [0, 2, 1], 1: [0, 4, 3]}
    assert not opened.notes
    # A given label map is published as it is.
    given = label_map.parse(b"item { id: 1 name: 'cat' }", '')
    [note] = data.open(FILES, label_map.classes(given, '')).notes
    assert note.endswith('flip_idx, as keypoint_flip_permutation: [0, 2, 1]')
    [result] = _read(data)
    image = result.image
    np.testing.assert_allclose(image.boxes[0], [0.2, 0.25, 0.8, 0.75])
    assert image.keypoint_visibilities.tolist() == [
        [visible[0], 0, 0, *visible[1:]],
        [0] * 5,
    ]
    # Rows of (y, x).
    np.testing.assert_allclose(image.keypoints[0, [0, 3, 4]], [[0.5, 0.5], [0, 0], [0.2, 0.75]])
    assert image.num_keypoints.tolist() == [2, 0]
    [(_, error)] = result.problems
    assert f'a box or {4 + 3 * dims} of a box and its keypoints, received 5' in str(error)
    assert not result.notes


def test_keypoints_of_persons_are_known_by_their_pairs(tmp_path, png):
    data = _ultralytics(tmp_path, png(40, 30), a='0 .5 .5 1 1')
    path = pathlib.Path(data.data_file)
    text = path.read_text()
    for flip, first in (
        ('[0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]', 'nose'),
        ('', 'keypoint_0'),
    ):
        path.write_text(f'{text}kpt_shape: [17, 3]\nflip_idx: {flip}\n')
        names = data.open(FILES, None).keypoints.names
        assert (names[0], len(names)) == (first, 17)


def test_oriented_boxes_are_read_as_the_upright_boxes_around_them(tmp_path, png):
    # Eight pixels wide and four high, turned by 45 degrees around the centre.
    corners = '.5 .3 .65 .5 .55 .6333333 .4 .4333333'
    data = _ultralytics(tmp_path, png(40, 30), a=f'0 {corners}')
    [result] = _read(data)
    np.testing.assert_allclose(result.image.boxes, [[0.3, 0.4, 0.6333333, 0.65]])
    [(note, count)] = result.notes.items()
    assert ('oriented box, of which the upright box is (--masks)' in note, count) == (True, 1)


def test_missing_sets_and_text_files_are_errors(tmp_path, png):
    data = _ultralytics(tmp_path, png(40, 30), a='0 .5 .5 1 1')
    with pytest.raises(ValueError, match="expected a set 'val'"):
        YoloSource(data.data_file, split='val').open(FILES, None)
    (tmp_path / 'train/labels/a.txt').unlink()
    with pytest.raises(ValueError, match='expected text files in a folder `labels`'):
        data.open(FILES, None)


def test_paths_relative_to_the_folder_of_the_data(tmp_path, png, monkeypatch):
    for name in ('images/train', 'labels/train'):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / 'images/train/a.png').write_bytes(png(40, 30))
    (tmp_path / 'labels/train/a.txt').write_text('0 .5 .5 1 1')
    (tmp_path / 'data.yaml').write_text('train: images/train\nnames: [cat]\n')
    (tmp_path / 'classes.txt').write_text('cat\n')
    monkeypatch.chdir(tmp_path)
    for name in ('data.yaml', 'classes.txt'):
        [result] = _read(YoloSource(name))
        assert len(result.image) == 1


def test_equal_file_names_of_several_folders_get_ids_of_their_own(tmp_path, png):
    _write(tmp_path / 'a', png(40, 30), x='0 .5 .5 1 1', y='')
    _write(tmp_path / 'b', png(40, 30), x='0 .5 .5 1 1')
    path = tmp_path / 'data.yaml'
    path.write_text('train: [a/images, b/images]\nval: a/images\nnames: [cat]\n')
    ids = [result.image.source_id for result in _read(YoloSource(str(path), split='train'))]
    assert ids == ['a/images/x.png', 'y.png', 'b/images/x.png']
    ids = [result.image.source_id for result in _read(YoloSource(str(path), split='val'))]
    assert ids == ['x.png', 'y.png']


def test_a_part_of_a_set_that_is_missing_is_an_error(tmp_path, png):
    _write(tmp_path / 'a', png(40, 30), x='0 .5 .5 1 1')
    path = tmp_path / 'data.yaml'
    path.write_text('train: [a/images, b/images]\nval: a/images\nnames: [cat]\n')
    [found] = YoloSource.detect(str(tmp_path), FILES)
    with pytest.raises(UserError, match=r"the set 'train'\. Not there: b/images"):
        found.source.open(FILES, None)


def test_a_set_that_is_missing_is_not_another_one(tmp_path, png):
    _write(tmp_path, png(40, 30), x='0 .5 .5 1 1')
    path = tmp_path / 'data.yaml'
    path.write_text('train: ../images\nval: ../valid/images\nnames: [cat]\n')
    assert [found.name for found in YoloSource.detect(str(tmp_path), FILES)] == ['train']
