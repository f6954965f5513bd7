import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import pickle
import posixpath
import signal
import subprocess
import sys
import time

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.io.filesystem import FileMetadata, MatchResult
from apache_beam.io.filesystems import FileSystems
from google.protobuf import text_format
from PIL import Image

from object_detection.data.formats.coco import CocoSource
from object_detection.data.formats.mask_files import MaskFilesSource
from object_detection.data.formats.voc import VocSource
from object_detection.dataset_tools import shapes
from object_detection.dataset_tools.converters import (
    beam_runners,
    conversion_report,
    shard_job,
    sharded_writer,
)
from object_detection.dataset_tools.converters.conversion import convert
from object_detection.dataset_tools.converters.shard_job import ConversionError
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles
from object_detection.errors import UserError
from object_detection.protos import string_int_label_map_pb2
from tests import goldens, rows
from tests.dataset_tools import records

CATEGORIES = [{'id': 1, 'name': 'cat'}, {'id': 3, 'name': 'dog'}]


def _names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _annotation(key: int, image_id: int, **others) -> dict:
    box = {'bbox': [4, 6, 10, 12], 'area': 120, 'iscrowd': 0}
    return {'id': key, 'image_id': image_id, 'category_id': 3} | box | others


def _write(folder: pathlib.Path, images: list[dict], annotations: list[dict]) -> CocoSource:
    """Writes an annotation file and, for the entries with a size, images; returns the source."""
    (folder / 'images').mkdir()
    for image in images:
        if 'height' in image:
            pixels = Image.new('RGB', (image['width'], image['height']), 'teal')
            pixels.save(folder / 'images' / image['file_name'])
    document = {'images': images, 'annotations': annotations, 'categories': CATEGORIES}
    (folder / 'a.json').write_text(json.dumps(document))
    return CocoSource(str(folder / 'images'), str(folder / 'a.json'))


def _image(key: int, **others) -> dict:
    return {'id': key, 'file_name': f'{key}.jpg', 'height': 30, 'width': 40} | others


@pytest.fixture
def faulty(tmp_path) -> CocoSource:
    """Two good images, one of them without objects, and one of each kind of fault."""
    images = [_image(1), _image(2), {'id': 3, 'file_name': 'absent.jpg'}, _image(1), _image(4)]
    annotations = [
        _annotation(10, 1),
        _annotation(11, 1, category_id=2),
        _annotation(12, 1, bbox=[1, 1, 0, 5]),
        _annotation(13, 1, bbox=[39.5, 1, 100, 5]),
        _annotation(14, 1, bbox=[-1, 1, 5, 5], iscrowd=1),
        _annotation(15, 77),
        _annotation(16, 4, bbox=[1, 30, 100, 5]),
    ]
    return _write(tmp_path, images, annotations)


def test_shards_and_their_order_are_the_reference_s(tmp_path):
    case = goldens.load('tf_examples', 'coco_sharding')
    folder = goldens.COMPONENTS / 'examples'
    source = CocoSource(str(folder / 'images'), str(folder / 'instances.json'))
    convert(source, str(tmp_path / 'new' / 'coco_sharded.record'), case.params['num_shards'])
    ids = [
        [features['image/source_id'][0].decode() for features in records.read(path)]
        for path in (tmp_path / 'new' / name for name in case.params['files'])
    ]
    assert ids == case.params['source_ids']
    others = ['coco_sharded.record.report.json', 'coco_sharded.record_label_map.pbtxt']
    assert _names(tmp_path / 'new') == sorted(case.params['files'] + others)
    label_map = text_format.Parse(
        (tmp_path / 'new' / others[1]).read_text(), string_int_label_map_pb2.StringIntLabelMap()
    )
    assert [(item.id, item.name) for item in label_map.item] == [
        *((1, 'person'), (3, 'car'), (18, 'dog'))
    ]


def test_faults_are_counted_and_listed(faulty, tmp_path):
    report = convert(faulty, str(tmp_path / 'out'), 2)
    assert json.loads((tmp_path / 'out.report.json').read_text()) == report
    facts = {key: value for key, value in report.items() if key not in ('problems', 'job')}
    assert facts == {
        'format': 'coco',
        'source': dataclasses.asdict(faulty),
        'label_map_is_renumbered': False,
        'complete': True,
        'error': '',
        'num_shards': 2,
        'images': 4,
        'bad_images': 1,
        'images_without_objects': 2,
        'unlisted_images': 0,
        'examples': 3,
        'annotations': 7,
        'objects': 2,
        'crowds': 1,
        'clipped_boxes': 1,
        'changed_images': {},
        'left_out_objects': {},
        'unwanted_objects': {},
        'notes': {'boxes_clipped_left_or_above': 1},
        'named_files': {},
        'objects_by_class': {'dog': 2},
        'ordinary_objects': 1,
        'ignored_objects': {'image/object/is_crowd': {'dog': 1}},
        'remarks': [],
        'num_problems': {
            'duplicate_image': 1,
            'unknown_image': 1,
            'unknown_category': 1,
            'box_without_area': 1,
            'box_outside_image': 2,
            'bad_image': 1,
        },
    }
    found = {
        (item['reason'], item['file_name'], item['image_id'], item['annotation_id'])
        for item in report['problems']
    }
    assert found == {
        ('duplicate_image', '1.jpg', 1, None),
        ('unknown_image', None, None, 15),
        ('unknown_category', '1.jpg', 1, 11),
        ('box_without_area', '1.jpg', 1, 12),
        ('box_outside_image', '1.jpg', 1, 13),
        ('box_outside_image', '4.jpg', 4, 16),
        ('bad_image', 'absent.jpg', 3, None),
    }
    assert all(item['detail'] for item in report['problems'])
    text = conversion_report.summary(report)
    assert '2 x box_outside_image' in text
    assert '4.jpg, annotation 16: bbox' in text
    features = records.read_set(tmp_path / 'out', 2)
    assert sorted(item['image/filename'][0] for item in features) == [b'1.jpg', b'2.jpg', b'4.jpg']


def test_strict_keeps_the_earlier_set(faulty, tmp_path):
    prefix = tmp_path / 'out'
    (tmp_path / 'out-00000-of-00001').write_text('earlier')
    with pytest.raises(ConversionError, match=r'out\.report\.json lists'):
        convert(faulty, str(prefix), 2, strict=True)
    assert [name for name in _names(tmp_path) if name.startswith('out')] == [
        *('out-00000-of-00001', 'out.report.json')
    ]
    report = json.loads((tmp_path / 'out.report.json').read_text())
    assert not report['complete']
    assert len(report['problems']) == 7


def test_coordinates_of_another_convention_are_a_problem(tmp_path):
    boxes = [[0.1, 0.2, 0.5, 0.4], [0, 0, 1, 1]]
    annotations = [_annotation(key, 1, bbox=box) for key, box in enumerate(boxes)]
    source = _write(tmp_path, [_image(1)], annotations)
    with pytest.raises(ConversionError, match=r'1 of 2 boxes lie within the first pixel'):
        convert(source, str(tmp_path / 'out'), 1, strict=True)
    report = convert(source, str(tmp_path / 'out'), 1)
    assert 'relative' in conversion_report.warning(report)
    # [x1, y1, x2, y2]
    boxes = [[10, 10, 35, 25], [5, 20, 15, 28], [20, 2, 30, 9], [1, 1, 9, 9]]
    annotations = [_annotation(key, 1, bbox=box) for key, box in enumerate(boxes)]
    document = {'images': [_image(1)], 'annotations': annotations, 'categories': CATEGORIES}
    (tmp_path / 'a.json').write_text(json.dumps(document))
    report = convert(source, str(tmp_path / 'out'), 1)
    assert conversion_report.warning(report).startswith(
        '3 of 4 boxes reach beyond their image, most of them to the right or below; are they [x1,'
    )


def test_drop_empty_and_label_map(faulty, tmp_path):
    (tmp_path / 'map.pbtxt').write_text('item { id: 8 name: "DOG" display_name: "dog" }')
    source = dataclasses.replace(
        faulty, drop_empty=True, label_map_file=str(tmp_path / 'map.pbtxt')
    )
    report = convert(source, str(tmp_path / 'out'), 3)
    assert (report['examples'], report['images_without_objects']) == (1, 2)
    assert not report['label_map_is_renumbered']
    (features,) = records.read_set(tmp_path / 'out', 3)
    assert features['image/object/class/label'] == [8, 8]
    assert features['image/object/class/text'] == [b'DOG', b'DOG']
    assert 'id: 8' in (tmp_path / 'out_label_map.pbtxt').read_text()


def test_no_usable_image_is_an_error(tmp_path):
    source = _write(tmp_path, [{'id': 1, 'file_name': 'a.jpg'}], [])
    with pytest.raises(ConversionError, match=r'a\.jpg: cannot be read'):
        convert(source, str(tmp_path / 'out'), 1)
    assert _names(tmp_path) == ['a.json', 'images', 'out.report.json']


def test_nothing_but_boxes_where_masks_are_wanted_is_an_error(tmp_path):
    source = _write(tmp_path, [_image(1)], [_annotation(10, 1), _annotation(11, 1)])
    with pytest.raises(ConversionError, match=r'0 objects of 2 annotations.*\n2 x bad_mask'):
        convert(dataclasses.replace(source, masks=True), str(tmp_path / 'out'), 1)
    assert not list(tmp_path.glob('out-*'))
    assert convert(source, str(tmp_path / 'out'), 1)['objects'] == 2


def test_images_without_annotations_can_be_converted(tmp_path):
    assert convert(_write(tmp_path, [_image(1)], []), str(tmp_path / 'o'), 1)['examples'] == 1


def test_classes_that_the_label_map_lacks_are_counted_and_no_problem(tmp_path):
    annotations = [_annotation(10, 1)]
    annotations += [_annotation(11 + i, 1, category_id=1) for i in range(500)]
    (tmp_path / 'map.pbtxt').write_text('item { id: 1 name: "dog" }')
    source = dataclasses.replace(
        _write(tmp_path, [_image(1)], annotations), label_map_file=str(tmp_path / 'map.pbtxt')
    )
    report = convert(source, str(tmp_path / 'out'), 1, strict=True)
    assert (report['objects'], report['left_out_objects']) == (1, {'cat': 500})
    assert report['problems'] == []
    assert '500 objects of categories that the label map lacks' in conversion_report.summary(report)
    assert (tmp_path / 'out.report.json').stat().st_size < 2000


def test_problems_of_a_kind_are_listed_up_to_a_number(tmp_path):
    annotations = [_annotation(10, 1)]
    annotations += [_annotation(11 + i, 1, bbox=[1, 1, 0, 5]) for i in range(250)]
    annotations += [_annotation(600 + i, 77) for i in range(250)]
    report = convert(_write(tmp_path, [_image(1)], annotations), str(tmp_path / 'out'), 1)
    assert report['num_problems'] == {'unknown_image': 250, 'box_without_area': 250}
    assert len(report['problems']) == 2 * conversion_report.MAX_LISTED
    assert report['problems'][0]['annotation_id'] == 600
    warning = conversion_report.warning(report)
    assert warning.startswith(
        '500 of 501 annotations could not be used and are left out. 250 of 251'
    )
    assert 'are they [x, y, width, height] where corners are expected' in warning
    assert conversion_report.warning(report | {'num_problems': {}}) == ''
    # Such problems are those of files.
    warning = conversion_report.warning(report | {'num_problems': {'unknown_file': 3}})
    assert warning == '3 of 4 images could not be used and are left out.'


def test_text_and_numbers_that_nothing_can_hold_cost_their_entry_alone(tmp_path):
    images = [_image(1), {'id': 2, 'file_name': 'a\ud800.jpg'}, {'id': 'a\ud800', 'file_name': 'b'}]
    images += [{'id': 10**400, 'file_name': 'c'}]
    annotations = [_annotation(1, 1), _annotation(2, 1, category_id='\ud800')]
    source = _write(tmp_path, images, annotations)
    report = convert(source, str(tmp_path / 'out'), 1)
    assert (report['examples'], report['objects']) == (1, 1)
    assert report['num_problems'] == {'bad_entry': 3, 'unknown_category': 1}
    assert report['problems'][0]['file_name'] == r'a\ud800.jpg'
    assert conversion_report.summary(report).encode()


def test_one_bad_entry_costs_itself_alone(tmp_path):
    images = [_image(1), {'id': [2], 'file_name': 'x'}, {'id': 3, 'file_name': None}, 'text']
    images += [
        _image(4) | {'height': None},
        _image(5) | {'width': '40'},
        _image(6) | {'height': 'h'},
    ]
    bad = [
        *({'category_id': [1]}, {'iscrowd': 'x'}, {'image_id': None}, {'bbox': {}}, {'id': None}),
        *({'keypoints': [1, 1, None]}, {'num_keypoints': []}, {'area': [5]}),
    ]
    annotations = [_annotation(key, key) for key in (1, 4, 5)]
    annotations += [_annotation(10 + i, 1) | others for i, others in enumerate(bad)]
    annotations += [_annotation(30, 1, num_keypoints=None, iscrowd='0')]
    (tmp_path / 'images').mkdir()
    for key in (1, 4, 5, 6):
        Image.new('RGB', (40, 30)).save(tmp_path / 'images' / f'{key}.jpg')
    categories = [{'id': 1, 'name': 'cat', 'keypoints': ['nose']}, {'id': 3, 'name': 'dog'}]
    document = {'images': images, 'annotations': annotations, 'categories': categories}
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(document))
    source = CocoSource(str(tmp_path / 'images'), str(path), keypoints_file=str(path))
    report = convert(source, str(tmp_path / 'out'), 1)
    assert (report['images'], report['bad_images'], report['examples']) == (4, 1, 3)
    assert report['num_problems'] == {
        'bad_entry': 5,
        'unknown_category': 1,
        'bad_crowd': 1,
        'bad_box': 1,
        'bad_keypoints': 2,
        'bad_area': 1,
        'bad_image': 1,
    }
    # The good ones, and the last, which is no crowd.
    assert (report['objects'], report['crowds']) == (4, 0)


@rows.parametrize('name', ['../../secret.jpg', '{tmp}/secret.jpg', 'a/../../secret.jpg'])
def test_images_outside_of_their_folder_are_not_read(tmp_path, name):
    source = _write(tmp_path, [_image(1), {'id': 2, 'file_name': name.format(tmp=tmp_path)}], [])
    Image.new('RGB', (40, 30)).save(tmp_path / 'secret.jpg')
    report = convert(source, str(tmp_path / 'out'), 1)
    assert (report['examples'], report['bad_images']) == (1, 1)
    detail = report['problems'][0]['detail']
    assert 'file_name leads out of the folder' in detail or 'a path of another machine' in detail


@rows.parametrize('ids', [(0, 1), ('0', '1'), ('cat', 'dog')])
def test_category_ids_that_are_no_labels_are_numbered(tmp_path, ids):
    annotations = [_annotation(10 + i, 1, category_id=key) for i, key in enumerate(ids)]
    source = _write(tmp_path, [_image(1)], annotations)
    document = json.loads((tmp_path / 'a.json').read_text())
    document['categories'] = [
        {'id': key, 'name': name} for key, name in zip(ids, ('cat', 'dog'), strict=True)
    ]
    (tmp_path / 'a.json').write_text(json.dumps(document))
    report = convert(source, str(tmp_path / 'out'), 1)
    assert report['label_map_is_renumbered']
    assert 'numbered from 1' in conversion_report.summary(report)
    (features,) = records.read_set(tmp_path / 'out', 1)
    assert features['image/object/class/label'] == [1, 2]
    assert features['image/object/class/text'] == [b'cat', b'dog']
    label_map = text_format.Parse(
        (tmp_path / 'out_label_map.pbtxt').read_text(), string_int_label_map_pb2.StringIntLabelMap()
    )
    assert [(item.id, item.name) for item in label_map.item] == [(1, 'cat'), (2, 'dog')]


def test_turned_photos_are_counted(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    source = _write(tmp_path, [{'id': 1, 'file_name': '1.jpg'}, _image(2)], [_annotation(10, 1)])
    Image.new('RGB', (40, 30)).save(tmp_path / 'images' / '1.jpg', exif=exif)
    report = convert(source, str(tmp_path / 'out'), 1)
    assert report['changed_images'] == {'exif_orientation': 1}
    assert 'images changed: 1 x exif_orientation' in conversion_report.summary(report)
    first = records.read_set(tmp_path / 'out', 1)[0]
    assert (first['image/height'], first['image/width']) == ([40], [30])


@rows.parametrize(
    ('changes', 'error', 'match'),
    [
        ({'image_dir': 'absent'}, FileNotFoundError, "no image folder: 'absent'"),
        ({'annotations_file': 'absent'}, FileNotFoundError, "no annotation file: 'absent'"),
        ({'keypoints_file': 'absent'}, FileNotFoundError, "no annotation file: 'absent'"),
        ({'label_map_file': 'absent'}, FileNotFoundError, "no label map: 'absent'"),
        ({'annotations_file': __file__}, ValueError, 'not a JSON file'),
        ({'only_objects_of': 'cow'}, ValueError, "Received: 'cow'"),
    ],
)
def test_missing_or_broken_inputs_are_errors_at_once(tmp_path, monkeypatch, changes, error, match):
    monkeypatch.setattr(beam_runners, 'run', lambda job: pytest.fail('the job was started'))
    source = dataclasses.replace(_write(tmp_path, [_image(1)], []), **changes)
    with pytest.raises(error, match=match):
        convert(source, str(tmp_path / 'new' / 'out'), 1)
    assert not (tmp_path / 'new').exists()


def test_real_photos_with_masks_and_separate_keypoints(shared, tmp_path):
    folder = shared / 'data/coco_permissive'
    document = json.loads((folder / 'annotations/instances_val.json').read_text())
    crowd = next(item['image_id'] for item in document['annotations'] if item['iscrowd'])
    chosen = {image['id'] for image in document['images'][:5]} | {crowd}
    document['images'] = [image for image in document['images'] if image['id'] in chosen]
    document['annotations'] = [
        item for item in document['annotations'] if item['image_id'] in chosen
    ]
    (tmp_path / 'few.json').write_text(json.dumps(document))
    source = CocoSource(
        str(folder / 'images'),
        str(tmp_path / 'few.json'),
        masks=True,
        keypoints_file=str(folder / 'annotations/person_keypoints_val.json'),
    )
    report = convert(source, str(tmp_path / 'out'), 2)
    assert not report['problems']
    assert report['examples'] == len(chosen)
    assert report['objects'] == len(document['annotations'])
    assert report['crowds'] > 0
    areas = {item['area']: item for item in document['annotations'] if not item['iscrowd']}
    for features in records.read_set(tmp_path / 'out', 2):
        file = folder / 'images' / features['image/filename'][0].decode()
        assert features['image/encoded'] == [file.read_bytes()]
        objects = len(features['image/object/area'])
        assert len(features['image/object/keypoint/x']) == 17 * objects
        for mask, area in zip(records.masks(features), features['image/object/area'], strict=True):
            assert mask.shape == (features['image/height'][0], features['image/width'][0])
            if area in areas and area > 2000:
                assert mask.sum() == pytest.approx(area, rel=0.05)
    assert 'label: "left_ankle"' in (tmp_path / 'out_label_map.pbtxt').read_text()


def test_workers_write_the_same(tmp_path):
    shapes.write_shapes(tmp_path, num_train=7, num_val=0, image_size=48)
    source = CocoSource(str(tmp_path / 'train'), str(tmp_path / 'instances_train.json'), masks=True)
    convert(source, str(tmp_path / 'one'), 3)
    convert(source, str(tmp_path / 'two'), 3, workers=2)
    for shard in range(3):
        name = f'-{shard:05d}-of-00003'
        assert (tmp_path / f'one{name}').read_bytes() == (tmp_path / f'two{name}').read_bytes()
    assert records.read(tmp_path / 'one-00000-of-00003')


def _repeat(path: pathlib.Path, times: int) -> dict:
    """Names the same few files again and again, which keeps a job busy; returns the document."""
    document = json.loads(path.read_text())
    document['images'] = [
        image | {'id': 1000 * repeat + image['id']}
        for repeat in range(times)
        for image in document['images']
    ]
    document['annotations'] = [
        item | {'image_id': 1000 * repeat + item['image_id']}
        for repeat in range(times)
        for item in document['annotations']
    ]
    path.write_text(json.dumps(document))
    return document


_KILLED = """
import sys
from object_detection.dataset_tools.converters.conversion import convert
from object_detection.data.formats.coco import CocoSource
convert(CocoSource(sys.argv[1], sys.argv[2], masks=True), sys.argv[3], 20)
"""


def test_killed_job_leaves_no_incomplete_shard(tmp_path):
    shapes.write_shapes(tmp_path, num_train=5, num_val=0, image_size=128)
    path = tmp_path / 'instances_train.json'
    document = _repeat(path, 200)
    out = tmp_path / 'out'
    out.mkdir()
    (out / 'set-00000-of-00003').write_text('of an earlier run')
    arguments = [str(tmp_path / 'train'), str(path), str(out / 'set')]
    job = subprocess.Popen(
        [sys.executable, '-c', _KILLED, *arguments],
        # What it leaves there when it is killed is removed with the folder of the test.
        env=os.environ | {'TMPDIR': str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        # The third shard is being written.
        while len(_names(out)) < 4:
            assert job.poll() is None, 'the job ended before it could be killed'
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        job.kill()
    assert job.wait() == -signal.SIGKILL
    left = [name for name in _names(out) if '.tmp-' not in name]
    assert left == ['set-00000-of-00003']
    assert len(_names(out)) > len(left)

    document['images'] = document['images'][:7]
    path.write_text(json.dumps(document))
    convert(CocoSource(*arguments[:2]), arguments[2], 2)
    assert _names(out) == [
        *('set-00000-of-00002', 'set-00001-of-00002', 'set.report.json', 'set_label_map.pbtxt')
    ]
    assert len(records.read_set(out / 'set', 2)) == 7


def test_failing_job_removes_its_temporary_files(tmp_path, monkeypatch):
    source = _write(tmp_path, [_image(1)], [])

    def fail(*args):
        job = (tmp_path / 'out.tmp-lock').read_text()
        (tmp_path / f'out-00000-of-00001.tmp-{job}').touch()
        raise RuntimeError('no space left')

    monkeypatch.setattr(beam_runners, 'run', fail)
    with pytest.raises(RuntimeError, match='no space left'):
        convert(source, str(tmp_path / 'out'), 1)
    assert _names(tmp_path) == ['a.json', 'images']


def test_a_second_conversion_to_the_same_output_is_refused_at_once(tmp_path, monkeypatch):
    source = _write(tmp_path, [_image(1)], [_annotation(1, 1)])
    prefix = str(tmp_path / 'out' / 'set')
    run = beam_runners.run

    def run_two(pipeline):
        # The second does not even look at its data.
        with pytest.raises(UserError, match='set: another job writes to this output'):
            convert(CocoSource('no images', 'no annotations'), prefix, 1)
        run(pipeline)

    monkeypatch.setattr(beam_runners, 'run', run_two)
    convert(source, prefix, 2)
    assert len(records.read_set(prefix, 2)) == 1
    names = ['set-00000-of-00002', 'set-00001-of-00002', 'set.report.json', 'set_label_map.pbtxt']
    assert _names(tmp_path / 'out') == names


def test_images_do_not_pass_between_steps(tmp_path, monkeypatch):
    """What the grouping step holds is far smaller than an image."""
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    source = _write(tmp_path, [{'id': 1, 'file_name': '1.jpg'}], [_annotation(1, 1)])
    Image.fromarray(noise).save(tmp_path / 'images' / '1.jpg')
    sizes = []
    process = shard_job.WriteShard.process

    def measure(self, element):
        shard, values = element[0], list(element[1])
        sizes.extend(len(value) for _, value in values)
        for result in process(self, (shard, values)):
            sizes.append(len(pickle.dumps(result)))
            yield result

    monkeypatch.setattr(shard_job.WriteShard, 'process', measure)
    convert(source, str(tmp_path / 'out'), 1)
    assert len(sizes) == 3
    assert max(sizes) < 1000 < (tmp_path / 'images' / '1.jpg').stat().st_size


def _no_space(*args):
    raise OSError(errno.ENOSPC, 'No space left on device', 'a shard')


@pytest.mark.parametrize(
    ('owner', 'function'), [(sharded_writer, 'write_record'), (sharded_writer.Output, 'publish')]
)
def test_full_disk_is_reported_in_a_line(tmp_path, monkeypatch, capfd, owner, function):
    (tmp_path / 'out-00000-of-00001').write_text('earlier')
    source = _write(tmp_path, [_image(1)], [])
    monkeypatch.setattr(owner, function, _no_space)
    with pytest.raises(
        ConversionError, match=r'cannot be written: a shard: No space left on device\.$'
    ):
        convert(source, str(tmp_path / 'out'), 1)
    assert 'Traceback' not in capfd.readouterr().err
    assert (tmp_path / 'out-00000-of-00001').read_text() == 'earlier'
    assert not list(tmp_path.glob('*.tmp-*'))


@pytest.mark.parametrize('end', ['set-00001-of-00002', 'set_label_map.pbtxt'])
def test_a_set_that_is_replaced_in_part_is_reported(tmp_path, monkeypatch, end):
    source = _write(tmp_path, [_image(1)], [_annotation(1, 1)])
    prefix = str(tmp_path / 'out' / 'set')
    convert(source, prefix, 2)
    rename = FileSystems.rename

    def fail(sources, destinations):
        if destinations[0].endswith(end):
            raise OSError('lost the connection')
        rename(sources, destinations)

    monkeypatch.setattr(FileSystems, 'rename', fail)
    expected = r'^The earlier set is replaced in part, .*set\.publishing .*: lost the connection\.$'
    with pytest.raises(ConversionError, match=expected):
        convert(source, prefix, 2)
    assert 'set.publishing' in _names(tmp_path / 'out')
    monkeypatch.undo()
    convert(source, prefix, 2)
    assert 'set.publishing' not in _names(tmp_path / 'out')


def test_report_of_another_job_is_not_taken_for_this_one_s(tmp_path, monkeypatch):
    source = _write(tmp_path, [_image(1)], [])
    monkeypatch.setattr(sharded_writer.Output, 'write_text', _no_space)
    with pytest.raises(ConversionError, match=r'out\.report\.json cannot be written'):
        convert(source, str(tmp_path / 'out'), 1)
    (tmp_path / 'out.report.json').write_text('{"complete": true}')
    with pytest.raises(ConversionError, match='is that of another job'):
        convert(source, str(tmp_path / 'out'), 1)


_LIMITED = """
import resource, sys
from object_detection.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
sys.dont_write_bytecode = True
main()
"""


@pytest.mark.slow
def test_full_disk_with_workers_ends_and_prints_a_line(tmp_path):
    shapes.write_shapes(tmp_path, num_train=7, num_val=0, image_size=128)
    arguments = ['--images', 'train', '--annotations', 'instances_train.json', '--output', 'out/a']
    done = subprocess.run(
        [sys.executable, '-c', _LIMITED, 'convert', 'coco', *arguments, '--workers', '2'],
        cwd=tmp_path,
        env=os.environ | {'PYTHONDONTWRITEBYTECODE': '1'},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith('Error: Nothing was published: shard ')
    assert line.endswith('cannot be written: File too large.')


# A shell that starts the tests in the background has its programs ignore the signal.
_INTERRUPTIBLE = """
import signal
from object_detection.cli.main import main
from object_detection.system import console
console.SECONDS_UNTIL_SHOWN = 1e6
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


@pytest.mark.parametrize('workers', [1, pytest.param(2, marks=pytest.mark.slow)])
def test_interrupt_ends_quietly(tmp_path, workers):
    shapes.write_shapes(tmp_path, num_train=5, num_val=0, image_size=128)
    # Nothing is written to this one, so that the job waits for it as long as it takes.
    image = sorted((tmp_path / 'train').iterdir())[-1]
    image.unlink()
    os.mkfifo(image)
    temporary = tmp_path / 'temporary'
    temporary.mkdir()
    arguments = ['--images', 'train', '--annotations', 'instances_train.json', '--output', 'out/a']
    command = [sys.executable, '-c', _INTERRUPTIBLE, 'convert', 'coco', *arguments]
    job = subprocess.Popen(
        [*command, '--shards', '2', '--workers', str(workers)],
        cwd=tmp_path,
        env=os.environ | {'TMPDIR': str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    writer = None
    try:
        deadline = time.monotonic() + 240
        # It can be opened when the job reads it.
        while writer is None:
            assert job.poll() is None, 'the job ended before it could be stopped'
            assert time.monotonic() < deadline
            with contextlib.suppress(OSError):
                writer = os.open(image, os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(0.002)
        assert list(tmp_path.glob('out/*.tmp-*'))
        # As a terminal does: to all processes of the job.
        os.killpg(job.pid, signal.SIGINT)
        _, errors = job.communicate(timeout=30)
    finally:
        job.kill()
        job.wait()
        job.stderr.close()
        if writer is not None:
            os.close(writer)
    assert job.returncode == 130
    # On a slow machine, a line of progress comes first.
    lines = [line for line in errors.splitlines() if line and 'converting: ' not in line]
    assert lines == ['Aborted!']
    if workers == 1:
        assert not list(temporary.iterdir())
    assert not list(tmp_path.glob('out/a-*-of-00002'))


def test_work_is_spread_from_the_beginning(tmp_path, monkeypatch):
    """Dask makes as many parts as there are elements where a pipeline begins."""
    source = _write(tmp_path, [_image(1)], [])
    sizes = []
    create = beam.Create.__init__

    def measure(self, values, *args, **options):
        sizes.append(len(values))
        create(self, values, *args, **options)

    monkeypatch.setattr(beam.Create, '__init__', measure)
    convert(source, str(tmp_path / 'out'), 7)
    assert max(sizes) == 7


def test_folder_of_an_object_store_is_one_that_holds_something(tmp_path, monkeypatch):
    """There are no folders in a bucket: only objects exist."""
    source = dataclasses.replace(_write(tmp_path, [_image(1)], []), image_dir='gs://bucket/dir')
    exists = FileSystems.exists
    asked = []

    def match(patterns, limits=None):
        asked.append((patterns, limits))
        return [MatchResult(patterns[0], [FileMetadata('gs://bucket/dir/1.jpg', 5)])]

    monkeypatch.setattr(
        FileSystems, 'exists', lambda path: not path.startswith('gs:') and exists(path)
    )
    monkeypatch.setattr(FileSystems, 'match', match)
    monkeypatch.setattr(FileSystems, 'join', posixpath.join)
    assert source.open(BeamFiles(), None).num_images == 1
    assert asked == [(['gs://bucket/dir/*'], [1])]


def test_images_that_are_not_annotated_are_problems_and_no_background(tmp_path):
    for folder in ('images', 'masks'):
        (tmp_path / folder).mkdir()
    for number in range(3):
        Image.new('RGB', (10, 10)).save(tmp_path / f'images/{number}.png')
    Image.new('L', (10, 10), 255).save(tmp_path / 'masks/0.png')
    source = MaskFilesSource(str(tmp_path))
    report = convert(source, str(tmp_path / 'out'), 1)
    assert (report['examples'], report['num_problems']) == (1, {'not_annotated': 2})
    assert '2 of 3 images could not be used' in conversion_report.warning(report)
    with pytest.raises(ConversionError, match='2 x not_annotated'):
        convert(source, str(tmp_path / 'out'), 1, strict=True)
    source = dataclasses.replace(source, keep_not_annotated=True)
    report = convert(source, str(tmp_path / 'out'), 1, strict=True)
    assert (report['examples'], report['images_without_objects']) == (3, 2)
    assert conversion_report.warning(report) == (
        '2 of 3 images have no objects; leave them out by --drop_empty if they have not been '
        'annotated.'
    )


def test_images_that_two_files_name_are_counted(tmp_path):
    """Both are written, as each file is read by itself."""
    (tmp_path / 'Annotations').mkdir()
    for stem in ('b', 'c'):
        path = tmp_path / 'Annotations' / f'{stem}.xml'
        path.write_text('<annotation><filename>a.jpg</filename></annotation>')
    Image.new('RGB', (10, 10)).save(tmp_path / 'a.jpg')
    report = convert(VocSource(str(tmp_path), images_dir='.'), str(tmp_path / 'out'), 2)
    assert report['num_problems'] == {'duplicate_image': 1}
    assert report['problems'][0]['file_name'] == 'a.jpg'
