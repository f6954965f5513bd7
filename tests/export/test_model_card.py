import pathlib

from google.protobuf import text_format

from object_detection.export import model_card
from object_detection.export.model_card import Exported, Model
from object_detection.protos import pipeline_pb2
from tests import rows

CONFIG = """
model { ssd { num_classes: 2 feature_extractor { type: 'ssd_resnet50_v1_fpn_keras' }
  image_resizer { fixed_shape_resizer { height: 64 width: 96 } } } }
train_config { batch_size: 4 num_steps: 2000 }
train_input_reader { tf_record_input_reader { input_path: 'data/train-?' } }
eval_input_reader { tf_record_input_reader { input_path: 'data/val' } }
"""
ADVISED = {'score_threshold': 0.35, 'precision': 0.75, 'recall': 0.5, 'f1': 0.6}
ADVISED['by_class'] = {'cat': 0.25, 'dög': 0.5}
METRICS = {
    'DetectionBoxes_Precision/mAP': 0.25,
    'DetectionBoxes_Precision/mAP (large)': -1.0,
    'DetectionBoxes_PerformanceByCategory/mAP/cat': 0.5,
    'Loss/total_loss': 2.0,
}
ENTRY = {'step': 7, 'time': 0.0, 'metrics': METRICS, 'advised_threshold': ADVISED}
FILE = Exported('model.onnx', 'float32', 1_500_000, [9.0, 0.012, 0.010, 0.014])


def model(start='', evaluations=None, step=7):
    pipeline = text_format.Parse(CONFIG, pipeline_pb2.TrainEvalPipelineConfig())
    if start:
        pipeline.train_config.fine_tune_checkpoint = str(start)
    return Model(pipeline, 'run/ckpt-7', step, {1: 'cat', 2: 'dög'}, evaluations or {})


def card(folder, model_, made=FILE) -> str:
    pathlib.Path(folder, made.path).touch()
    model_card.write(folder, folder, model_, made)
    return (folder / 'model_card.md').read_text(encoding='utf-8')


def test_it_says_what_the_model_is_and_how_well_it_detects(tmp_path):
    text = card(tmp_path, model(evaluations={'': ENTRY}))
    assert text.startswith('# Model card: ssd\n')
    assert 'ssd, ssd_resnet50_v1_fpn_keras' in text
    assert '`run/ckpt-7`, step 7' in text
    assert '2,000 steps of 4 images' in text
    assert 'fixed_shape_resizer { height: 64 width: 96 }' in text
    assert '| AP, mean over IoU .50 to .95 | 0.2500 |' in text.replace('box: ', '')
    # Neither values that are not defined nor those of categories and losses.
    assert 'over 96' not in text
    assert 'ByCategory' not in text
    assert 'total_loss' not in text
    assert 'Recommended score threshold: **0.35** (precision 0.750, recall 0.500' in text
    assert 'Of the classes alone it would be: cat 0.25, dög 0.50.' in text
    assert '- 2: dög\n' in text
    assert '- training: `data/train-?`' in text
    assert '- evaluation: `data/val`' in text
    # The first run prepares the others.
    assert '| `model.onnx` | float32 | 1.5 MB | 12.0 ms an image, median of 3' in text
    assert 'from random weights' in text
    assert 'num_classes: 2' in text


def test_without_an_evaluation_and_a_measurement_it_says_so(tmp_path):
    text = card(tmp_path, model(), Exported('saved_model', 'float32', 10))
    assert 'The folder of the checkpoint has no evaluation of step 7.' in text
    assert 'not measured; the same export with `--verify IMAGES` writes it here' in text


def test_exports_of_one_checkpoint_are_rows_of_one_card(tmp_path):
    card(tmp_path, model())
    other = Exported('model.tflite', 'int8', 500_000)
    text = card(tmp_path, model(), other)
    assert text.count('| `model.onnx` |') == text.count('| `model.tflite` |') == 1
    assert text.count('| `model.onnx` |') == card(tmp_path, model()).count('| `model.onnx` |')
    # Those that are gone, and those of another checkpoint, are not.
    (tmp_path / 'model.tflite').unlink()
    assert 'model.tflite' not in card(tmp_path, model())
    assert 'model.onnx' not in card(tmp_path, model(step=8), other)


@rows.parametrize(
    ('path', 'expected'),
    [
        ('zoo/ssd_mobilenet_v2_320x320_coco17_tpu-8/checkpoint/ckpt-0', 'Licence: Apache 2.0'),
        ('weights/retinanet_resnet50_fpn_coco-eeacb38b.pth', 'Licence: BSD 3-Clause'),
        (
            'w/resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5',
            'resnet50 of keras.applications',
        ),
        ('other/ckpt-3', 'Its licence is not known here'),
    ],
)
def test_the_licence_of_the_first_weights(path, expected, tmp_path):
    text = card(tmp_path, model(start=path))
    assert f'- `{path}`' in text
    assert expected in text


def test_weights_are_followed_through_trainings(tmp_path):
    first, second = tmp_path / 'first', tmp_path / 'second'
    for folder, start in ((first, 'x/efficientdet_d0_coco17_tpu-32/ckpt-0'), (second, first / 'c')):
        folder.mkdir()
        text = f'train_config {{ fine_tune_checkpoint: "{start}" }}'
        (folder / 'resolved_pipeline.config').write_text(text)
    text = card(tmp_path, model(start=second / 'ckpt-9'))
    places = [text.index(name) for name in ('second/ckpt-9', 'first/c', 'efficientdet_d0')]
    assert places == sorted(places)
    assert 'Licence: Apache 2.0' in text
    (first / 'resolved_pipeline.config').write_text('train_config { batch_size: 4 }')
    assert 'that one began from random weights' in card(tmp_path, model(start=second / 'ckpt-9'))


def test_a_circle_of_trainings_ends(tmp_path):
    text = f'train_config {{ fine_tune_checkpoint: "{tmp_path / "ckpt-1"}" }}'
    (tmp_path / 'pipeline.config').write_text(text)
    assert card(tmp_path, model(start=tmp_path / 'ckpt-1')).count('- `/') == 1
