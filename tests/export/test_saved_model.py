import functools
import logging
import os
import pathlib
import re
import shutil
from collections import Counter
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from object_detection.core.detections import Detections
from object_detection.core.fields import DetectionFields
from object_detection.data import label_map
from object_detection.data.image_decoding import decode_image
from object_detection.errors import UserError
from object_detection.export import exporter, saved_model, verification
from object_detection.meta_architectures import detector as detector_builder
from object_detection.resizers.keep_aspect_ratio import KeepAspectRatioResizer
from object_detection.runtime import class_names, in_process, input_types
from object_detection.runtime.input_types import INPUT_TYPES
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.training.checkpoints import manager
from object_detection.training.evaluation import results
from object_detection.weights import checkpoints, restore
from tests import rows, slow_cases, tolerances, toy_family
from tests import tiny_models as tiny

KEEP_ASPECT = """
model {
  faster_rcnn {
    image_resizer { keep_aspect_ratio_resizer { min_dimension: 64 max_dimension: 96 } }
  }
}
"""


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> pathlib.Path:
    """A directory with a checkpoint of the tiny detector."""
    folder = tmp_path_factory.mktemp('trained')
    detector = tiny.tiny_detector()
    tiny.disturb_batch_norms(detector)
    # Large outputs would show nothing but how convolutions of another batch size round.
    tiny.shrink_last_layers(detector)
    checkpoints.save_model(str(folder), detector.named_variables(), 7)
    return folder


@pytest.fixture(scope='module')
def images() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 255, (48, 80, 3), np.uint8) for _ in range(2)]


@pytest.fixture(scope='module')
def detector(trained):
    """What is exported."""
    return exporter.load_detector(tiny.tiny_pipeline(), str(trained))


@pytest.fixture(scope='module')
def detect(detector) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """What exports are compared with."""
    return verification.in_process(detector)


LABELS = "item { id: 1 name: 'cat' } item { id: 3 name: '/m/01' display_name: 'ca\\303\\251' }"


@pytest.fixture(scope='module')
def exports(trained, detector, tmp_path_factory) -> Callable[[str], pathlib.Path]:
    """Exports `trained` for a type of input, once; the label map is gone, the folder moved."""

    advised = {'score_threshold': 0.35, 'precision': 0.75, 'recall': 0.5, 'f1': 0.6}
    found = {'advised_threshold': advised}
    results.write(trained / 'eval', 7, {'DetectionBoxes_Precision/mAP': 0.25}, {}, found)

    @functools.cache
    def export(input_type: str) -> pathlib.Path:
        folder = tmp_path_factory.mktemp(input_type)
        labels = folder / 'labels.pbtxt'
        labels.write_text(LABELS)
        pipeline = tiny.tiny_pipeline(f"train_input_reader {{ label_map_path: '{labels}' }}")
        with mock.patch.object(exporter, 'load_detector', return_value=detector):
            exporter.export(pipeline, str(trained), folder / 'out', input_type=input_type)
        labels.unlink()
        return shutil.move(folder / 'out', folder / 'moved')

    return export


@pytest.fixture(scope='module')
def loaded(exports) -> Callable[[str], SavedModelRuntime]:
    """Loads what `exports` gives, once."""
    return functools.cache(lambda input_type: SavedModelRuntime(exports(input_type)))


@pytest.fixture(scope='module')
def served() -> Callable[[str], tf.types.experimental.PolymorphicFunction]:
    """What an export for a type of input, of a detector of images of any size, would serve."""

    @functools.cache
    def build(input_type: str) -> saved_model.ServedDetector:
        detector = tiny.tiny_detector(KEEP_ASPECT, is_training=False)
        return saved_model.ServedDetector(detector, input_type, 'float32')

    return lambda input_type: build(input_type).serve


@pytest.fixture(scope='module')
def allowed(detector, detect, images) -> float:
    """How far detections may be off by rounding alone: folded batch norms round each weight."""

    def found_rows() -> dict[str, np.ndarray]:
        found = {}
        for index, image in enumerate(images):
            (own,) = Detections.from_batch(detect(image[np.newaxis]), [image.shape[:2]])
            found[f'{index} classes'], found[f'{index}'] = verification._rows(own)
        return found

    expected = found_rows()
    repeated = list(tolerances.runs_off_by_last_digits(detector.named_variables(), found_rows))
    found = tolerances.of_rounding(expected, repeated)
    return max(found[f'{index}'] for index in range(len(images)))


IMAGES_ALONE = [each for each in INPUT_TYPES if each != input_types.IMAGE_AND_BOXES_TENSOR]


@slow_cases.parametrize(
    1,
    'input_type',
    [
        pytest.param(each, marks=pytest.mark.slow)
        if each in (input_types.FLOAT_IMAGE_TENSOR, input_types.TF_EXAMPLE)
        else each
        for each in IMAGES_ALONE
    ],
)
def test_export_gives_the_detections_of_the_model(
    input_type, exports, loaded, detect, images, allowed, request
):
    # As users run it, once; the others run too little for it to be worth it.
    if input_type != input_types.IMAGE_TENSOR:
        request.getfixturevalue('graphs_as_they_are')
    folder = exports(input_type)
    assert sorted(path.name for path in folder.iterdir()) == [
        'checkpoint',
        'model_card.md',
        'pipeline.config',
        'saved_model',
    ]
    assert loaded(input_type).advised_threshold == 0.35
    card = (folder / 'model_card.md').read_text()
    assert 'Recommended score threshold: **0.35**' in card
    assert '- 1: cat\n' in card
    comparison = verification.compare(loaded(input_type), detect, images)
    assert comparison.detections > 0
    assert comparison.unmatched == 0
    assert comparison.largest_difference <= allowed


def test_image_tensor_takes_any_batch_and_classes_start_at_1(loaded, images, allowed):
    serve = loaded('image_tensor')._model.signatures['serving_default']
    assert list(serve.structured_input_signature[1]) == ['input_tensor']
    both = serve(input_tensor=tf.constant(np.stack(images)))
    for i, image in enumerate(images):
        one = serve(input_tensor=tf.constant(image[np.newaxis]))
        for key, value in one.items():
            assert value.dtype == tf.float32
            assert value.shape[1:] == both[key].shape[1:]
        # Convolutions of another batch size round otherwise.
        (alone,) = Detections.from_batch(one, [image.shape[:2]])
        among = Detections.from_batch(both, [image.shape[:2]] * len(images))[i]
        comparison = verification._compare_rows(*map(verification._rows, (alone, among)))
        assert comparison.detections > 0
        assert comparison.unmatched == 0
        assert comparison.largest_difference <= allowed
    count = int(both[DetectionFields.NUM_DETECTIONS][0])
    classes = both[DetectionFields.CLASSES][0, :count].numpy()
    assert set(classes) <= {1.0, 2.0, 3.0, 4.0}


def empty_batch(input_type: str) -> tf.Tensor:
    """No image at all, as a client of the input type would send it."""
    if input_type in (input_types.ENCODED_IMAGE_STRING_TENSOR, input_types.TF_EXAMPLE):
        return tf.zeros([0], tf.string)
    dtype = tf.uint8 if input_type == input_types.IMAGE_TENSOR else tf.float32
    return tf.zeros([0, 48, 80, 3], dtype)


def check_that_nothing_is_found(outputs: dict[str, tf.Tensor]) -> None:
    assert outputs[DetectionFields.BOXES].shape == (0, 6, 4)
    assert outputs[DetectionFields.MASKS].shape == (0, 6, 14, 14)
    assert all(value.shape[0] == 0 for value in outputs.values())


@slow_cases.parametrize(
    1, 'input_type', [input_types.IMAGE_TENSOR, input_types.ENCODED_IMAGE_STRING_TENSOR]
)
def test_a_batch_without_images_gives_no_detections(input_type, loaded):
    serve = loaded(input_type)._model.signatures['serving_default']
    check_that_nothing_is_found(serve(input_tensor=empty_batch(input_type)))


@pytest.mark.slow
@pytest.mark.parametrize(
    'input_type',
    [input_types.IMAGE_TENSOR, input_types.TF_EXAMPLE],
)
def test_a_batch_without_images_of_any_size_gives_no_detections(
    input_type, served, graphs_as_they_are
):
    check_that_nothing_is_found(served(input_type)(empty_batch(input_type)))


def test_a_batch_of_images_without_pixels_gives_no_detections(loaded):
    serve = loaded('image_tensor')._model.signatures['serving_default']
    check_that_nothing_is_found(serve(input_tensor=tf.zeros([0, 0, 0, 3], tf.uint8)))


def test_given_boxes_get_the_classes_and_masks_that_detections_have(
    loaded, detector, images, graphs_as_they_are
):
    batch = tf.constant(np.stack(images))
    found = loaded('image_tensor').run_batch(batch)
    served = saved_model.ServedDetector(detector, 'image_and_boxes_tensor', 'float32').serve
    signature = served.get_concrete_function().structured_input_signature[0]
    assert [(spec.name, spec.dtype, spec.shape.as_list()) for spec in signature] == [
        ('input_tensor', tf.uint8, [None, None, None, 3]),
        ('boxes', tf.float32, [None, None, 4]),
    ]
    boxes = found[DetectionFields.BOXES]
    given = served(batch, boxes)
    np.testing.assert_array_equal(given[DetectionFields.BOXES], boxes)
    assert given[DetectionFields.NUM_DETECTIONS].numpy().tolist() == [6.0, 6.0]
    scores = given[DetectionFields.MULTICLASS_SCORES].numpy()[..., 1:]
    np.testing.assert_array_equal(given[DetectionFields.CLASSES], scores.argmax(-1) + 1)
    np.testing.assert_allclose(given[DetectionFields.SCORES], scores.max(-1))
    # A mask depends on the box and its class alone.
    same = given[DetectionFields.CLASSES] == found[DetectionFields.CLASSES]
    assert same.numpy().any()
    np.testing.assert_allclose(
        given[DetectionFields.MASKS][same], found[DetectionFields.MASKS][same], atol=1e-5
    )
    none = served(batch, boxes[:, :0])
    assert none[DetectionFields.MASKS].shape == (2, 0, 14, 14)
    assert none[DetectionFields.NUM_DETECTIONS].numpy().tolist() == [0.0, 0.0]
    assert served(batch[:0], boxes[:0])[DetectionFields.CLASSES].shape == (0, 6)


ROI_ALIGN = """
model { faster_rcnn { roi_align { output_size: 7 } mask_roi_align { output_size: 14 } } }
"""


@pytest.mark.slow
def test_an_export_with_roi_align_needs_no_xla():
    detector = tiny.tiny_detector(ROI_ALIGN, is_training=False)
    images = tiny.random_images(1)
    compiled = {}
    for name, function in {
        'served': saved_model.ServedDetector(detector, 'float_image_tensor', 'float32').serve,
        'in process': tf.function(
            lambda x: detector.predict(x, tiny.shapes(images)), autograph=False
        ),
    }.items():
        spec = tf.TensorSpec([None, *images.shape[1:]], tf.float32)
        graph = function.get_concrete_function(spec).graph.as_graph_def()
        compiled[name] = '_XlaMustCompile' in str(graph)
    # The second shows that the first is not so by chance.
    assert compiled == {'served': False, 'in process': True}


def test_an_export_is_called_as_it_is_loaded_and_knows_its_classes(exports, loaded, images):
    exported = loaded('image_tensor')
    model = exported._model
    batch = np.stack(images)
    called, served = model(batch), model.signatures['serving_default'](tf.constant(batch))
    for key, value in served.items():
        np.testing.assert_array_equal(called[key], value, err_msg=key)
    assert [name.decode() for name in model.class_names().numpy()] == ['', 'cat', '', 'caé']
    asset = exports('image_tensor') / 'saved_model' / 'assets' / 'label_map.pbtxt'
    assert label_map.load(asset).categories == [
        {'id': 1, 'name': 'cat'},
        {'id': 3, 'name': 'caé'},
    ]
    assert exported.labels.names == {1: 'cat', 3: 'caé'}


def test_an_export_holds_variables_and_no_layers(exports, detector):
    file = exports('image_tensor') / 'saved_model' / 'saved_model.pb'
    (graph,) = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
    kinds = Counter(node.WhichOneof('kind') for node in graph.object_graph_def.nodes)
    names = detector.named_variables()
    norms = {name.rpartition('/')[0] for name in names if '_bn/' in name}
    # An activation comes before this one; the others are offsets of the layers before them.
    unfolded = {'box_classifier/dense_1_bn'}
    kept = [name for name in names if name.rpartition('/')[0] not in norms - unfolded]
    assert kinds['variable'] == len(kept) + len(norms - unfolded)
    # The module, its list of variables and its signatures.
    assert kinds['user_object'] == 3


@pytest.mark.slow
def test_constant_weights_leave_no_variables_and_the_same_detections(
    trained, loaded, images, allowed, tmp_path
):
    exporter.export(tiny.tiny_pipeline(), str(trained), tmp_path, constant_weights=True)
    file = tmp_path / 'saved_model' / 'saved_model.pb'
    (graph,) = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
    assert not [
        each for each in graph.object_graph_def.nodes if each.WhichOneof('kind') == 'variable'
    ]
    batch = tf.constant(np.stack(images))
    found, expected = (
        SavedModelRuntime(tmp_path).run_batch(batch),
        loaded('image_tensor').run_batch(batch),
    )
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, atol=allowed, rtol=0, err_msg=key)


def test_the_checkpoint_that_is_exported_is_named_with_the_best_one(tmp_path):
    weight = {'head/kernel': tf.Variable([1.0])}
    prefix = checkpoints.save_model(str(tmp_path), weight, 20)
    assert exporter.describe(str(tmp_path), prefix) == f'{prefix} (step 20)'
    checkpoints.save_model(str(tmp_path / 'best'), weight, 10)
    (tmp_path / 'best' / 'metrics.json').write_text(
        '{"checkpoint": "ckpt-0", "step": 10, "metric": "mAP", "value": 0.25}'
    )
    assert exporter.describe(str(tmp_path), prefix) == (
        f'{prefix} (step 20), the last one; the best by mAP (0.25 at step 10) is in '
        f'{tmp_path / "best"}'
    )
    best = checkpoints.find(str(tmp_path / 'best'))
    assert exporter.describe(str(tmp_path / 'best'), best) == f'{best} (step 10)'


def test_a_label_map_that_is_not_there_is_reported_and_one_that_was_named_is_an_error(
    trained, tmp_path, caplog
):
    pipeline = tiny.tiny_pipeline("train_input_reader { label_map_path: 'gone.pbtxt' }")
    with caplog.at_level(logging.WARNING, 'object_detection'):
        assert class_names.read_text(pipeline) is None
    assert 'no class names' in caplog.text
    assert 'gone.pbtxt' in caplog.text
    with pytest.raises(ValueError, match=r'Label map other\.pbtxt cannot be read'):
        exporter.export(pipeline, str(trained), tmp_path, label_map_path='other.pbtxt')
    assert not list(tmp_path.iterdir())


def as_example(encoded: bytes) -> bytes:
    value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
    features = tf.train.Features(feature={'image/encoded': value})
    return tf.train.Example(features=features).SerializeToString()


@pytest.mark.slow
def test_encoded_images_of_many_sizes_with_a_resizer_that_keeps_the_aspect(
    served, graphs_as_they_are
):
    rng = np.random.default_rng(0)
    files = [
        tf.io.encode_png(rng.integers(0, 255, (height, width, 3), np.uint8)).numpy()
        for height, width in ((64, 80), (90, 70))
    ]
    both = served('tf_example')(tf.constant([as_example(file) for file in files]))
    assert both[DetectionFields.BOXES].shape == (2, 6, 4)
    assert both[DetectionFields.BOXES].numpy().max() <= 1


def test_the_exported_checkpoint_is_unfolded(exports, detector):
    folder = exports('image_tensor')
    original = detector.named_variables()
    exported = exporter.load_detector(tiny.tiny_pipeline(), str(folder / 'checkpoint'))
    for name, variable in exported.named_variables().items():
        np.testing.assert_array_equal(variable, original[name], err_msg=name)
    assert checkpoints.read_step(str(folder / 'checkpoint' / 'ckpt-0')) == 7


@pytest.fixture
def toy(monkeypatch) -> toy_family.ToyDetector:
    """Of few variables, and of images of any size; it is built in place of others."""
    detector = toy_family.ToyDetector(
        num_classes=2, resizer=KeepAspectRatioResizer(min_dimension=64, max_dimension=96)
    )
    detector.build_variables()
    monkeypatch.setattr(detector_builder, 'build', lambda *_, **__: detector)
    return detector


def test_averages_are_exported_where_the_training_kept_them(toy, tmp_path):
    named = {name: tf.Variable(value) for name, value in toy.named_variables().items()}
    name = 'classes/kernel'
    saver = manager.Checkpoints(
        str(tmp_path),
        model=named,
        optimizer={'average': {name: tf.Variable(named[name] + 1.0)}},
        step=tf.Variable(0, dtype=tf.int64),
    )
    saver.save()
    pipeline = tiny.tiny_pipeline()
    for keeps, difference in ((True, 1.0), (False, 0.0)):
        pipeline.train_config.optimizer.use_moving_average = keeps
        loaded = exporter.load_detector(pipeline, str(tmp_path)).named_variables()
        np.testing.assert_allclose(loaded[name] - named[name], difference, atol=1e-6)
        np.testing.assert_array_equal(loaded['boxes/kernel'], named['boxes/kernel'])


def count_decoders(function: tf.types.experimental.PolymorphicFunction) -> int:
    """Counts the operations that decode images, those of each format apart."""
    graph = function.get_concrete_function().graph.as_graph_def()
    bodies = [graph.node, *(body.node_def for body in graph.library.function)]
    return sum(node.op == 'DecodeImage' for body in bodies for node in body)


def test_encoded_images_are_decoded_once_and_padded_to_the_largest(toy):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (*size, 3), np.uint8) for size in ((64, 80), (90, 60))]
    read = tf.function(
        lambda encoded: saved_model._from_encoded(toy, encoded),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    once = tf.function(
        decode_image, input_signature=[tf.TensorSpec([], tf.string)], autograph=False
    )
    assert count_decoders(read) == count_decoders(once) > 0
    batch, true_shapes = read(tf.stack([tf.io.encode_png(image) for image in images]))
    np.testing.assert_array_equal(true_shapes, [[64, 80, 3], [96, 64, 3]])
    expected = np.zeros((2, 96, 80, 3), np.float32)
    for image, row in zip(images, expected, strict=True):
        resized = toy.resizer(image)[0]
        row[: resized.shape[0], : resized.shape[1]] = resized
    np.testing.assert_allclose(batch, toy.normalize(tf.constant(expected)), atol=1e-4)


class _Doubler(tf.Module):
    """In place of a detector."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)], autograph=False)
    def serve(self, x):
        return {'y': 2 * x}


def export_text(folder: pathlib.Path, text: str, **options) -> None:
    """Exports the doubler with `text` as config and as the only file of its checkpoint."""

    def save_checkpoint(directory: str) -> None:
        os.mkdir(directory)
        pathlib.Path(directory, 'ckpt').write_text(text)

    saved_model.export(
        None,
        folder,
        input_type='image_tensor',
        save_checkpoint=save_checkpoint,
        pipeline_text=text,
        **options,
    )


def texts(folder: pathlib.Path) -> list[str | None]:
    """What is in the config and the checkpoint, None where there is none."""
    files = (folder / 'pipeline.config', folder / 'checkpoint' / 'ckpt')
    return [path.read_text() if path.exists() else None for path in files]


@pytest.fixture
def moves(monkeypatch) -> list:
    """Replaces the detector by the doubler; a function put in the list runs before each move."""
    monkeypatch.setattr(saved_model, 'ServedDetector', lambda *_, **__: _Doubler())
    before, real = [], os.replace

    def replace(source, target) -> None:
        for function in before:
            function()
        real(source, target)

    monkeypatch.setattr(saved_model.os, 'replace', replace)
    return before


def test_where_a_saved_model_is_all_is_of_one_export(moves, tmp_path):
    export_text(tmp_path, 'first')
    seen = []

    def look() -> None:
        if (tmp_path / 'saved_model').exists():
            seen.append(texts(tmp_path))

    moves.append(look)
    export_text(tmp_path, 'second')
    look()
    assert seen == [['first'] * 2, ['second'] * 2]
    assert {path.name for path in tmp_path.iterdir()} == set(saved_model._ITEMS)


def test_a_failed_move_leaves_the_earlier_export(moves, tmp_path):
    export_text(tmp_path, 'first')

    def check(failing: int) -> None:
        done = []

        def fail() -> None:
            done.append(None)
            if len(done) == failing + 1:
                raise OSError('disk')

        moves[:] = [fail]
        with pytest.raises(OSError, match='disk'):
            export_text(tmp_path, 'second')
        assert texts(tmp_path) == ['first'] * 2
        assert {path.name for path in tmp_path.iterdir()} == set(saved_model._ITEMS)

    rows.check_rows(range(6), check)


def test_an_export_that_is_not_verified_leaves_the_earlier_one(moves, tmp_path):
    export_text(tmp_path, 'first')

    def verify(folder: pathlib.Path) -> None:
        assert texts(folder) == ['second'] * 2
        assert tf.saved_model.load(folder / 'saved_model').serve(1.0)['y'] == 2.0
        raise UserError('differs')

    with pytest.raises(UserError, match='differs'):
        export_text(tmp_path, 'second', verify=verify)
    assert texts(tmp_path) == ['first'] * 2
    assert {path.name for path in tmp_path.iterdir()} == set(saved_model._ITEMS)


def test_an_export_with_other_detections_leaves_the_earlier_one(
    moves, trained, detector, images, tmp_path, monkeypatch
):
    export_text(tmp_path, 'first')
    image = tmp_path / 'image.png'
    image.write_bytes(tf.io.encode_png(images[0]).numpy())
    differs = verification.Comparison(detections=10, unmatched=9, largest_difference=0.0)
    monkeypatch.setattr(verification, 'compare', lambda *_: differs)
    monkeypatch.setattr(exporter, 'load_detector', lambda *_: detector)
    with pytest.raises(UserError, match=r'--format saved_model: .* 9 without counterpart'):
        exporter.export(tiny.tiny_pipeline(), str(trained), tmp_path, images=[image])
    assert texts(tmp_path) == ['first'] * 2
    assert not list(tmp_path.glob('.export-*'))


@pytest.mark.parametrize(
    ('text', 'flag', 'expected', 'written'),
    [
        ('', None, 'float32', None),
        ('', 'float32', 'float32', None),
        ('use_bfloat16: true', None, 'float32', None),
        ('precision: BFLOAT16', None, 'mixed_bfloat16', 'MIXED_BFLOAT16'),
        ('precision: MIXED_BFLOAT16', 'float16', 'mixed_float16', 'MIXED_FLOAT16'),
        ('precision: MIXED_FLOAT16 loss_scale { static: 2 }', 'tf32', 'tf32', 'TF32'),
    ],
)
def test_the_precision_is_the_config_s_or_the_flag_s(
    text, flag, expected, written, monkeypatch, caplog
):
    done = {}
    monkeypatch.setattr(checkpoints, 'find', lambda path: path)
    monkeypatch.setattr(restore, 'read_step', lambda prefix: 7)
    monkeypatch.setattr(exporter, 'describe', lambda checkpoint, prefix: prefix)
    monkeypatch.setattr(exporter, 'load_detector', lambda *arguments: done.update(made=arguments))
    monkeypatch.setattr(saved_model, 'export', lambda *_, **options: done.update(options))
    pipeline = tiny.tiny_pipeline(f'train_config {{ {text} }}')
    given = pipeline.SerializeToString()
    with caplog.at_level(logging.INFO, 'object_detection'):
        assert exporter.export(pipeline, 'run', 'out', precision=flag).precision == expected
    assert f'computes in {expected}' in caplog.text
    assert pipeline.SerializeToString() == given
    assert done['precision'] == done['made'][2] == expected
    found = re.search(r'^  precision: (\w+)$', done['pipeline_text'], re.MULTILINE)
    assert (found and found[1]) == written
    assert 'loss_scale' not in done['pipeline_text']


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'dtype'),
    [
        ('mixed_bfloat16', tf.bfloat16),
        ('mixed_float16', tf.float16),
    ],
)
def test_an_export_keeps_its_precision_and_says_so(
    name, dtype, trained, images, tmp_path, graphs_as_they_are
):
    pipeline = tiny.tiny_pipeline()
    paths = [tmp_path / f'{index}.png' for index in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        path.write_bytes(tf.io.encode_png(image).numpy())
    done = exporter.export(pipeline, str(trained), tmp_path, precision=name, images=paths)
    assert done.comparison.detections > 0
    assert done.comparison.unmatched == 0
    exported = SavedModelRuntime(tmp_path)
    assert exported.precision == name
    assert f'precision: {name.upper()}' in (tmp_path / 'pipeline.config').read_text()
    serve = exported._model.signatures['serving_default']
    assert {spec.dtype for spec in serve.structured_outputs.values()} == {tf.float32}
    functions = serve.graph.as_graph_def().library.function
    nodes = [node for function in functions for node in function.node_def]
    types = {node.attr['T'].type for node in nodes if node.op == 'Conv2D'}
    assert types == {dtype.as_datatype_enum}
    # Converted once, in place of in each run; what computes in float32 in any precision stays so.
    assert {variable.dtype for variable in exported._model._variables} == {tf.float32, dtype}
    assert not [node for node in nodes if node.op == 'Cast' and 'kernel' in node.input[0]]


def test_unknown_input_type_and_missing_checkpoint_are_reported(trained, tmp_path):
    with pytest.raises(ValueError, match='input_type: expected one of'):
        exporter.export(tiny.tiny_pipeline(), str(trained), tmp_path, input_type='video')
    with pytest.raises(ValueError, match='no checkpoint found'):
        exporter.export(tiny.tiny_pipeline(), str(tmp_path), tmp_path / 'out')
    with pytest.raises(ValueError, match='holds no SavedModel'):
        SavedModelRuntime(tmp_path)


def test_an_export_into_the_training_directory_is_refused(trained, detector, monkeypatch):
    monkeypatch.setattr(exporter, 'load_detector', lambda *_: detector)
    before = sorted(path.name for path in trained.iterdir())
    with pytest.raises(ValueError, match='holds the checkpoints of a training'):
        exporter.export(tiny.tiny_pipeline(), str(trained), trained)
    assert sorted(path.name for path in trained.iterdir()) == before


def test_images_of_a_batch_that_may_be_empty_have_a_known_number_of_channels():
    class Detector:
        def preprocess(self, images):
            return images, tf.shape(images)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.float32)])
    def read(images):
        read_images, _ = in_process.read_images(Detector(), images)
        assert read_images.shape[-1] == 3
        return read_images

    assert read(tf.zeros([0, 4, 5, 3])).shape == (1, 4, 5, 3)
