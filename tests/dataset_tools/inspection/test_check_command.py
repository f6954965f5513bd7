"""`tfod data check` counts what is in files and finds what is wrong with them."""

import gzip
import io
import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from object_detection.cli import data
from object_detection.data import tf_examples
from object_detection.data.pipeline import image_counts
from object_detection.data.pipeline.image_counts import ImageCounts
from object_detection.dataset_tools.inspection import check_command, check_job, record_sets
from object_detection.errors import UserError
from tests.dataset_tools.inspection.damaged_records import example, record, write

BOX = (0.1, 0.2, 0.6, 0.7)


@pytest.fixture
def label_map(tmp_path):
    path = tmp_path / 'map.pbtxt'
    path.write_text('item { id: 1 name: "cat" } item { id: 2 name: "<b>dog" }')
    return str(path)


def test_page_and_json(tmp_path, label_map):
    good = [example(seed, [BOX] * 2, ['cat', '<b>dog']) for seed in range(4)]
    empty, bad = example(5, []), example(6, [(0.5, 0.5, 0.4, 0.6)])
    name = write(tmp_path / 'a.record', [*good, empty, bad, example(0)])
    page, listed = tmp_path / 'out' / 'page.html', tmp_path / 'found.json'
    arguments = [name, '--label_map', label_map, '--output', str(page), '--json', str(listed)]
    done = CliRunner().invoke(data.command, ['check', *arguments, '--workers', '1'])
    assert done.exit_code == 1, done.output
    assert '1 object with inverted_box' in done.output
    found = json.loads(listed.read_text())
    (checked,) = found['sets']
    assert found['harmful']
    assert (checked['records'], checked['objects'], checked['usable_objects']) == (7, 10, 9)
    assert checked['classes'][0] == {'name': 'cat', 'objects': 5, 'images': 5}
    assert checked['objects_per_image'] == {'0': 2, '1': 1, '2': 4}
    assert checked['problems']['no_objects']['count'] == 2
    assert checked['problems']['inverted_box']['first'][0]['source_id'] == 'image 6'
    assert checked['duplicates']['source_id']['records'] == 1
    assert checked['duplicates']['content']['records'] == 1
    assert checked['boxes']['aspect_ratio']['p50'] == pytest.approx(32 / 24, abs=1e-3)
    text = page.read_text()
    assert '<b>dog' not in text
    assert text.count('data:image/jpeg') >= 7


def test_corrupt_files_are_reported_with_their_offset(tmp_path):
    parts = [record(example(seed)) for seed in range(4)]
    flipped = bytearray(parts[1])
    flipped[40] ^= 1
    content = parts[0] + flipped + parts[2] + parts[3][:-9]
    path = tmp_path / 'a.record'
    path.write_bytes(content)
    result = check_command.check([str(path)])
    summary = result.sets[0].summary
    assert summary.num_records == 4
    assert summary.problems == {'corrupt_checksum': 1, 'truncated_file': 1}
    offset = summary.findings['corrupt_checksum'][0].place.offset
    assert offset == len(parts[0]) + 12
    assert summary.findings['truncated_file'][0].place.offset == len(content) - len(parts[3]) + 21
    assert result.is_harmful


def test_a_compressed_file_is_named(tmp_path):
    path = tmp_path / 'a.record'
    path.write_bytes(gzip.compress(record(example(0))))
    options = ['--workers', '1', '--output', str(tmp_path / 'page.html')]
    done = CliRunner().invoke(data.command, ['check', str(path), *options])
    assert done.exit_code == 1
    assert 'a.record is no TFRecord file: it is compressed with GZIP' in done.output
    assert 'corrupt_length' not in done.output


def test_coordinates_of_another_convention_are_harmful(tmp_path):
    name = write(tmp_path / 'a.record', [example(seed, [(0, 0, 0.02, 0.03)]) for seed in range(2)])
    result = check_command.check([name])
    assert result.is_harmful
    assert 'HARMFUL  2 of 2 boxes lie within the first pixel' in result.overview()
    assert '2 records: an object is less than a pixel high or wide.' in result.overview()
    beyond = [example(seed, [(0.1, 0.2 * seed, 0.6, 1.2)]) for seed in range(4)]
    assert '[x1, y1, x2, y2]' in check_command.check([write(tmp_path / 'b', beyond)]).overview()


def test_a_set_of_crowds_only_is_harmful(tmp_path):
    crowd, ordinary = tf_examples.int64_feature([1]), tf_examples.int64_feature([0])
    crowds = [example(seed, IS_CROWD=crowd) for seed in range(3)]
    result = check_command.check([write(tmp_path / 'a.record', crowds)])
    assert result.is_harmful
    lines = result.overview().splitlines()
    assert lines[0] == 'files: 1 file, 3 records, 3 objects of 1 class'
    assert lines[1].startswith('  HARMFUL  No record has an object that can be trained on and eval')
    name = write(tmp_path / 'b.record', [*crowds, example(4, IS_CROWD=ordinary)])
    result = check_command.check([name])
    assert not result.is_harmful
    assert 'warning  Most objects of these classes are crowds' in result.overview()
    assert 'cat (3 of 4)' in result.overview()


def test_a_set_of_weight_0_is_harmful(tmp_path):
    weight = tf_examples.float_feature([0.0])
    name = write(tmp_path / 'a.record', [example(WEIGHT=weight)])
    assert '1 are of weight 0, which do not train.' in check_command.check([name]).overview()


def test_a_label_map_with_id_0_is_harmful(tmp_path):
    name = write(tmp_path / 'a.record', [example()])
    labels = tmp_path / 'map.pbtxt'
    labels.write_text('item { id: 0 name: "cat" }')
    result = check_command.check([name], label_map_path=str(labels))
    assert result.is_harmful
    assert 'expected ids above 0' in result.overview()


def test_processes_give_the_same_summary(tmp_path):
    contents = [example(seed % 150, [BOX] * (seed % 3)) for seed in range(200)]
    names = [write(tmp_path / f'{i}.record', contents[i::2]) for i in range(2)]
    records = record_sets.of_files(names, '', decodes=True)
    one, two = (check_job.run(records, workers=workers) for workers in (1, 2))
    assert one.digests == two.digests
    assert one.problems == two.problems
    assert (one.boxes.rows == two.boxes.rows).all()
    assert one.num_records == 200


def test_images_of_the_training_in_an_evaluation(tmp_path, label_map):
    train = write(
        tmp_path / 'train', [example(seed, [BOX] * 2, ['cat', '<b>dog']) for seed in (0, 1)]
    )
    other = write(tmp_path / 'eval', [example(seed, source_id=f'x{seed}') for seed in (1, 2)])
    config = tmp_path / 'my.config'
    reader = 'label_map_path: "%s" tf_record_input_reader { input_path: "%s" }'
    config.write_text(
        'train_input_reader { %s }' % (reader % (label_map, train))
        + 'eval_input_reader { %s }' % (reader % (label_map, other))
        + 'eval_input_reader { %s }' % (reader % (label_map, train))
    )
    result = check_command.check([str(config)])
    assert [checked.records.name for checked in result.sets] == [
        'train_input_reader',
        'eval_input_reader[0]',
        'eval_input_reader[1]',
    ]
    shared = [checked.in_training and checked.in_training.num_records for checked in result.sets]
    assert shared == [None, 1, None]
    assert '1 image of the training data' in result.overview()


def test_nothing_that_is_no_file(tmp_path):
    with pytest.raises(ValueError, match='expected a TFRecord file'):
        check_command.check([str(tmp_path / 'none')])


def test_counts_of_images_and_repeat_factors(tmp_path, label_map):
    both, one = example(0, [BOX] * 3, ['cat', 'cat', '<b>dog']), [(BOX, 'cat')] * 15
    serialized = [both, *(example(1 + i, [box], [text]) for i, (box, text) in enumerate(one))]
    name = write(tmp_path / 'a.record', serialized)
    path, counted = tmp_path / 'a.config', tmp_path / 'counts.pbtxt'
    path.write_text(
        f"""train_input_reader {{
          label_map_path: '{label_map}' tf_record_input_reader {{ input_path: '{name}' }}
          repeat_factor_sampling {{ threshold: 0.25 }}
        }}"""
    )
    result = check_command.check([str(path)], decodes=False)
    result.write(str(tmp_path / 'page.html'), counts_path=str(counted))
    classes = {each['name']: each for each in result.to_dict()['sets'][0]['classes']}
    assert [classes[text]['repeat_factor'] for text in ('cat', '<b>dog')] == [1.0, 2.0]
    assert '<td>2.00</td>' in (tmp_path / 'page.html').read_text()
    assert image_counts.read(str(counted), label_map) == ImageCounts(16, {1: 16, 2: 1})
    without = check_command.check([name], decodes=False)
    assert 'repeat_factor' not in without.to_dict()['sets'][0]['classes'][0]
    with pytest.raises(UserError, match='--image_counts: expected a label map'):
        without.write(str(tmp_path / 'page.html'), counts_path=str(counted))


def test_images_that_are_almost_the_same(tmp_path, label_map):
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8)
    photo = Image.fromarray(pixels).resize((320, 240), Image.Resampling.BICUBIC)

    def stored(image, name, **options):
        file = io.BytesIO()
        image.save(file, 'JPEG', **options)
        named = tf_examples.bytes_feature([name.encode()])
        return example(encoded=file.getvalue(), source_id=name, FILENAME=named)

    others = [example(seed) for seed in range(3)]
    train = write(
        tmp_path / 'train',
        [stored(photo, 'a.jpg', quality=95), *others, stored(photo.resize((160, 120)), 'b.jpg')],
    )
    brighter = photo.point(lambda value: min(255, round(1.2 * value)))
    other = write(tmp_path / 'eval', [example(7), stored(brighter, 'c.jpg', quality=60)])
    config = tmp_path / 'my.config'
    reader = 'label_map_path: "%s" tf_record_input_reader { input_path: "%s" }'
    config.write_text(
        'train_input_reader { %s }' % (reader % (label_map, train))
        + 'eval_input_reader { %s }' % (reader % (label_map, other))
    )
    result = check_command.check([str(config)])
    assert 'Almost the same picture as an earlier one: 1 image.' in result.overview()
    assert 'Almost the same picture as one of the training data: 1 image.' in result.overview()
    training, evaluation = (each['duplicates'] for each in result.to_dict()['sets'])
    ((later, earlier),) = training['similar']['first']
    assert later['offset'] > earlier['offset'] == 12
    ((found, known),) = evaluation['similar_in_training']['first']
    assert (found['file'], known['file']) == (other, train)
    assert evaluation['similar']['records'] == 0
    result.write(str(tmp_path / 'page.html'))
    text = (tmp_path / 'page.html').read_text()
    assert 'b.jpg and a.jpg' in text
    assert 'c.jpg and ' in text
    assert 'Images almost the same as one of the training data: 1.' in text
    # Headers alone show nothing.
    headers = check_command.check([train], decodes=False)
    assert headers.sets[0].similar.num_records == 0


def test_a_class_that_no_anchor_fits_is_a_warning(tmp_path, label_map):
    # Of the image of 96 x 96 pixels, a cat has 30 x 48, which has an IoU of 0.625 with the anchor
    # of 48 x 48 (below the first stage's 0.7, but its best anchor trains); a dog has 6 x 6.
    cat, dog = (33 / 96, 0.25, 63 / 96, 0.75), (0.0, 0.0, 0.0625, 0.0625)
    names = ['cat'] * 3 + ['<b>dog']
    data_file = write(
        tmp_path / 'a.record', [example(seed, [cat] * 3 + [dog], names) for seed in range(3)]
    )
    config = tmp_path / 'my.config'
    config.write_text(
        'model { faster_rcnn { num_classes: 2 image_resizer { fixed_shape_resizer { height: 96 '
        'width: 96 } } first_stage_anchor_generator { grid_anchor_generator { height: 48 width: 48 '
        'height_stride: 16 width_stride: 16 scales: 1 aspect_ratios: 1 } } } } '
        f'train_input_reader {{ label_map_path: "{label_map}" '
        f'tf_record_input_reader {{ input_path: "{data_file}" }} }}'
    )
    arguments = ['check', str(config), '--output', str(tmp_path / 'page.html'), '--workers', '1']
    done = CliRunner().invoke(data.command, arguments)
    assert 'warning  100% of the objects of <b>dog have no anchor with an IoU' in done.output
    assert done.output.count('no anchor') == 1
