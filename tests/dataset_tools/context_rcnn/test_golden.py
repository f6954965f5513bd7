"""The jobs compared with the reference's, of which single functions and whole jobs are recorded."""

import dataclasses
import io
import itertools

import numpy as np
import pytest
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import context_embeddings
from object_detection.dataset_tools.context_rcnn import (
    banks,
    context,
    context_records,
    detections,
    models,
    records,
)
from object_detection.dataset_tools.context_rcnn.options import (
    ContextOptions,
    DetectionOptions,
    EmbeddingOptions,
)
from object_detection.dataset_tools.context_rcnn.record_job import Counts
from object_detection.errors import UserError
from tests import goldens
from tests.dataset_tools.context_rcnn import examples

FILE = 'context_rcnn_jobs'
INPUT = 'context_input.record'
NO_JOB = ('record', 'index', 'count', 'files', 'group', 'embedding_counts')
WEEKS = ('rekey_location_week', 'rekey_seq_id_week')
# Some numbers of the reference's functions differ from the defaults of its flags.
FUNCTION_DEFAULTS = {'max_num_elements_in_context_features': 5000, 'reduce_image_size': False}


def _options(params: dict, **others) -> ContextOptions:
    known = {field.name for field in dataclasses.fields(ContextOptions)}
    given = {key: value for key, value in params.items() if key in known}
    if given.get('image_ids_to_keep', 'All') != 'All':
        given['image_ids_to_keep'] = examples.golden_path(given['image_ids_to_keep'])
    return ContextOptions(
        **({'input_tfrecord': examples.golden_path(INPUT), 'output_tfrecord': 'x'} | others | given)
    )


def _rows(key: str = '', sequence_key: str = keys.LOCATION) -> list[banks.Row]:
    places = records.places(examples.golden_path(INPUT))
    return [
        banks.row_of(example, place)
        for place in places
        if (example := records.read(place)) and (not key or example.text(sequence_key) == key)
    ]


@goldens.rows(FILE, prefix='rekey_', without=(*WEEKS, 'rekey_bad', 'rekey_resize'))
def test_keys_of_groups(case_name):
    case = goldens.load(FILE, case_name)
    assert _group_keys(case) == case.outputs['keys'].tolist()


@goldens.rows(FILE, names=WEEKS)
def test_weeks_are_whole_numbers(case_name):
    case = goldens.load(FILE, case_name)
    theirs = [key.removesuffix(b'.0') for key in case.outputs['keys'].tolist()]
    assert all(key.endswith(b'.0') for key in case.outputs['keys'].tolist())
    assert _group_keys(case) == theirs


def _group_keys(case: goldens.Case) -> list[bytes]:
    found = examples.read(examples.golden_path(case.params['record']))
    names = case.params['sequence_key'], case.params['time_horizon']
    return [banks.group_key(example, *names).encode() for example in found]


@goldens.parametrize(FILE, names=('rekey_bad_horizon',))
def test_unknown_horizon(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'ValueError'
    example = examples.read(examples.golden_path(INPUT))[0]
    with pytest.raises(ValueError, match=r'--time_horizon: expected one of year, .*decade'):
        banks.group_key(example, keys.LOCATION, case.params['time_horizon'])


def _written(case: goldens.Case, **others) -> records.Example:
    """The first image of the records, written without context."""
    options = _options(case.params, add_context_features=False, **others)
    place = next(records.places(options.input_tfrecord))
    frame = context_records.Frame(place, [])
    return records.parse(context_records.to_example(frame, None, options, Counts()))


def _pixels(example: records.Example) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(example.texts(keys.ENCODED)[0])))


@goldens.parametrize(FILE, names=('rekey_resize_10',))
def test_large_images_are_reduced(case_name):
    case = goldens.load(FILE, case_name)
    example = _written(case)
    np.testing.assert_array_equal(_pixels(example), case.outputs['image'])
    assert [*example.integers(keys.HEIGHT)] == case.outputs['height'].tolist()
    assert [*example.integers(keys.WIDTH)] == case.outputs['width'].tolist()
    assert example.text(keys.FORMAT) == 'jpeg'
    assert len(example.text(keys.SHA256)) == 64


@goldens.parametrize(FILE, names=('rekey_resize_64',))
def test_small_images_are_not_enlarged(case_name):
    case = goldens.load(FILE, case_name)
    assert case.outputs['image'].shape == (42, 64, 3)
    sizes = case.outputs['height'].tolist(), case.outputs['width'].tolist()
    assert sizes == ([42], [64])
    example = _written(case)
    original = examples.read(examples.golden_path(INPUT))[0]
    assert example.raw() == original.raw()


@goldens.rows(FILE, prefix='sort_')
def test_order(case_name):
    case = goldens.load(FILE, case_name)
    plans = banks.plan('L1', _rows('L1'), _options(case.params))
    assert [plan.key.encode() for plan in plans] == case.outputs['keys'].tolist()
    ids = [row.source_id.encode() for row in plans[0].rows]
    assert ids == case.outputs['ids.0'].tolist()


@goldens.rows(FILE, prefix='split_')
def test_a_subset_has_as_many_images_as_fit(case_name):
    case = goldens.load(FILE, case_name)
    theirs = [case.outputs[f'ids.{i}'].tolist() for i in range(len(case.outputs['keys']))]
    plans = banks.plan('L1', _rows('L1'), _options(case.params))
    ours = [[row.source_id.encode() for row in plan.rows] for plan in plans]
    # Embeddings of the images are 1, 2, 2 and 1 in this order.
    assert (
        [*itertools.chain(*theirs)]
        == [*itertools.chain(*ours)]
        == [b'img1', b'img3', b'img2', b'img10']
    )
    expected = {5: ([3, 1], [2, 2]), 4: ([2, 2], [1, 1, 2])}
    lengths = [len(ids) for ids in ours], [len(ids) for ids in theirs]
    assert lengths == expected[case.params['max_num_elements_in_context_features']]
    assert [plan.key for plan in plans] == ['L1_0', 'L1_1']


def _contexts(case: goldens.Case) -> list[bytes]:
    """The records of the group L1, ordered by date, as the recorded functions got it."""
    options = _options(case.params, sorted_image_ids=False, **FUNCTION_DEFAULTS)
    context.check(options)
    (plan,) = banks.plan('L1', _rows('L1'), options)
    ids = context.read_image_ids(options.image_ids_to_keep)
    frames = context_records.frames(plan, ids, options)
    bank = context_records.bank_features(plan, options) if options.add_context_features else None
    if options.output_type == 'tf_example':
        return [context_records.to_example(each, bank, options, Counts()) for each in frames]
    windows = banks.windows(len(frames), options.max_clip_length)
    return [
        context_records.to_sequence_example(
            f'L1_{i}', [frames[k] for k in window], bank, options, Counts()
        )
        for i, window in enumerate(windows)
    ]


@goldens.rows(
    FILE,
    prefix='context_',
    without=('context_keep_none', 'context_not_added_ids', 'context_padded'),
)
def test_contexts_of_examples(case_name):
    case = goldens.load(FILE, case_name)
    found = _contexts(case)
    assert len(found) == case.params['count']
    examples.assert_matches(case, found)


@goldens.parametrize(FILE, names=('context_keep_none',))
def test_no_image_of_a_group_is_kept(case_name):
    case = goldens.load(FILE, case_name)
    assert case.params['count'] == 0
    assert not case.raises
    assert _contexts(case) == []


@goldens.parametrize(FILE, names=('context_padded',))
def test_features_and_ids_are_padded(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'TypeError'
    for record in _contexts(case):
        example = records.parse(record)
        bank = example.floats(keys.CONTEXT_FEATURES).reshape(8, 4)
        assert not bank[6:].any()
        assert bank[:6].any(axis=1).all()
        ids = [b'img1', b'img3', b'img3', b'img2', b'img2', b'img10', b'', b'']
        assert list(example.texts(keys.CONTEXT_IMAGE_IDS)) == ids


@goldens.parametrize(FILE, names=('context_not_added_ids',))
def test_a_list_of_ids_needs_features(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'UnboundLocalError'
    with pytest.raises(UserError, match='--keep_context_features_image_id_list: expected --add'):
        _contexts(case)


# The file says what it is; theirs says JPG of all.
JPEG = {'context/image/format': [b'jpeg']}


@goldens.rows(FILE, prefix=('sequence_clips', 'sequence_plain'))
def test_contexts_of_sequences(case_name):
    case = goldens.load(FILE, case_name)
    found = _contexts(case)
    assert len(found) == case.params['count']
    examples.assert_matches(case, found, sequences=True, instead=JPEG)


@goldens.parametrize(FILE, names=('sequence_not_added',))
def test_sequences_without_context(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'UnboundLocalError'
    (record,) = _contexts(case)
    names = {name for name, _ in examples.of_sequence(record)}
    assert 'image/source_id/3' in names
    assert not [name for name in names if 'context_feature' in name]


@goldens.rows(FILE, prefix='window_')
def test_windows(case_name):
    case = goldens.load(FILE, case_name)
    count, length, stride = (case.params[key] for key in ('n', 'max_clip_length', 'stride_length'))
    windows = banks.windows(count, length, stride)
    assert len(windows) == len(case.outputs)
    for window, expected in zip(windows, case.outputs.values(), strict=True):
        assert list(window) == expected.tolist()


def _outputs(case: goldens.Case) -> models.Outputs:
    """The detections of a case as the model returns them."""
    count = case.params['num_detections']
    features = case.inputs.get('detection_features', np.zeros((4, 1, 1, 1), np.float32))
    if case.params.get('embedding_type') == 'rpn_box_features':
        features = 2 * features
    return {
        'detection_boxes': case.inputs['detection_boxes'][:count],
        'detection_scores': case.inputs['detection_scores'][:count],
        'features': features[:count].mean(axis=(1, 2)),
    }


def _embedded(case: goldens.Case) -> tuple[records.Example, records.Example]:
    """The image of a case, before and after."""
    index = case.params['index']
    image = examples.read(examples.golden_path(case.params['record']))[index or 0]
    if index is None:
        features = image.raw()
        del features[keys.DATE_CAPTURED]
        image = records.parse(context_records.tf_examples.serialize(features))
    result = detections.add_embeddings(
        image,
        _outputs(case),
        'features',
        case.params['top_k_embedding_count'],
        case.params['bottom_k_embedding_count'],
        Counts(),
    )
    return image, records.parse(result)


EMBEDDINGS = ('embedding_top1', 'embedding_top3', 'embedding_bottom9', 'embedding_rpn')


@goldens.rows(FILE, prefix=(*EMBEDDINGS, 'embedding_no_date', 'embedding_top9'))
def test_embeddings(case_name):
    case = goldens.load(FILE, case_name)
    image, ours = _embedded(case)
    # Theirs are appended to those that the image had; ours replace them.
    before = {key: len(image.floats(key)) for key in (keys.EMBEDDING, keys.EMBEDDING_SCORE)}
    values = case.outputs[keys.EMBEDDING][before[keys.EMBEDDING] :]
    scores = case.outputs[keys.EMBEDDING_SCORE][before[keys.EMBEDDING_SCORE] :]
    length, count = (
        case.outputs[key].tolist()[1] for key in (keys.EMBEDDING_LENGTH, keys.EMBEDDING_COUNT)
    )
    if case_name.startswith('embedding_top9'):
        # They embed each of two detections twice, as one of the best and as one of the lowest.
        assert count == 4
        count, values, scores = 2, values[: 2 * length], scores[:2]
    # The mean of 6 numbers, in another order of sums: 3 units in the last place.
    np.testing.assert_allclose(ours.floats(keys.EMBEDDING), values, rtol=4e-7)
    np.testing.assert_array_equal(ours.floats(keys.EMBEDDING_SCORE), scores)
    assert list(ours.integers(keys.EMBEDDING_LENGTH)) == [length]
    assert list(ours.integers(keys.EMBEDDING_COUNT)) == [count]
    _check_time(case, ours)


def _check_time(case: goldens.Case, ours: records.Example) -> None:
    theirs = case.outputs[keys.UNIX_TIME][1:]
    if case.params['index'] is None:
        assert len(theirs) == 0
        return
    np.testing.assert_array_equal(ours.floats(keys.UNIX_TIME), theirs)
    (exact,) = ours.integers(keys.UNIX_SECONDS)
    assert exact == int(context_embeddings.time_of(ours.text(keys.DATE_CAPTURED)).timestamp())
    assert np.float32(exact) == theirs[0]


@goldens.parametrize(FILE, names=('embedding_none',))
def test_nothing_is_embedded_without_detections(case_name):
    case = goldens.load(FILE, case_name)
    _, ours = _embedded(case)
    # They embed the padding, and count it.
    assert case.outputs[keys.EMBEDDING_COUNT].tolist() == [2, 1]
    assert len(case.outputs[keys.EMBEDDING]) == 2 * 4 + 14
    assert len(case.outputs[keys.EMBEDDING_SCORE]) == 3
    assert list(ours.integers(keys.EMBEDDING_COUNT)) == [0]
    assert list(ours.integers(keys.EMBEDDING_LENGTH)) == [case.outputs[keys.EMBEDDING_LENGTH][1]]
    assert len(ours.floats(keys.EMBEDDING)) == len(ours.floats(keys.EMBEDDING_SCORE)) == 0
    _check_time(case, ours)


@goldens.parametrize(FILE, names=('embedding_bad_type',))
def test_unknown_embedding_type(case_name):
    case = goldens.load(FILE, case_name)
    assert case.raises == 'ValueError'
    options = EmbeddingOptions(
        embedding_input_tfrecord='a',
        embedding_output_tfrecord='b',
        embedding_model_dir='c',
        embedding_type=case.params['embedding_type'],
    )
    with pytest.raises(ValueError, match='--embedding_type: expected one of final_box_features'):
        detections.run_embeddings(options)


@goldens.rows(FILE, names=('embed_date', 'embed_position'))
def test_parts_of_embeddings(case_name):
    case = goldens.load(FILE, case_name)
    for name, expected in case.outputs.items():
        if case_name == 'embed_date':
            time = context_embeddings.time_of(name)
            found = np.zeros(0) if time is None else context_embeddings.of_time(time)
        else:
            found = context_embeddings.of_boxes(case.inputs['boxes'])
        # float64 there too, of float32 boxes.
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)


# What the reference drops: it writes eleven features of an image, and no others.
KEPT = (
    *('image/embedding', 'image/embedding_count', 'image/embedding_length'),
    *('image/embedding_score', 'image/unix_time', 'image/class/label', 'image/class/text'),
)


def _class_of_image(case: goldens.Case) -> dict[str, list]:
    """The class of an image that gets boxes, which the reference drops as well."""
    labels = {0: [], 1: [], 2: [5], 3: []}[case.params['index']]
    texts = [f'c{label}'.encode() for label in labels]
    return {'ex0/image/class/label': labels, 'ex0/image/class/text': texts}


@goldens.rows(FILE, prefix='detection_')
def test_boxes_of_detections(case_name):
    case = goldens.load(FILE, case_name)
    image = examples.read(examples.golden_path(case.params['record']))[case.params['index']]
    outputs = _outputs(case)
    record = detections.add_boxes(image, outputs, case.params['confidence_threshold'], Counts())
    found = [record] if record else []
    assert len(found) == case.params['count']
    instead = _class_of_image(case) if case.params['index'] == 2 else {}
    examples.assert_matches(case, found, instead=instead, added=KEPT)


def _by_id(path) -> list[bytes]:
    found = sorted(path.parent.glob(f'{path.name}-*'))
    everything = [each for file in found for each in examples.read(file)]
    everything.sort(key=lambda example: example.text(keys.SOURCE_ID))
    return [example.with_features({}) for example in everything]


@goldens.parametrize(FILE, prefix='pipeline_context_', without=('pipeline_context_s',))
def test_job_of_contexts(case_name, tmp_path):
    _compare_job(case_name, tmp_path)


@goldens.parametrize(FILE, names=('pipeline_context_shards2_month',))
def test_job_of_contexts_in_two_shards(case_name, tmp_path):
    _compare_job(case_name, tmp_path)


def _compare_job(case_name, tmp_path, **instead):
    case = goldens.load(FILE, case_name)
    report = context.run(_options(case.params, output_tfrecord=str(tmp_path / 'out')))
    files = sorted(path.name for path in tmp_path.iterdir() if 'report' not in path.name)
    assert files == case.params['files']
    found = _by_id(tmp_path / 'out')
    assert len(found) == report['records'] == case.params['count']
    examples.assert_matches(case, found, instead=instead)


@goldens.parametrize(FILE, names=('pipeline_context_split',))
def test_job_that_splits_a_group(case_name, tmp_path):
    case = goldens.load(FILE, case_name)
    report = context.run(_options(case.params, output_tfrecord=str(tmp_path / 'out')))
    assert report['banks'] == 3
    found = _by_id(tmp_path / 'out')
    ids = [records.parse(each).text(keys.SOURCE_ID) for each in found]
    assert ids == ['img1', 'img10', 'img2', 'img3', 'img9']
    # With at most 5 embeddings together, img2 fits to the images before it; theirs begins a subset.
    banks_of_theirs = [case.outputs[f'ex{i}/{keys.CONTEXT_FEATURES}'].reshape(3, 4) for i in (0, 1)]
    ids_of_theirs = [case.outputs[f'ex{i}/{keys.CONTEXT_IMAGE_IDS}'].tolist() for i in (0, 1)]
    assert ids_of_theirs == [[b'img1', b'img3', b'img3'], [b'img2', b'img2', b'img10']]
    features, id_list = np.concatenate(banks_of_theirs), [*itertools.chain(*ids_of_theirs)]
    indices = {0: [0], 1: [0], 2: [3, 4], 3: [1, 2]}
    instead = {}
    for i, own in indices.items():
        rows = slice(5, 6) if i == 1 else slice(5)
        instead[f'ex{i}/{keys.CONTEXT_FEATURES}'] = features[rows].ravel()
        instead[f'ex{i}/{keys.CONTEXT_IMAGE_IDS}'] = id_list[rows]
        instead[f'ex{i}/{keys.CONTEXT_INDICES}'] = own
    examples.assert_matches(case, found, instead=instead)


@goldens.parametrize(FILE, names=('pipeline_context_sequences',))
def test_job_of_sequences(case_name, tmp_path):
    case = goldens.load(FILE, case_name)
    context.run(_options(case.params, output_tfrecord=str(tmp_path / 'out')))
    (path,) = tmp_path.glob('out-*')
    found = [records.tf_record_files.read_record(*place[:2]) for place in records.places(str(path))]
    assert len(found) == case.params['count']
    found.sort(key=lambda record: dict(examples.of_sequence(record))['context/clip/media_id'][0])
    examples.assert_matches(case, found, sequences=True, instead=JPEG)


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    """The detections of the recorded jobs: three used rows of four."""
    case = goldens.load(FILE, 'embedding_top1')
    outputs = {name: case.inputs[name] for name in ('detection_boxes', 'detection_scores')}
    outputs['detection_features'] = case.inputs['detection_features']
    outputs['num_detections'] = np.float32(3)
    return examples.save_model(tmp_path_factory.mktemp('model') / 'm', outputs, batch_size=1)


@goldens.parametrize(FILE, names=('pipeline_embeddings',))
def test_job_of_embeddings(case_name, tmp_path, model):
    case = goldens.load(FILE, case_name)
    options = EmbeddingOptions(
        embedding_input_tfrecord=examples.golden_path(case.params['record']),
        embedding_output_tfrecord=str(tmp_path / 'out'),
        embedding_model_dir=model,
        top_k_embedding_count=case.params['top_k_embedding_count'],
        bottom_k_embedding_count=case.params['bottom_k_embedding_count'],
        num_shards=case.params['num_shards'],
    )
    report = detections.run_embeddings(options)
    assert report['embeddings'] == 15
    found = _by_id(tmp_path / 'out')
    inputs = {each.text(keys.SOURCE_ID): each for each in _golden_inputs(case)}
    # Theirs have the earlier embeddings in front.
    instead = {}
    for i, record in enumerate(found):
        before = inputs[records.parse(record).text(keys.SOURCE_ID)]
        for key in (keys.EMBEDDING, keys.EMBEDDING_SCORE, keys.UNIX_TIME):
            instead[f'ex{i}/{key}'] = case.outputs[f'ex{i}/{key}'][len(before.floats(key)) :]
        for key in (keys.EMBEDDING_COUNT, keys.EMBEDDING_LENGTH):
            instead[f'ex{i}/{key}'] = case.outputs[f'ex{i}/{key}'][1:]
    examples.assert_matches(case, found, instead=instead)


def _golden_inputs(case: goldens.Case) -> list[records.Example]:
    return examples.read(examples.golden_path(case.params['record']))


@goldens.parametrize(FILE, names=('pipeline_detections',))
def test_job_of_detections(case_name, tmp_path, model):
    case = goldens.load(FILE, case_name)
    options = DetectionOptions(
        detection_input_tfrecord=examples.golden_path(case.params['record']),
        detection_output_tfrecord=str(tmp_path / 'out'),
        detection_model_dir=model,
        confidence_threshold=case.params['confidence_threshold'],
        num_shards=case.params['num_shards'],
    )
    report = detections.run(options)
    assert {key: report[key] for key in ('already_with_boxes', 'several_classes', 'new_boxes')} == {
        'already_with_boxes': 1,
        'several_classes': 1,
        'new_boxes': 3,
    }
    instead = {'ex1/image/class/label': [5], 'ex1/image/class/text': [b'c5']}
    examples.assert_matches(case, _by_id(tmp_path / 'out'), instead=instead, added=KEPT)
