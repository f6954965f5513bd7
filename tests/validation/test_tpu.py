"""What does not fit a TPU: the rules of the reference's page, and its own configs."""

import subprocess
import sys

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from object_detection.config.reader import read_pipeline
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import tpu
from tests import rows
from tests.conftest import SHARED

CONFIGS = SHARED / 'reference' / 'configs'
# A detector that fits; the tests change it.
FITS = """
model { ssd {
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  matcher { argmax_matcher { use_matmul_gather: true } }
  box_predictor { weight_shared_convolutional_box_predictor {
    box_encodings_clip_range { min: -10 max: 10 }
    conv_hyperparams { batch_norm { decay: 0.997 } }
  } }
  loss {
    classification_loss { weighted_sigmoid_focal {} }
    localization_loss { weighted_smooth_l1 {} }
  }
} }
train_config {
  batch_size: 64
  num_steps: 25000
  use_bfloat16: true
  unpad_groundtruth_tensors: false
  optimizer { momentum_optimizer { learning_rate {
    cosine_decay_learning_rate {
      learning_rate_base: 0.04 total_steps: 25000
      warmup_learning_rate: 0.013333 warmup_steps: 2000
    }
  } } }
}
train_input_reader { max_number_of_boxes: 200 }
eval_config { batch_size: 8 }
eval_input_reader { max_number_of_boxes: 200 }
"""
FASTER_RCNN = """
model { faster_rcnn {
  image_resizer { keep_aspect_ratio_resizer { pad_height: 64 pad_width: 96 } }
  use_static_shapes: true
  use_static_balanced_label_sampler: true
  use_matmul_crop_and_resize: true
  use_matmul_gather_in_matcher: true
} }
"""
RATE = 'train_config.optimizer.momentum_optimizer.learning_rate'
PREDICTOR = 'model.ssd.box_predictor.weight_shared_convolutional_box_predictor'
# What the four configs of the page leave out themselves.
LEFT_OUT = [
    'train_input_reader.max_number_of_boxes',
    'eval_input_reader[0].max_number_of_boxes',
    'train_config.use_bfloat16',
    'eval_config.batch_size',
]


def _merged(*parts: str) -> TrainEvalPipelineConfig:
    pipeline = TrainEvalPipelineConfig()
    for part in (FITS, *parts):
        text_format.Merge(part, pipeline)
    return pipeline


def _found(*parts: str, cores: int = 8) -> dict[str, bool]:
    """Path of each finding -> whether it is an obstacle."""
    return {found.path: found.is_obstacle for found in tpu.find(_merged(*parts), cores=cores)}


@rows.parametrize('part', ['', FASTER_RCNN])
def test_nothing_is_found_in_a_config_that_fits(part):
    assert _found(part) == {}


def _ssd(text: str) -> str:
    return f'model {{ ssd {{ {text} }} }}'


def _two_stage(text: str) -> str:
    return FASTER_RCNN + f'model {{ faster_rcnn {{ {text} }} }}'


def _train(text: str) -> str:
    return f'train_config {{ {text} }}'


def _rate(text: str) -> str:
    return _train(f'optimizer {{ momentum_optimizer {{ learning_rate {{ {text} }} }} }}')


def _predictor(text: str) -> str:
    return _ssd(f'box_predictor {{ weight_shared_convolutional_box_predictor {{ {text} }} }}')


OBSTACLES = [
    ('model.ssd.matcher.bipartite_matcher', _ssd('matcher { bipartite_matcher {} }')),
    ('model.ssd.matcher.hungarian_matcher', _ssd('matcher { hungarian_matcher {} }')),
    ('model.ssd.loss.hard_example_miner', _ssd('loss { hard_example_miner {} }')),
    (
        'model.ssd.image_resizer.keep_aspect_ratio_resizer.pad_to_max_dimension',
        _ssd('image_resizer { keep_aspect_ratio_resizer { pad_height: 9 } }'),
    ),
    *(
        (f'model.ssd.image_resizer.{kind}', _ssd(f'image_resizer {{ {kind} {{}} }}'))
        for kind in ('identity_resizer', 'conditional_shape_resizer', 'pad_to_multiple_resizer')
    ),
    (
        'train_input_reader.aspect_ratio_buckets',
        'train_input_reader { aspect_ratio_buckets { height: 8 width: 9 } }',
    ),
    ('train_input_reader.drop_remainder', 'train_input_reader { drop_remainder: false }'),
    ('train_config.batch_size', _train('batch_size: 68')),
    ('train_config.gradient_accumulation_steps', _train('gradient_accumulation_steps: 3')),
    ('train_config.precision', _train('precision: MIXED_FLOAT16')),
    ('model.faster_rcnn.hard_example_miner', _two_stage('hard_example_miner {}')),
    (
        'model.faster_rcnn.first_stage_matcher.bipartite_matcher',
        _two_stage('first_stage_matcher { bipartite_matcher {} }'),
    ),
]
COSINE = f'{RATE}.cosine_decay_learning_rate'
ADVICE = [
    (
        'model.ssd.matcher.argmax_matcher.use_matmul_gather',
        _ssd('matcher { argmax_matcher { use_matmul_gather: false } }'),
    ),
    (
        f'{PREDICTOR}.conv_hyperparams.batch_norm.decay',
        _predictor('conv_hyperparams { batch_norm { decay: 0.9997 } }'),
    ),
    (
        'model.ssd.box_predictor.convolutional_box_predictor.box_encodings_clip_range',
        _ssd('box_predictor { convolutional_box_predictor {} }'),
    ),
    ('train_config.use_bfloat16', _train('use_bfloat16: false')),
    ('train_config.unpad_groundtruth_tensors', _train('unpad_groundtruth_tensors: true')),
    ('eval_config.batch_size', 'eval_config { batch_size: 4 }'),
    ('train_config.num_steps', _train('num_steps: 0')),
    ('train_config.num_steps', _train('num_steps: 200000')),
    (f'{COSINE}.learning_rate_base', _train('batch_size: 512')),
    (f'{COSINE}.learning_rate_base', _train('auto_scale_lr { reference_batch_size: 8 }')),
    (COSINE, _rate('cosine_decay_learning_rate { warmup_steps: 0 }')),
    (COSINE, _rate('cosine_decay_learning_rate { warmup_steps: 100 }')),
    (
        f'{RATE}.constant_learning_rate',
        _rate('constant_learning_rate { learning_rate: 0.04 }'),
    ),
    (
        f'{RATE}.constant_learning_rate',
        _rate('constant_learning_rate { learning_rate: 0.04 } warmup { steps: 100 }'),
    ),
    (
        f'{RATE}.polynomial_learning_rate.learning_rate_base',
        _rate('polynomial_learning_rate { learning_rate_base: 4 } warmup { steps: 1000 }'),
    ),
    (
        f'{RATE}.exponential_decay_learning_rate',
        _rate('exponential_decay_learning_rate { initial_learning_rate: 0.04 }'),
    ),
    (
        f'{RATE}.manual_step_learning_rate.schedule[0].learning_rate',
        _rate('manual_step_learning_rate { warmup: true schedule { learning_rate: 4 } }'),
    ),
    (
        'train_config.optimizer.rms_prop_optimizer',
        _train('optimizer { rms_prop_optimizer { learning_rate { constant_learning_rate {} } } }'),
    ),
    *(
        (f'model.faster_rcnn.{name}', _two_stage(f'{name}: false'))
        for name in (
            'use_static_shapes',
            'use_static_balanced_label_sampler',
            'use_matmul_crop_and_resize',
            'use_matmul_gather_in_matcher',
        )
    ),
]


@rows.parametrize(('path', 'change'), OBSTACLES)
def test_obstacles(path, change):
    assert _found(change) == {path: True}


@rows.parametrize(('path', 'change'), ADVICE)
def test_advice(path, change):
    assert _found(change) == {path: False}


@rows.parametrize(
    'change',
    [
        # The example of the page.
        _rate("""manual_step_learning_rate {
          warmup: true initial_learning_rate: .01333
          schedule { step: 2000 learning_rate: 0.04 }
          schedule { step: 15000 learning_rate: 0.004 } }"""),
        _train('optimizer { adam_optimizer { learning_rate { cosine_decay_learning_rate {} } } }'),
        _rate('constant_learning_rate { learning_rate: 0.04 } warmup { steps: 1000 }'),
        _rate('one_cycle_learning_rate { learning_rate_base: 0.04 total_steps: 20000 }'),
        _rate("plugin { name: 'inverse_root' }"),
        _train('num_steps: 0 num_epochs: 12'),
        _train('batch_size: 512 auto_scale_lr { reference_batch_size: 64 }'),
        _train('use_bfloat16: false precision: MIXED_BFLOAT16'),
        _predictor('conv_hyperparams { batch_norm { decay: 0.9997 train: false } }'),
        _two_stage("""use_matmul_crop_and_resize: false
          roi_align { impl: MATMUL } mask_roi_align { impl: MATMUL }"""),
    ],
)
def test_no_false_alarm(change):
    assert _found(change) == {}


def test_without_bfloat16_box_codes_need_no_range():
    change = _ssd('box_predictor { convolutional_box_predictor {} }')
    assert _found(change, _train('use_bfloat16: false')) == {'train_config.use_bfloat16': False}


@rows.parametrize(('path', 'change'), OBSTACLES + ADVICE)
def test_what_to_write_removes_the_finding(path, change):
    pipeline = _merged(change)
    (finding,) = tpu.find(pipeline)
    messages = [pipeline]
    *names, field = path.replace('[0]', '').split('.')
    for name in names:
        following = getattr(messages[-1], name)
        messages.append(following if isinstance(following, Message) else following[0])
    messages[-1].ClearField(field)
    if finding.write:
        _write(finding.write, messages)
    assert path not in [found.path for found in tpu.find(pipeline)]


def _write(text: str, messages: list[Message]) -> None:
    """Replaces fields of the last message that has them."""
    for message in reversed(messages):
        try:
            parsed = text_format.Parse(text, type(message)())
        except text_format.ParseError:
            continue
        for field, _ in parsed.ListFields():
            message.ClearField(field.name)
        message.MergeFrom(parsed)
        return
    raise AssertionError(text)


def test_a_small_batch_is_enlarged_with_rate_and_steps():
    pipeline = _merged(_train('batch_size: 24 num_steps: 200000'))
    written = {found.path: found.write for found in tpu.find(pipeline)}
    assert written['train_config.batch_size'] == 'batch_size: 192'
    assert written['train_config.num_steps'] == 'num_steps: 25000'
    # 0.04 * 192 / 64, and a third of it.
    rate = written[f'{COSINE}.learning_rate_base']
    assert 'learning_rate_base: 0.12 total_steps: 25000 warmup_learning_rate: 0.04' in rate


def test_other_numbers_of_cores():
    change = _train('batch_size: 72')
    assert _found(change, cores=9) == {'eval_config.batch_size': False}
    assert _found(change, cores=16)['train_config.batch_size'] is True


@pytest.mark.skipif(not CONFIGS.is_dir(), reason='needs the configs of the reference')
@rows.parametrize(
    'name',
    [
        'ssd_mobilenet_v1_300x300_coco14_sync',
        'ssd_mobilenet_v1_ppn_shared_box_predictor_300x300_coco14_sync',
        'ssd_mobilenet_v1_fpn_shared_box_predictor_640x640_coco14_sync',
        'ssd_resnet50_v1_fpn_shared_box_predictor_640x640_coco14_sync',
    ],
)
def test_the_configs_of_the_page_fit(name):
    findings = tpu.find(read_pipeline(str(CONFIGS / 'samples' / f'{name}.config')))
    assert [found.path for found in findings] == LEFT_OUT
    assert not any(found.is_obstacle for found in findings)


@pytest.mark.skipif(not CONFIGS.is_dir(), reason='needs the configs of the reference')
@rows.parametrize(
    ('name', 'obstacles'),
    [
        ('ssd_mobilenet_v2_coco', ['model.ssd.loss.hard_example_miner']),
        (
            'faster_rcnn_resnet50_coco',
            [
                'model.faster_rcnn.image_resizer.keep_aspect_ratio_resizer.pad_to_max_dimension',
                'train_config.batch_size',
            ],
        ),
    ],
)
def test_configs_for_gpus_do_not_fit(name, obstacles):
    findings = tpu.find(read_pipeline(str(CONFIGS / 'samples' / f'{name}.config')))
    assert [found.path for found in findings if found.is_obstacle] == obstacles


def test_no_tensorflow_is_loaded():
    code = (
        'import sys\n'
        'from object_detection.validation import tpu\n'
        'from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig\n'
        'tpu.find(TrainEvalPipelineConfig())\n'
        "assert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
